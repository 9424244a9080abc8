//! Atomics, locks, cells and thread locals: those of std, or those of loom under `cfg(loom)`, which explores the
//! interleavings of a model.
//!
//! Modelled code imports them from here, including code of `mpj`. Models use ordinary memory instead of a segment,
//! because loom's atomics differ in size from those of std.

#[cfg(loom)]
pub use loom::{cell, sync::atomic};

#[cfg(loom)]
pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};

#[cfg(not(loom))]
pub use std::sync::atomic;

#[cfg(not(loom))]
pub(crate) use std::{
    sync::{Condvar, Mutex, MutexGuard},
    thread_local,
};

use std::sync::{PoisonError, TryLockError};

#[cfg(not(loom))]
pub mod cell {
    /// Std's cell with the interface of loom's.
    #[derive(Debug)]
    #[repr(transparent)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub const fn new(value: T) -> Self {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        /// Calls `read` with the address of the value, to read it.
        #[inline(always)]
        pub fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        /// Calls `write` with the address of the value, to write it.
        #[inline(always)]
        pub fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

/// Declares one of loom's thread locals with std's syntax for a constant value.
#[cfg(loom)]
macro_rules! local {
    ($(#[$attr:meta])* static $name:ident: $type:ty = const $value:block;) => {
        ::loom::thread_local! { $(#[$attr])* static $name: $type = $value }
    };
}

#[cfg(loom)]
pub(crate) use local as thread_local;

/// Locks a mutex, even after a holder has panicked: the protected data is consistent between any two statements.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Lets other threads run: yields in the first 100 rounds, and then sleeps, because a yield does not let threads of
/// lower priority run.
#[cfg(not(loom))]
pub(crate) fn pause(round: u32) {
    match round {
        0..100 => std::thread::yield_now(),
        _ => std::thread::sleep(std::time::Duration::from_micros(100)),
    }
}

#[cfg(loom)]
pub(crate) fn pause(_round: u32) {
    loom::thread::yield_now();
}
