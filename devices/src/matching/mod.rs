//! Which message goes to which receive: the two queues of a channel and MPI's ordering rules.
//!
//! A message matches the earliest posted receive that accepts its source and tag; a receive matches the earliest
//! message. Both queues are in order of arrival, and each is searched from its front, so wildcards need no extra rule.

mod posted;
mod unexpected;

use std::collections::VecDeque;

use crate::layout::Envelope;

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
    #[inline]
    pub(crate) fn accepts(self, message: &Envelope) -> bool {
        (self.source == ANY_SOURCE || self.source as u32 == message.source)
            && (self.tag == ANY_TAG || self.tag == message.tag)
    }
}

/// The two queues of one channel.
#[derive(Debug, Default)]
pub(crate) struct Matching {
    pub(crate) posted: VecDeque<Posted>,
    pub(crate) unexpected: VecDeque<Unexpected>,
    /// Whether this rank has left the channel: nobody will receive here.
    left: bool,
}

impl Matching {
    /// Takes the receive a message goes to.
    #[inline]
    pub(crate) fn take_posted(&mut self, message: &Envelope) -> Option<Posted> {
        let at = self.posted.iter().position(|p| p.pattern.accepts(message))?;
        if at == 0 { self.posted.pop_front() } else { self.posted.remove(at) }
    }

    /// Takes the message a receive gets.
    #[inline]
    pub(crate) fn take_unexpected(&mut self, pattern: Pattern) -> Option<Unexpected> {
        let at = self.unexpected.iter().position(|u| pattern.accepts(&u.message))?;
        if at == 0 { self.unexpected.pop_front() } else { self.unexpected.remove(at) }
    }

    /// Keeps a message that came before its receive; returns false if this rank has left the channel.
    #[inline]
    pub(crate) fn keep(&mut self, early: Unexpected) -> bool {
        if !self.left {
            self.unexpected.push_back(early);
        }
        !self.left
    }

    /// Keeps no more messages, and returns those that are there.
    pub(crate) fn leave(&mut self) -> VecDeque<Unexpected> {
        self.left = true;
        std::mem::take(&mut self.unexpected)
    }

    /// Returns the message a receive would get.
    pub(crate) fn peek(&self, pattern: Pattern) -> Option<&Unexpected> {
        self.unexpected.iter().find(|u| pattern.accepts(&u.message))
    }
}
