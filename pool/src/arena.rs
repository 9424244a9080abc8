//! The state that a pool and its blocks share: regions under one lock. It outlives the pool while a block is live.

use core::fmt;
use core::hint::black_box;
use core::ptr::NonNull;
use std::sync::{Mutex, PoisonError};

use crate::block::Block;
use crate::buddy::BuddyMap;
use crate::cache::{self, Budget, DeferredFree, Depot, RegionTag, UNCACHED};
use crate::class::{Class, MAX_ALIGN, MAX_BLOCK, alignment};
use crate::registration::RegisteredStorage;
use crate::sync::{ByteBudget, Lock};
use crate::{AllocError, AllocErrorKind, Growth, MIN_BLOCK, PoolStats, Storage, StorageError};

mod cached;
mod region;
mod resident;
mod returning;
mod state;
use region::{BlockLocation, Division};
use state::State;

pub(crate) type MakeStorage<S> = Box<dyn Fn(usize) -> Result<S, StorageError> + Send + Sync>;

/// A storage, and the fields through which a block finds its arena. Only the registrations of the storage change.
#[derive(Debug)]
#[repr(align(256))]
pub(crate) struct ArenaRegion<S: Storage> {
    pub(crate) storage: RegisteredStorage<S>,
    pub(crate) arena: NonNull<Arena<S>>,
    /// The unique number of the arena in this process, or `UNCACHED` if threads do not cache its blocks.
    pub(crate) id: u64,
    slot: usize,
}

const _: () = assert!(align_of::<ArenaRegion<crate::Pages>>() == RegionTag::ALIGN);

impl<S: Storage> ArenaRegion<S> {
    #[inline]
    pub(crate) fn offset(&self, at: NonNull<u8>) -> usize {
        at.addr().get().wrapping_sub(self.storage.base().addr().get())
    }
}

/// The regions of one pool.
///
/// # Invariants
/// 1. The arena is freed when the pool is dropped and no block is live, by the thread that first sees both under the
///    lock. Cached blocks are not live: the flag `closed` stops their threads from using them.
/// 2. Each region's `arena` points to this arena, and its `slot` is its index in `State::slots`, as long as the region
///    lives; a region of live or cached blocks is not removed.
/// 3. `this` points to the arena and is the pointer to free it by; a pointer made from `&self` must not free.
pub(crate) struct Arena<S: Storage> {
    this: NonNull<Arena<S>>,
    lock: Lock<State<S>>,
    /// Held by a thread that found no free block, so that only one thread grows the pool. `source` runs without `lock`.
    growing: Mutex<()>,
    growth: Growth,
    source: Option<MakeStorage<S>>,
    caching: Option<Box<CacheShared>>,
    /// The size of the largest block that shares a region.
    max_shared: usize,
    max_alloc: usize,
}

#[derive(Debug)]
pub(crate) struct CacheShared {
    id: u64,
    budget: Budget,
    depot: Depot,
    /// The bytes that all threads together may still cache in large blocks beyond their own budgets.
    large: ByteBudget,
}

impl CacheShared {
    /// The total of `large`, with borrowed bytes, is 1/`LARGE_SHARE` of the largest total size of the shared regions so
    /// far. In a pool that returns memory to the system, each pass sets it to this share of the live bytes.
    const LARGE_SHARE: u64 = 4;

    /// `budget` is the maximum number of bytes for each of these: the small blocks of a thread, its large blocks
    /// (without those that use `large`), and the depot.
    pub(crate) fn new(budget: usize) -> CacheShared {
        CacheShared {
            id: cache::new_id(),
            budget: Budget { per_thread: budget, max_block: 0 },
            depot: Depot::new(budget),
            large: ByteBudget::new(0),
        }
    }
}

impl<S: Storage> Arena<S> {
    pub(crate) fn growing(
        growth: Growth,
        source: MakeStorage<S>,
        caching: Option<CacheShared>,
    ) -> NonNull<Arena<S>> {
        let max_alloc = growth.limit.min(MAX_BLOCK) & !(MAX_ALIGN - 1);
        let max_shared = (growth.max_region / 2).min(max_alloc);
        let max_shared = if max_shared == 0 { 0 } else { 1 << max_shared.ilog2() };
        Self::leak(Arena {
            this: NonNull::dangling(),
            lock: Lock::new(State::new()),
            growing: Mutex::new(()),
            growth,
            source: Some(source),
            caching: Self::caching_up_to(caching, max_shared),
            max_shared,
            max_alloc,
        })
    }

    pub(crate) fn fixed(storage: S, caching: Option<CacheShared>) -> Result<NonNull<Arena<S>>, StorageError> {
        let size = storage.size();
        let division = Division::split(size, false)?;
        let max_order = BuddyMap::max_order((size / MIN_BLOCK) as u64).bytes();
        let arena = Self::leak(Arena {
            this: NonNull::dangling(),
            lock: Lock::new(State::new()),
            growing: Mutex::new(()),
            growth: Growth::default().limit(size),
            source: None,
            caching: Self::caching_up_to(caching, max_order),
            max_shared: max_order,
            max_alloc: max_order,
        });
        // SAFETY: `leak` has just created it.
        let arena_ref = unsafe { arena.as_ref() };
        arena_ref.insert(&mut arena_ref.lock.lock(), storage, division);
        Ok(arena)
    }

    fn caching_up_to(caching: Option<CacheShared>, max_shared: usize) -> Option<Box<CacheShared>> {
        caching.map(|caching| {
            let budget = Budget { max_block: max_shared, ..caching.budget };
            Box::new(CacheShared { budget, ..caching })
        })
    }

    fn leak(arena: Arena<S>) -> NonNull<Arena<S>> {
        let arena = NonNull::from(Box::leak(Box::new(arena)));
        // SAFETY: it has just been created, and no other thread knows it.
        unsafe { (*arena.as_ptr()).this = arena };
        arena
    }

    pub(crate) fn max_alloc(&self) -> usize {
        self.max_alloc
    }

    pub(crate) fn id(&self) -> u64 {
        self.caching.as_ref().map_or(UNCACHED, |caching| caching.id)
    }

    #[inline]
    fn class(&self, len: usize) -> Option<Class> {
        let class =
            if self.caching.is_some() { Class::for_len(len) } else { Class::power_of_two_for_len(len) };
        class.filter(|class| class.bytes() <= self.max_shared)
    }

    // Inlined, so that the handle is created in registers; see `Block::rebuilt`.
    #[inline(always)]
    pub(crate) fn alloc(&self, len: usize) -> Result<Block<S>, AllocError> {
        if let Some(class) = self.class(len)
            && let Some(block) = self.alloc_from_region(class, len)
        {
            // SAFETY: the bytes have just been taken, and are counted as a live block.
            return Ok(unsafe { Block::new(block) });
        }
        match self.alloc_slow(len) {
            Ok(block) => Ok(block.rebuilt()),
            Err(error) => Err(black_box(error)),
        }
    }

    /// Allocates from the existing regions. The two pointers are returned in registers.
    fn alloc_from_region(&self, class: Class, len: usize) -> Option<cache::BlockPtr> {
        self.lock.lock().alloc(class, len)
    }

    /// Allocates if the regions had no room: from blocks freed meanwhile, cached blocks, or a new region.
    #[cold]
    #[inline(never)]
    fn alloc_slow(&self, len: usize) -> Result<Block<S>, AllocError> {
        // A pool whose limit is below 4096 bytes cannot serve even 0 bytes.
        if len.max(1) > self.max_alloc {
            return Err(self.alloc_error(len, AllocErrorKind::TooLarge));
        }
        let _alone = self.growing.lock().unwrap_or_else(PoisonError::into_inner);
        let class = self.class(len);
        // Another thread might have created a region or freed blocks meanwhile. Otherwise, cached blocks might suffice.
        let mut found = Self::try_regions(&mut self.lock.lock(), class, len);
        if found.is_none() && self.drain() {
            found = Self::try_regions(&mut self.lock.lock(), class, len);
        }
        if let Some(block) = found {
            return Ok(block);
        }
        let Some(source) = &self.source else { return Err(self.alloc_error(len, self.full())) };

        let needed = class.map_or(len.next_multiple_of(MAX_ALIGN), |class| class.outer_order().bytes());
        let size = self.region_size(needed, class.is_some());
        let size = size.ok_or_else(|| self.alloc_error(len, self.full()))?;
        let made = source(size).and_then(|storage| {
            let got = storage.size();
            if got < size {
                return Err(StorageError::Size { asked: size, most: got });
            }
            let division = match class {
                Some(_) => Division::split(got, self.growth.eager_merge)?,
                None => Division::Whole { is_live: false },
            };
            Ok((storage, division))
        });
        let (storage, division) =
            made.map_err(|error| self.alloc_error(len, AllocErrorKind::Storage(error)))?;
        let mut state = self.lock.lock();
        self.insert(&mut state, storage, division);
        // Before the lock is released, so that no other thread takes the new memory.
        let block = Self::try_regions(&mut state, class, len);
        drop(state);
        block.ok_or_else(|| self.alloc_error(len, self.full()))
    }

    fn insert(&self, state: &mut State<S>, storage: S, division: Division) {
        let more = state.insert(self.this, self.id(), storage, division);
        if let Some(caching) = &self.caching {
            caching.add_large(state, more as u64 / CacheShared::LARGE_SHARE);
        }
    }

    fn try_regions(state: &mut State<S>, class: Option<Class>, len: usize) -> Option<Block<S>> {
        let block = match class {
            Some(class) => state.alloc(class, len),
            None => state.alloc_whole(len),
        };
        // SAFETY: the bytes have just been taken, and are counted as a live block.
        block.map(|block| unsafe { Block::new(block) })
    }

    /// Returns the size for a new region, or `None` if the limit does not allow it even after idle regions are freed.
    fn region_size(&self, needed: usize, is_shared: bool) -> Option<usize> {
        let sizes = || {
            let state = self.lock.lock();
            let wanted =
                if is_shared { self.growth.next_region(state.largest_region()).max(needed) } else { needed };
            (wanted, self.growth.limit.saturating_sub(state.region_bytes()) & !(MAX_ALIGN - 1))
        };
        let (mut wanted, mut available) = sizes();
        if available < needed {
            self.trim();
            (wanted, available) = sizes();
        }
        (available >= needed).then_some(wanted.min(available))
    }

    fn full(&self) -> AllocErrorKind {
        AllocErrorKind::Full { capacity: self.growth.limit }
    }

    fn alloc_error(&self, requested: usize, kind: AllocErrorKind) -> AllocError {
        let live = self.lock.lock().alloc_counters().live_bytes();
        AllocError::new(requested, self.max_alloc, live as usize, kind)
    }

    /// Frees a live block, and also the arena if this was the last block of a dropped pool.
    ///
    /// Not a method: another thread may free the arena as soon as the lock is released, and `&self` would promise that
    /// the arena outlives the call.
    ///
    /// # Safety
    /// `block` is a live block of an arena of this type, and is not used again.
    #[inline]
    pub(crate) unsafe fn free_to_region(block: cache::BlockPtr) {
        // SAFETY: the caller's promise.
        let (arena, location) = unsafe { Self::locate(block) };
        // SAFETY: the block is live, so the arena lives (invariant 1) until the lock is released below.
        let lock = unsafe { &(*arena.as_ptr()).lock };
        let mut state = lock.lock();
        let surplus = state.free_block(location);
        let is_last = state.claim_teardown();
        drop(state);
        drop(surplus);
        if is_last {
            // SAFETY: the pool is dropped and no block is live, as seen under the lock, by this thread alone.
            drop(unsafe { Self::detach_threads(arena, &mut cache::teardown()) });
        }
    }

    /// Grows a live block in place to `len` bytes, more than it has; see `Block::try_grow`.
    ///
    /// # Safety
    /// `block` is a live block of an arena of this type, and is used again only if this returns `None`.
    pub(crate) unsafe fn grow(block: cache::BlockPtr, len: usize) -> Option<cache::BlockPtr> {
        // SAFETY: the caller's promise.
        let (arena, location) = unsafe { Self::locate(block) };
        // SAFETY: the block is live, so the arena lives (invariant 1).
        let arena = unsafe { arena.as_ref() };
        let to = arena.class(len)?;
        let is_aligned = block.base.addr().get() & (alignment(len) - 1) == 0;
        if is_aligned { arena.lock.lock().grow(location, to, len) } else { None }
    }

    /// # Safety
    /// `block` belongs to an arena of this type and is live or cached, so its region lives (invariant 2).
    #[inline]
    unsafe fn locate(block: cache::BlockPtr) -> (NonNull<Arena<S>>, BlockLocation) {
        let region: NonNull<ArenaRegion<S>> = block.tag.region().cast();
        // SAFETY: the caller's promise.
        let ArenaRegion { arena, slot, .. } = unsafe { region.as_ref() };
        (*arena, BlockLocation { slot: *slot, base: block.base, class: block.tag.class() })
    }

    /// Frees idle regions, and also the arena if no block is live.
    ///
    /// # Safety
    /// The caller is the drop of the pool, which does not use the arena again.
    pub(crate) unsafe fn drop_pool(arena: NonNull<Arena<S>>) {
        // SAFETY: the pool is not dropped yet, so the arena lives (invariant 1) until the lock is released below.
        let arena_ref = unsafe { arena.as_ref() };
        arena_ref.drain();
        let mut state = arena_ref.lock.lock();
        let idle = state.remove_idle();
        state.mark_pool_dropped();
        let is_last = state.claim_teardown();
        drop(state);
        drop(idle);
        if is_last {
            // SAFETY: the pool is dropped and no block is live, as seen under the lock, by this thread alone.
            drop(unsafe { Self::detach_threads(arena, &mut cache::teardown()) });
        }
    }

    /// Detaches the arena from all threads that cache its blocks. The caller drops the result without holding a lock.
    ///
    /// # Safety
    /// The pool is dropped, no block is live, and this is the one call after `claim_teardown` has returned true.
    #[cold]
    unsafe fn detach_threads(arena: NonNull<Arena<S>>, _teardown: &mut cache::Teardown) -> DeferredFree {
        // SAFETY: `leak` made it from a box, and the caller promises that this happens once. The only other holders are
        // threads that cache blocks, and they check their flag, under the `Teardown` that this thread holds, before
        // they use it.
        let arena = unsafe { Box::from_raw(arena.as_ptr()) };
        arena.lock.lock().close_caches();
        arena
    }

    /// Returns cached blocks as `drain` does, and frees regions without live or cached blocks, except the region of a
    /// fixed pool. Returns the number of bytes freed.
    pub(crate) fn trim(&self) -> usize {
        self.drain();
        let mut state = self.lock.lock();
        state.merge_all();
        let idle = if self.source.is_some() { state.remove_idle() } else { Vec::new() };
        // Unmapping is slow, so the lock is released first.
        drop(state);
        idle.iter().map(region::RegionEntry::size).sum()
    }

    pub(crate) fn stats(&self) -> PoolStats {
        self.lock.lock().stats()
    }

    pub(crate) fn validate(&self) -> Result<(), String> {
        self.lock.lock().validate()
    }
}

impl<S: Storage> fmt::Debug for Arena<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PoolStats { regions, region_bytes, live_blocks, live_bytes, .. } = self.stats();
        write!(f, "{live_bytes} of {region_bytes} B live in {live_blocks} blocks, {regions} regions")
    }
}

// SAFETY: all mutable state is atomic or under locks, and `this` points to the arena itself.
unsafe impl<S: Storage> Send for Arena<S> {}
