//! A descriptor for event loops: it is readable when the engine has work.
//!
//! The owner of a [`DriverFd`] calls [`progress`](DriverFd::progress) whenever the descriptor is readable. That call
//! makes progress until nothing moves, and then *arms* the descriptor: it announces to the devices and the doorbell
//! that the rank sleeps, as a sleeping thread does, but without holding the progress lock. A pass of another thread
//! that moves something, and the sleep of another thread, disarm it. That thread then kicks the descriptor, whose
//! owner arms it again.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::Engine;
use crate::deferred_drop;
use crate::sys::{BorrowedFd, EventFd, Poll, Timer};

/// Maximum number of passes of one [`DriverFd::progress`], so that the event loop does other work during long traffic.
const MAX_PASSES: u32 = 64;

/// Makes the descriptor readable for an event inside this process.
#[derive(Debug)]
pub(super) struct Kick {
    event: EventFd,
    is_kicked: AtomicBool,
    /// Whether the next event makes the descriptor readable without a kick. Set to true only under the progress lock.
    is_armed: AtomicBool,
}

impl Kick {
    /// Makes the descriptor readable, unless it is armed.
    #[cold]
    pub(super) fn kick(&self) {
        if !self.is_armed.load(Ordering::SeqCst) && !self.is_kicked.swap(true, Ordering::SeqCst) {
            self.event.signal();
        }
    }

    /// The holder of the progress lock calls this when the announcement to the devices or the doorbell has ended. The
    /// owner also calls it, without the lock, to kick an armed descriptor.
    pub(super) fn disarm(&self) {
        self.is_armed.store(false, Ordering::SeqCst);
    }

    /// Consumes the kicks. The caller makes progress afterwards.
    fn take(&self) {
        self.event.clear();
        self.is_kicked.store(false, Ordering::SeqCst);
    }
}

/// A descriptor that is readable when the engine of a rank has work: see [`Engine::driver`].
pub struct DriverFd {
    engine: Arc<Engine>,
    poll: Poll,
    timer: Timer,
    kick: Arc<Kick>,
    /// Whether `poll` watches the descriptors of the devices.
    watches_devices: AtomicBool,
}

impl fmt::Debug for DriverFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DriverFd({:?})", self.engine)
    }
}

impl Engine {
    /// Creates a driver descriptor, whose owner promises to call [`DriverFd::progress`] whenever it is readable. Until
    /// the value is dropped, pending futures rely on it.
    ///
    /// # Errors
    /// The engine has one already; the system has no such descriptors, or none left.
    pub fn driver(self: &Arc<Self>) -> io::Result<DriverFd> {
        let (poll, timer, event) = (Poll::new()?, Timer::new()?, EventFd::new()?);
        poll.watch(self.site.bell.descriptor()?)?;
        poll.watch(timer.descriptor())?;
        poll.watch(event.descriptor()?)?;
        let kick =
            Arc::new(Kick { event, is_kicked: AtomicBool::new(false), is_armed: AtomicBool::new(false) });
        if !self.parking.add_driver(&kick) {
            let why = "this rank has a driver descriptor already: share it, or drop it first";
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
        }
        self.add_driver();
        // Nothing is armed yet: the owner must call `progress` once.
        kick.kick();
        let watches_devices = AtomicBool::new(false);
        Ok(DriverFd { engine: Arc::clone(self), poll, timer, kick, watches_devices })
    }

    /// Disarms the driver descriptor, if there is one. The caller holds the progress lock.
    #[inline]
    pub(super) fn disarm_driver(&self) {
        self.parking.with_driver(Kick::disarm);
    }
}

impl DriverFd {
    /// Makes progress until nothing moves, and arms the descriptor again. After a limited number of passes, it makes
    /// the descriptor readable instead.
    ///
    /// Call this after each event. An edge-triggered loop calls it after it has consumed the event.
    pub fn progress(&self) {
        // The caller has consumed an event. If another thread holds the progress lock below, it must kick the descriptor
        // when it releases the lock, even if its pass moves nothing.
        self.kick.disarm();
        self.kick.take();
        for _ in 0..MAX_PASSES {
            if self.engine.progress_as_driver() == 0 && self.arm() {
                return;
            }
        }
        self.kick.kick();
    }

    /// Arms the descriptor. Returns false if the caller must make progress again, for example because something moved
    /// meanwhile.
    fn arm(&self) -> bool {
        let engine = &*self.engine;
        // If another thread holds the progress lock, it kicks the descriptor when it releases the lock.
        let Some(mut progress) = engine.try_lock_progress() else { return true };
        self.timer.clear();
        let is_fenced = engine.site.bell.arm();
        let armed: Vec<BorrowedFd<'_>> = engine.devices.iter().filter_map(|device| device.arm()).collect();
        let is_watched = self.watch(&armed).is_ok();
        let moved = engine.last_pass(&mut progress);
        engine.query_exits_and_verify(&mut progress);
        let is_armed = moved == 0 && is_fenced && is_watched && !deferred_drop::has_deferred();
        if is_armed {
            self.timer.set(engine.max_sleep);
        } else {
            engine.site.bell.disarm();
        }
        self.kick.is_armed.store(is_armed, Ordering::SeqCst);
        drop(progress);
        engine.parking.notify_threads();
        deferred_drop::run_deferred_drops();
        if moved > 0 && engine.tasks.any() {
            engine.poll_tasks(true);
        }
        if is_armed && self.poll.has_events() {
            // An edge-triggered loop has consumed the event that is still there: produce another one.
            self.kick.disarm();
            self.kick.kick();
        }
        is_armed
    }

    fn watch(&self, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if self.watches_devices.load(Ordering::Relaxed) {
            return Ok(());
        }
        for descriptor in descriptors {
            self.poll.watch(*descriptor)?;
        }
        self.watches_devices.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the descriptor to wait for.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.poll.descriptor()
    }
}

impl Drop for DriverFd {
    fn drop(&mut self) {
        // Otherwise each message would ring the doorbell until a thread of this rank sleeps. If the lock is held, a
        // thread might be asleep and need the doorbell.
        if let Some(progress) = self.engine.try_lock_progress() {
            self.engine.site.bell.disarm();
            drop(progress);
            self.engine.parking.notify_threads();
        }
        self.engine.parking.remove_driver();
        self.engine.remove_driver();
    }
}

#[cfg(unix)]
impl crate::sys::AsFd for DriverFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor()
    }
}

#[cfg(unix)]
impl crate::sys::AsRawFd for DriverFd {
    fn as_raw_fd(&self) -> crate::sys::RawFd {
        self.descriptor().as_raw_fd()
    }
}
