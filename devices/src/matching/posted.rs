//! A posted receive.

use super::Pattern;
use super::bins::{BinEntry, BinKey};
use crate::completion::{Completer, Completion, RecvCompleter};
use crate::message::{Envelope, Target};

/// A posted receive. The queue owns the target until the receive matches, fails or is cancelled.
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

    pub(crate) fn target(&mut self) -> &mut Target {
        self.receiving.target()
    }

    pub(crate) fn into_parts(self) -> (Target, Completer) {
        self.receiving.into_parts()
    }

    pub(crate) fn into_receiving(self) -> RecvCompleter {
        self.receiving
    }

    pub(crate) fn is_for(&self, completion: &Completion) -> bool {
        self.receiving.is_for(completion)
    }

    /// Completes the receive with a message. If the target accepts the message, `land` writes the body first.
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
            Err(fault) => receiving.complete(Err(fault)),
        }
    }

    pub(crate) fn fail(self, fault: crate::Fault) {
        self.receiving.complete(Err(fault));
    }
}

pub(super) const LISTS: usize = 3;

/// The lists: the order of posting, bins by pattern, and bins by operation for cancellation.
impl BinEntry<LISTS> for Posted {
    fn list(key: BinKey) -> usize {
        match key {
            BinKey::Any | BinKey::Source(_) | BinKey::Tag(_) | BinKey::Exact { .. } => 1,
            BinKey::Operation(_) => 2,
        }
    }

    fn key(&self, list: usize) -> Option<BinKey> {
        match list {
            1 => Some(self.pattern.key()),
            2 => Some(BinKey::Operation(self.receiving.id())),
            _ => None,
        }
    }
}
