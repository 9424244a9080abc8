//! Which message goes to which receive: the two queues of a channel and MPI's ordering rules.
//!
//! A message matches the earliest posted receive that accepts its source and tag; a receive matches the earliest
//! message. Both queues are in order of arrival, and each is searched from its front, so wildcards need no extra rule.

mod early;
mod posted;
mod unexpected;

use std::collections::VecDeque;
use std::sync::Arc;

use crate::engine::Local;
use crate::layout::Envelope;

pub(crate) use early::Board;
pub use early::Early;
pub(crate) use posted::Posted;
pub(crate) use unexpected::{Held, Unexpected};

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
}

/// The two queues of one channel.
#[derive(Debug)]
pub(crate) struct Matching {
    pub(crate) posted: VecDeque<Posted>,
    pub(crate) unexpected: VecDeque<Unexpected>,
    /// Whether this rank has left the channel: nobody will receive here.
    left: bool,
    /// The bits of tags that are compared.
    pub(crate) mask: i32,
    /// What was moved here without a device.
    pub(crate) local: Local,
    /// What is read without the lock.
    board: Arc<Board>,
}

impl Matching {
    pub(crate) fn new(board: Arc<Board>) -> Self {
        let (posted, unexpected) = (VecDeque::new(), VecDeque::new());
        Matching { posted, unexpected, left: false, mask: -1, local: Local::default(), board }
    }

    /// Takes the receive a message goes to.
    #[inline]
    pub(crate) fn take_posted(&mut self, message: &Envelope) -> Option<Posted> {
        let at = self.posted.iter().position(|p| p.pattern.accepts(message, self.mask))?;
        if at == 0 { self.posted.pop_front() } else { self.posted.remove(at) }
    }

    /// Takes the message a receive gets.
    #[inline]
    pub(crate) fn take_unexpected(&mut self, pattern: Pattern) -> Option<Unexpected> {
        let at = self.unexpected.iter().position(|u| pattern.accepts(&u.message, self.mask))?;
        self.take_at(at)
    }

    /// Takes the early message at a place.
    #[inline]
    pub(crate) fn take_at(&mut self, at: usize) -> Option<Unexpected> {
        let early = if at == 0 { self.unexpected.pop_front() } else { self.unexpected.remove(at) };
        self.count();
        early
    }

    /// Makes known how many early messages lie there now.
    #[inline]
    pub(crate) fn count(&self) {
        self.board.lie(self.unexpected.len());
    }

    /// Keeps a message that came before its receive, or gives it back if this rank has left the channel.
    #[inline]
    pub(crate) fn keep(&mut self, early: Unexpected) -> Option<Unexpected> {
        if self.left {
            return Some(early);
        }
        let tag = early.message.tag;
        self.unexpected.push_back(early);
        self.board.arrive(tag, self.unexpected.len());
        None
    }

    /// Keeps no more messages, and returns those that are there.
    pub(crate) fn leave(&mut self) -> VecDeque<Unexpected> {
        self.left = true;
        let early = std::mem::take(&mut self.unexpected);
        self.count();
        early
    }

    /// Returns the message a receive would get.
    pub(crate) fn peek(&self, pattern: Pattern) -> Option<&Unexpected> {
        self.unexpected.iter().find(|u| pattern.accepts(&u.message, self.mask))
    }
}
