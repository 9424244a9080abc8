//! Atomics and cells: std's, or loom's where `devices/check/loom` tries every interleaving of a model.

#[cfg(loom)]
pub(crate) use loom::{cell, sync::atomic};

#[cfg(not(loom))]
pub(crate) use std::sync::atomic;

#[cfg(not(loom))]
pub(crate) mod cell {
    /// Std's cell with the face of loom's.
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            UnsafeCell(std::cell::UnsafeCell::new(value))
        }

        /// Calls `look` with where the value is, to read it.
        #[inline(always)]
        pub(crate) fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
            look(self.0.get())
        }

        /// Calls `change` with where the value is, to write it.
        #[inline(always)]
        pub(crate) fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
            change(self.0.get())
        }
    }
}
