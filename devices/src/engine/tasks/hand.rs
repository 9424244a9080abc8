//! The poll state of a task: one thread at a time polls it, and no notification is lost.

use crate::sync::atomic::{AtomicU8, Ordering};

/// Whether a thread polls the task.
#[derive(Debug)]
pub(super) struct PollState(AtomicU8);

/// No thread polls it.
const FREE: u8 = 0;
/// A thread polls it. A complete task stays in this state or in `AGAIN`.
const TAKEN: u8 = 1;
/// A thread polls it, and something has moved since the poll began.
const AGAIN: u8 = 2;

impl PollState {
    pub(super) fn new() -> Self {
        PollState(AtomicU8::new(FREE))
    }

    /// Polls the task, unless another thread is polling it. In that case, if `is_news`, the other thread polls once
    /// more. Returns whether this call completed the task.
    pub(super) fn poll(&self, is_news: bool, mut poll: impl FnMut() -> bool) -> bool {
        // SYNC task-hand (acquire, release): the next poll, on whichever thread, sees everything that this thread saw
        // move.
        let was = if is_news {
            self.0.swap(AGAIN, Ordering::AcqRel)
        } else {
            let taken = self.0.compare_exchange(FREE, TAKEN, Ordering::AcqRel, Ordering::Relaxed);
            taken.unwrap_or_else(|was| was)
        };
        if was != FREE {
            return false;
        }
        loop {
            // SYNC task-hand (acquire): with everything noted until now.
            self.0.swap(TAKEN, Ordering::AcqRel);
            if poll() {
                // The state never returns to `FREE`, so the task is never polled again.
                return true;
            }
            // SYNC task-hand (release)
            if self.0.compare_exchange(TAKEN, FREE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return false;
            }
        }
    }
}

#[cfg(all(test, loom))]
mod model;
