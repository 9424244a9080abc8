//! Message devices, matching and protocols: what lies under `mpj`.
//!
//! A [`Device`] moves frames and, where it can, memory; everything MPI means by matching, ordering and completion is
//! written once above it, in the [`Engine`] of a rank. Devices never see a typed buffer, only bytes and what
//! packs bytes where they want them.
//!
//! | module | what it is |
//! |---|---|
//! | [`device`] | the traits a transport implements |
//! | [`Buf`] | a buffer as its caller describes it: pointer, count, datatype, kind of memory |
//! | `engine` | channels, outboxes, the progress lock; eager, announced and synchronous messages; failures (`engine/README.md`) |
//! | [`cores`] | the cores of this host, and each rank's share of them |
//! | `hosts` | which rank runs on which host |
//! | `matching` | posted receives and early messages, in MPI's order |
//! | `ring` | the wait-free cache-line ring between two ranks, and fragments for longer bodies (`ring/README.md`) |
//! | `smdev` | the device of ranks that are threads of one process |
//! | `shmdev` | the device of ranks that are processes of one host (`shmdev/README.md`) |
//! | `ibvdev` | the device of ranks that reach each other by InfiniBand or RoCE (`ibvdev/README.md`) |
//! | `niodev` | the device of ranks that reach each other by TCP (`niodev/README.md`) |
//! | [`trace`] | what a rank records of its waits and messages where its job is traced |
//! | [`stub`] | a device that reaches nobody: copy it to write your own |
//! | `conformance` | the suite every device passes, with the feature of that name |
//!
//! # Adding a device
//! Frames, which every device moves:
//! 1. Copy [`stub`] and fill in [`Caps`]: the suite posts bodies of exactly these limits.
//! 2. [`Endpoint::post`] either takes the whole frame or answers [`PostError::Again`], and rings the peer's doorbell.
//!    Where a frame alone costs much, [`Endpoint::post_more`] may keep it back for [a short time](device::MAX_COALESCE_DELAY).
//! 3. [`Inlet::progress`] hands frames to the [`Sink`], one peer's frames in order. Where it makes a system call for that,
//!    [`Inlet::needs_syscall`] says so.
//! 4. When room comes back after an `Again`, ring this rank's own doorbell: the outbox is flushed by whoever waits. Who polls
//!    tries again by itself, and who is about to sleep posts once more after the fence of its doorbell: only what is refused
//!    then needs the ring.
//! 5. [`Driver`], [`Device`] and [`Inlet`] are unsafe to implement: messages are delivered from memory on their word that it was
//!    written. A device that moves no memory and hands over whole frames has nothing to prove.
//! 6. Open for the [`Lane`] that the site says, or refuse all but the first. There is one lane today, and only `ibvdev` checks it.
//!
//! Memory, where the device can move it (README.md tells why):
//!
//! 7. [`Caps::get`](device::Caps::get), `put` and `lend` say from which size a way pays, and how much one move takes.
//! 8. [`Device::register`] is called for each operation: keep what takes long, by address or, for blocks of a pool, in the
//!    [registrations of the region](mpj_pool::Registrations). The [`Registration`](device::Registration) that it returns
//!    lives in the operation's record.
//! 9. [`Device::pack_key`] packs what the peer needs in up to 128 bytes, which travel in the body of the announcement. What
//!    comes back as a key is a peer's bytes: a key that makes no sense is [`PostError::Broken`], one whose memory
//!    was taken back [`PostError::Revoked`]. Never look for a key's memory without checking offset and length.
//! 10. A move is [`Done`](device::OpStatus::Done), or [`Started`](device::OpStatus::InProgress) and then told once by
//!     [`Sink::completed`] with its token: after its last byte, in any order, and also after [`Endpoint::peer_gone`] and the peer's
//!     death. A move that is not told holds the memory until the device is dropped.
//! 11. A move that ends wakes the rank: by its doorbell, or by the descriptor of [`Device::arm`].
//! 12. [`Device::quiesce`] is asked before memory goes back without the peer's word. It must not end the connection to a
//!     peer that lives: have the device of the peer answer, and say [`QuiesceStatus::InProgress`](device::QuiesceStatus::InProgress) meanwhile.
//! 13. No lock is held in [`Inlet::progress`] that a call of the device or of a link takes: the sink makes such calls.
//! 14. A device that hands over bodies in parts ends the one under way when it is told to [`Inlet::abort_body`] its peer.
//! 15. A registration keeps open what it needs of the device: it may be dropped after it. When links, inlet and device are
//!     dropped, nothing is read or written any more.
//!
//! The driver is a value that brings what the device needs ([`SmDriver::new`]); a program adds it to its [`Registry`], and
//! `examples/own-device` shows that from outside of this workspace. A device of this crate gets a row in the registry of
//! what can offer it its means (`mpj/src/boot`), one line in `tests/conformance.rs`, and one row in the README's table.
//! `conformance::LateDriver` (feature `conformance`) runs the suite with the device's moves ending late and in any order.

#[allow(unsafe_code, reason = "a value that one thread at a time uses")]
pub mod biased;
mod buf;
#[allow(unsafe_code, reason = "a cell between two handles")]
mod completion;
pub mod config;
#[cfg(feature = "conformance")]
#[doc(hidden)]
pub mod conformance;
#[allow(unsafe_code, reason = "a few bytes, by pointer and length")]
mod copy;
pub mod cores;
pub mod device;
mod doorbell;
mod engine;
mod fault;
mod fence;
mod group;
mod header;
#[allow(unsafe_code, reason = "hints to the processor")]
mod hint;
mod hosts;
mod ibvdev;
mod later;
#[allow(unsafe_code, reason = "the user's memory, by pointer, count and type")]
mod layout;
mod liveness;
mod matching;
mod niodev;
mod order;
mod path;
mod registry;
#[allow(unsafe_code, reason = "cells and fragments are handed over between threads without locks")]
mod ring;
#[allow(unsafe_code, reason = "the memory that processes share is used through types at fixed offsets")]
mod shmdev;
mod site;
#[allow(unsafe_code, reason = "offers: one copy from one rank's memory to another's")]
mod smdev;
#[cfg(not(feature = "conformance"))]
mod steps;
#[cfg(feature = "conformance")]
#[doc(hidden)]
pub mod steps;
pub mod stub;
#[doc(hidden)]
pub mod sync;
mod sys;
pub mod trace;
mod wait;

pub use buf::{Buf, BufError, Chain, ChainSegment, Origin, RegionRef};
pub use completion::{Completion, Outcome, Receive, Started};
pub use device::{
    Address, Affinity, Caps, Device, Driver, Endpoint, Inlet, OpenError, Opened, PeerId, PostError, Sink,
};
pub use doorbell::Doorbell;
pub use engine::{
    BlockedThread, Calls, Cards, Channel, Coalesce, Count, Engine, LocalTraffic, Matched, MatchedMessage,
    Mode, ProgressTask, RankPool, Sent, Stats, Traffic, ViewedMessage, WORLD, WaitReason,
};
pub use fault::{Content, Fault};
pub use group::{Group, Processes};
pub use hosts::{HostId, HostRanks, Hosts, HostsError};
pub use ibvdev::IbvDriver;
pub use later::{drop_deferred, drop_panic_payload, with_deferred_drops};
pub use layout::{Envelope, KeepAlive, Source, Target};
pub use liveness::{Broadcaster, Exit, ExitEvent, Roster};
pub use matching::{ANY_SOURCE, ANY_TAG, Pattern, UnexpectedCounts};
pub use niodev::NioDriver;
#[cfg(feature = "conformance")]
#[doc(hidden)]
pub use niodev::strangers;
pub use path::DataPath;
pub use registry::{Openings, Registry};
pub use shmdev::{Segment, SegmentError, ShmDriver};
pub use site::{Callback, JobKey, Lane, Site};
pub use smdev::{Hub, SmDriver};
