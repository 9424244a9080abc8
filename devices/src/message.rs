//! The memory of an operation: address, count and type.
//!
//! The engine drops a [`Source`] or [`Target`] when no device can access its memory any more, and only then completes
//! the operation. Exception: while a peer views exported memory, the device keeps it alive by a copy of its
//! [`KeepAlive`]. The creator of a source or target promises that the memory stays valid until that drop, so the memory
//! may be freed after the completion. If a target is dropped after part of a message has arrived, its memory contains
//! only valid values of its type.

mod bounce;
mod envelope;
mod pieces;
mod source;
mod target;

use std::any::Any;
use std::sync::Arc;

pub(crate) use bounce::{BounceBuffer, BounceBuffers};
pub use envelope::{Envelope, MessageTag};
pub use pieces::Pieces;
pub use source::Source;
pub use target::{BlockSlot, Target};

/// Keeps an owned buffer alive for as long as an operation needs it.
pub type KeepAlive = Arc<dyn Any + Send + Sync>;
