//! Atomics, locks, cells and thread locals: std's, or loom's where `check/loom` tries every interleaving of a model.
//!
//! What is modelled takes them from here, in `mpj` too. No model has a segment: loom's words have another size than those that
//! processes share, so it places them in memory of its own.

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
    /// Std's cell with the face of loom's.
    #[derive(Debug)]
    #[repr(transparent)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub const fn new(value: T) -> Self {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        /// Calls `look` with where the value is, to read it.
        #[inline(always)]
        pub fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
            look(self.0.get())
        }

        /// Calls `change` with where the value is, to write it.
        #[inline(always)]
        pub fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
            change(self.0.get())
        }
    }
}

/// Loom's thread locals, one at a time, with std's word for a value that is known when the program is built.
#[cfg(loom)]
macro_rules! local {
    ($(#[$attr:meta])* static $name:ident: $type:ty = const $value:block;) => {
        ::loom::thread_local! { $(#[$attr])* static $name: $type = $value }
    };
}

#[cfg(loom)]
pub(crate) use local as thread_local;

/// Locks, also after a panic of a holder: what these locks protect is whole between two statements.
#[inline]
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks if nobody has it, as [`lock`] does.
pub(crate) fn try_lock<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    match mutex.try_lock() {
        Ok(guard) => Some(guard),
        Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

/// Lets other threads run: by yielding in the first rounds, and then by sleeping, as a yield does not let those run that
/// have a lower priority.
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
