//! Message passing in pure Rust, after mpiJava 1.2: sound, and without a C library. For Linux, and for the ranks of one
//! host.
//!
//! ```
//! // Four ranks, here as threads; under a launcher the same closure runs as processes.
//! mpj::threads(4, |world| {
//!     let right = (world.rank() + 1) % world.size();
//!     let left = (world.rank() + world.size() - 1) % world.size();
//!     let mut from_left = [0usize];
//!     world.sendrecv(&[world.rank()], right, 0, &mut from_left, left, 0)?;
//!     assert_eq!(from_left[0], left);
//!
//!     let mut total = [0usize];
//!     world.allreduce(&from_left, &mut total, mpj::Op::Sum)?;
//!     assert_eq!(total[0], 6);
//!     Ok::<(), mpj::Error>(())
//! })?;
//! # Ok::<(), mpj::JobError>(())
//! ```
//!
//! * [`World`] is all ranks; it derefs to an [`Intracomm`], which has messages, collectives, `dup` and `split`.
//! * Buffers are slices, arrays, `Vec`s and single values: of primitives, and of structures with
//!   [`#[derive(mpj::Datatype)]`](derive@Datatype) ([`SendBuf`], [`RecvBuf`]).
//! * Parts of a slice, such as the columns of a matrix, are [`View`]s by a [`struct@Datatype`]; [`SplitViews`] are
//!   several of one slice at once, for a halo exchange in place (`examples/halo.rs`).
//! * A [`buffer::Buffer`] holds sections of primitives and serde values; it is sent as any buffer is, and received by
//!   [`recv_buffer`](Intracomm::recv_buffer). [`Slices`] are several slices as one message.
//! * A message in memory of [`World::alloc_slice`] or [`World::pool`] need not be copied for a rank on the same host,
//!   which can read it in place ([`recv_block`](Intracomm::recv_block)). Other messages go through pool blocks or
//!   without copies in user space. The library chooses, or the user does by a [`DataPath`]: for a job (`mpjrun
//!   --path`), a communicator ([`Intracomm::with_path`]) or a call.
//! * Non-blocking operations own their buffer ([`Intracomm::isend`]) or borrow it for a [scope](Intracomm::scope).
//!   [`wait_all`], [`wait_any`] and their like wait for several, even of different types ([`Waitable::watch`]).
//! * Collectives may be started, and waited for in any order ([`Intracomm::ibarrier`]); any waiting thread makes
//!   progress on all of them.
//! * A message that does not fit or is of another type, a rank that dies or exits, and a bad argument are an [`Error`]
//!   that says so, and not a hang. A receive waits for as long as its sender may still send, even if that rank has
//!   freed the communicator.
//! * [`raw`] is the same by pointer, count and datatype.
//! * [`#[mpj::test(ranks = 3)]`](macro@test) makes a test of several ranks. A test that hangs reports which rank waits
//!   for which.
//!
#![doc = include_str!("guide.md")]
//! # Coverage of mpiJava 1.2
//! | class | here | |
//! |---|---|---|
//! | `MPI` | [`run`], [`init`], [`threads`], [`wtime`], [`wtick`], [`World::abort`] | `Finalize` is not needed: a rank leaves when its function has returned, or its last [`World`] is dropped |
//! | `Comm` | [`Intracomm`]: standard and synchronous sends, receives, `sendrecv`, probes, matched probes, `dup`, `free` | not yet: buffered and ready sends, `sendrecv_replace`, attributes, error handlers (errors are values) |
//! | `Intracomm` | `split`, `barrier`, `bcast`, `gather(v)`, `scatter(v)`, `allgather(v)`, `alltoall(v)`, `reduce`, `allreduce`, `reduce_scatter`, `scan`; beyond mpiJava, [`ibarrier`](Intracomm::ibarrier), [`ibcast`](Intracomm::ibcast), [`iallreduce`](Intracomm::iallreduce), and every collective so by [`raw::start`] | not yet: `create` |
//! | `Datatype` | [`struct@Datatype`]: all constructors of MPI, not only those of mpiJava; `OBJECT` is [`send_object`](Intracomm::send_object) | |
//! | `Op`, `User_function` | [`Op`], [`UserOp`] | |
//! | `Request`, `Status` | [`Request`], [`ScopedSend`], [`ScopedRecv`], [`Status`] | |
//! | `Prequest` | beyond mpiJava, collectives: [`PersistentRequest`] | not yet: persistent requests of messages |
//! | `Group` | [`raw::Comm::group`] returns its members | not yet: making groups, and communicators of them |
//! | `Intercomm`, `Cartcomm`, `Graphcomm`, `CartParms`, `GraphParms`, `ShiftParms` | | not yet |
//! | `MPIException` | [`Error`] with its [`ErrorClass`] | |
//!
//! Jobs run on one host, as threads or as the processes that `mpjrun` starts.
//!
//! # Tracing a job
//! With `MPJ_TRACE=job.json`, or `mpjrun --trace job.json`, a job records its events in a file. Open it at
//! [ui.perfetto.dev](https://ui.perfetto.dev) or in `chrome://tracing`. Programs need not be changed or recompiled.
//! ```text
//! $ mpjrun -n 4 --trace job.json ./prog
//! $ MPJ_TRACE=job.json ./prog              # ranks that are threads of one process
//! ```
//! * Each rank is a process in the trace, with its threads. An activity is a slice on its thread: every wait, by the
//!   name of its call (`recv`, `ssend`, `irecv` for the wait of its request); every collective with count, ranks and
//!   context; and every step of a message: `eager sent`, `RTS sent`, `piece sent`, `get`, `eager arrived`,
//!   `unexpected message received`, `body fetched`, `rendezvous refused`, each with peer, tag, bytes and device. Peers
//!   are ranks of the world. A communicator has two contexts, an even one for messages and the next one for
//!   collectives.
//! * A message is an arrow from the slice in which it began to the one in which it had arrived: an eager message in the
//!   receiver's memory, even if unexpected; a rendezvous message with all of its body.
//! * Registrations of memory, and exits of other ranks with their causes, are instants. The counts of [`World::stats`],
//!   including the copies, are counters.
//! * `MPJ_TRACE_MAX_EVENTS` is the number of events that a rank keeps. The last event of a rank says how many more there
//!   were. Events are written after every few thousand, twice a second, and at the end. So the last second of a killed
//!   rank may be missing.
//! * Each rank writes `job.json.rankN`. `mpjrun`, or the process that hosts all ranks, joins and removes these files
//!   when all ranks have exited. If it cannot, for instance because `mpjrun` itself was killed, the files stay, and
//!   each can be opened as it is. The file of a killed rank lacks the closing bracket, which trace viewers allow.
//! * Times are those of the host's monotonic clock, so they can be compared on one host, but not between hosts.
//! * The traffic by device and path, and the copies, are also available without a trace: `mpjrun --stats`,
//!   `MPJ_STATS=1`, [`World::stats`].
//! * A trace file that cannot be written is reported on standard error, and does not fail the job. Jobs that run at the
//!   same time need a file each; a later job overwrites the file of an earlier one.
//!
//! # Features
//! One crate is enough: [`datatypes`], [`buffer`] and [`pool`] are the crates underneath, and a feature of this one is
//! theirs, too. None is on by default, and none compiles C.
//! * `half`, `num-complex`: their numbers as elements and as single values;
//! * `bytemuck`: `Pod`, for structures of other crates;
//! * `ndarray`: arrays, and any view of one, as buffers;
//! * `bytes`: `Bytes` and `BytesMut` as buffers, and what `buffer` and `pool` have for them.

mod address;
pub mod boot;
#[allow(unsafe_code, reason = "schedules work on the memory of `raw`'s callers")]
mod collective;
#[allow(unsafe_code, reason = "passes the typed face's borrows on to `raw`")]
mod comm;
pub mod config;
mod error;
#[allow(unsafe_code, reason = "reductions work on the memory of `raw`'s callers")]
mod op;
#[allow(unsafe_code, reason = "the erased core")]
pub mod raw;
#[doc(hidden)]
pub mod report;
#[allow(unsafe_code, reason = "operations that own or borrow their buffer: README.md beside it")]
mod request;
mod run;
mod status;
#[doc(hidden)]
pub mod testing;
#[allow(unsafe_code, reason = "the traits that vouch for pointers")]
mod types;
#[allow(unsafe_code, reason = "views vouch for the part of a slice that they borrow")]
mod view;
mod world;

/// Datatypes, packers and unpackers: the crate `mpj-datatypes`, with the derive macro of this one.
pub mod datatypes {
    pub use mpj_datatypes::*;
    /// Gives a structure a datatype and makes it a buffer: it can be sent, and received if all of its fields can.
    ///
    /// The structure must be `#[repr(C)]` or `#[repr(transparent)]`, and `Copy`; padding does not travel.
    /// ```
    /// #[repr(C)]
    /// #[derive(Clone, Copy, mpj::Datatype)]
    /// struct Particle {
    ///     kind: u8,
    ///     at: [f64; 3],
    /// }
    ///
    /// # mpj::threads(2, |world| {
    /// let mut particle = Particle { kind: world.rank() as u8, at: [0.5; 3] };
    /// world.bcast(&mut particle, 1)?;
    /// assert_eq!(particle.kind, 1);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    /// If `mpj` has another name in your crate, give it with `#[datatype(crate = name)]`.
    ///
    /// A field that is not plain data is rejected:
    /// ```compile_fail,E0277
    /// #[repr(C)]
    /// #[derive(Clone, Copy, mpj::Datatype)]
    /// struct Named {
    ///     name: Option<u32>,
    /// }
    /// ```
    pub use mpj_datatypes_derive::MpjDatatype as Datatype;
}

pub use address::{ANY_SOURCE, ANY_TAG, Dest, IntoDest, IntoSource, PROC_NULL, ProcNull, Source, Tag};
pub use comm::{Intracomm, Message, ReadOnlyBlock, ReceivedBlock, ReceivedBuffer};
pub use datatypes::Datatype;
pub use error::{BoxError, Error, ErrorClass, Result};
/// Messages of typed sections and serde values: the crate `mpj-buffer`.
pub use mpj_buffer as buffer;
#[cfg(feature = "bytemuck")]
pub use mpj_datatypes::PodElement;
#[doc(hidden)]
pub use mpj_datatypes::derive_support;
pub use mpj_datatypes::{
    ArrayOrder, DistributedDim, Distribution, Equivalent, Packer, Primitive, Receivable, TypeError, Unpacker,
};
/// Devices, matching and protocols, and the types of [`boot`] and [`raw`]: the crate
/// `mpj-devices`.
pub use mpj_devices as devices;
pub use mpj_devices::{DataPath, Fault, Stats};
/// Turns a function into a test that runs as several ranks, each in a thread: `#[mpj::test(ranks = 4)]`.
///
/// The function takes a `World` and returns nothing or a `Result`. These tests run one at a time.
///
/// A test that takes longer than its limit is ended and fails. The message says in which call each rank waits, and for
/// which rank. The limit is 60 s, unless the test sets another one (`"500ms"`, `"10s"`, `"2min"`):
/// `#[mpj::test(ranks = 4, timeout = "500ms")]`. The variable `MPJ_TEST_TIMEOUT` sets the
/// limit of all tests; `MPJ_TEST_TIMEOUT=0` removes it, for debuggers.
///
/// Each rank is a thread whose calls block, so the function cannot be an `async fn`:
/// ```compile_fail
/// #[mpj::test(ranks = 2)]
/// async fn ranks_wait(world: mpj::World) {}
/// ```
/// ```
/// #[mpj::test(ranks = 2)]
/// fn ranks_wait(world: mpj::World) {}
/// ```
///
/// If the crate `mpj` is imported under another name, pass that name: `#[mp::test(ranks = 4, crate = mp)]`.
pub use mpj_macros::test;
/// Pooled, aligned memory: the crate `mpj-pool`.
pub use mpj_pool as pool;
pub use op::{Op, UserOp};
pub use request::{
    ActiveRequest, PersistentRequest, Request, RequestError, RequestRef, Scope, ScopedRecv, ScopedSend,
    Waitable, test_all, test_any, test_some, wait_all, wait_any, wait_some,
};
pub use run::{JobError, Launch, init, run, run_on, run_with, threads};
pub use status::Status;
pub use types::{PoolSlice, RecvBuf, SendBuf};
pub use view::{Slices, SplitViews, SplitViewsError, View, ViewError, ViewId, ViewMut, ViewSpec};
pub use world::{World, wtick, wtime};
