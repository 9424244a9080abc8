//! A place for one value, taken by one thread and given up by any, without a locked instruction.

#[cfg(all(test, loom))]
mod model;

use std::fmt;

use mpj_devices::sync::atomic::{AtomicBool, Ordering};
use mpj_devices::sync::cell::UnsafeCell;

/// A place that is free, or holds one value.
///
/// # Invariants
/// 1. One thread alone sets `held`. It is the holder then, until it passes that on, and the holder alone touches `value`
///    until it unsets `held`; shared with others, the value is only read.
pub(super) struct Slot<T> {
    held: AtomicBool,
    value: UnsafeCell<Option<T>>,
}

// SAFETY: by invariant 1 the value is written by one thread at a time, and may be dropped by another than put it there.
unsafe impl<T: Send + Sync> Sync for Slot<T> {}

impl<T> Slot<T> {
    pub(super) fn new() -> Self {
        Slot { held: AtomicBool::new(false), value: UnsafeCell::new(None) }
    }

    /// Holds the value from now on, and makes the caller the holder; gives it back if the slot is not free.
    ///
    /// # Safety
    /// No other thread calls this, as long as the slot is there.
    #[inline]
    pub(super) unsafe fn hold(&self, value: T) -> Result<(), T> {
        // SYNC slot-held (acquire)
        if self.held.load(Ordering::Acquire) {
            return Err(value);
        }
        // SAFETY: invariant 1: the slot was free, and nobody but us takes it.
        self.value.with_mut(|place| unsafe { *place = Some(value) });
        // Who is passed the slot has heard of it from us.
        self.held.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Lets `look` see the value.
    ///
    /// # Safety
    /// The caller is the holder, or was lent the right to look by it.
    #[inline]
    pub(super) unsafe fn see<R>(&self, look: impl FnOnce(Option<&T>) -> R) -> R {
        // SAFETY: the caller's promise; invariant 1: nobody writes.
        self.value.with(|value| look(unsafe { &*value }.as_ref()))
    }

    /// Drops the value and frees the slot.
    ///
    /// # Safety
    /// The caller is the holder, and no longer is.
    #[inline]
    pub(super) unsafe fn free(&self) {
        // SAFETY: the caller's promise; invariant 1: nobody else reads or writes.
        self.value.with_mut(|place| unsafe { *place = None });
        // SYNC slot-held (release)
        self.held.store(false, Ordering::Release);
    }

    /// Takes the value out of a slot that has lost its holder; the slot is never free again.
    ///
    /// # Safety
    /// Nobody else uses the slot any more.
    pub(super) unsafe fn take(&self) -> Option<T> {
        // SYNC slot-held (acquire)
        if !self.held.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: the caller's promise.
        self.value.with_mut(|place| unsafe { place.replace(None) })
    }
}

impl<T> fmt::Debug for Slot<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slot").field(&self.held).finish()
    }
}
