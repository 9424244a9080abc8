use core::ptr::NonNull;
use std::alloc::Layout;

use super::{Backing, Storage, StorageError, sys, whole_pages};
use crate::class::MAX_ALIGN;

/// Memory from the global allocator, aligned to 4096 bytes and not zeroed.
///
/// ```
/// use mpj_pool::{Heap, Storage};
/// let heap = Heap::create(10_000)?;
/// assert_eq!(heap.size(), 12_288);
/// # Ok::<(), mpj_pool::StorageError>(())
/// ```
///
/// # Invariants
/// 1. `base` was allocated by `create` with `layout` and is freed by `drop` alone.
#[derive(Debug)]
pub struct Heap {
    base: NonNull<u8>,
    layout: Layout,
}

impl Heap {
    /// Allocates `len` bytes, rounded up to a multiple of 4096.
    ///
    /// # Errors
    /// [`StorageError::Size`] above `isize::MAX`, [`StorageError::Refused`] if the allocator fails.
    #[expect(clippy::disallowed_methods, reason = "the one place that allocates by hand")]
    pub fn create(len: usize) -> Result<Heap, StorageError> {
        const MAX: usize = isize::MAX as usize & !(MAX_ALIGN - 1);
        let size = whole_pages(len, MAX_ALIGN, MAX)?;
        let layout = Layout::from_size_align(size, MAX_ALIGN)
            .map_err(|_| StorageError::Size { asked: len, most: MAX })?;
        // SAFETY: `alloc` needs a layout of non-zero size; `whole_pages` returns at least one page.
        let base = unsafe { std::alloc::alloc(layout) };
        match NonNull::new(base) {
            Some(base) => Ok(Heap { base, layout }),
            None => Err(StorageError::Refused { asked: len, call: "alloc", errno: sys::OUT_OF_MEMORY }),
        }
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: invariant 1: `base` came from `alloc` with this layout and is freed here only.
        #[expect(clippy::disallowed_methods, reason = "the one place that frees by hand")]
        unsafe {
            std::alloc::dealloc(self.base.as_ptr(), self.layout)
        }
    }
}

// SAFETY: the value owns its allocation and returns only its address.
unsafe impl Send for Heap {}
// SAFETY: no method changes anything.
unsafe impl Sync for Heap {}

// SAFETY: 1, 2, 4: invariant 1 makes it one allocation of `layout`, aligned to 4096, that no other code knows and that
// lives as long as the value. 3: no field changes.
unsafe impl Storage for Heap {
    fn base(&self) -> NonNull<u8> {
        self.base
    }

    fn size(&self) -> usize {
        self.layout.size()
    }

    fn backing(&self) -> Backing {
        Backing::Heap
    }
}
