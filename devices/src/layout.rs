//! The user's memory as an operation sees it: where, how many, of what type.
//!
//! The engine drops a [`Source`] or [`Target`] when no device can touch the memory any more, and only then completes
//! the operation. Whoever makes one promises that the memory is good until that drop; so whoever waits for the
//! completion may free it. A target that is dropped half-way leaves nothing in it that is no value of its type.

mod envelope;
mod pieces;
mod source;
mod staging;
mod target;

use std::any::Any;
use std::sync::Arc;

pub use envelope::Envelope;
pub use pieces::Pieces;
pub use source::Source;
pub(crate) use staging::{BounceBuffer, Stages};
pub use target::Target;

/// Keeps an owned buffer alive for as long as an operation needs it.
pub type KeepAlive = Arc<dyn Any + Send + Sync>;
