//! Moves blocks between regions, the depot and thread caches.

use core::ptr::NonNull;

use super::state::State;
use super::{Arena, ArenaRegion, CacheShared};
use crate::block::Block;
use crate::cache::{self, BlockPtr, Budget, DeferredFree, Teardown, ThreadCache, UNCACHED};
use crate::class::Class;
use crate::{AllocError, Storage};

/// The maximum number of bytes that a refill takes from regions, unless a single block is larger.
const MAX_FETCH_BYTES: usize = 64 << 10;

impl<S: Storage> Arena<S> {
    /// `id` is `arena.id()`. The caller passes it, because the arena might not be in the CPU cache.
    #[inline(always)]
    pub(crate) fn alloc_cached(arena: &Arena<S>, id: u64, len: usize) -> Result<Block<S>, AllocError> {
        let class = Class::index_for_len(len);
        if let Some(Some(block)) = cache::with_last_cache(id, |cache| cache.pop(class, len)) {
            // SAFETY: the thread cached a free block of this arena, and has just counted it as live.
            return Ok(unsafe { Block::new(block) });
        }
        match arena.alloc_from_table_cache(id, len) {
            Ok(block) => Ok(block.rebuilt()),
            Err(error) => Err(core::hint::black_box(error)),
        }
    }

    #[cold]
    #[inline(never)]
    fn alloc_from_table_cache(&self, id: u64, len: usize) -> Result<Block<S>, AllocError> {
        let class = Class::index_for_len(len);
        if let Some(Some(block)) = cache::with_table_cache(id, |cache| cache.pop(class, len)) {
            // SAFETY: as in `alloc_cached`.
            return Ok(unsafe { Block::new(block) });
        }
        self.alloc_refill(len)
    }

    #[cold]
    #[inline(never)]
    fn alloc_refill(&self, len: usize) -> Result<Block<S>, AllocError> {
        if let Some(caching) = &self.caching
            && let Some(class) = self.class(len)
            && self.attach_thread(caching)
            && let Some(Some(block)) = cache::with_cache(caching.id, |cache| {
                self.return_unused(caching, cache);
                // The table might not have referred to this thread's cache before, so the cache may contain a block.
                let nearest = cache.nearest_class(class);
                let is_large = Budget::is_large(class.bytes());
                if let Some(nearest) = nearest.filter(|&nearest| nearest == class || !cache.should_refetch())
                {
                    return cache.pop(nearest.index(), len);
                }
                let block = if is_large {
                    // Large blocks are fetched one at a time, so they bypass the magazine.
                    let found = caching.depot.take(class);
                    let found = found.or_else(|| nearest.and_then(|_| self.lock.lock().take(class)));
                    match found.filter(|&block| cache.count_direct(block, len)) {
                        Some(block) => block,
                        None => return cache.pop(nearest?.index(), len),
                    }
                } else {
                    if cache.may_grow(class) && !cache.grow(class, &caching.large) && cache.should_rebalance()
                    {
                        self.steal_budget(caching, cache, class);
                    }
                    let is_refilled = self.refill(caching, cache, class);
                    let from = if is_refilled { class } else { nearest? };
                    cache.pop(from.index(), len)?
                };
                cache.count_miss();
                Some(block)
            })
        {
            // SAFETY: as in `alloc_cached`.
            return Ok(unsafe { Block::new(block) });
        }
        self.alloc(len)
    }

    /// Fills an empty magazine from the depot, or otherwise from the regions. Returns whether it got a block.
    fn refill(&self, caching: &CacheShared, cache: &ThreadCache, class: Class) -> bool {
        if caching.depot.refill(cache, class) > 0 {
            return true;
        }
        let wanted = cache.batch_size(class).min((MAX_FETCH_BYTES / class.bytes()).max(1));
        let mut state = self.lock.lock();
        (0..wanted).take_while(|_| state.take(class).is_some_and(|block| cache.put(class, block))).count() > 0
    }

    /// Frees a live block into the cache of the calling thread if possible.
    ///
    /// The function is short and has a single call for all rare cases, so that the compiler can inline the drop of a
    /// block, or at least need not save registers there.
    ///
    /// # Safety
    /// As for `free_to_region`.
    #[inline]
    pub(crate) unsafe fn free_to_cache(block: BlockPtr) {
        let region: NonNull<ArenaRegion<S>> = block.tag.region().cast();
        // SAFETY: the block is live, so its region lives (invariant 2 of Arena).
        let id = unsafe { (*region.as_ptr()).id };
        if cache::with_last_cache(id, |cache| cache.push(block)) == Some(true) {
            return;
        }
        // SAFETY: the caller's promise; the block was not freed above.
        unsafe { Self::free_to_table_cache(block) }
    }

    /// # Safety
    /// As for `free_to_region`.
    #[cold]
    #[inline(never)]
    unsafe fn free_to_table_cache(block: BlockPtr) {
        let region: NonNull<ArenaRegion<S>> = block.tag.region().cast();
        // SAFETY: the block is live, so its region lives (invariant 2 of Arena).
        let id = unsafe { (*region.as_ptr()).id };
        if id == UNCACHED {
            // SAFETY: the caller's promise.
            return unsafe { Self::free_to_region(block) };
        }
        if cache::with_table_cache(id, |cache| cache.push(block)) != Some(true) {
            // SAFETY: the caller's promise; the block was not freed above.
            unsafe { Self::free_slow(block) }
        }
    }

    /// # Safety
    /// As for `free_to_region`.
    #[cold]
    unsafe fn free_slow(block: BlockPtr) {
        // SAFETY: the caller's promise.
        let (arena, location) = unsafe { Self::locate(block) };
        // SAFETY: the block is live, so the arena lives (invariant 1), at least until it is pushed below.
        let arena_ref = unsafe { &*arena.as_ptr() };
        if let Some(caching) = &arena_ref.caching
            && let Some(class) = location.class
            && arena_ref.attach_thread(caching)
        {
            // The closure captures a pointer: another thread that sees the last push may free the arena at once.
            let is_cached = cache::with_cache(caching.id, |cache| {
                if cache.push(block) {
                    return true;
                }
                !cache.pool_dropped.is_raised() && {
                    // SAFETY: the block is still live, so the arena lives (invariant 1).
                    let arena_ref = unsafe { &*arena.as_ptr() };
                    arena_ref.make_room(cache, class);
                    cache.push(block)
                }
            });
            if is_cached == Some(true) {
                return;
            }
        }
        // SAFETY: the caller's promise; the block was not freed above.
        unsafe { Self::free_to_region(block) }
    }

    /// Empties another magazine, and gives its budget to the magazine of `class`. Returns whether the latter has grown.
    fn steal_budget(&self, caching: &CacheShared, cache: &ThreadCache, class: Class) -> bool {
        let Some(victim) = cache.victim(class) else { return false };
        self.flush_to_regions(cache, victim, cache.len(victim));
        cache.shrink(victim, &caching.large);
        cache.grow(class, &caching.large)
    }

    /// Enlarges the magazine of `class`, or moves some or all of its blocks to the depot or the regions.
    fn make_room(&self, cache: &ThreadCache, class: Class) {
        let Some(caching) = &self.caching else { return };
        self.return_unused(caching, cache);
        if cache.grow(class, &caching.large) {
            return;
        }
        let should_rebalance = cache.should_rebalance();
        if should_rebalance && self.steal_budget(caching, cache, class) {
            return;
        }
        let count = cache.excess(class);
        let mut stored = caching.depot.store(cache, class, count);
        if stored < count && should_rebalance {
            let stale = caching.depot.clear_for(class, count - stored);
            if !stale.is_empty() {
                let mut state = self.lock.lock();
                stale.iter().for_each(|&block| Self::return_to_region(&mut state, block));
                drop(state);
                stored += caching.depot.store(cache, class, count - stored);
            }
        }
        self.flush_to_regions(cache, class, count - stored);
    }

    pub(super) fn flush_to_regions(&self, cache: &ThreadCache, class: Class, count: usize) {
        if count > 0 {
            let mut state = self.lock.lock();
            let blocks = core::iter::from_fn(|| cache.take(class)).take(count);
            blocks.for_each(|block| Self::return_to_region(&mut state, block));
        }
    }

    pub(super) fn return_to_region(state: &mut State<S>, block: BlockPtr) {
        // SAFETY: a cached block was taken from its region, which is not removed before the block is returned.
        let (_, location) = unsafe { Self::locate(block) };
        state.return_to_region(location);
    }

    /// Returns all blocks cached by this thread and the depot to the regions. Returns whether there were any.
    pub(crate) fn drain(&self) -> bool {
        let Some(caching) = &self.caching else { return false };
        // The depot is emptied before the regions are locked: no thread holds both locks at once.
        let mut stored = Vec::new();
        caching.depot.drain(|block| stored.push(block));
        let mut returned = stored.len();
        let mut state = self.lock.lock();
        for block in stored {
            Self::return_to_region(&mut state, block);
        }
        cache::with_owned_cache(caching.id, |cache| {
            for class in (0..cache::CLASSES).filter_map(Class::new) {
                while let Some(block) = cache.take(class) {
                    Self::return_to_region(&mut state, block);
                    returned += 1;
                }
                cache.shrink(class, &caching.large);
            }
        });
        state.merge_all();
        returned > 0
    }

    /// Puts the calling thread's cache for this pool into the table. Returns false if [`cache::attach_thread`] does.
    fn attach_thread(&self, caching: &CacheShared) -> bool {
        if cache::with_cache(caching.id, |_| ()).is_some() {
            return true;
        }
        let make = || ThreadCache::new(caching.budget);
        let register = |cache| self.lock.lock().register(cache);
        // SAFETY: `detach_threads` closes all registered caches before it frees the arena, and `detach_thread` is of
        // this type.
        unsafe { cache::attach_thread(caching.id, self.this.cast(), Self::detach_thread, make, register) }
    }

    /// Returns all cached blocks of an exiting thread to the regions. Returns the arena if it must now be freed.
    ///
    /// # Safety
    /// `pool` is a live arena of this type. `cache` is registered with it, and the calling owner does not use it again.
    unsafe fn detach_thread(
        pool: NonNull<()>,
        cache: &ThreadCache,
        teardown: &mut Teardown,
    ) -> Option<DeferredFree> {
        let arena: NonNull<Arena<S>> = pool.cast();
        // SAFETY: the caller's promise: it lives, and a thread that frees it waits for the `Teardown` first.
        let arena_ref = unsafe { &*arena.as_ptr() };
        let (caching, mut state) = (&arena_ref.caching, arena_ref.lock.lock());
        for class in (0..cache::CLASSES).filter_map(Class::new) {
            while let Some(block) = cache.take(class) {
                Self::return_to_region(&mut state, block);
            }
            if let Some(caching) = caching {
                cache.shrink(class, &caching.large);
            }
        }
        state.unregister(cache);
        let is_last = state.claim_teardown();
        drop(state);
        if let (false, Some(caching)) = (is_last, caching) {
            arena_ref.return_at_exit(caching, teardown);
        }
        // SAFETY: the pool is dropped and no block is live, as seen under the lock, by this thread alone.
        is_last.then(|| unsafe { Self::detach_threads(arena, teardown) })
    }
}
