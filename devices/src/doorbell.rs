//! The one descriptor a sleeping rank is woken by, whatever device the news comes from.

#[cfg(loom)]
mod counter;
#[allow(unsafe_code, reason = "the word may lie in memory that processes share")]
mod flag;
#[cfg(all(test, loom))]
mod model;

use std::io;
use std::time::Duration;

#[cfg(loom)]
use counter::Event;
pub use flag::Flag;

use crate::fence::{self, Light};
use crate::sync::atomic::Ordering;
#[cfg(not(loom))]
use crate::sys::Event;
use crate::sys::{BorrowedFd, OwnedFd};

/// An eventfd and the word that says whether its owner sleeps.
#[derive(Debug)]
pub struct Doorbell {
    event: Event,
    flag: Flag,
    light: Light,
}

impl Doorbell {
    /// Makes a doorbell for a rank whose neighbours are threads of this process.
    ///
    /// # Errors
    /// No descriptor left.
    pub fn new() -> io::Result<Self> {
        Ok(Doorbell { event: Event::alone()?, flag: Flag::own(), light: Light::new() })
    }

    /// Makes a doorbell of an eventfd that others may have, too, but cannot see whether its owner sleeps: they ring by
    /// [`wake`](Self::wake).
    pub fn from_fd(fd: OwnedFd) -> Self {
        Doorbell::with_flag(fd, Flag::own())
    }

    /// Makes the doorbell of a rank whose neighbours see where it says that it sleeps: its own, or a neighbour's view of
    /// it.
    pub fn with_flag(fd: OwnedFd, flag: Flag) -> Self {
        Doorbell { event: Event::new(fd), flag, light: Light::new() }
    }

    /// Returns a descriptor of its eventfd, to hand to those who ring.
    ///
    /// # Errors
    /// No descriptor left, or a system whose doorbells have none.
    pub fn descriptor(&self) -> io::Result<OwnedFd> {
        self.event.share()
    }

    /// Wakes the owner if it sleeps; call it after the news has been written. A few nanoseconds if it does not.
    #[inline]
    pub fn ring(&self) {
        self.light.fence();
        // SYNC doorbell-asleep (the fences order it)
        if self.flag.word().load(Ordering::Relaxed) != 0 {
            self.wake();
        }
    }

    /// Wakes the owner at its next or present sleep, without looking whether it sleeps.
    #[cold]
    pub fn wake(&self) {
        self.event.signal();
    }

    /// Sleeps until a ring, until `also` becomes readable, or for `limit`. `ready` is asked once after the flag is up:
    /// if it says yes there is no sleep.
    pub fn sleep(&self, also: &[BorrowedFd<'_>], limit: Duration, ready: impl FnOnce() -> bool) {
        self.flag.word().store(1, Ordering::Relaxed);
        fence::heavy();
        if !ready() {
            self.event.wait(also, limit);
        }
        self.flag.word().store(0, Ordering::Relaxed);
        self.event.clear();
    }
}
