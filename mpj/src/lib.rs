//! Message passing in pure Rust, after mpiJava 1.2: sound, and without a C library. It runs on Linux. The
//! ranks of a job are threads, or processes that `mpjrun`, a process manager such as Hydra or Open MPI, or a script
//! starts.
//!
//! ```
//! use std::process::ExitCode;
//!
//! use mpj::{Launch, Op, World};
//!
//! // Runs four ranks as threads, or the ranks that `mpjrun` has assigned to this process.
//! fn main() -> ExitCode {
//!     mpj::run_with(Launch::threads(4), rank)
//! }
//!
//! // Runs once for each rank.
//! fn rank(world: World) -> mpj::Result<()> {
//!     let right = (world.rank() + 1) % world.size();
//!     let left = (world.rank() + world.size() - 1) % world.size();
//!     let mut from_left = [0usize];
//!     world.sendrecv(&[world.rank()], right, 0, &mut from_left, left, 0)?;
//!     assert_eq!(from_left[0], left);
//!
//!     let mut total = [0usize];
//!     world.allreduce(&from_left, &mut total, Op::Sum)?;
//!     assert_eq!(total[0], (0..world.size()).sum());
//!     Ok(())
//! }
//! ```
//!
//! # First steps
//! The [guide] has an example of each step: [blocking calls](guide#1-blocking-calls), non-blocking calls that
//! [borrow](guide#2-non-blocking-calls-with-borrowed-buffers) or [own](guide#3-non-blocking-calls-with-owned-buffers)
//! their buffers, and [objects](guide#4-objects). It also lists the [counterparts of MPI
//! functions](guide#coming-from-mpi) and the [coverage of mpiJava](guide#coverage-of-mpijava-12), and describes
//! [traces](guide#tracing-a-job). The terms of the code are in `docs/glossary.md` of the repository.
//!
//! # Overview
//! * [`World`] is the communicator of all ranks. It derefs to an [`Intracomm`], which has messages, collectives,
//!   and calls that create communicators: `dup`, `split`, and `create` of a [`Group`].
//! * An [`Intercomm`] connects two groups of ranks. It has the messages of an [`Intracomm`], and collectives between
//!   the groups.
//! * Buffers are slices, arrays, `Vec`s and single values: of primitives, and of structures with
//!   [`#[derive(mpj::Datatype)]`](derive@Datatype) ([`SendBuf`], [`RecvBuf`]).
//! * A [`View`] describes parts of a slice, such as the columns of a matrix, by a [`struct@Datatype`]. [`SplitViews`]
//!   are several views of one slice, for a halo exchange in place (`examples/heat.rs`).
//! * A [`buffer::Buffer`] holds sections of primitives and serde values; [`recv_buffer`](Intracomm::recv_buffer)
//!   receives it. [`Slices`] are several slices as one message.
//! * A receiver that shares memory with the sender can read a message from [`World::alloc_slice`] or
//!   [`World::pool`] in place ([`recv_block`](Intracomm::recv_block)). The library chooses how it transfers other
//!   messages, unless the user selects a [`DataPath`]: for a job (`mpjrun --data-path`), or for the messages of one
//!   handle of a communicator ([`Intracomm::with_path`]).
//! * [`wait_all`], [`wait_any`] and similar functions wait for several operations, even of different types
//!   ([`Waitable::request_ref`]).
//! * Non-blocking collectives ([`coll`]) can be waited for in any order. Requests are futures ([`RequestFuture`]).
//! * [`topology`] has grids and graphs of ranks, and collectives among neighbours.
//! * A truncated message, a message of another type, a needed rank that dies or exits, and an invalid argument make a
//!   call return an [`Error`]. If a sender frees the communicator without sending, the receive waits until that rank
//!   exits.
//! * [`raw`] has the operations with pointer, count and datatype.
//! * [`#[mpj::test]`](macro@test) makes a test of several ranks. A test that hangs reports which rank waits for which.
//!
//! # Features
//! No feature is enabled by default, and none compiles C code.
//! * `half`, `num-complex`: their number types as elements and as single values;
//! * `bytemuck`: `PodElement`, for structures of other crates;
//! * `ndarray`: arrays, and any view of one, as buffers;
//! * `bytes`: `Bytes` and `BytesMut` as buffers, and conversions in [`buffer`] and [`pool`].

mod address;
pub mod boot;
pub mod coll;
#[allow(unsafe_code, reason = "schedules work on the memory of `raw`'s callers")]
mod collective;
#[allow(unsafe_code, reason = "passes the borrows of the typed interface on to `raw`")]
mod comm;
#[cfg(doctest)]
mod compile_fail;
pub mod config;
mod error;
mod group;
#[doc = include_str!("guide.md")]
pub mod guide {
    #[cfg(doc)]
    use crate::*;
}
mod info;
#[allow(unsafe_code, reason = "reductions work on the memory of `raw`'s callers")]
mod op;
#[allow(unsafe_code, reason = "passes the borrows of the typed interface on to `raw`")]
mod pack;
#[allow(unsafe_code, reason = "pointers, counts and datatypes")]
pub mod raw;
#[doc(hidden)]
pub mod report;
#[allow(unsafe_code, reason = "operations that own or borrow their buffer: request/README.md")]
mod request;
mod run;
mod session;
mod status;
#[doc(hidden)]
pub mod testing;
pub mod topology;
#[allow(unsafe_code, reason = "the traits that guarantee valid pointers")]
mod types;
#[allow(unsafe_code, reason = "views guarantee a valid part of the slice that they borrow")]
mod view;
mod world;

/// Datatypes, packers and unpackers: the crate `mpj-datatypes`, with the derive macro of this crate.
pub mod datatypes {
    pub use mpj_datatypes::*;
    /// Gives a structure a datatype and makes it a buffer. It can be received if all of its fields can be received.
    ///
    /// The structure must be `#[repr(C)]` or `#[repr(transparent)]`, and `Copy`. Its padding is not sent.
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
    /// If `mpj` has another name in your crate, pass it with `#[datatype(crate = name)]`.
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

pub use address::{
    ANY_SOURCE, ANY_TAG, Dest, IntoDest, IntoSource, PROC_NULL, ProcNull, Source, TAG_UB, Tag,
};
pub use comm::{
    AttachedBuffer, CollectiveRoot, CommKind, Communicator, DupRequest, Inter, Intercomm, IntercommRoot,
    Intra, Intracomm, Key, Message, ObjectRequest, ReceivedBuffer,
};
pub use datatypes::Datatype;
pub use error::{BoxError, Error, ErrorClass, Result};
pub use group::Group;
pub use info::Info;
/// Messages of typed sections and serde values: the crate `mpj-buffer`.
pub use mpj_buffer as buffer;
#[cfg(feature = "bytemuck")]
pub use mpj_datatypes::PodElement;
#[doc(hidden)]
pub use mpj_datatypes::derive_support;
pub use mpj_datatypes::{
    ArrayOrder, DistributedDim, Distribution, Equivalent, Packer, Primitive, Receivable, TypeError, Unpacker,
};
/// Devices, matching and protocols, and the types of [`boot`] and [`raw`]: the crate `mpj-devices`.
pub use mpj_devices as devices;
pub use mpj_devices::{DataPath, DriverFd, Fault, Stats};
/// Turns a function into a test that runs as several ranks, each in a thread: `#[mpj::test(ranks = 4)]`.
///
/// The function takes a `World` and returns `()` or a `Result`. Such tests run one at a time in a process.
///
/// A test that exceeds its time limit fails, and the message shows what each rank waits for. The limit is 60 s, unless
/// the test sets another one (`"500ms"`, `"10s"`, `"2min"`): `#[mpj::test(ranks = 4, timeout = "500ms")]`. The variable
/// `MPJ_TEST_TIMEOUT` overrides the limit of all tests; `MPJ_TEST_TIMEOUT=0` removes it, for debuggers.
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
pub use op::{Op, Pair, UserOp};
pub use pack::{Packed, pack, pack_external32, pack_size, unpack, unpack_external32};
pub use raw::{Comparison, ReceivedBlock, SplitType};
pub use request::{
    ActiveRequest, ArrivingRequest, FillingRequest, PartMut, PartitionedRecv, PartitionedSend,
    PersistentRequest, Promise, PromisedRequest, Request, RequestError, RequestFuture, RequestRef,
    RequestSet, Scope, ScopedRecv, ScopedSend, Waitable, start_all, test_all, test_any, test_some, wait_all,
    wait_all_timeout, wait_any, wait_any_timeout, wait_some,
};
pub use run::{JobError, Launch, connect, init, run, run_on, run_with, threads};
pub use session::Session;
pub use status::Status;
pub use topology::{Reorder, dims};
pub use types::{PoolSlice, RecvBuf, SendBuf};
pub use view::{Slices, SplitViews, SplitViewsError, Unwritten, View, ViewError, ViewId, ViewMut, ViewSpec};
pub use world::{World, wtick, wtime};
