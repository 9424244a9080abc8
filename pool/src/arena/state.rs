use core::ptr::NonNull;
use std::time::Instant;

use super::region::{BlockLocation, Division, RegionBox, RegionCounters, RegionEntry};
use super::resident::Chunks;
use super::{Arena, ArenaRegion};
use crate::buddy::Leaf;
use crate::cache::{self, AllocCounters, ThreadCache};
use crate::class::Class;
use crate::registration::RegisteredStorage;
use crate::{MIN_BLOCK, PoolStats, Storage};

#[derive(Debug)]
pub(super) struct State<S: Storage> {
    pub(super) slots: Vec<Option<RegionEntry<S>>>,
    region_counters: RegionCounters,
    /// The largest total size so far of the regions that blocks share (`Division::Split`).
    max_split_bytes: usize,
    /// Counts of allocations and frees under the lock, and by threads that have exited.
    alloc_counters: AllocCounters,
    caches: Vec<CachePtr>,
    pub(super) returning: Returning,
    pool_dropped: bool,
    teardown_claimed: bool,
}

/// The progress of the passes that return memory. A pass takes a region at a time, so that the lock is held briefly.
#[derive(Debug, Default)]
pub(super) struct Returning {
    /// The slot of the next region.
    pub(super) next: usize,
    /// The earliest time at which the next pass begins; during a pass, that of this pass. `None` during the first pass.
    pub(super) due: Option<Instant>,
    /// The value of `State::direct_frees` when the previous pass ended; 0 in the first pass. A region of one block that
    /// was idle then, and is idle still, is returned.
    pub(super) frees_at_last_pass: u64,
    /// The bytes that were added to `CacheShared::large`, without those that a later pass has removed.
    pub(super) large_added: u64,
}

/// # Invariants
/// 1. The cache lives as long as it is in `State::caches`: its thread unregisters it before it frees it, unless the
///    cache was closed, and closing removes it from the list.
#[derive(Debug)]
struct CachePtr(NonNull<ThreadCache>);

// SAFETY: only counts are read and flags raised through it, all atomic.
unsafe impl Send for CachePtr {}

impl CachePtr {
    fn get(&self) -> &ThreadCache {
        // SAFETY: invariant 1.
        unsafe { self.0.as_ref() }
    }
}

/// The maximum number of idle regions of one block each that a pool keeps.
const MAX_IDLE: usize = 8;

impl<S: Storage> State<S> {
    pub(super) fn new() -> State<S> {
        State {
            slots: Vec::new(),
            region_counters: RegionCounters::default(),
            max_split_bytes: 0,
            alloc_counters: AllocCounters::default(),
            caches: Vec::new(),
            returning: Returning::default(),
            pool_dropped: false,
            teardown_claimed: false,
        }
    }

    /// Adds a region. Returns by how many bytes the split regions exceed their previous maximum.
    pub(super) fn insert(
        &mut self,
        arena: NonNull<Arena<S>>,
        id: u64,
        storage: S,
        division: Division,
    ) -> usize {
        let free = self.slots.iter().position(Option::is_none);
        let slot = free.unwrap_or(self.slots.len());
        if free.is_none() {
            self.slots.push(None);
        }
        let chunks = Chunks::new(storage.size());
        let region =
            RegionBox::new(ArenaRegion { storage: RegisteredStorage::new(storage), arena, id, slot });
        self.slots[slot] = Some(RegionEntry { region, division, granted: 0, idle_since: 0, chunks });
        let more =
            self.split_regions().map(RegionEntry::size).sum::<usize>().saturating_sub(self.max_split_bytes);
        self.max_split_bytes += more;
        more
    }

    #[inline]
    fn count_alloc(&mut self, capacity: usize, requested: usize) {
        self.alloc_counters.allocs += 1;
        self.alloc_counters.requested_bytes += requested as u64;
        self.alloc_counters.granted_bytes += capacity as u64;
    }

    #[inline]
    pub(super) fn alloc(&mut self, class: Class, requested: usize) -> Option<cache::BlockPtr> {
        let block = self.take(class)?;
        self.count_alloc(class.bytes(), requested);
        Some(block)
    }

    /// Takes a block out of the first region that has one, so that the last regions become idle.
    #[inline]
    pub(super) fn take(&mut self, class: Class) -> Option<cache::BlockPtr> {
        // Not `flatten`, which would double the time.
        for slot in &mut self.slots {
            if let Some(entry) = slot
                && let Some(taken) = entry.take(class, &mut self.region_counters)
            {
                return Some(taken);
            }
        }
        None
    }

    /// Allocates the smallest idle region of one block whose size is from `len` to twice `len`.
    pub(super) fn alloc_whole(&mut self, len: usize) -> Option<cache::BlockPtr> {
        let fits = |entry: &&mut RegionEntry<S>| {
            matches!(entry.division, Division::Whole { is_live: false })
                && (len..=len.saturating_mul(2)).contains(&entry.size())
        };
        let entry = self.slots.iter_mut().flatten().filter(fits).min_by_key(|entry| entry.size())?;
        entry.division = Division::Whole { is_live: true };
        let size = entry.size();
        let taken = entry.count_block(0, None, &mut self.region_counters);
        self.count_alloc(size, len);
        Some(taken)
    }

    /// Frees a live block. Returns the result of `take_oldest_idle`, which the caller drops after it releases the lock.
    #[inline]
    pub(super) fn free_block(&mut self, location: BlockLocation) -> Option<RegionEntry<S>> {
        self.alloc_counters.frees += 1;
        self.alloc_counters.freed_bytes += self.return_to_region(location) as u64;
        if location.class.is_some() {
            return None;
        }
        let entry = self.slots.get_mut(location.slot)?.as_mut()?;
        entry.idle_since = self.alloc_counters.frees;
        self.take_oldest_idle()
    }

    /// If more than `MAX_IDLE` regions of one block are idle, removes the one that has been idle for longest.
    #[cold]
    fn take_oldest_idle(&mut self) -> Option<RegionEntry<S>> {
        let is_idle = |entry: &RegionEntry<S>| matches!(entry.division, Division::Whole { is_live: false });
        if self.slots.iter().flatten().filter(|entry| is_idle(entry)).count() <= MAX_IDLE {
            return None;
        }
        let slots = self.slots.iter_mut().filter(|slot| slot.as_ref().is_some_and(is_idle));
        slots.min_by_key(|slot| slot.as_ref().map(|entry| entry.idle_since))?.take()
    }

    /// Grows a live block in place, for a request of `len` bytes. Returns `None` if that is impossible.
    ///
    /// Counts the new size as allocated and the old size as freed, but counts no allocation and no free.
    pub(super) fn grow(&mut self, location: BlockLocation, to: Class, len: usize) -> Option<cache::BlockPtr> {
        let from = location.class?;
        let entry = self.slots.get_mut(location.slot)?.as_mut()?;
        let Division::Split(map) = &mut entry.division else { return None };
        let leaf = Leaf((entry.region.get().offset(location.base) / MIN_BLOCK) as u64);
        if !map.grow(leaf, from, to) {
            return None;
        }
        entry.chunks.touch(entry.region.get().offset(location.base), to.bytes());
        self.region_counters.bytes += to.bytes() - from.bytes();
        self.region_counters.peak = self.region_counters.peak.max(self.region_counters.bytes);
        self.alloc_counters.requested_bytes += len as u64;
        self.alloc_counters.granted_bytes += to.bytes() as u64;
        self.alloc_counters.freed_bytes += from.bytes() as u64;
        Some(cache::BlockPtr { base: location.base, tag: entry.region.tag(Some(to)) })
    }

    /// Returns a block to its region. Returns the size of the block.
    #[inline]
    pub(super) fn return_to_region(&mut self, BlockLocation { slot, base, class }: BlockLocation) -> usize {
        let Some(Some(entry)) = self.slots.get_mut(slot) else {
            self.region_counters.invalid_frees += 1;
            return 0;
        };
        let capacity = class.map_or_else(|| entry.size(), Class::bytes);
        self.region_counters.blocks -= 1;
        self.region_counters.bytes -= capacity;
        entry.granted -= 1;
        let offset = entry.region.get().offset(base);
        match (&mut entry.division, class) {
            (Division::Split(map), Some(class)) => {
                if map.free_class(Leaf((offset / MIN_BLOCK) as u64), class).is_err() {
                    self.region_counters.invalid_frees += 1;
                }
            }
            (Division::Whole { is_live }, None) => *is_live = false,
            _ => self.region_counters.invalid_frees += 1,
        }
        capacity
    }

    pub(super) fn register(&mut self, cache: NonNull<ThreadCache>) {
        let cache = CachePtr(cache);
        // A thread may register when it frees a block of a pool that is already dropped.
        if self.pool_dropped {
            cache.get().pool_dropped.raise();
        }
        self.caches.push(cache);
    }

    pub(super) fn unregister(&mut self, cache: &ThreadCache) {
        self.caches.retain(|known| !core::ptr::eq(known.0.as_ptr(), cache));
        self.alloc_counters.add(&cache.counters());
    }

    pub(super) fn close_caches(&mut self) {
        self.caches.drain(..).for_each(|cache| cache.get().closed.raise());
    }

    pub(super) fn mark_pool_dropped(&mut self) {
        self.pool_dropped = true;
        self.caches.iter().for_each(|cache| cache.get().pool_dropped.raise());
    }

    /// Returns true once: when the pool is dropped and all blocks are freed.
    ///
    /// All allocations happened before the pool was dropped, so their counts are final. A count of frees can only grow.
    /// Therefore, if the sums are equal, the counts of frees are final too, and no owner uses its block any more.
    #[inline]
    pub(super) fn claim_teardown(&mut self) -> bool {
        self.pool_dropped && !self.teardown_claimed && {
            let AllocCounters { allocs, frees, .. } = self.alloc_counters();
            self.teardown_claimed = allocs == frees;
            self.teardown_claimed
        }
    }

    pub(super) fn alloc_counters(&self) -> AllocCounters {
        let mut sum = self.alloc_counters;
        self.caches.iter().for_each(|cache| sum.add(&cache.get().counters()));
        sum
    }

    /// Returns the number of blocks freed under the lock or by exited threads: the clock of `RegionEntry::idle_since`.
    pub(super) fn direct_frees(&self) -> u64 {
        self.alloc_counters.frees
    }

    /// Returns the size of all live and cached blocks.
    pub(super) fn granted_bytes(&self) -> usize {
        self.region_counters.bytes
    }

    pub(super) fn region_bytes(&self) -> usize {
        self.slots.iter().flatten().map(RegionEntry::size).sum()
    }

    pub(super) fn largest_region(&self) -> usize {
        self.split_regions().map(RegionEntry::size).max().unwrap_or(0)
    }

    fn split_regions(&self) -> impl Iterator<Item = &RegionEntry<S>> {
        self.slots.iter().flatten().filter(|entry| matches!(entry.division, Division::Split(_)))
    }

    pub(super) fn merge_all(&mut self) {
        for entry in self.slots.iter_mut().flatten() {
            if let Division::Split(map) = &mut entry.division {
                map.merge_all();
            }
        }
    }

    /// Removes all regions without live or cached blocks; the caller drops them after it has released the lock.
    pub(super) fn remove_idle(&mut self) -> Vec<RegionEntry<S>> {
        let idle: Vec<RegionEntry<S>> =
            self.slots.iter_mut().filter_map(|slot| slot.take_if(|entry| entry.granted == 0)).collect();
        for entry in &idle {
            if let Division::Split(map) = &entry.division {
                self.region_counters.splits += map.splits();
                self.region_counters.merges += map.merges();
            }
        }
        idle
    }

    pub(super) fn stats(&self) -> PoolStats {
        let regions = &self.region_counters;
        let alloc_counters = self.alloc_counters();
        let mut stats = PoolStats {
            live_blocks: alloc_counters.live_blocks(),
            live_bytes: alloc_counters.live_bytes(),
            peak_bytes: regions.peak as u64,
            cached_bytes: (regions.bytes as u64).saturating_sub(alloc_counters.live_bytes()),
            region_bytes: self.region_bytes() as u64,
            requested_bytes: alloc_counters.requested_bytes,
            granted_bytes: alloc_counters.granted_bytes,
            allocs: alloc_counters.allocs,
            frees: alloc_counters.frees,
            hits: alloc_counters.hits,
            misses: alloc_counters.allocs.saturating_sub(alloc_counters.hits),
            splits: regions.splits,
            merges: regions.merges,
            ..PoolStats::default()
        };
        for entry in self.slots.iter().flatten() {
            stats.regions += 1;
            if let Division::Split(map) = &entry.division {
                stats.splits += map.splits();
                stats.merges += map.merges();
            }
        }
        stats
    }

    pub(super) fn validate(&self) -> Result<(), String> {
        let (mut live, mut granted) = (0, 0);
        for (slot, entry) in self.slots.iter().enumerate() {
            let Some(entry) = entry else { continue };
            if entry.region.get().slot != slot {
                return Err(format!("the region in slot {slot} has slot number {}", entry.region.get().slot));
            }
            live += entry.granted;
            let used = match &entry.division {
                Division::Split(map) => {
                    map.validate().map_err(|what| format!("region {slot}: {what}"))?;
                    (map.leaves() - map.free_leaves()) as usize * MIN_BLOCK
                }
                Division::Whole { is_live } => usize::from(*is_live) * entry.size(),
            };
            if (used == 0) != (entry.granted == 0) {
                return Err(format!("region {slot}: {used} bytes are granted in {} blocks", entry.granted));
            }
            granted += used;
        }
        let RegionCounters { blocks, bytes, invalid_frees, .. } = self.region_counters;
        if invalid_frees != 0 {
            return Err(format!("{invalid_frees} frees of blocks that were not granted"));
        }
        if live != blocks {
            return Err(format!("{live} blocks are granted, {blocks} are counted"));
        }
        if granted != bytes {
            return Err(format!("{granted} bytes are granted, {bytes} are counted"));
        }
        Ok(())
    }
}
