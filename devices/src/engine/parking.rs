//! Where threads wait that find the turn taken: its holder tells them that there is news.

#[cfg(all(test, loom))]
mod model;

use std::time::Duration;

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, lock};

/// The longest time a thread waits for the holder of the turn to tell it something.
const PARK: Duration = Duration::from_millis(2);

/// Threads that wait for the holder of the turn.
#[derive(Debug, Default)]
pub(crate) struct Parking {
    count: AtomicUsize,
    /// How often there was news.
    epoch: Mutex<u64>,
    news: Condvar,
}

/// A thread that is counted among those that wait, until it is dropped.
struct Parked<'a>(&'a Parking);

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Parking {
    /// Waits for news, unless `ready`. No lock is held while that is asked: it may run the user's code, or bring news.
    ///
    /// It may return before there is news: the caller looks again.
    pub(super) fn park(&self, ready: impl FnOnce() -> bool) {
        self.count.fetch_add(1, Ordering::SeqCst);
        let _counted = Parked(self);
        let seen = *lock(&self.epoch);
        if ready() {
            return;
        }
        let epoch = lock(&self.epoch);
        // News that came meanwhile is in the epoch. The wait is bounded all the same: the holder of the turn may have
        // looked for us just before we were counted.
        if *epoch == seen {
            drop(self.news.wait_timeout(epoch, PARK));
        }
    }

    /// Tells those who are counted that there is news.
    #[inline]
    pub(super) fn notify(&self) {
        if self.count.load(Ordering::Relaxed) != 0 {
            self.tell();
        }
    }

    #[cold]
    fn tell(&self) {
        *lock(&self.epoch) += 1;
        self.news.notify_all();
    }
}
