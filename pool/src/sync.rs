//! The lock, counters, budgets and flags of this crate.

use core::marker::PhantomData;
use core::ops::{Deref, DerefMut};
use core::ptr::NonNull;

#[cfg(loom)]
use loom::{cell, sync::atomic};

#[cfg(not(loom))]
use core::sync::atomic;

#[cfg(any(loom, target_has_atomic = "64"))]
use atomic::AtomicU64;
use atomic::{AtomicBool, Ordering};
#[cfg(not(any(loom, target_has_atomic = "64")))]
use portable_atomic::AtomicU64;

#[cfg(not(loom))]
mod cell {
    #[derive(Debug)]
    pub(super) struct UnsafeCell<T>(core::cell::UnsafeCell<T>);

    #[derive(Debug)]
    pub(super) struct MutPtr<T>(*mut T);

    impl<T> UnsafeCell<T> {
        pub(super) const fn new(value: T) -> UnsafeCell<T> {
            UnsafeCell(core::cell::UnsafeCell::new(value))
        }

        pub(super) fn get_mut(&self) -> MutPtr<T> {
            MutPtr(self.0.get())
        }
    }

    impl<T> MutPtr<T> {
        /// # Safety
        /// No other code may use the value meanwhile, and the cell must live.
        #[expect(clippy::mut_from_ref, reason = "loom's signature")]
        pub(super) unsafe fn deref(&self) -> &mut T {
            // SAFETY: the caller's promise.
            unsafe { &mut *self.0 }
        }
    }
}

/// A mutex whose last access to its own memory is the store that unlocks it.
///
/// std's mutex does not guarantee this. Dropping the last block of a dropped pool frees this lock, possibly right after
/// another thread has unlocked it. Waiters spin, then yield, then sleep.
#[derive(Debug)]
pub(crate) struct Lock<T> {
    held: AtomicBool,
    value: cell::UnsafeCell<T>,
}

// SAFETY: at most one thread at a time has access to the value, and only through the lock.
unsafe impl<T: Send> Sync for Lock<T> {}
// SAFETY: the owner of the lock owns the value.
unsafe impl<T: Send> Send for Lock<T> {}

/// Access to the value of a lock; dropping it unlocks.
///
/// # Invariants
/// 1. While the guard lives, the lock lives and is held, by this guard alone.
pub(crate) struct Guard<'a, T> {
    // Fields drop in order: access to the value ends before the lock is released.
    value: cell::MutPtr<T>,
    _unlock: Unlock,
    scope: PhantomData<&'a Lock<T>>,
}

/// Unlocks when dropped. A pointer, not a reference: another thread may free the lock as soon as it is released.
struct Unlock(NonNull<AtomicBool>);

impl<T> Lock<T> {
    pub(crate) fn new(value: T) -> Lock<T> {
        Lock { held: AtomicBool::new(false), value: cell::UnsafeCell::new(value) }
    }

    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T> {
        // SYNC lock (acquire)
        if self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.wait();
        }
        Guard { value: self.value.get_mut(), _unlock: Unlock(NonNull::from(&self.held)), scope: PhantomData }
    }

    #[cold]
    fn wait(&self) {
        let mut round = 0;
        loop {
            // Load first: a failed exchange takes the cache line from the holder.
            // SYNC lock (acquire)
            if !self.held.load(Ordering::Relaxed)
                && self.held.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
            {
                return;
            }
            pause(round);
            round += 1;
        }
    }
}

#[cfg(not(loom))]
fn pause(round: u32) {
    use std::time::Duration;
    match round {
        0..100 => core::hint::spin_loop(),
        100..120 => std::thread::yield_now(),
        _ => std::thread::sleep(Duration::from_micros(u64::from((round - 119).min(20)) * 10)),
    }
}

#[cfg(loom)]
fn pause(_round: u32) {
    loom::thread::yield_now();
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: invariant 1: the lock lives, and no other code uses the value.
        unsafe { self.value.deref() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: invariant 1: the lock lives, and no other code uses the value; `&mut self` makes this the only
        // reference.
        unsafe { self.value.deref() }
    }
}

impl Drop for Unlock {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: invariant 1 of Guard, whose field this is: the lock lives until the store below.
        let held = unsafe { self.0.as_ref() };
        // SYNC lock (release)
        held.store(false, Ordering::Release);
    }
}

/// A number that one thread changes and any thread reads; on 64-bit CPUs without a locked instruction on either side.
///
/// A thread that reads a value with `get` sees everything that the writer did before it wrote the value.
#[derive(Debug)]
pub(crate) struct OwnerCounter(AtomicU64);

impl OwnerCounter {
    pub(crate) fn new() -> OwnerCounter {
        OwnerCounter(AtomicU64::new(0))
    }

    /// Adds `more`. Only one thread may do so at a time; otherwise counts are lost.
    #[inline]
    pub(crate) fn add(&self, more: u64) {
        let sum = self.0.load(Ordering::Relaxed).wrapping_add(more);
        // SYNC count (release)
        self.0.store(sum, Ordering::Release);
    }

    #[inline]
    pub(crate) fn get_own(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn get(&self) -> u64 {
        // SYNC count (acquire)
        self.0.load(Ordering::Acquire)
    }
}

/// A number of bytes that any thread takes from and adds to; never negative.
#[derive(Debug)]
pub(crate) struct ByteBudget(AtomicU64);

impl ByteBudget {
    pub(crate) fn new(amount: u64) -> ByteBudget {
        ByteBudget(AtomicU64::new(amount))
    }

    /// Takes up to `count` portions of `each` bytes; `each` is not 0. Returns the number of portions.
    pub(crate) fn take(&self, count: u64, each: u64) -> u64 {
        let mut left = self.0.load(Ordering::Relaxed);
        loop {
            let taken = count.min(left / each);
            // No write, so the cache line stays shared by all readers.
            if taken == 0 {
                return 0;
            }
            // Relaxed: the amount guards no other memory.
            match self.0.compare_exchange_weak(
                left,
                left - taken * each,
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return taken,
                Err(now) => left = now,
            }
        }
    }

    pub(crate) fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub(crate) struct Flag(AtomicBool);

impl Flag {
    pub(crate) fn new() -> Flag {
        Flag(AtomicBool::new(false))
    }

    pub(crate) fn raise(&self) {
        // SYNC flag (release)
        self.0.store(true, Ordering::Release);
    }

    #[inline]
    pub(crate) fn is_raised(&self) -> bool {
        // SYNC flag (acquire)
        self.0.load(Ordering::Acquire)
    }

    /// As `is_raised`, without ordering: for callers that access no memory that the flag guards.
    #[inline]
    pub(crate) fn is_raised_relaxed(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;

    #[test]
    fn budget_is_not_granted_twice() {
        loom::model(|| {
            let stock = Arc::new(ByteBudget::new(3));
            let other = {
                let stock = Arc::clone(&stock);
                loom::thread::spawn(move || {
                    let taken = stock.take(2, 1);
                    stock.add(1);
                    taken
                })
            };
            let here = stock.take(2, 1);
            let there = other.join().unwrap();
            assert_eq!(here + there + stock.take(u64::MAX, 1), 4);
        });
    }

    #[test]
    fn lock_excludes_and_publishes() {
        loom::model(|| {
            let lock = Arc::new(Lock::new(0));
            let other = {
                let lock = Arc::clone(&lock);
                loom::thread::spawn(move || *lock.lock() += 1)
            };
            *lock.lock() += 1;
            other.join().unwrap();
            assert_eq!(*lock.lock(), 2);
        });
    }
}
