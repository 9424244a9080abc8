//! How one operation ends, and who sees it.

use std::sync::{Arc, OnceLock};

use crate::fault::Fault;
use crate::layout::Envelope;

/// What an operation came to: the envelope of the message, or why there is none.
pub type Outcome = Result<Envelope, Fault>;

/// The place an operation's outcome is put, once; it holds nothing of the user's memory.
#[derive(Debug, Default)]
pub struct Completion {
    outcome: OnceLock<Outcome>,
}

impl Completion {
    /// Returns the outcome if the operation has ended. From then on the engine does not touch its memory.
    #[inline]
    pub fn outcome(&self) -> Option<&Outcome> {
        self.outcome.get()
    }

    /// Ends the operation. The caller has dropped the source or target before.
    #[inline]
    pub(crate) fn end(&self, outcome: Outcome) {
        let first = self.outcome.set(outcome).is_ok();
        debug_assert!(first, "an operation ends once");
    }

    /// Makes a completion good for another operation, if nobody else holds it.
    pub(crate) fn recycle(this: &mut Arc<Self>) -> bool {
        Arc::get_mut(this).is_some_and(|c| {
            c.outcome.take();
            true
        })
    }
}

/// An operation that was started.
#[derive(Debug)]
pub enum Started {
    /// It has ended already.
    Done(Envelope),
    /// It will end here.
    Pending(Arc<Completion>),
}
