//! Private anonymous pages: the paper's direct buffers.

use core::ptr::NonNull;

use memmap2::{Advice, MmapMut, MmapOptions, MmapRaw};
use rustix::io::Errno;

use super::{Backing, Storage, StorageError, whole_pages};

/// The size of a huge page on the machines we know.
const HUGE: usize = 2 << 20;

/// A private anonymous mapping, aligned to 2 MiB, advised to use huge pages, faulted in when made.
///
/// ```
/// use mpj_pool::{Pages, Storage};
/// let pages = Pages::create(1 << 20)?;
/// assert_eq!(pages.base().addr().get() % (2 << 20), 0);
/// # Ok::<(), mpj_pool::StorageError>(())
/// ```
///
/// # Invariants
/// 1. `base..base + size` lies in `map`, `base` is a multiple of 2 MiB, and `size` is at least one page.
#[derive(Debug)]
pub struct Pages {
    map: MmapRaw,
    start: usize,
    size: usize,
    thp: bool,
}

impl Pages {
    /// Maps `len` bytes, rounded up to whole pages, and faults them in.
    ///
    /// # Errors
    /// [`StorageError::Size`] above what an address space holds, [`StorageError::Refused`] if the system has no more.
    pub fn create(len: usize) -> Result<Pages, StorageError> {
        const MOST: usize = (isize::MAX as usize & !(HUGE - 1)) - HUGE;
        let page = rustix::param::page_size();
        let size = whole_pages(len, page, MOST)?;
        // Address space is cheap: one huge page more lets the start be aligned, and is never touched.
        let map = MmapOptions::new()
            .len(size + HUGE)
            .map_anon()
            .map_err(|error| StorageError::os(len, "mmap", error))?;
        let start = map.as_ptr().align_offset(HUGE);
        let thp = map.advise_range(Advice::HugePage, start, size).is_ok();
        let map =
            populate(map, start, size, page).map_err(|error| StorageError::os(len, "madvise", error))?;
        Ok(Pages { map: map.into(), start, size, thp })
    }
}

/// Faults `size` bytes from `start` in, so that no later access waits for the kernel.
fn populate(mut map: MmapMut, start: usize, size: usize, page: usize) -> std::io::Result<MmapMut> {
    match map.advise_range(Advice::PopulateWrite, start, size) {
        Ok(()) => Ok(map),
        // Kernels before 5.14 do not know the advice.
        Err(error) if error.raw_os_error() == Some(Errno::INVAL.raw_os_error()) => {
            map[start..start + size].iter_mut().step_by(page).for_each(|byte| *byte = 0);
            Ok(map)
        }
        Err(error) => Err(error),
    }
}

// SAFETY: 1: by invariant 1 the range lies in a private anonymous mapping, which nothing can truncate and which is
// unmapped when `map` is dropped, with the value. 2: invariant 1. 3: no field changes. 4: the mapping is this value's
// own.
unsafe impl Storage for Pages {
    fn base(&self) -> NonNull<u8> {
        // SAFETY: `start` is within the mapping by invariant 1, so the sum is neither out of bounds nor null.
        unsafe { NonNull::new_unchecked(self.map.as_mut_ptr().wrapping_add(self.start)) }
    }

    fn size(&self) -> usize {
        self.size
    }

    fn backing(&self) -> Backing {
        Backing::Pages { thp: self.thp }
    }
}
