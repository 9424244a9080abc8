//! A message that waits for its receive.

use mpj_pool::DefaultBlock;

use super::bins::{Entry, Key};
use crate::completion::Completer;
use crate::device::{PeerId, RemoteKey};
use crate::layout::{Envelope, Source};

/// A message that came before its receive.
#[derive(Debug)]
pub(crate) struct Unexpected {
    pub(crate) message: Envelope,
    pub(crate) from: PeerId,
    pub(crate) body: UnexpectedBody,
    /// The sender's operation that waits to hear that the message was matched.
    pub(crate) sync_op: Option<u64>,
}

/// Where its body is.
#[derive(Debug)]
pub(crate) enum UnexpectedBody {
    /// Nowhere: it is empty.
    Empty,
    /// Here: it is short.
    Inline(InlineBody),
    /// In a block of the pool.
    Block(DefaultBlock),
    /// Still at the sender, as its operation `op`, to be got by `key` if there is one.
    Rendezvous { op: u64, key: Option<Box<RemoteKey>> },
    /// In this rank's own send buffer; boxed, as it is rare, and the others are moved on every receive.
    SelfSend { source: Box<Source>, ender: Completer },
    /// Lost for want of memory.
    NoMemory,
}

/// A body of a few bytes, in the entry itself.
#[derive(Debug)]
pub(crate) struct InlineBody {
    len: u8,
    bytes: [u8; InlineBody::MOST],
}

impl InlineBody {
    /// The longest such body: entries are moved, and most messages that are short are no longer.
    pub(crate) const MOST: usize = 32;

    /// Makes one of these; `None` of more than fit.
    #[inline(always)]
    pub(crate) fn of(body: &[u8]) -> Option<Self> {
        let mut bytes = [0; InlineBody::MOST];
        bytes.get_mut(..body.len())?.copy_from_slice(body);
        Some(InlineBody { len: body.len() as u8, bytes })
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// The lists of a queue of them.
pub(super) const LISTS: usize = 5;

/// In order, which is what a receive of any message looks at; by what the other receives ask for; by the operation of those
/// that this rank has sent to itself.
impl Entry<LISTS> for Unexpected {
    fn list(key: Key) -> usize {
        match key {
            Key::Any => 0,
            Key::Exact { .. } => 1,
            Key::Source(_) => 2,
            Key::Tag(_) => 3,
            Key::Operation(_) => 4,
        }
    }

    fn key(&self, list: usize, mask: i32) -> Option<Key> {
        let (source, tag) = (self.message.source, self.message.tag & mask);
        match (list, &self.body) {
            (1, _) => Some(Key::Exact { source, tag }),
            (2, _) => Some(Key::Source(source)),
            (3, _) => Some(Key::Tag(tag)),
            (4, UnexpectedBody::SelfSend { ender, .. }) => Some(Key::Operation(ender.id())),
            _ => None,
        }
    }
}
