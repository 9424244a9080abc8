//! What the threads of this process wake a sleeping rank by, whatever device the news comes from.
//!
//! News of other processes comes by the descriptors that devices [arm](crate::Device::arm).

#[cfg(loom)]
mod counter;
#[cfg(all(test, loom))]
mod model;

use std::io;
use std::time::Duration;

#[cfg(loom)]
use counter::Event;

use crate::fence::{self, Light};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sys::BorrowedFd;
#[cfg(not(loom))]
use crate::sys::Event;

/// What can be waited for, and the word that says whether its owner waits.
#[derive(Debug)]
pub struct Doorbell {
    event: Event,
    /// Not 0 when the owner is about to sleep, or sleeps.
    asleep: AtomicU32,
    light: Light,
}

impl Doorbell {
    /// Makes the doorbell of a rank.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Doorbell { event: Event::new()?, asleep: AtomicU32::new(0), light: Light::new() })
    }

    /// Wakes the owner if it sleeps; call it after the news has been written. A few nanoseconds if it does not.
    #[inline]
    pub fn ring(&self) {
        self.light.fence();
        // SYNC doorbell-asleep (the fences order it)
        if self.asleep.load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    /// Wakes the owner at its next or present sleep, without looking whether it sleeps.
    #[cold]
    pub fn wake(&self) {
        self.event.signal();
    }

    /// Sleeps until a ring, until `also` becomes readable, or for `credit_limit`. `ready` is asked once after it is known that the
    /// owner sleeps: if it says yes there is no sleep.
    pub fn sleep(&self, also: &[BorrowedFd<'_>], limit: Duration, ready: impl FnOnce() -> bool) {
        self.asleep.store(1, Ordering::Relaxed);
        fence::heavy_fence();
        if !ready() {
            self.event.wait(also, limit);
        }
        self.asleep.store(0, Ordering::Relaxed);
        self.event.clear();
    }
}
