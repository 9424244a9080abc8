//! A message that waits for its receive.

use mpj_pool::DefaultBlock;

use crate::completion::Ender;
use crate::device::{PeerId, RemoteKey};
use crate::layout::{Envelope, Source};

/// A message that came before its receive.
#[derive(Debug)]
pub(crate) struct Unexpected {
    pub(crate) message: Envelope,
    pub(crate) from: PeerId,
    pub(crate) body: Held,
    /// The sender's operation that waits to hear that the message was matched.
    pub(crate) notify: Option<u64>,
}

/// Where its body is.
#[derive(Debug)]
pub(crate) enum Held {
    /// Nowhere: it is empty.
    Empty,
    /// In a block of the pool.
    Block(DefaultBlock),
    /// Still at the sender, as its operation `op`, to be got by `key` if there is one.
    Remote { op: u64, key: Option<Box<RemoteKey>> },
    /// In this rank's own send buffer; boxed, as it is rare, and the others are moved on every receive.
    Local { source: Box<Source>, ender: Ender },
    /// Lost for want of memory.
    Lost,
}
