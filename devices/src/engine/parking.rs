//! Threads that find the progress lock taken wait here until another thread notifies them, or for a limited time.

#[cfg(all(test, loom))]
mod model;

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::driver_fd::Kick;
use crate::fence::{self, LightFence};
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Condvar, Mutex, lock};

/// The first and the longest limit of a wait. Each wait that ends without a notification doubles it, up to `LONGEST`.
const SHORTEST: Duration = Duration::from_millis(2);
const LONGEST: Duration = Duration::from_millis(64);

#[derive(Debug)]
pub(super) struct ParkBackoff(Duration);

impl ParkBackoff {
    /// Limits the next wait to `longest`.
    pub(super) fn cap(&mut self, longest: Duration) {
        self.0 = self.0.min(longest);
    }
}

impl Default for ParkBackoff {
    fn default() -> Self {
        ParkBackoff(SHORTEST)
    }
}

/// Threads that wait for the holder of the progress lock.
///
/// A notifier publishes the new work and then checks whether a thread is counted here. A waiting thread is counted
/// first and then checks for new work. If both execute a fence between the two steps, as at a
/// [doorbell](crate::Doorbell), at least one of them sees the other. Before a wait with a limit above `SHORTEST`, the
/// waiting thread executes a heavy fence for both. Before a wait of at most `SHORTEST` it does not, and a missed
/// notification delays it by at most that time.
#[derive(Debug)]
pub(crate) struct Parking {
    count: AtomicUsize,
    epoch: Mutex<u64>,
    condvar: Condvar,
    light: LightFence,
    /// The driver descriptor, which is counted like a thread: its owner waits for the holder of the progress lock, too.
    driver: std::sync::Mutex<Option<Arc<Kick>>>,
    has_driver: std::sync::atomic::AtomicBool,
}

struct Parked<'a>(&'a Parking);

impl Drop for Parked<'_> {
    fn drop(&mut self) {
        self.0.count.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Parking {
    pub(super) fn new() -> Self {
        let (count, epoch) = (AtomicUsize::new(0), Mutex::new(0));
        Parking {
            count,
            epoch,
            condvar: Condvar::new(),
            light: LightFence::new(),
            driver: std::sync::Mutex::default(),
            has_driver: std::sync::atomic::AtomicBool::new(false),
        }
    }

    /// Waits at most `limit` for a notification, unless `ready` returns true: there is new work, or the progress lock
    /// is free. `epoch` is not locked while `ready` runs, because that might notify. Spurious returns are possible.
    pub(super) fn park(&self, limit: &mut ParkBackoff, ready: impl FnOnce() -> bool) {
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
        // A notification that came meanwhile has changed the epoch.
        let notified = *epoch != seen || {
            let (epoch, _) =
                self.condvar.wait_timeout(epoch, limit.0).unwrap_or_else(PoisonError::into_inner);
            *epoch != seen
        };
        limit.0 = if notified { SHORTEST } else { LONGEST.min(2 * limit.0) };
    }

    /// Notifies the counted threads; call it after the new work has been published.
    #[inline]
    pub(super) fn notify(&self) {
        self.light.fence();
        // SYNC parking-count (the fences order it)
        if self.count.load(Ordering::Relaxed) != 0 {
            self.notify_slow();
        }
    }

    #[cold]
    fn notify_slow(&self) {
        *lock(&self.epoch) += 1;
        self.condvar.notify_all();
        self.with_driver(Kick::kick);
    }

    /// Notifies as [`notify`](Self::notify) does, except for the driver descriptor, whose owner calls this.
    pub(super) fn notify_threads(&self) {
        self.light.fence();
        // SYNC parking-count (the fences order it)
        if self.count.load(Ordering::Relaxed) > 1 {
            *lock(&self.epoch) += 1;
            self.condvar.notify_all();
        }
    }

    /// Counts the driver descriptor as a parked thread; returns false if there is one already.
    pub(super) fn add_driver(&self, kick: &Arc<Kick>) -> bool {
        let mut driver = super::lock(&self.driver);
        if driver.is_some() {
            return false;
        }
        *driver = Some(Arc::clone(kick));
        self.count.fetch_add(1, Ordering::SeqCst);
        self.has_driver.store(true, Ordering::SeqCst);
        true
    }

    pub(super) fn remove_driver(&self) {
        self.has_driver.store(false, Ordering::SeqCst);
        if super::lock(&self.driver).take().is_some() {
            self.count.fetch_sub(1, Ordering::SeqCst);
        }
    }

    /// Calls `f` with the driver descriptor, if there is one.
    #[inline]
    pub(super) fn with_driver(&self, f: impl FnOnce(&Kick)) {
        if self.has_driver.load(Ordering::Relaxed) {
            super::lock(&self.driver).as_deref().map(f);
        }
    }
}
