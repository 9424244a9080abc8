//! Places for a few values, taken by one thread and given up by any, without a locked instruction.

#[cfg(all(test, loom))]
mod model;

use std::fmt;
use std::mem::MaybeUninit;

use mpj_devices::sync::atomic::{AtomicBool, Ordering};
use mpj_devices::sync::cell::UnsafeCell;

/// Room for the values of [`Slots`]. Nothing is written when it is made; and as it lies apart, it is not copied with them, to
/// where they are used, before there is anything in it.
pub(super) struct Room<T, const N: usize>(UnsafeCell<MaybeUninit<[T; N]>>);

// SAFETY: the slots use it, by whose invariant 1 a value is written by one thread at a time, and may be dropped by another
// than put it there.
unsafe impl<T: Send + Sync, const N: usize> Sync for Room<T, N> {}

impl<T, const N: usize> Room<T, N> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        Room(UnsafeCell::new(MaybeUninit::uninit()))
    }
}

/// `N` places, each of which is free or holds one value.
///
/// # Invariants
/// 1. One thread alone sets a flag of `held`. It is the holder of that place then, until it passes that on, and the holder
///    alone touches the value until it unsets the flag; shared with others, the value is only read.
/// 2. The value of a place that is held is there.
/// 3. No other slots use the room.
pub(super) struct Slots<'r, T, const N: usize> {
    held: [AtomicBool; N],
    room: &'r Room<T, N>,
}

impl<'r, T, const N: usize> Slots<'r, T, N> {
    #[inline(always)]
    pub(super) fn new(room: &'r mut Room<T, N>) -> Self {
        Slots { held: std::array::from_fn(|_| AtomicBool::new(false)), room }
    }

    /// Returns where the value of a place is.
    ///
    /// # Panics
    /// If there is no such place.
    #[inline(always)]
    fn place(values: *mut MaybeUninit<[T; N]>, at: usize) -> *mut T {
        assert!(at < N);
        values.cast::<T>().wrapping_add(at)
    }

    /// Whether a place is free; to the thread that takes them it stays so until it does.
    #[inline]
    pub(super) fn is_free(&self, at: usize) -> bool {
        // SYNC slot-held (acquire)
        !self.held[at].load(Ordering::Acquire)
    }

    /// Holds a value from now on, and makes the caller the holder.
    ///
    /// # Safety
    /// The caller has found the place [free](Self::is_free), and no other thread calls this, as long as the slots are there.
    #[inline(always)]
    pub(super) unsafe fn hold(&self, at: usize, value: T) {
        // SAFETY: invariant 1: the place was free, and nobody but us takes it.
        self.room.0.with_mut(|values| unsafe { Self::place(values, at).write(value) });
        // Who is passed the place has heard of it from us.
        self.held[at].store(true, Ordering::Relaxed);
    }

    /// Lets `look` see a value.
    ///
    /// # Safety
    /// The caller is the holder of the place, or was lent the right to look by it.
    #[inline(always)]
    pub(super) unsafe fn see<R>(&self, at: usize, look: impl FnOnce(&T) -> R) -> R {
        // SAFETY: the caller's promise; invariant 1: nobody writes; invariant 2.
        self.room.0.with(|values| look(unsafe { &*Self::place(values.cast_mut(), at) }))
    }

    /// Drops a value and frees its place.
    ///
    /// # Safety
    /// The caller is the holder of the place, and no longer is.
    #[inline(always)]
    pub(super) unsafe fn free(&self, at: usize) {
        // SAFETY: the caller's promise; invariant 1: nobody else reads or writes; invariant 2.
        self.room.0.with_mut(|values| unsafe { Self::place(values, at).drop_in_place() });
        // SYNC slot-held (release)
        self.held[at].store(false, Ordering::Release);
    }

    /// Takes the value out of a place that has lost its holder; the place is never free again.
    ///
    /// # Safety
    /// Nobody else uses the place any more, and nobody takes the value again.
    pub(super) unsafe fn take(&self, at: usize) -> Option<T> {
        if self.is_free(at) {
            return None;
        }
        // SAFETY: the caller's promise; invariant 2.
        Some(self.room.0.with(|values| unsafe { Self::place(values.cast_mut(), at).read() }))
    }
}

impl<T, const N: usize> fmt::Debug for Slots<'_, T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slots").field(&self.held).finish()
    }
}
