//! Locks that one thread takes with plain loads and stores only, until another thread needs one of them.
//!
//! A locked instruction waits until the processor's store buffer is empty. The buffer contains the store to a ring's
//! cell, whose cache line the other core holds, so this wait costs more than all the rest of a small message. Therefore
//! the locks between a send and its receive are *biased* to one thread, the one that opened the engine. That thread
//! sets a flag in the lock, and then checks that it still owns the bias. When another thread first needs a lock, it
//! revokes the bias, makes all threads of the process execute a full fence (`membarrier`), and then reads the flag. So
//! at least one of the two threads sees the other's write. From then on every thread takes a real lock. If the system
//! does not support `membarrier`, or under the thread sanitizer, the locks are never biased.

#[cfg(all(test, loom))]
mod model;

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::Duration;

use crate::fence::{self, LightFence};
use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::cell::UnsafeCell;
use crate::sync::{self, thread_local};

/// The thread to which the locks of one engine are biased, if any.
#[derive(Debug)]
pub struct Bias {
    /// The number of the thread to which the locks are biased, [`REVOKING`] or [`SHARED`].
    owner: AtomicU64,
    light: LightFence,
}

/// All threads take real locks.
const SHARED: u64 = 0;
/// A thread is revoking the bias; the former owner might not have noticed it yet.
const REVOKING: u64 = 1;
/// A time much longer than a store stays in a processor's store buffer.
const STORE_BUFFER_DRAIN: Duration = Duration::from_millis(1);
const FIRST_THREAD: u64 = 2;

thread_local! {
    /// The number of this thread, which no other thread ever has; 0 before the first use.
    static THREAD: Cell<u64> = const { Cell::new(0) };
}

#[inline]
fn this_thread() -> u64 {
    match THREAD.try_with(Cell::get) {
        Ok(0) | Err(_) => number_this_thread(),
        Ok(number) => number,
    }
}

#[cold]
fn number_this_thread() -> u64 {
    static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(FIRST_THREAD);
    let number = NEXT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
    let _ = THREAD.try_with(|thread| thread.set(number));
    number
}

impl Bias {
    /// Creates a bias to this thread, or to no thread if locks cannot be biased here.
    pub fn new() -> Arc<Self> {
        let is_supported = cfg!(loom) || (!cfg!(mpj_tsan) && fence::is_asymmetric());
        let owner = if is_supported { this_thread() } else { SHARED };
        Arc::new(Bias { owner: AtomicU64::new(owner), light: LightFence::new() })
    }

    /// Revokes the bias. When this returns, this thread sees the `held` flag of every lock that the owner holds.
    #[inline]
    fn revoke(&self) {
        // SYNC bias (acquire)
        if self.owner.load(Ordering::Acquire) != SHARED {
            self.revoke_slow();
        }
    }

    #[cold]
    fn revoke_slow(&self) {
        let to_revoking = |owner| (owner != SHARED).then_some(REVOKING);
        if self.owner.fetch_update(Ordering::SeqCst, Ordering::Acquire, to_revoking).is_ok() {
            if !fence::heavy_fence() {
                // After this time every earlier store of the owner is visible.
                std::thread::sleep(STORE_BUFFER_DRAIN);
            }
            // SYNC bias (release): a thread that reads `SHARED` does not need the fence.
            self.owner.store(SHARED, Ordering::Release);
        }
    }
}

/// A value and its lock, which can be biased to one thread.
///
/// # Invariants
/// 1. Only the thread that the bias was created for writes `held`.
/// 2. A thread that uses the value through a guard either has set `held` and has then seen, after a fence, that it owns
///    the bias; or it holds `lock` and has seen after the revocation that `held` is not set.
pub struct Mutex<T> {
    bias: Arc<Bias>,
    /// Whether the owner of the bias has locked the value.
    held: AtomicBool,
    lock: sync::Mutex<()>,
    value: UnsafeCell<T>,
}

// SAFETY: by invariant 2 one thread at a time uses the value.
unsafe impl<T: Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Mutex<T> {}

/// Access to the value, until it is dropped.
pub struct MutexGuard<'a, T> {
    mutex: &'a Mutex<T>,
    value: PhantomData<&'a mut T>,
    /// `None` for the owner of the bias, which does not need the lock.
    lock: Option<sync::MutexGuard<'a, ()>>,
}

impl<T> Mutex<T> {
    /// Creates a lock that has this bias.
    pub fn new(bias: &Arc<Bias>, value: T) -> Self {
        let (bias, held) = (Arc::clone(bias), AtomicBool::new(false));
        Mutex { bias, held, lock: sync::Mutex::new(()), value: UnsafeCell::new(value) }
    }

    /// Locks the value. If this thread has already locked it, this never returns. A panic does not poison the lock, so
    /// its holder must keep the value consistent wherever it can panic.
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        if self.try_lock_biased() {
            MutexGuard { mutex: self, value: PhantomData, lock: None }
        } else {
            self.lock_slow()
        }
    }

    /// Locks the value if it is free. While the bias is being revoked, this can fail even if no thread has locked it.
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        if self.try_lock_biased() {
            Some(MutexGuard { mutex: self, value: PhantomData, lock: None })
        } else {
            self.try_lock_slow()
        }
    }

    /// Locks by the bias; returns false if this thread does not own the bias, or has locked the value already.
    #[inline]
    fn try_lock_biased(&self) -> bool {
        let me = this_thread();
        if self.bias.owner.load(Ordering::Relaxed) != me || self.held.load(Ordering::Relaxed) {
            return false;
        }
        self.held.store(true, Ordering::Relaxed);
        self.bias.light.fence();
        // SYNC bias (acquire)
        if self.bias.owner.load(Ordering::Acquire) == me {
            return true;
        }
        self.held.store(false, Ordering::Release);
        false
    }

    #[cold]
    fn lock_slow(&self) -> MutexGuard<'_, T> {
        let lock = sync::lock(&self.lock);
        self.bias.revoke();
        let mut round = 0;
        // SYNC bias-held (acquire)
        while self.held.load(Ordering::Acquire) {
            sync::pause(round);
            round += 1;
        }
        MutexGuard { mutex: self, value: PhantomData, lock: Some(lock) }
    }

    #[cold]
    fn try_lock_slow(&self) -> Option<MutexGuard<'_, T>> {
        if self.bias.owner.load(Ordering::Relaxed) == this_thread() {
            // This thread has already locked the value.
            return None;
        }
        let lock = sync::try_lock(&self.lock)?;
        self.bias.revoke();
        // SYNC bias-held (acquire)
        let is_free = !self.held.load(Ordering::Acquire);
        is_free.then_some(MutexGuard { mutex: self, value: PhantomData, lock: Some(lock) })
    }

    /// Returns the value; the exclusive borrow replaces the lock.
    pub(crate) fn get_mut(&mut self) -> &mut T {
        // SAFETY: the borrow is exclusive.
        self.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: invariant 2.
        self.mutex.value.with(|value| unsafe { &*value })
    }
}

impl<T> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: invariant 2.
        self.mutex.value.with_mut(|value| unsafe { &mut *value })
    }
}

impl<T> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.lock.is_none() {
            // SYNC bias-held (release)
            self.mutex.held.store(false, Ordering::Release);
        }
    }
}

impl<T> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mutex")
    }
}

impl<T: fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::conformance::thread_time;

    #[test]
    fn owner_cannot_lock_twice() {
        let mutex = Mutex::new(&Bias::new(), 1);
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none());
        drop(guard);
        assert!(mutex.try_lock().is_some_and(|guard| *guard == 1));
    }

    #[test]
    fn owner_and_other_thread_exclude_each_other() {
        for _ in 0..200 {
            let mutex = Mutex::new(&Bias::new(), (0u64, 0u64));
            let count = || {
                for _ in 0..1000 {
                    let mut pair = mutex.lock();
                    pair.0 += 1;
                    assert_eq!(pair.0, pair.1 + 1);
                    pair.1 += 1;
                }
            };
            std::thread::scope(|scope| {
                scope.spawn(count);
                count();
                assert!(scope.spawn(|| mutex.try_lock().is_none_or(|pair| pair.0 == pair.1)).join().unwrap());
            });
            assert_eq!(*mutex.lock(), (2000, 2000));
        }
    }

    #[test]
    fn long_wait_for_the_lock_sleeps() {
        let mutex = Mutex::new(&Bias::new(), 0);
        let guard = mutex.lock();
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                let begun = thread_time();
                *mutex.lock() += 1;
                Some(thread_time()? - begun?)
            });
            std::thread::sleep(Duration::from_millis(300));
            drop(guard);
            let ran = other.join().unwrap();
            assert!(ran.is_none_or(|ran| ran < Duration::from_millis(60)), "{ran:?} on the core in 0.3 s");
        });
        assert_eq!(*mutex.lock(), 1);
    }

    #[test]
    fn panic_of_the_holder_releases_the_lock() {
        let mutex = Mutex::new(&Bias::new(), 0);
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _guard = mutex.lock();
            panic!("inside");
        }))
        .unwrap_err();
        assert_eq!(*mutex.lock(), 0);
        std::thread::scope(|scope| {
            scope.spawn(|| *mutex.lock() += 1);
        });
        assert_eq!(*mutex.lock(), 1);
    }
}
