//! The state that the lock of an arena protects.

use core::ptr::NonNull;

use super::region::{BlockLocation, Division, RegionBox, RegionCounters, RegionEntry};
use super::{Arena, ArenaRegion};
use crate::buddy::Leaf;
use crate::cache::{self, AllocCounters, ThreadCache};
use crate::class::Class;
use crate::registration::RegisteredStorage;
use crate::{MIN_BLOCK, PoolStats, Storage};

/// The regions of an arena, and its counters.
#[derive(Debug)]
pub(super) struct State<S: Storage> {
    slots: Vec<Option<RegionEntry<S>>>,
    region_counters: RegionCounters,
    /// The most bytes that regions of many blocks had at one time.
    most_bytes: usize,
    /// Blocks allocated and freed under the lock, and by threads that have exited.
    alloc_counters: AllocCounters,
    caches: Vec<CachePtr>,
    /// The pool is dropped.
    pool_dropped: bool,
    /// `claim_teardown` has returned true once.
    freed: bool,
}

/// The magazines of a thread.
///
/// # Invariants
/// 1. They live as long as they are in `State::locals`: their thread unregisters them before it frees them, unless they
///    were closed, and closing removes them from the list.
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

/// Idle regions of one block that are kept for the next.
const MAX_IDLE: usize = 8;

impl<S: Storage> State<S> {
    pub(super) fn new() -> State<S> {
        State {
            slots: Vec::new(),
            region_counters: RegionCounters::default(),
            most_bytes: 0,
            alloc_counters: AllocCounters::default(),
            caches: Vec::new(),
            pool_dropped: false,
            freed: false,
        }
    }

    /// Adds a region; returns by how many bytes the shared regions exceed their previous maximum.
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
        let region =
            RegionBox::new(ArenaRegion { storage: RegisteredStorage::new(storage), arena, id, slot });
        self.slots[slot] = Some(RegionEntry { region, division, live: 0, idle_since: 0 });
        let more = self.split_regions().map(RegionEntry::size).sum::<usize>().saturating_sub(self.most_bytes);
        self.most_bytes += more;
        more
    }

    /// Counts a block that is handed out.
    #[inline]
    fn count_alloc(&mut self, capacity: usize, requested: usize) {
        self.alloc_counters.allocs += 1;
        self.alloc_counters.requested_bytes += requested as u64;
        self.alloc_counters.granted_bytes += capacity as u64;
    }

    /// Takes a block of a class out of any region that has one, and counts it as live.
    #[inline]
    pub(super) fn alloc(&mut self, class: Class, requested: usize) -> Option<cache::BlockPtr> {
        let block = self.take(class)?;
        self.count_alloc(class.bytes(), requested);
        Some(block)
    }

    /// Takes a block of a class out of the first region that has one, so that the last ones fall idle.
    #[inline]
    pub(super) fn take(&mut self, class: Class) -> Option<cache::BlockPtr> {
        // A loop: `flatten` takes as long as the rest.
        for slot in &mut self.slots {
            if let Some(entry) = slot
                && let Some(taken) = entry.take(class, &mut self.region_counters)
            {
                return Some(taken);
            }
        }
        None
    }

    /// Hands out the smallest idle region of one block that holds `len` bytes and is at most twice as large.
    pub(super) fn alloc_whole(&mut self, len: usize) -> Option<cache::BlockPtr> {
        let fits = |entry: &&mut RegionEntry<S>| {
            matches!(entry.division, Division::Whole { taken: false })
                && (len..=len.saturating_mul(2)).contains(&entry.size())
        };
        let entry = self.slots.iter_mut().flatten().filter(fits).min_by_key(|entry| entry.size())?;
        entry.division = Division::Whole { taken: true };
        let size = entry.size();
        let taken = entry.count_block(0, None, &mut self.region_counters);
        self.count_alloc(size, len);
        Some(taken)
    }

    /// Takes a live block back. Returns a region that has been idle for long, to be dropped with the lock open.
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

    /// Takes the region of one block out that has been idle for longest, if there are too many.
    #[cold]
    fn take_oldest_idle(&mut self) -> Option<RegionEntry<S>> {
        let is_idle = |entry: &RegionEntry<S>| matches!(entry.division, Division::Whole { taken: false });
        if self.slots.iter().flatten().filter(|entry| is_idle(entry)).count() <= MAX_IDLE {
            return None;
        }
        let slots = self.slots.iter_mut().filter(|slot| slot.as_ref().is_some_and(is_idle));
        slots.min_by_key(|slot| slot.as_ref().map(|entry| entry.idle_since))?.take()
    }

    /// Makes a live block larger where it is, for `len` bytes; returns false if what it takes is not free.
    ///
    /// It counts as one more request and as a freed block, except in the number of blocks.
    pub(super) fn grow(&mut self, location: BlockLocation, to: Class, len: usize) -> Option<cache::BlockPtr> {
        let from = location.class?;
        let entry = self.slots.get_mut(location.slot)?.as_mut()?;
        let Division::Split(map) = &mut entry.division else { return None };
        let leaf = Leaf((entry.region.get().offset(location.base) / MIN_BLOCK) as u64);
        if !map.grow(leaf, from, to) {
            return None;
        }
        self.region_counters.bytes += to.bytes() - from.bytes();
        self.region_counters.peak = self.region_counters.peak.max(self.region_counters.bytes);
        self.alloc_counters.requested_bytes += len as u64;
        self.alloc_counters.granted_bytes += to.bytes() as u64;
        self.alloc_counters.freed_bytes += from.bytes() as u64;
        Some(cache::BlockPtr { base: location.base, tag: entry.region.tag(Some(to)) })
    }

    /// Gives a block back to its region; returns how many bytes it had.
    #[inline]
    pub(super) fn return_to_region(&mut self, BlockLocation { slot, base, class }: BlockLocation) -> usize {
        let Some(Some(entry)) = self.slots.get_mut(slot) else {
            self.region_counters.invalid_frees += 1;
            return 0;
        };
        let capacity = class.map_or_else(|| entry.size(), Class::bytes);
        self.region_counters.blocks -= 1;
        self.region_counters.bytes -= capacity;
        entry.live -= 1;
        let offset = entry.region.get().offset(base);
        match (&mut entry.division, class) {
            (Division::Split(map), Some(class)) => {
                if map.free_class(Leaf((offset / MIN_BLOCK) as u64), class).is_err() {
                    self.region_counters.invalid_frees += 1;
                }
            }
            (Division::Whole { taken }, None) => *taken = false,
            _ => self.region_counters.invalid_frees += 1,
        }
        capacity
    }

    /// Knows the magazines of one more thread.
    pub(super) fn register(&mut self, cache: NonNull<ThreadCache>) {
        let cache = CachePtr(cache);
        // A thread may register with the pool by freeing a block of it after the pool was dropped.
        if self.pool_dropped {
            cache.get().pool_dropped.raise();
        }
        self.caches.push(cache);
    }

    /// Forgets the magazines of a thread, but not what they have counted.
    pub(super) fn unregister(&mut self, cache: &ThreadCache) {
        self.caches.retain(|known| !core::ptr::eq(known.0.as_ptr(), cache));
        self.alloc_counters.add(&cache.counters());
    }

    /// Tells all threads not to touch what they keep any more, and forgets them.
    pub(super) fn close_caches(&mut self) {
        self.caches.drain(..).for_each(|cache| cache.get().closed.raise());
    }

    /// Tells all threads that the pool is dropped: they cache no more of its blocks.
    pub(super) fn mark_pool_dropped(&mut self) {
        self.pool_dropped = true;
        self.caches.iter().for_each(|cache| cache.get().pool_dropped.raise());
    }

    /// Returns true once: when the pool is dropped and all blocks are freed.
    ///
    /// All allocations happened before the pool went, so their counts are final. A count of frees is at most what it
    /// will be, so if the sums agree each count is final too, and what the owners did with their blocks is over.
    #[inline]
    pub(super) fn claim_teardown(&mut self) -> bool {
        self.pool_dropped && !self.freed && {
            self.freed = self.alloc_counters().live_blocks() == 0;
            self.freed
        }
    }

    /// Returns the blocks allocated and freed in all places.
    pub(super) fn alloc_counters(&self) -> AllocCounters {
        let mut sum = self.alloc_counters;
        self.caches.iter().for_each(|cache| sum.add(&cache.get().counters()));
        sum
    }

    pub(super) fn region_bytes(&self) -> usize {
        self.slots.iter().flatten().map(RegionEntry::size).sum()
    }

    /// Returns the size of the greatest region of many blocks, 0 without any.
    pub(super) fn largest_region(&self) -> usize {
        self.split_regions().map(RegionEntry::size).max().unwrap_or(0)
    }

    /// Returns the regions of many blocks.
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

    /// Takes all regions without live blocks out, to be dropped with the lock open.
    pub(super) fn remove_idle(&mut self) -> Vec<RegionEntry<S>> {
        let idle: Vec<RegionEntry<S>> =
            self.slots.iter_mut().filter_map(|slot| slot.take_if(|entry| entry.live == 0)).collect();
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
                return Err(format!("the region in slot {slot} thinks it is in {}", entry.region.get().slot));
            }
            live += entry.live;
            let used = match &entry.division {
                Division::Split(map) => {
                    map.validate().map_err(|what| format!("region {slot}: {what}"))?;
                    (map.leaves() - map.free_leaves()) as usize * MIN_BLOCK
                }
                Division::Whole { taken } => usize::from(*taken) * entry.size(),
            };
            if (used == 0) != (entry.live == 0) {
                return Err(format!("region {slot}: {used} bytes are in {} live blocks", entry.live));
            }
            granted += used;
        }
        let RegionCounters { blocks, bytes, invalid_frees, .. } = self.region_counters;
        if invalid_frees != 0 {
            return Err(format!("{invalid_frees} blocks came back that were not live"));
        }
        if live != blocks {
            return Err(format!("{live} blocks are out, {blocks} are counted"));
        }
        if granted != bytes {
            return Err(format!("{granted} bytes are out in blocks, {bytes} are counted"));
        }
        Ok(())
    }
}
