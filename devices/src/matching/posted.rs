//! A receive that waits for its message.

use super::Pattern;
use super::bins::{Entry, Key};
use crate::completion::{Completer, Completion, RecvCompleter};
use crate::layout::{Envelope, Target};

/// A posted receive; the queue owns the target until the receive matches or is cancelled.
#[derive(Debug)]
pub(crate) struct Posted {
    pub(crate) pattern: Pattern,
    receiving: RecvCompleter,
}

impl Posted {
    #[inline]
    pub(crate) fn new(pattern: Pattern, receiving: RecvCompleter) -> Self {
        Posted { pattern, receiving }
    }

    /// Returns the memory to receive into.
    pub(crate) fn target(&mut self) -> &mut Target {
        self.receiving.target()
    }

    /// Takes the memory out, and the duty to end the receive.
    pub(crate) fn into_parts(self) -> (Target, Completer) {
        self.receiving.into_parts()
    }

    /// Takes out the duty to end the receive, with the memory.
    pub(crate) fn into_receiving(self) -> RecvCompleter {
        self.receiving
    }

    /// Whether this is the receive that `completion` is of.
    pub(crate) fn ends(&self, completion: &Completion) -> bool {
        self.receiving.ends(completion)
    }

    /// Ends the receive with a message, landed by `write` if it is accepted.
    #[inline]
    pub(crate) fn complete_with(self, message: &Envelope, land: impl FnOnce(&mut Target)) {
        let mut receiving = self.receiving;
        let target = receiving.target();
        let outcome = target.accepts(message).and_then(|()| {
            land(target);
            target.finish(message)
        });
        match outcome {
            Ok(()) => receiving.complete_with(message),
            Err(fault) => receiving.end(Err(fault)),
        }
    }

    /// Ends the receive without a message.
    pub(crate) fn fail(self, fault: crate::Fault) {
        self.receiving.end(Err(fault));
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
            2 => Some(Key::Operation(self.receiving.id())),
            _ => None,
        }
    }
}
