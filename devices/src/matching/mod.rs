//! Which message goes to which receive: the two queues of a channel and MPI's ordering rules.
//!
//! A message matches the earliest posted receive that accepts its source and tag; a receive matches the earliest
//! message. Both queues are in order of arrival. A short one is searched from its front; where searches go deep, the
//! entries are found by bins of source and tag, wildcards in bins of their own, and the earliest of all bins counts.

mod bins;
mod early;
mod posted;
mod queue;
#[cfg(test)]
mod tests;
mod unexpected;

use std::sync::Arc;

use bins::Key;
use queue::Queue;

use crate::completion::Completion;
use crate::engine::LocalTraffic;
use crate::layout::Envelope;

pub(crate) use early::EarlyCounts;
pub use early::UnexpectedCounts;
pub(crate) use posted::Posted;
pub(crate) use unexpected::{InlineBody, Unexpected, UnexpectedBody};

/// Matches every source.
pub const ANY_SOURCE: i32 = -1;
/// Matches every tag.
pub const ANY_TAG: i32 = -2;

/// What a receive asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pattern {
    /// A rank of the communicator, or [`ANY_SOURCE`].
    pub source: i32,
    /// A tag, or [`ANY_TAG`].
    pub tag: i32,
}

impl Pattern {
    /// Whether this is the message asked for, by the bits of its tag in `mask`.
    #[inline]
    fn accepts(self, message: &Envelope, mask: i32) -> bool {
        (self.source == ANY_SOURCE || self.source as u32 == message.source)
            && (self.tag == ANY_TAG || (self.tag ^ message.tag) & mask == 0)
    }

    /// Returns what the messages asked for have in common.
    fn key(self, mask: i32) -> Key {
        let (source, tag) = (self.source.cast_unsigned(), self.tag & mask);
        match (self.source == ANY_SOURCE, self.tag == ANY_TAG) {
            (false, false) => Key::Exact { source, tag },
            (false, true) => Key::Source(source),
            (true, false) => Key::Tag(tag),
            (true, true) => Key::Any,
        }
    }
}

/// The two queues of one channel.
#[derive(Debug)]
pub(crate) struct Matching {
    posted: Queue<Posted, { posted::LISTS }>,
    unexpected: Queue<Unexpected, { unexpected::LISTS }>,
    /// Whether this rank has freed the channel: nobody will post a receive here.
    left: bool,
    /// What was moved here without a device.
    pub(crate) local: LocalTraffic,
    /// What is read without the lock.
    counts: Arc<EarlyCounts>,
}

impl Matching {
    pub(crate) fn new(board: Arc<EarlyCounts>) -> Self {
        let (posted, unexpected) = (Queue::new(), Queue::new());
        Matching { posted, unexpected, left: false, local: LocalTraffic::default(), counts: board }
    }

    /// Compares only these bits of tags from now on.
    pub(crate) fn set_tag_mask(&mut self, mask: i32) {
        self.posted.compare(mask);
        self.unexpected.compare(mask);
    }

    /// Has a receive wait for its message, which has not come.
    #[inline]
    pub(crate) fn post(&mut self, receive: Posted) {
        self.posted.push(receive);
    }

    /// Takes the receive a message goes to.
    #[inline]
    pub(crate) fn take_posted(&mut self, message: &Envelope) -> Option<Posted> {
        let mask = self.posted.mask();
        let keys = || {
            let (source, tag) = (message.source, message.tag & mask);
            [Key::Exact { source, tag }, Key::Source(source), Key::Tag(tag), Key::Any]
        };
        self.posted.take(|posted| posted.pattern.accepts(message, mask), keys)
    }

    /// Takes back the receive that ends `completion`.
    pub(crate) fn take_posted_of(&mut self, completion: &Completion) -> Option<Posted> {
        self.posted.take(|posted| posted.ends(completion), || [Key::Operation(completion.id())])
    }

    /// Takes the receives that `which` picks.
    pub(crate) fn drain_posted(&mut self, which: impl FnMut(&Posted) -> bool) -> Vec<Posted> {
        self.posted.take_all(which)
    }

    /// Takes the message a receive gets.
    #[inline]
    pub(crate) fn take_unexpected(&mut self, pattern: Pattern) -> Option<Unexpected> {
        let mask = self.unexpected.mask();
        let fits = |early: &Unexpected| pattern.accepts(&early.message, mask);
        let early = self.unexpected.take(fits, || [pattern.key(mask)])?;
        self.count();
        Some(early)
    }

    /// Returns the message a receive would get.
    pub(crate) fn peek(&mut self, pattern: Pattern) -> Option<&Unexpected> {
        let mask = self.unexpected.mask();
        let fits = |early: &Unexpected| pattern.accepts(&early.message, mask);
        self.unexpected.peek(fits, || [pattern.key(mask)])
    }

    /// Takes back the message of this rank to itself that ends `completion`.
    pub(crate) fn take_self_send_of(&mut self, completion: &Completion) -> Option<Unexpected> {
        let ours = |early: &Unexpected| matches!(&early.body, UnexpectedBody::SelfSend { ender, .. } if ender.is_for(completion));
        let early = self.unexpected.take(ours, || [Key::Operation(completion.id())])?;
        self.count();
        Some(early)
    }

    /// Returns the early messages in order of arrival.
    pub(crate) fn early(&self) -> impl Iterator<Item = &Unexpected> {
        self.unexpected.iter()
    }

    /// Takes the first that `which` picks of the first `most` early messages.
    pub(crate) fn take_unexpected_where(
        &mut self,
        most: usize,
        which: impl FnMut(&Unexpected) -> bool,
    ) -> Option<Unexpected> {
        let early = self.unexpected.take_first(most, which)?;
        self.count();
        Some(early)
    }

    /// Takes the early messages that `which` picks.
    pub(crate) fn drain_unexpected(&mut self, which: impl FnMut(&Unexpected) -> bool) -> Vec<Unexpected> {
        let early = self.unexpected.take_all(which);
        self.count();
        early
    }

    /// Keeps a message that came before its receive, or gives it back if this rank has left the channel.
    #[inline]
    pub(crate) fn push_unexpected(&mut self, early: Unexpected) -> Option<Unexpected> {
        if self.left {
            return Some(early);
        }
        let tag = early.message.tag;
        self.unexpected.push(early);
        self.counts.note_arrival(tag, self.unexpected.len());
        None
    }

    /// Keeps no more messages, and returns those that are there.
    pub(crate) fn close(&mut self) -> Vec<Unexpected> {
        self.left = true;
        self.drain_unexpected(|_| true)
    }

    /// Makes known how many early messages lie there now.
    #[inline]
    fn count(&self) {
        self.counts.note_len(self.unexpected.len());
    }
}
