//! Where threads wait that find the turn taken: its holder tells them that there is news.

#[cfg(all(test, loom))]
mod model;

use std::sync::PoisonError;
use std::time::Duration;

use crate::fence::{self, Light};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, lock};

/// How long a thread waits at most for the holder of the turn to tell it something: at first, and after waits in vain, each
/// of which doubles it.
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(64);

/// The limit of a thread's next wait.
#[derive(Debug)]
pub(super) struct Limit(Duration);

impl Default for Limit {
    fn default() -> Self {
        Limit(SHORTEST)
    }
}

/// Threads that wait for the holder of the turn.
///
/// Whoever brings news writes it and then looks whether a thread is counted here; a thread that is about to wait is counted
/// and then looks for news. One of them sees the other if both fence between the two, as at a [doorbell](crate::Doorbell):
/// the waiting thread does so for both. It does so only before a long wait, which follows a time without news. Before a
/// short one it does not, and news that it misses costs it that wait.
#[derive(Debug)]
pub(crate) struct Parking {
    count: AtomicUsize,
    /// How often there was news.
    epoch: Mutex<u64>,
    news: Condvar,
    light: Light,
}

/// A thread that is counted among those that wait, until it is dropped.
struct Parked<'a>(&'a Parking);

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Parking {
    pub(super) fn new() -> Self {
        let (count, epoch) = (AtomicUsize::new(0), Mutex::new(0));
        Parking { count, epoch, news: Condvar::new(), light: Light::new() }
    }

    /// Waits for news, unless `ready`: whether there is some, or nobody has the turn any more. No lock is held while that is
    /// asked: it may run the user's code, or bring news.
    ///
    /// It may return before there is news: the caller looks again.
    pub(super) fn park(&self, limit: &mut Limit, ready: impl FnOnce() -> bool) {
        self.count.fetch_add(1, Ordering::SeqCst);
        let _counted = Parked(self);
        let seen = *lock(&self.epoch);
        // SYNC parking-count (the fences order it)
        if limit.0 > SHORTEST && !fence::heavy_fence() {
            limit.0 = SHORTEST;
        }
        if ready() {
            return;
        }
        let epoch = lock(&self.epoch);
        // News that came meanwhile is in the epoch.
        let is_news = *epoch != seen || {
            let (epoch, _) = self.news.wait_timeout(epoch, limit.0).unwrap_or_else(PoisonError::into_inner);
            *epoch != seen
        };
        limit.0 = if is_news { SHORTEST } else { LONGEST.min(2 * limit.0) };
    }

    /// Tells those who are counted that there is news; call it after the news has been written.
    #[inline]
    pub(super) fn notify(&self) {
        self.light.fence();
        // SYNC parking-count (the fences order it)
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
