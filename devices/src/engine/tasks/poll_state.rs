//! The poll state of a task: one thread at a time polls the task, and no notification is lost.

use crate::sync::atomic::{AtomicU8, Ordering};

#[derive(Debug)]
pub(super) struct PollState(AtomicU8);

/// No thread polls the task.
const IDLE: u8 = 0;
/// A thread polls the task. A complete task stays in this state or in `NOTIFIED`.
const RUNNING: u8 = 1;
/// A thread polls the task, and something has moved since the poll began.
const NOTIFIED: u8 = 2;

impl PollState {
    pub(super) fn new() -> Self {
        PollState(AtomicU8::new(IDLE))
    }

    /// Polls the task, unless another thread is polling it. If `has_progress` is true, that thread polls once more.
    /// Returns whether this call completed the task.
    pub(super) fn poll(&self, has_progress: bool, mut poll: impl FnMut() -> bool) -> bool {
        // SYNC task-hand (acquire, release): the next poll, on any thread, sees everything that this thread has seen
        // before.
        let before = if has_progress {
            self.0.swap(NOTIFIED, Ordering::AcqRel)
        } else {
            let before = self.0.compare_exchange(IDLE, RUNNING, Ordering::AcqRel, Ordering::Relaxed);
            before.unwrap_or_else(|before| before)
        };
        if before != IDLE {
            return false;
        }
        loop {
            // SYNC task-hand (acquire): see what the notifying threads have seen.
            self.0.swap(RUNNING, Ordering::AcqRel);
            if poll() {
                // The state never returns to `IDLE`, so the task is never polled again.
                return true;
            }
            // SYNC task-hand (release)
            if self.0.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return false;
            }
        }
    }
}

#[cfg(all(test, loom))]
mod model;
