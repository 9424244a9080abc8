//! Whose turn it is to poll an operation: one thread's at a time, and no news is missed.

use crate::sync::atomic::{AtomicU8, Ordering};

/// Which thread polls an operation.
#[derive(Debug)]
pub(super) struct PollState(AtomicU8);

/// No thread polls it.
const FREE: u8 = 0;
/// A thread polls it.
const TAKEN: u8 = 1;
/// A thread polls it, and something has moved since it began to.
const AGAIN: u8 = 2;

impl PollState {
    pub(super) fn new() -> Self {
        PollState(AtomicU8::new(FREE))
    }

    /// Polls it, unless another thread does, which polls it once more if there is news; returns whether it has ended.
    pub(super) fn poll(&self, is_news: bool, mut poll: impl FnMut() -> bool) -> bool {
        // SYNC task-hand (acquire, release): what was seen to move before is seen by the next poll, on whichever thread.
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
            // SYNC task-hand (acquire): with the news that was noted until now.
            self.0.swap(TAKEN, Ordering::AcqRel);
            if poll() {
                // It stays taken: nobody polls it again.
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
