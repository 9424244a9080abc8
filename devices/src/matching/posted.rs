//! A receive that waits for its message.

use super::Pattern;
use super::bins::{Entry, Key};
use crate::completion::Ender;
use crate::layout::{Envelope, Target};

/// A posted receive; the queue owns the target until the receive matches or is cancelled.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) pattern: Pattern,
    pub(crate) target: Target,
    pub(crate) ender: Ender,
}

impl Posted {
    /// Ends the receive with a message, landed by `land` if it is accepted.
    #[inline]
    pub(crate) fn receive(self, message: &Envelope, land: impl FnOnce(&mut Target)) {
        let Posted { mut target, ender, .. } = self;
        let outcome = target.accepts(message).and_then(|()| {
            land(&mut target);
            target.finish(message)
        });
        ender.end(outcome.map(|()| *message));
    }

    /// Ends the receive without a message.
    pub(crate) fn fail(self, fault: crate::Fault) {
        drop(self.target);
        self.ender.end(Err(fault));
    }
}

/// The lists of a queue of them.
pub(super) const LISTS: usize = 3;

/// In order; by what they ask for; by the operation, for who takes it back.
impl Entry<LISTS> for Posted {
    fn list(key: Key) -> usize {
        match key {
            Key::Any | Key::Source(_) | Key::Tag(_) | Key::Exact { .. } => 1,
            Key::Operation(_) => 2,
        }
    }

    fn key(&self, list: usize, mask: i32) -> Option<Key> {
        match list {
            1 => Some(self.pattern.key(mask)),
            2 => Some(Key::Operation(self.ender.id())),
            _ => None,
        }
    }
}
