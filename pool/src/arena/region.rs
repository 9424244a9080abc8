use core::ptr::NonNull;

use super::ArenaRegion;
use super::resident::Chunks;
use crate::buddy::{BuddyMap, Leaf};
use crate::cache::{self, RegionTag};
use crate::class::Class;
use crate::{MIN_BLOCK, Storage, StorageError};

#[derive(Clone, Copy, Debug)]
pub(super) struct BlockLocation {
    pub(super) slot: usize,
    pub(super) base: NonNull<u8>,
    pub(super) class: Option<Class>,
}

/// Counters of the blocks that the regions have granted and that are live or cached.
#[derive(Debug, Default)]
pub(super) struct RegionCounters {
    pub(super) blocks: u64,
    pub(super) bytes: usize,
    pub(super) peak: usize,
    /// Frees of blocks that no region had granted. Always 0, except after a bug.
    pub(super) invalid_frees: u64,
    /// Splits in regions that were removed; `merges` likewise.
    pub(super) splits: u64,
    pub(super) merges: u64,
}

#[derive(Debug)]
pub(super) struct RegionEntry<S: Storage> {
    pub(super) region: RegionBox<S>,
    pub(super) division: Division,
    /// The number of live and cached blocks.
    pub(super) granted: u64,
    /// The value of `State::direct_frees` when the block of this `Whole` region was freed.
    pub(super) idle_since: u64,
    /// The pages of this `Split` region.
    pub(super) chunks: Chunks,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a pool has few regions, and a box would add an indirection")]
pub(super) enum Division {
    Split(BuddyMap),
    Whole { is_live: bool },
}

impl Division {
    /// Divides a region of `size` bytes into blocks, all of which are free.
    pub(super) fn split(size: usize, eager_merge: bool) -> Result<Division, StorageError> {
        let leaves = (size / MIN_BLOCK) as u64;
        if !(1..=BuddyMap::MAX_LEAVES).contains(&leaves) {
            let most = BuddyMap::MAX_LEAVES as usize * MIN_BLOCK;
            return Err(StorageError::Size { asked: size, most });
        }
        let map = BuddyMap::new(leaves).ok_or(StorageError::MapMemory { size })?;
        Ok(Division::Split(map.with_eager_merge(eager_merge)))
    }
}

/// A region in a box that blocks point to.
///
/// # Invariants
/// 1. Made by `Box::leak`, and freed only when this value is dropped.
#[derive(Debug)]
pub(super) struct RegionBox<S: Storage>(NonNull<ArenaRegion<S>>);

impl<S: Storage> RegionBox<S> {
    pub(super) fn new(region: ArenaRegion<S>) -> RegionBox<S> {
        RegionBox(NonNull::from(Box::leak(Box::new(region))))
    }

    #[inline]
    pub(super) fn get(&self) -> &ArenaRegion<S> {
        // SAFETY: invariant 1; until the drop, regions are used through shared references only.
        unsafe { self.0.as_ref() }
    }

    #[inline]
    pub(super) fn tag(&self, class: Option<Class>) -> RegionTag {
        // SAFETY: a region is aligned to `RegionTag::ALIGN`, and the size of a type is a multiple of its alignment.
        unsafe { RegionTag::new(self.0.cast(), class) }
    }
}

impl<S: Storage> Drop for RegionBox<S> {
    fn drop(&mut self) {
        // SAFETY: invariant 1.
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

// SAFETY: it is a box of a region; the region's storage is Send and Sync, and the arena it points to may be used from
// any thread.
unsafe impl<S: Storage> Send for RegionBox<S> {}

impl<S: Storage> RegionEntry<S> {
    pub(super) fn size(&self) -> usize {
        self.region.get().storage.size()
    }

    #[inline]
    pub(super) fn count_block(
        &mut self,
        offset: usize,
        class: Option<Class>,
        counters: &mut RegionCounters,
    ) -> cache::BlockPtr {
        let capacity = class.map_or_else(|| self.size(), Class::bytes);
        self.granted += 1;
        counters.blocks += 1;
        counters.bytes += capacity;
        if counters.bytes > counters.peak {
            counters.peak = counters.bytes;
        }
        self.chunks.touch(offset, capacity);
        let base = self.region.get().storage.base();
        // SAFETY: the offsets that a map grants lie in the region, which is one allocation by the contract of Storage.
        let base = unsafe { base.add(offset) };
        cache::BlockPtr { base, tag: self.region.tag(class) }
    }

    #[inline]
    pub(super) fn take(&mut self, class: Class, counters: &mut RegionCounters) -> Option<cache::BlockPtr> {
        let Division::Split(map) = &mut self.division else { return None };
        let Leaf(leaf) = map.alloc_class(class)?;
        Some(self.count_block(leaf as usize * MIN_BLOCK, Some(class), counters))
    }

    /// Returns the pages of chunks without a block to the system: those that had none at the last call either or, with
    /// `at_once`, all. The caller has the lock of the arena.
    pub(super) fn discard_idle(&mut self, at_once: bool) {
        let Division::Split(map) = &mut self.division else { return };
        let storage = &self.region.get().storage;
        map.merge_all();
        let mut free = self.chunks.take_free(map, at_once);
        while free != 0 {
            let first = free.trailing_zeros();
            let count = (free >> first).trailing_ones();
            let run = u64::MAX >> (64 - count) << first;
            let (at, len) = ((first as usize) << self.chunks.shift, (count as usize) << self.chunks.shift);
            let has_whole_pages = (at | len).is_multiple_of(storage.page_size());
            // SAFETY: the range has whole pages, and no block lies in it. The map grants none of it meanwhile, because
            // the caller has the lock.
            if has_whole_pages && unsafe { storage.discard_unregistered(at, len) } {
                self.chunks.discard(run);
            }
            free &= !run;
        }
    }
}
