//! Message devices, matching and protocols: the layers below `mpj`.
//!
//! A [`Device`] moves frames and, if it can, memory. MPI's matching, ordering and completion are implemented once above
//! it, in the [`Engine`] of a rank.
//!
//! | module or type | contents |
//! |---|---|
//! | [`device`] | the traits a transport implements |
//! | [`Buf`] | a buffer as its caller describes it: pointer, count, datatype, kind of memory |
//! | `engine` | channels, send queues, the progress lock; eager and rendezvous messages; failures (`engine/README.md`) |
//! | [`cores`] | the cores of this host, and each rank's share of them |
//! | `hosts` | the map from ranks to hosts |
//! | `matching` | posted receives and unexpected messages, in MPI's order |
//! | `ring` | the wait-free cache-line ring between two ranks, and fragments for longer bodies (`ring/README.md`) |
//! | `smdev` | the device of ranks that are threads of one process |
//! | `shmdev` | the device of ranks that are processes of one host (`shmdev/README.md`) |
//! | `ibvdev` | the device of ranks that reach each other by InfiniBand or RoCE (`ibvdev/README.md`) |
//! | `niodev` | the device of ranks that reach each other by TCP (`niodev/README.md`) |
//! | [`trace`] | the record of a rank's waits, messages and collectives, if its job is traced |
//! | [`stub`] | a device that reaches no peer: copy it to write your own |
//! | `conformance` | the conformance suite for devices (feature `conformance`) |
//!
//! # Adding a device
//! Frames, which every device moves:
//! 1. Copy [`stub`] and fill in [`Caps`]: the conformance suite sends messages of exactly these limits.
//! 2. [`Endpoint::post`] accepts the whole frame, and wakes the peer if it sleeps. If the device is full, it returns
//!    [`PostError::Again`]. If a single frame is costly, [`Endpoint::post_more`] may delay it for [a short
//!    time](device::MAX_COALESCE_DELAY).
//! 3. [`Inlet::progress`] passes frames to the [`Sink`], those of one peer in order. If it needs a system call for
//!    that, [`Inlet::needs_syscall`] returns true.
//! 4. When there is space again after an `Again`, ring this rank's own doorbell, or make the descriptor of
//!    [`Device::arm`] readable: a sleeping thread then posts again. A polling thread retries without that. A thread
//!    that is about to sleep posts once more after the fence of its doorbell: wake it only if that post was refused.
//! 5. [`Driver`], [`Device`] and [`Inlet`] are unsafe to implement: the engine delivers messages from memory that they
//!    report as written. A device that does not access user memory and passes on whole frames has nothing to prove.
//! 6. [`Driver::open`] fails for a [`Lane`] that the device does not support. There is one lane today.
//!
//! Memory, if the device can move it (`devices/README.md` explains why):
//!
//! 7. [`Caps::get`](device::Caps::get), `put` and `zcopy` contain the smallest worthwhile size of each operation, and
//!    the largest that one operation supports.
//! 8. [`Device::register`] is called for each operation that needs it. If registration is costly, keep that of a pool
//!    block in the [registrations of the region](mpj_pool::Registrations). A cache by address is not safe if it does
//!    not learn when memory is unmapped (`ibvdev/README.md`).
//! 9. [`Device::pack_key`] packs the information for the peer into up to 128 bytes, which the engine sends as the body
//!    of the RTS. A key that arrives is untrusted: an invalid key is [`PostError::Broken`], a revoked one
//!    [`PostError::Revoked`]. Never access a key's memory without checking offset and length.
//! 10. An operation is [`Done`](device::OpStatus::Done), or [`InProgress`](device::OpStatus::InProgress) and then
//!     reported once by [`Sink::completed`] with its token: after its last byte, in any order, even after
//!     [`Endpoint::peer_gone`] and the peer's death. An operation that is never reported keeps its memory until the
//!     device is dropped.
//! 11. A completion wakes the rank: by its doorbell, or by the descriptor of [`Device::arm`].
//! 12. [`Device::quiesce`] is called before memory is released without the peer's completion. It must not end the
//!     connection to a live peer: return [`QuiesceStatus::InProgress`](device::QuiesceStatus::InProgress) until the
//!     peer has confirmed.
//! 13. While [`Inlet::progress`] calls the sink, it holds no lock that the device or an endpoint takes: the sink may
//!     call both.
//! 14. If a device passes on bodies in parts, [`Inlet::abort_body`] ends the body in transfer from a dead peer.
//! 15. A registration keeps the resources of the device that it needs: it may be dropped after the device. When
//!     endpoints, inlet and device are dropped, no memory is accessed any more.
//!
//! The driver is a value that brings the resources that the device needs; see [`SmDriver::new`]. A program adds it to
//! its [`Registry`], as `examples/own-device` does outside of this workspace. Task 1 of `CONTRIBUTING.md` lists the
//! changes for a device of this crate.

#[allow(unsafe_code, reason = "a lock gives access to its value")]
pub mod biased;
mod buf;
mod byte_order;
#[allow(unsafe_code, reason = "a cell between two handles")]
mod completion;
pub mod config;
#[cfg(feature = "conformance")]
#[doc(hidden)]
pub mod conformance;
#[allow(unsafe_code, reason = "a few bytes, by pointer and length")]
mod copy;
pub mod cores;
mod data_path;
mod deferred_drop;
pub mod device;
mod doorbell;
mod engine;
mod fault;
mod fence;
mod group;
mod header;
mod hosts;
mod ibvdev;
#[cfg(not(feature = "conformance"))]
mod kill_points;
#[cfg(feature = "conformance")]
#[doc(hidden)]
pub mod kill_points;
mod liveness;
mod matching;
#[allow(unsafe_code, reason = "the user's memory, by pointer, count and type")]
mod message;
mod niodev;
#[allow(unsafe_code, reason = "hints to the processor")]
mod prefetch;
mod registry;
#[allow(unsafe_code, reason = "cells and fragments are handed over between threads without locks")]
mod ring;
#[allow(unsafe_code, reason = "the memory that processes share is used through types at fixed offsets")]
mod shmdev;
mod site;
#[allow(unsafe_code, reason = "exposed memory: one copy from one rank's memory to another's")]
mod smdev;
pub mod stub;
#[doc(hidden)]
pub mod sync;
mod sys;
pub mod trace;
mod wait;

pub use buf::{Buf, BufError, Chain, ChainSegment, Origin, RegionRef};
pub use completion::{Completion, Listener, Outcome, ReadyList, Receive, Started, fence_listeners};
pub use data_path::DataPath;
pub use deferred_drop::{drop_deferred, drop_panic_payload, run_deferred_drops, with_deferred_drops};
pub use device::{
    Address, Affinity, Caps, Device, Driver, Endpoint, Inlet, OpenError, Opened, PeerId, PostError, Sink,
};
pub use doorbell::Doorbell;
pub use engine::{
    AsyncWait, BlockedCall, Calls, CardExchange, Channel, Coalesce, Count, DriverFd, Engine, FailureListener,
    LocalTraffic, Matched, MatchedMessage, Mode, ProgressTask, RankPool, Sent, Stats, Traffic, ViewedMessage,
    WORLD, WaitReason,
};
pub use fault::{Content, Fault};
pub use group::{Group, Processes};
pub use hosts::{HostId, HostRanks, Hosts, HostsError};
pub use ibvdev::IbvDriver;
pub use liveness::{Broadcaster, Exit, ExitEvent, Roster};
pub use matching::{ANY_SOURCE, ANY_TAG, Pattern, UnexpectedCounts};
pub use message::{BlockSlot, Envelope, KeepAlive, MessageTag, Source, Target};
pub use niodev::NioDriver;
#[doc(hidden)]
pub use niodev::handshake;
/// Listeners on the network, for the start-up of `mpj`.
#[doc(hidden)]
pub mod network {
    pub use crate::niodev::{Listener, connect_order, listen, listen_at_addresses, listen_on_network};
    pub use crate::sys::socket::peer_of_unix;
}
#[cfg(feature = "conformance")]
#[doc(hidden)]
pub use niodev::fuzzing;
pub use registry::{OpenedDevices, Registry};
pub use shmdev::{Segment, SegmentError, ShmDriver};
pub use site::{Callback, JobKey, Lane, Site};
pub use smdev::{Hub, SmDriver};
