//! The state that the lock of an arena protects.

use core::ptr::NonNull;

use super::region::{BlockLocation, Division, Owned, RegionCounters, RegionEntry};
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
    tally: RegionCounters,
    /// The most bytes that regions of many blocks had at one time.
    most_bytes: usize,
    /// Blocks allocated and freed under the lock, and by threads that have exited.
    ledger: AllocCounters,
    caches: Vec<CachePtr>,
    /// The pool is dropped.
    pool_dropped: bool,
    /// `is_over` has returned true once.
    buried: bool,
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
const IDLE: usize = 8;

impl<S: Storage> State<S> {
    pub(super) fn new() -> State<S> {
        State {
            slots: Vec::new(),
            tally: RegionCounters::default(),
            most_bytes: 0,
            ledger: AllocCounters::default(),
            caches: Vec::new(),
            pool_dropped: false,
            buried: false,
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
        let region = Owned::new(ArenaRegion { storage: RegisteredStorage::new(storage), arena, id, slot });
        self.slots[slot] = Some(RegionEntry { region, division, live: 0, idle_since: 0 });
        let more = self.split().map(RegionEntry::size).sum::<usize>().saturating_sub(self.most_bytes);
        self.most_bytes += more;
        more
    }

    /// Counts a block that is handed out.
    #[inline]
    fn hand_out(&mut self, capacity: usize, requested: usize) {
        self.ledger.allocs += 1;
        self.ledger.requested += requested as u64;
        self.ledger.granted += capacity as u64;
    }

    /// Takes a block of a class out of any region that has one, and counts it as live.
    #[inline]
    pub(super) fn grant(&mut self, class: Class, requested: usize) -> Option<cache::BlockPtr> {
        let entry = self.take(class)?;
        self.hand_out(class.bytes(), requested);
        Some(entry)
    }

    /// Takes a block of a class out of the first region that has one, so that the last ones fall idle.
    #[inline]
    pub(super) fn take(&mut self, class: Class) -> Option<cache::BlockPtr> {
        // A loop: `flatten` takes as long as the rest.
        for slot in &mut self.slots {
            if let Some(entry) = slot
                && let Some(taken) = entry.take(class, &mut self.tally)
            {
                return Some(taken);
            }
        }
        None
    }

    /// Hands out the smallest idle region of one block that holds `len` bytes and is at most twice as large.
    pub(super) fn grant_whole(&mut self, len: usize) -> Option<cache::BlockPtr> {
        let fits = |entry: &&mut RegionEntry<S>| {
            matches!(entry.division, Division::Whole { taken: false })
                && (len..=len.saturating_mul(2)).contains(&entry.size())
        };
        let entry = self.slots.iter_mut().flatten().filter(fits).min_by_key(|entry| entry.size())?;
        entry.division = Division::Whole { taken: true };
        let size = entry.size();
        let taken = entry.count(0, None, &mut self.tally);
        self.hand_out(size, len);
        Some(taken)
    }

    /// Takes a live block back. Returns a region that has been idle for long, to be dropped with the lock open.
    #[inline]
    pub(super) fn free_block(&mut self, place: BlockLocation) -> Option<RegionEntry<S>> {
        self.ledger.frees += 1;
        self.ledger.returned += self.untake(place) as u64;
        if place.class.is_some() {
            return None;
        }
        let entry = self.slots.get_mut(place.slot)?.as_mut()?;
        entry.idle_since = self.ledger.frees;
        self.oldest_idle()
    }

    /// Takes the region of one block out that has been idle for longest, if there are too many.
    #[cold]
    fn oldest_idle(&mut self) -> Option<RegionEntry<S>> {
        let is_idle = |entry: &RegionEntry<S>| matches!(entry.division, Division::Whole { taken: false });
        if self.slots.iter().flatten().filter(|entry| is_idle(entry)).count() <= IDLE {
            return None;
        }
        let slots = self.slots.iter_mut().filter(|slot| slot.as_ref().is_some_and(is_idle));
        slots.min_by_key(|slot| slot.as_ref().map(|entry| entry.idle_since))?.take()
    }

    /// Makes a live block larger where it is, for `len` bytes; returns false if what it takes is not free.
    ///
    /// It counts as one more request and as a freed block, except in the number of blocks.
    pub(super) fn grow(&mut self, place: BlockLocation, to: Class, len: usize) -> Option<cache::BlockPtr> {
        let from = place.class?;
        let entry = self.slots.get_mut(place.slot)?.as_mut()?;
        let Division::Split(map) = &mut entry.division else { return None };
        let leaf = Leaf((entry.region.get().offset(place.base) / MIN_BLOCK) as u64);
        if !map.grow(leaf, from, to) {
            return None;
        }
        self.tally.bytes += to.bytes() - from.bytes();
        self.tally.peak = self.tally.peak.max(self.tally.bytes);
        self.ledger.requested += len as u64;
        self.ledger.granted += to.bytes() as u64;
        self.ledger.returned += from.bytes() as u64;
        Some(cache::BlockPtr { base: place.base, home: entry.region.home(Some(to)) })
    }

    /// Gives a block back to its region; returns how many bytes it had.
    #[inline]
    pub(super) fn untake(&mut self, BlockLocation { slot, base, class }: BlockLocation) -> usize {
        let Some(Some(entry)) = self.slots.get_mut(slot) else {
            self.tally.invalid_frees += 1;
            return 0;
        };
        let capacity = class.map_or_else(|| entry.size(), Class::bytes);
        self.tally.blocks -= 1;
        self.tally.bytes -= capacity;
        entry.live -= 1;
        let offset = entry.region.get().offset(base);
        match (&mut entry.division, class) {
            (Division::Split(map), Some(class)) => {
                if map.free_class(Leaf((offset / MIN_BLOCK) as u64), class).is_err() {
                    self.tally.invalid_frees += 1;
                }
            }
            (Division::Whole { taken }, None) => *taken = false,
            _ => self.tally.invalid_frees += 1,
        }
        capacity
    }

    /// Knows the magazines of one more thread.
    pub(super) fn register(&mut self, local: NonNull<ThreadCache>) {
        let local = CachePtr(local);
        // A thread may register with the pool by freeing a block of it after the pool was dropped.
        if self.pool_dropped {
            local.get().orphaned.raise();
        }
        self.caches.push(local);
    }

    /// Forgets the magazines of a thread, but not what they have counted.
    pub(super) fn unregister(&mut self, local: &ThreadCache) {
        self.caches.retain(|known| !core::ptr::eq(known.0.as_ptr(), local));
        self.ledger.add(&local.ledger());
    }

    /// Tells all threads not to touch what they keep any more, and forgets them.
    pub(super) fn close_locals(&mut self) {
        self.caches.drain(..).for_each(|local| local.get().closed.raise());
    }

    /// Tells all threads that the pool is dropped: they cache no more of its blocks.
    pub(super) fn orphan(&mut self) {
        self.pool_dropped = true;
        self.caches.iter().for_each(|local| local.get().orphaned.raise());
    }

    /// Returns true once: when the pool is dropped and all blocks are freed.
    ///
    /// All allocations happened before the pool went, so their counts are final. A count of frees is at most what it
    /// will be, so if the sums agree each count is final too, and what the owners did with their blocks is over.
    #[inline]
    pub(super) fn is_over(&mut self) -> bool {
        self.pool_dropped && !self.buried && {
            self.buried = self.ledger().live_blocks() == 0;
            self.buried
        }
    }

    /// Returns the blocks allocated and freed in all places.
    pub(super) fn ledger(&self) -> AllocCounters {
        let mut sum = self.ledger;
        self.caches.iter().for_each(|local| sum.add(&local.get().ledger()));
        sum
    }

    pub(super) fn region_bytes(&self) -> usize {
        self.slots.iter().flatten().map(RegionEntry::size).sum()
    }

    /// Returns the size of the greatest region of many blocks, 0 without any.
    pub(super) fn greatest_region(&self) -> usize {
        self.split().map(RegionEntry::size).max().unwrap_or(0)
    }

    /// Returns the regions of many blocks.
    fn split(&self) -> impl Iterator<Item = &RegionEntry<S>> {
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
                self.tally.splits += map.splits();
                self.tally.merges += map.merges();
            }
        }
        idle
    }

    pub(super) fn stats(&self) -> PoolStats {
        let tally = &self.tally;
        let ledger = self.ledger();
        let mut stats = PoolStats {
            live_blocks: ledger.live_blocks(),
            live_bytes: ledger.live_granted(),
            peak_granted: tally.peak as u64,
            cached_bytes: (tally.bytes as u64).saturating_sub(ledger.live_granted()),
            region_bytes: self.region_bytes() as u64,
            requested_bytes: ledger.requested,
            granted: ledger.granted,
            allocs: ledger.allocs,
            frees: ledger.frees,
            hits: ledger.hits,
            misses: ledger.allocs.saturating_sub(ledger.hits),
            splits: tally.splits,
            merges: tally.merges,
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
        let RegionCounters { blocks, bytes, invalid_frees: strays, .. } = self.tally;
        if strays != 0 {
            return Err(format!("{strays} blocks came back that were not live"));
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
