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
//! | `engine` | channels, outboxes, the turn; eager, announced and synchronous messages; failures |
//! | `matching` | posted receives and early messages, in MPI's order |
//! | `ring` | the wait-free cache-line ring between two ranks, and fragments for longer bodies |
//! | `smdev` | the device of ranks that are threads of one process |
//! | `niodev` | the device of ranks that reach each other by TCP |
//! | [`stub`] | a device that reaches nobody: copy it to write your own |
//! | [`conformance`] | the suite every device passes |
//!
//! # Adding a device
//! 1. Copy [`stub`] and fill in [`Caps`]: the suite posts bodies of exactly these limits.
//! 2. [`Link::post`] either takes the whole frame or answers [`PostError::Again`], and rings the peer's doorbell.
//! 3. [`Inlet::progress`] hands frames to the [`Sink`], one peer's frames in order.
//! 4. When room comes back after an `Again`, ring this rank's own doorbell: the outbox is flushed by whoever waits.
//! 5. [`Device`] and [`Inlet`] are unsafe to implement: messages are delivered from memory on their word that it was
//!    written. A device that has no [`Device::get`] and hands over whole frames has nothing to prove.
//! 6. Add the driver to [`Registry::builtin`] and one line to `tests/conformance.rs`, one row to the README's table.

mod buf;
#[allow(unsafe_code, reason = "a cell between two handles")]
mod completion;
pub mod config;
#[doc(hidden)]
pub mod conformance;
pub mod device;
mod doorbell;
mod engine;
mod fault;
mod fence;
mod group;
mod header;
#[allow(unsafe_code, reason = "the user's memory, by pointer, count and type")]
mod layout;
mod liveness;
mod matching;
mod niodev;
mod registry;
#[allow(unsafe_code, reason = "cells and fragments are handed over between threads without locks")]
mod ring;
#[allow(unsafe_code, reason = "the memory that processes share is used through types at fixed offsets")]
mod shmdev;
mod site;
#[allow(unsafe_code, reason = "offers: one copy from one rank's memory to another's")]
mod smdev;
#[doc(hidden)]
pub mod steps;
pub mod stub;
mod sync;
mod wait;

pub use buf::{Buf, BufError, Chain, ChainSegment, Origin};
pub use completion::{Completion, Outcome, Started};
pub use device::{
    Address, Affinity, Caps, Device, Driver, Inlet, Link, OpenError, Opened, PeerId, PostError, Sink,
};
pub use doorbell::Doorbell;
pub use engine::{Cards, Channel, Engine, Message, Mode, Wait, Waiting};
pub use fault::{Content, Fault};
pub use group::Group;
pub use layout::{Envelope, Keep, Source, Target};
pub use liveness::{Carrier, End, Event, Roster};
pub use matching::{ANY_SOURCE, ANY_TAG, Early, Pattern};
pub use niodev::NioDriver;
#[doc(hidden)]
pub use niodev::strangers;
pub use registry::Registry;
pub use shmdev::{Segment, SegmentError, ShmDriver};
pub use site::{Bells, JobKey, Site, Then};
pub use smdev::{Hub, SmDriver};
