//! The memory of a partitioned message.

use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;

use mpj_datatypes::Equivalent;

use crate::raw::Buf;

/// The items of a partitioned message, in parts of the same length.
///
/// # Invariants
/// 1. `base` and `len` are those of a `Box<[T]>`, which this value owns.
/// 2. The items of a part are accessed only by the holder of that part, or by the operation (`partitioned.rs`).
pub(crate) struct PartBuffer<T> {
    base: NonNull<T>,
    len: usize,
    part_len: usize,
}

// SAFETY: it owns its items, as a `Box` does.
unsafe impl<T: Send> Send for PartBuffer<T> {}
// SAFETY: threads share parts of it only as `&[T]`, or pass one `&mut [T]` on.
unsafe impl<T: Send + Sync> Sync for PartBuffer<T> {}

impl<T> PartBuffer<T> {
    pub(crate) fn new(items: Box<[T]>, parts: usize) -> Arc<Self> {
        let len = items.len();
        let base = NonNull::from(Box::leak(items)).cast();
        // `raw` rejects 0 parts, and lengths that are not multiples of `parts`.
        Arc::new(PartBuffer { base, len, part_len: len.checked_div(parts).unwrap_or(0) })
    }

    pub(super) fn part(&self, part: usize) -> NonNull<[T]> {
        let first = self.base.as_ptr().wrapping_add(part * self.part_len);
        let first = NonNull::new(first).unwrap_or(self.base);
        NonNull::slice_from_raw_parts(first, self.part_len)
    }

    pub(super) fn all(&self) -> NonNull<[T]> {
        NonNull::slice_from_raw_parts(self.base, self.len)
    }
}

impl<T: Equivalent> PartBuffer<T> {
    pub(crate) fn buf(&self) -> Buf {
        Buf::new(self.base.as_ptr().cast(), self.len, T::datatype())
    }
}

impl<T> Drop for PartBuffer<T> {
    fn drop(&mut self) {
        // SAFETY: invariant 1, and nobody else uses the items.
        drop(unsafe { Box::from_raw(self.all().as_ptr()) });
    }
}

impl<T> fmt::Debug for PartBuffer<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PartBuffer")
    }
}
