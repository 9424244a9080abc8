//! Message matching: the two queues of a channel and MPI's ordering rules.
//!
//! A message matches the earliest posted receive that accepts its source and tag; a receive matches the earliest
//! message that it accepts. Both queues keep the order in which entries were added. A queue is first searched from its
//! front. If searches go deep, entries are found by bins of source and tag. Receives with wildcards have bins of their
//! own, and a search takes the earliest entry of all bins that match.

mod bins;
mod posted;
mod queue;
#[cfg(test)]
mod tests;
mod unexpected;
mod unexpected_counts;

use std::sync::Arc;

use bins::BinKey;
use queue::Queue;

use crate::completion::Completion;
use crate::engine::LocalTraffic;
use crate::message::{Envelope, MessageTag};

pub(crate) use posted::Posted;
pub(crate) use unexpected::{InlineBody, Unexpected, UnexpectedBody};
pub(crate) use unexpected_counts::UnexpectedCounters;
pub use unexpected_counts::UnexpectedCounts;

/// Matches every source.
pub const ANY_SOURCE: i32 = -1;
/// Matches every tag.
pub const ANY_TAG: i32 = -2;

/// The source and tag that a receive accepts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// A rank of the communicator, or [`ANY_SOURCE`].
    pub source: i32,
    /// A tag, or [`ANY_TAG`].
    pub tag: i32,
}

impl Pattern {
    /// Returns whether the pattern matches the message.
    #[inline]
    fn accepts(self, message: &Envelope) -> bool {
        (self.source == ANY_SOURCE || self.source as u32 == message.source)
            && (self.tag == ANY_TAG || self.tag == message.tag)
    }

    fn key(self) -> BinKey {
        let (source, tag) = (self.source.cast_unsigned(), self.tag);
        match (self.source == ANY_SOURCE, self.tag == ANY_TAG) {
            (false, false) => BinKey::Exact { source, tag },
            (false, true) => BinKey::Source(source),
            (true, false) => BinKey::Tag(tag),
            (true, true) => BinKey::Any,
        }
    }
}

#[derive(Debug)]
pub(crate) struct Matching {
    posted: Queue<Posted, { posted::LISTS }>,
    unexpected: Queue<Unexpected, { unexpected::LISTS }>,
    /// Whether this rank has begun to free the channel, so that no receive will be posted on it.
    is_closed: bool,
    /// Counts of this channel's messages from this rank to itself, and of bodies copied out of unexpected messages.
    pub(crate) local: LocalTraffic,
    counts: Arc<UnexpectedCounters>,
}

impl Matching {
    pub(crate) fn new(counts: Arc<UnexpectedCounters>) -> Self {
        let (posted, unexpected) = (Queue::new(), Queue::new());
        Matching { posted, unexpected, is_closed: false, local: LocalTraffic::default(), counts }
    }

    #[inline]
    pub(crate) fn post(&mut self, receive: Posted) {
        self.posted.push(receive);
    }

    #[inline]
    pub(crate) fn take_posted(&mut self, message: &Envelope) -> Option<Posted> {
        let keys = || {
            let (source, tag) = (message.source, message.tag);
            [BinKey::Exact { source, tag }, BinKey::Source(source), BinKey::Tag(tag), BinKey::Any]
        };
        self.posted.take(|posted| posted.pattern.accepts(message), keys)
    }

    pub(crate) fn take_posted_of(&mut self, completion: &Completion) -> Option<Posted> {
        self.posted.take(|posted| posted.is_for(completion), || [BinKey::Operation(completion.id())])
    }

    pub(crate) fn drain_posted(&mut self, which: impl FnMut(&Posted) -> bool) -> Vec<Posted> {
        self.posted.take_all(which)
    }

    #[inline]
    pub(crate) fn take_unexpected(&mut self, pattern: Pattern) -> Option<Unexpected> {
        let fits = |unexpected: &Unexpected| pattern.accepts(&unexpected.message);
        let unexpected = self.unexpected.take(fits, || [pattern.key()])?;
        self.publish_count();
        Some(unexpected)
    }

    pub(crate) fn peek(&mut self, pattern: Pattern) -> Option<&Unexpected> {
        let fits = |unexpected: &Unexpected| pattern.accepts(&unexpected.message);
        self.unexpected.peek(fits, || [pattern.key()])
    }

    pub(crate) fn take_self_send_of(&mut self, completion: &Completion) -> Option<Unexpected> {
        let is_ours = |unexpected: &Unexpected| matches!(&unexpected.body, UnexpectedBody::SelfSend { completer, .. } if completer.is_for(completion));
        let unexpected = self.unexpected.take(is_ours, || [BinKey::Operation(completion.id())])?;
        self.publish_count();
        Some(unexpected)
    }

    pub(crate) fn iter_unexpected(&self) -> impl Iterator<Item = &Unexpected> {
        self.unexpected.iter()
    }

    /// Removes and returns the first of the `limit` earliest unexpected messages for which `which` returns true.
    pub(crate) fn take_unexpected_where(
        &mut self,
        limit: usize,
        which: impl FnMut(&Unexpected) -> bool,
    ) -> Option<Unexpected> {
        let unexpected = self.unexpected.take_first(limit, which)?;
        self.publish_count();
        Some(unexpected)
    }

    pub(crate) fn drain_unexpected(&mut self, which: impl FnMut(&Unexpected) -> bool) -> Vec<Unexpected> {
        let unexpected = self.unexpected.take_all(which);
        self.publish_count();
        unexpected
    }

    /// Queues an unexpected message, or returns it if this rank has begun to free the channel.
    #[inline]
    pub(crate) fn push_unexpected(&mut self, unexpected: Unexpected) -> Option<Unexpected> {
        if self.is_closed {
            return Some(unexpected);
        }
        let Envelope { tag, immediate, .. } = unexpected.message;
        self.unexpected.push(unexpected);
        self.counts.note_arrival(MessageTag { tag, immediate }, self.unexpected.len());
        None
    }

    /// Rejects later unexpected messages, and takes the queued ones.
    pub(crate) fn close(&mut self) -> Vec<Unexpected> {
        self.is_closed = true;
        self.drain_unexpected(|_| true)
    }

    #[inline]
    fn publish_count(&self) {
        self.counts.note_len(self.unexpected.len());
    }
}
