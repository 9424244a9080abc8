//! The entries of the queue of unexpected messages.

use mpj_pool::DefaultBlock;

use super::bins::{BinEntry, BinKey};
use crate::completion::Completer;
use crate::device::{PeerId, RemoteKey};
use crate::message::{Envelope, Source};

/// A message that arrived before its receive was posted.
#[derive(Debug)]
pub(crate) struct Unexpected {
    pub(crate) message: Envelope,
    pub(crate) from: PeerId,
    pub(crate) body: UnexpectedBody,
    /// The sender's number for its synchronous eager send, which must be notified of the match.
    pub(crate) sync_op: Option<u64>,
}

#[derive(Debug)]
pub(crate) enum UnexpectedBody {
    Empty,
    /// In the entry itself; up to [`InlineBody::MAX`] bytes.
    Inline(InlineBody),
    /// In a block of the pool.
    Block(DefaultBlock),
    /// At the sender, as its operation `op`; the receiver can get it by `key`, if there is one.
    Rendezvous {
        op: u64,
        key: Option<Box<RemoteKey>>,
    },
    /// In this rank's own send buffer. Boxed, because it is rare and would make the enum larger.
    SelfSend {
        source: Box<Source>,
        completer: Completer,
    },
    /// Discarded, because the allocation of a block for it failed.
    NoMemory,
}

#[derive(Debug)]
pub(crate) struct InlineBody {
    len: u8,
    bytes: [u8; InlineBody::MAX],
}

impl InlineBody {
    /// The longest inline body in bytes. It is short because entries are moved often.
    pub(crate) const MAX: usize = 32;

    /// Copies a body; returns `None` if it is too long.
    #[inline(always)]
    pub(crate) fn of(body: &[u8]) -> Option<Self> {
        let mut bytes = [0; InlineBody::MAX];
        bytes.get_mut(..body.len())?.copy_from_slice(body);
        Some(InlineBody { len: body.len() as u8, bytes })
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

pub(super) const LISTS: usize = 5;

/// The lists: the order of arrival, for a receive of any message; bins by source and tag, by source, and by tag, for
/// the other patterns; bins by operation, for synchronous messages that this rank has sent to itself.
impl BinEntry<LISTS> for Unexpected {
    fn list(key: BinKey) -> usize {
        match key {
            BinKey::Any => 0,
            BinKey::Exact { .. } => 1,
            BinKey::Source(_) => 2,
            BinKey::Tag(_) => 3,
            BinKey::Operation(_) => 4,
        }
    }

    fn key(&self, list: usize) -> Option<BinKey> {
        let (source, tag) = (self.message.source, self.message.tag);
        match (list, &self.body) {
            (1, _) => Some(BinKey::Exact { source, tag }),
            (2, _) => Some(BinKey::Source(source)),
            (3, _) => Some(BinKey::Tag(tag)),
            (4, UnexpectedBody::SelfSend { completer, .. }) => Some(BinKey::Operation(completer.id())),
            _ => None,
        }
    }
}
