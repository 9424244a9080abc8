use core::ptr::NonNull;

use memmap2::MmapRaw;

use super::{Backing, Pages, Storage, StorageError, sys, whole_pages};

const HUGE: usize = 2 << 20;

/// Memory in huge pages of 2 MiB from the reserve of Linux (`vm.nr_hugepages`), or [`Pages`] if that fails.
///
/// Compared with 4 KiB pages, a TLB entry covers 512 times as much, and a device needs 1/512 of the entries.
/// [`backing`](Storage::backing) returns the kind:
///
/// ```
/// use mpj_pool::{Backing, Huge, Storage};
/// let huge = Huge::create(1 << 20)?;
/// match huge.backing() {
///     Backing::Huge { page } => assert_eq!(huge.size() % page, 0),
///     other => assert!(matches!(other, Backing::Pages { .. })),
/// }
/// # Ok::<(), mpj_pool::StorageError>(())
/// ```
#[derive(Debug)]
pub struct Huge {
    inner: Inner,
}

/// # Invariants
/// 1. `Reserved` maps a whole file that no other process has, with memory for each page.
#[derive(Debug)]
enum Inner {
    Reserved { map: MmapRaw, size: usize },
    Pages(Pages),
}

impl Huge {
    /// Maps `len` bytes, rounded up to huge pages, and faults them in. If that fails, calls [`Pages::create`].
    ///
    /// # Errors
    /// [`StorageError::Size`] above the address space, [`StorageError::Refused`] if the system has no memory.
    pub fn create(len: usize) -> Result<Huge, StorageError> {
        let inner = match Self::reserved(len) {
            Ok(inner) => inner,
            Err(_) => Inner::Pages(Pages::create(len)?),
        };
        Ok(Huge { inner })
    }

    fn reserved(len: usize) -> Result<Inner, StorageError> {
        let size = whole_pages(len, HUGE, isize::MAX as usize & !(HUGE - 1))?;
        Ok(Inner::Reserved { map: sys::reserve(size)?, size })
    }
}

// SAFETY: for pages: as `Pages` does. Otherwise 1: by invariant 1 the mapping is whole and stays so, as the file has no
// name and its descriptor is closed; it is unmapped with the value. 2: huge pages are aligned to their size. 3: no
// field changes. 4: no other process has the file.
unsafe impl Storage for Huge {
    fn base(&self) -> NonNull<u8> {
        match &self.inner {
            // SAFETY: a mapping does not start at address zero.
            Inner::Reserved { map, .. } => unsafe { NonNull::new_unchecked(map.as_mut_ptr()) },
            Inner::Pages(pages) => pages.base(),
        }
    }

    fn size(&self) -> usize {
        match &self.inner {
            Inner::Reserved { size, .. } => *size,
            Inner::Pages(pages) => pages.size(),
        }
    }

    fn page_size(&self) -> usize {
        match &self.inner {
            Inner::Reserved { .. } => HUGE,
            Inner::Pages(pages) => pages.page_size(),
        }
    }

    fn backing(&self) -> Backing {
        match &self.inner {
            Inner::Reserved { .. } => Backing::Huge { page: HUGE },
            Inner::Pages(pages) => pages.backing(),
        }
    }
}
