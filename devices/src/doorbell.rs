//! The doorbell by which threads of this process wake a sleeping rank, for events of any device.
//!
//! Events of other processes wake the rank through the descriptors of [`Device::arm`](crate::Device::arm).

#[cfg(loom)]
mod counter;
#[cfg(all(test, loom))]
mod model;

use std::io;
use std::time::Duration;

#[cfg(loom)]
use counter::EventFd;

use crate::fence::{self, LightFence};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sys::BorrowedFd;
#[cfg(not(loom))]
use crate::sys::EventFd;

/// The longest sleep without a fence: a ring that comes just before it can be missed.
const UNFENCED_SLEEP: Duration = Duration::from_millis(2);

/// An event to wait for, and a flag that shows whether its owner sleeps.
#[derive(Debug)]
pub struct Doorbell {
    event: EventFd,
    /// Not 0 if the owner sleeps or is about to sleep.
    asleep: AtomicU32,
    light: LightFence,
}

impl Doorbell {
    /// Creates the doorbell of a rank.
    ///
    /// # Errors
    /// If the system provides no further descriptor.
    pub fn new() -> io::Result<Self> {
        Ok(Doorbell { event: EventFd::new()?, asleep: AtomicU32::new(0), light: LightFence::new() })
    }

    /// Wakes the owner if it sleeps. Call it after writing the new work.
    #[inline]
    pub fn ring(&self) {
        self.light.fence();
        // SYNC doorbell-asleep (the fences order it)
        if self.asleep.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    /// Ends the owner's present sleep, or its next one if it does not sleep.
    #[cold]
    pub fn wake(&self) {
        self.event.signal();
    }

    /// Announces that the owner will sleep in an event loop of its own, on [`descriptor`](Self::descriptor). Rings then
    /// make the descriptor readable. Returns false if the system refuses the fence: a ring can then be missed.
    pub(crate) fn arm(&self) -> bool {
        self.asleep.store(1, Ordering::Relaxed);
        fence::heavy_fence()
    }

    /// Ends the announcement of [`arm`](Self::arm), and consumes the rings.
    pub(crate) fn disarm(&self) {
        self.asleep.store(0, Ordering::Relaxed);
        self.event.clear();
    }

    /// Returns the descriptor that is readable after a ring.
    ///
    /// # Errors
    /// The system has no such descriptors.
    pub(crate) fn descriptor(&self) -> io::Result<BorrowedFd<'_>> {
        self.event.descriptor()
    }

    /// Sleeps until a ring, until one of `descriptors` becomes readable, or for `limit`; a system signal can end the
    /// sleep early. After setting the flag it calls `ready` once, and returns without sleeping if the result is true.
    pub fn sleep(&self, descriptors: &[BorrowedFd<'_>], limit: Duration, ready: impl FnOnce() -> bool) {
        self.asleep.store(1, Ordering::Relaxed);
        let limit = if fence::heavy_fence() { limit } else { limit.min(UNFENCED_SLEEP) };
        if !ready() {
            self.event.wait(descriptors, limit);
        }
        self.asleep.store(0, Ordering::Relaxed);
        self.event.clear();
    }
}

#[cfg(all(test, target_os = "linux", not(mpj_portable), not(miri), not(loom)))]
mod tests {
    use std::sync::mpsc;

    use super::*;
    use crate::sys::membarrier;

    #[test]
    fn sleep_ends_without_a_ring_if_the_fence_is_refused() {
        let bell = Doorbell::new().unwrap();
        let (sender, slept) = mpsc::channel();
        std::thread::spawn(move || {
            if fence::is_asymmetric() && membarrier::refuse_to_this_thread() {
                assert!(!fence::heavy_fence());
                bell.sleep(&[], Duration::from_secs(3600), || false);
            }
            sender.send(())
        });
        slept.recv_timeout(Duration::from_secs(60)).expect("the sleep must end");
    }
}
