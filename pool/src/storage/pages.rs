use core::ptr::NonNull;
use std::sync::Arc;

use memmap2::{MmapOptions, MmapRaw};

use super::{Backing, Storage, StorageError, sys, whole_pages};

const HUGE: usize = 2 << 20;

/// A private anonymous mapping, aligned to 2 MiB and advised to use huge pages.
///
/// The first 4 MiB are faulted in when [`create`](Pages::create) returns. From Linux 5.14 on, a short-lived thread
/// faults in the rest, 2 MiB at a time from the start, where a pool allocates first. Otherwise, the first access faults
/// a page in. Other systems use ordinary pages.
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
    /// Shared with the thread that faults in the rest, which changes no byte.
    map: Arc<MmapRaw>,
    start: usize,
    size: usize,
    thp: bool,
}

impl Pages {
    const EAGER_BYTES: usize = 2 * HUGE;

    /// Maps `len` bytes, rounded up to whole ordinary pages, and faults in the first 4 MiB.
    ///
    /// # Errors
    /// [`StorageError::Size`] above the address space, [`StorageError::Refused`] if the system has no memory.
    pub fn create(len: usize) -> Result<Pages, StorageError> {
        const MAX: usize = (isize::MAX as usize & !(HUGE - 1)) - HUGE;
        let size = whole_pages(len, sys::page_size(), MAX)?;
        // One more huge page of address space lets the start be aligned. The surplus is never touched.
        let mut map = MmapOptions::new()
            .len(size + HUGE)
            .map_anon()
            .map_err(|error| StorageError::os(len, "mmap", error))?;
        let start = map.as_ptr().align_offset(HUGE);
        let thp = sys::advise_huge(&map, start, size);
        let first = size.min(Self::EAGER_BYTES);
        sys::fault_in(&mut map, start, first).map_err(|error| StorageError::os(len, "madvise", error))?;
        let map = Arc::new(MmapRaw::from(map));
        if sys::POPULATES && size > first {
            populate(&map, start + first, start + size);
        }
        Ok(Pages { map, start, size, thp })
    }
}

/// Faults in a range on a new thread, if possible.
///
/// The advice allocates pages as a write would, but changes no byte, so the range may be in use meanwhile.
fn populate(map: &Arc<MmapRaw>, from: usize, to: usize) {
    let map = Arc::clone(map);
    let work = move || {
        for at in (from..to).step_by(HUGE) {
            // If this thread has the last handle of the mapping, the pages will not be used.
            let is_alone = Arc::strong_count(&map) == 1;
            if is_alone || sys::populate(&map, at, HUGE.min(to - at)).is_err() {
                return;
            }
        }
    };
    drop(std::thread::Builder::new().name("mpj-pool-pages".to_owned()).spawn(work));
}

// SAFETY: 1: by invariant 1 the range lies in a private anonymous mapping, which nothing can truncate and which is
// unmapped when `map` is dropped, with the value or later. 2: invariant 1. 3: no field changes. 4: the mapping is this
// value's own; the thread that shares it only advises the kernel on it, and never passes on its address.
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

    unsafe fn discard(&self, at: usize, len: usize) -> bool {
        // SAFETY: the caller's promise; the range lies in the mapping by invariant 1.
        unsafe { sys::discard(&self.map, self.start + at, len) }
    }
}
