//! Slots for a few values, which one thread fills and any thread frees, without locked instructions.

#[cfg(all(test, loom))]
mod model;

use std::fmt;
use std::mem::MaybeUninit;

use mpj_devices::sync::atomic::{AtomicBool, Ordering};
use mpj_devices::sync::cell::UnsafeCell;

/// Uninitialised storage for the values of [`Slots`]. It is separate, so that moving `Slots` does not copy it.
pub(super) struct SlotMemory<T, const N: usize>(UnsafeCell<MaybeUninit<[T; N]>>);

// SAFETY: only `Slots` uses the storage. By its invariant 1 one thread at a time writes a value. A thread other than
// the writer may drop it, hence `T: Send`; shared reads need `T: Sync`.
unsafe impl<T: Send + Sync, const N: usize> Sync for SlotMemory<T, N> {}

impl<T, const N: usize> SlotMemory<T, N> {
    #[inline(always)]
    pub(super) fn new() -> Self {
        SlotMemory(UnsafeCell::new(MaybeUninit::uninit()))
    }
}

/// `N` slots, each of which is free or holds one value.
///
/// # Invariants
/// 1. Only one thread sets flags of `occupied`. It then is the holder of the slot until it passes the slot to another
///    thread. Only the holder accesses the value, until it clears the flag. While it lets other threads read the value,
///    no thread writes it.
/// 2. The value of an occupied slot is initialised.
/// 3. No other `Slots` uses the storage.
pub(super) struct Slots<'r, T, const N: usize> {
    occupied: [AtomicBool; N],
    memory: &'r SlotMemory<T, N>,
}

impl<'r, T, const N: usize> Slots<'r, T, N> {
    #[inline(always)]
    pub(super) fn new(memory: &'r mut SlotMemory<T, N>) -> Self {
        Slots { occupied: std::array::from_fn(|_| AtomicBool::new(false)), memory }
    }

    /// # Panics
    /// If `at` is not less than `N`.
    #[inline(always)]
    fn slot_ptr(values: *mut MaybeUninit<[T; N]>, at: usize) -> *mut T {
        assert!(at < N);
        values.cast::<T>().wrapping_add(at)
    }

    /// Returns whether a slot is free. A free slot stays free until the thread that fills slots fills it.
    #[inline]
    pub(super) fn is_free(&self, at: usize) -> bool {
        // SYNC slot-held (acquire)
        !self.occupied[at].load(Ordering::Acquire)
    }

    /// Stores a value in a free slot, and makes the caller its holder.
    ///
    /// # Safety
    /// The caller has found the slot [free](Self::is_free), and no other thread ever calls this for these slots.
    #[inline(always)]
    pub(super) unsafe fn insert(&self, at: usize, value: T) {
        // SAFETY: invariant 1: the slot was free, and only this thread fills slots.
        self.memory.0.with_mut(|values| unsafe { Self::slot_ptr(values, at).write(value) });
        // Relaxed suffices: another thread gets the slot from this one, and that hand-over synchronizes.
        self.occupied[at].store(true, Ordering::Relaxed);
    }

    /// Calls `f` with the value of a slot.
    ///
    /// # Safety
    /// The caller is the holder of the slot, or the holder permits it to read.
    #[inline(always)]
    pub(super) unsafe fn with<R>(&self, at: usize, f: impl FnOnce(&T) -> R) -> R {
        // SAFETY: the caller's promise; invariant 1: no thread writes the value now; invariant 2.
        self.memory.0.with(|values| f(unsafe { &*Self::slot_ptr(values.cast_mut(), at) }))
    }

    /// Drops a value and frees its slot.
    ///
    /// # Safety
    /// The caller is the holder of the slot, and gives up the slot by this call.
    #[inline(always)]
    pub(super) unsafe fn remove(&self, at: usize) {
        /// Frees the slot even if the drop panics, so that no code drops the value again.
        struct Freed<'a>(&'a AtomicBool);
        impl Drop for Freed<'_> {
            #[inline(always)]
            fn drop(&mut self) {
                // SYNC slot-held (release)
                self.0.store(false, Ordering::Release);
            }
        }
        let _freed = Freed(&self.occupied[at]);
        // SAFETY: the caller's promise; invariant 1: no other thread reads or writes the value; invariant 2.
        self.memory.0.with_mut(|values| unsafe { Self::slot_ptr(values, at).drop_in_place() });
    }

    /// Takes the value out of a slot without a holder. The slot never becomes free again.
    ///
    /// # Safety
    /// No other code uses the slot any more, and the value is taken only once.
    pub(super) unsafe fn take(&self, at: usize) -> Option<T> {
        if self.is_free(at) {
            return None;
        }
        // SAFETY: the caller's promise; invariant 2.
        Some(self.memory.0.with(|values| unsafe { Self::slot_ptr(values.cast_mut(), at).read() }))
    }
}

impl<T, const N: usize> fmt::Debug for Slots<'_, T, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Slots").field(&self.occupied).finish()
    }
}
