//! Storages for a rank's own pool. They are in the segment, so that every rank of the host can read the blocks.
//!
//! No other rank makes storages there, so the list of free ranges is not in shared memory. A range is backed by memory
//! for as long as there is a storage over it.

use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;

use mpj_pool::{Backing, Storage, StorageError};

use super::segment::Segment;
use super::segment_layout::{PAGE, STATE_BYTES};
use crate::sync::{Mutex, lock};

#[derive(Debug)]
pub(super) struct PoolSpace {
    segment: Arc<Segment>,
    /// The range of the state words of exported blocks. It is backed by memory once a storage has been made.
    words: Range<usize>,
    /// In ascending order; no two ranges touch.
    free: Mutex<Vec<Range<usize>>>,
}

impl PoolSpace {
    /// Returns `None` if the rank has no pool.
    pub(super) fn new(segment: &Arc<Segment>, index: u32) -> Option<Arc<Self>> {
        let pool = segment.layout().pool(index);
        let words = pool.start..pool.start + STATE_BYTES;
        let free = Mutex::new(std::iter::once(words.end..pool.end).collect());
        let is_there = words.end < pool.end;
        is_there.then(|| Arc::new(PoolSpace { segment: Arc::clone(segment), words, free }))
    }

    /// Makes a storage of at least `len` bytes, rounded up to whole pages.
    pub(super) fn make(self: &Arc<Self>, len: usize) -> Result<PoolStorage, StorageError> {
        let mut free = lock(&self.free);
        let most = free.iter().map(Range::len).max().unwrap_or(0);
        let size = len.max(1).checked_next_multiple_of(PAGE).filter(|size| *size <= most);
        let size = size.ok_or(StorageError::Size { asked: len, most })?;
        let at = free.iter().position(|range| range.len() >= size);
        let at = at.ok_or(StorageError::Size { asked: len, most })?;
        let range = free[at].start..free[at].start + size;
        self.segment.reserve_blocks(&self.words)?;
        self.segment.reserve_blocks(&range)?;
        free[at].start = range.end;
        if free[at].is_empty() {
            free.remove(at);
        }
        Ok(PoolStorage { space: Arc::clone(self), range })
    }

    fn free_range(&self, range: Range<usize>) {
        let mut free = lock(&self.free);
        let at = free.partition_point(|other| other.start < range.start);
        free.insert(at, range);
        if at + 1 < free.len() && free[at].end == free[at + 1].start {
            free[at].end = free.remove(at + 1).end;
        }
        if at > 0 && free[at - 1].end == free[at].start {
            free[at - 1].end = free.remove(at).end;
        }
    }
}

#[derive(Debug)]
pub(super) struct PoolStorage {
    space: Arc<PoolSpace>,
    range: Range<usize>,
}

impl Drop for PoolStorage {
    fn drop(&mut self) {
        // SAFETY: the range belongs to this value alone, and an exported block of it keeps this value alive.
        unsafe { self.space.segment.release_blocks(&self.range) };
        self.space.free_range(self.range.clone());
    }
}

// SAFETY: 1: the segment is mapped, sealed against truncation, and kept alive; the range is inside. 2: pools begin on
// pages of the segment, which begins after the header page, and ranges are whole pages. 3: no field changes. 4: ranges
// leave the free list, and return to it with the value; other processes read a block only while it is exported.
unsafe impl Storage for PoolStorage {
    fn base(&self) -> NonNull<u8> {
        self.space.segment.address(&self.range)
    }

    fn size(&self) -> usize {
        self.range.len()
    }

    fn page_size(&self) -> usize {
        PAGE
    }

    fn backing(&self) -> Backing {
        Backing::Shared
    }
}

#[cfg(all(test, target_os = "linux", not(mpj_portable), not(miri), not(loom)))]
mod tests {
    use super::super::SHM_POOL_MIB;
    use super::*;
    use crate::config::Config;

    fn space(mib: u64) -> Option<Arc<PoolSpace>> {
        let mut config = Config::default();
        config.set(&SHM_POOL_MIB, mib).unwrap();
        PoolSpace::new(&Arc::new(Segment::create(2, &config).unwrap()), 1)
    }

    #[test]
    fn freed_ranges_are_merged() {
        let space = space(1).unwrap();
        let all = lock(&space.free).clone();
        let len = all[0].len();
        for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [0, 2, 1], [1, 2, 0], [2, 0, 1]] {
            let mut parts: Vec<_> =
                [1, 5000, len - 3 * PAGE].map(|len| Some(space.make(len).unwrap())).into();
            assert!(lock(&space.free).is_empty());
            assert!(matches!(space.make(1), Err(StorageError::Size { asked: 1, most: 0 })));
            let ranges: Vec<_> = parts.iter().flatten().map(|part| part.range.clone()).collect();
            assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
            order.into_iter().for_each(|at| parts[at] = None);
            assert_eq!(*lock(&space.free), all);
        }
    }

    #[test]
    fn new_storages_are_zero() {
        let space = space(1).unwrap();
        for _ in 0..2 {
            let part = space.make(8192).unwrap();
            // SAFETY: the part is ours, and has memory.
            let bytes = unsafe { std::slice::from_raw_parts_mut(part.base().as_ptr(), 8192) };
            assert!(bytes.iter().all(|byte| *byte == 0));
            bytes.fill(7);
        }
    }

    #[test]
    fn missing_pools_and_too_long_storages_are_refused() {
        assert!(space(0).is_none());
        for len in [2 << 20, usize::MAX] {
            assert!(space(1).unwrap().make(len).is_err(), "{len}");
        }
    }
}
