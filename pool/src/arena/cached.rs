//! The path of blocks between regions and the threads that cache them.

use core::ptr::NonNull;

use super::state::State;
use super::{Arena, ArenaRegion, CacheShared};
use crate::block::Block;
use crate::cache::{self, BlockPtr, Budget, DeferredFree, Teardown, ThreadCache, UNCACHED};
use crate::class::Class;
use crate::{AllocError, Storage};

/// The most bytes of small blocks that a thread fetches at once from a region.
const FETCH: usize = 64 << 10;

impl<S: Storage> Arena<S> {
    /// Returns a block that the calling thread keeps or fetches.
    ///
    /// `id` is that of this arena: the caller has it at hand, while the arena might not be in the processor's cache.
    #[inline(always)]
    pub(crate) fn alloc_cached(arena: &Arena<S>, id: u64, len: usize) -> Result<Block<S>, AllocError> {
        let class = Class::index_for_len(len);
        if let Some(Some(block)) = cache::with_last(id, |local| local.pop(class, len)) {
            // SAFETY: the thread cached a free block of this arena, and has just counted it as live.
            return Ok(unsafe { Block::new(block) });
        }
        match arena.fetch(id, len) {
            Ok(block) => Ok(block.rebuilt()),
            Err(error) => Err(core::hint::black_box(error)),
        }
    }

    /// Looks in magazines that were not used last.
    #[cold]
    #[inline(never)]
    fn fetch(&self, id: u64, len: usize) -> Result<Block<S>, AllocError> {
        let class = Class::index_for_len(len);
        if let Some(Some(block)) = cache::with_other(id, |local| local.pop(class, len)) {
            // SAFETY: as in `alloc_cached`.
            return Ok(unsafe { Block::new(block) });
        }
        self.fetch_slowly(len)
    }

    #[cold]
    #[inline(never)]
    fn fetch_slowly(&self, len: usize) -> Result<Block<S>, AllocError> {
        if let Some(keeping) = &self.keeping
            && let Some(class) = self.class(len)
            && self.attach_thread(keeping)
            && let Some(Some(block)) = cache::with_local(keeping.id, |local| {
                // Only now are the magazines at hand those of this pool: they may contain a block after all.
                let near = local.near(class);
                let is_large = Budget::is_large(class.bytes());
                if let Some(near) = near.filter(|&near| near == class || !local.should_refetch()) {
                    return local.pop(near.index(), len);
                }
                let block = if is_large {
                    // A single large block goes straight to the user: a magazine for it would stay empty.
                    let found = keeping.depot.take(class);
                    let found = found.or_else(|| near.and_then(|_| self.lock.lock().take(class)));
                    match found.filter(|&block| local.pass(block, len)) {
                        Some(block) => block,
                        None => return local.pop(near?.index(), len),
                    }
                } else {
                    if local.may_grow(class) && !local.grow(class, &keeping.large) && local.should_rebalance()
                    {
                        self.steal_budget(keeping, local, class);
                    }
                    let is_stocked = self.restock(keeping, local, class);
                    let from = if is_stocked { class } else { near? };
                    local.pop(from.index(), len)?
                };
                local.miss();
                Some(block)
            })
        {
            // SAFETY: as in `alloc_cached`.
            return Ok(unsafe { Block::new(block) });
        }
        self.alloc(len)
    }

    /// Fills an empty magazine from the depot, or otherwise from a region; returns whether it got a block.
    fn restock(&self, keeping: &CacheShared, local: &ThreadCache, class: Class) -> bool {
        if keeping.depot.restock(local, class) > 0 {
            return true;
        }
        let wanted = local.wanted(class).min((FETCH / class.bytes()).max(1));
        let mut state = self.lock.lock();
        (0..wanted).take_while(|_| state.take(class).is_some_and(|block| local.put(class, block))).count() > 0
    }

    /// Frees a live block into the cache of the calling thread, if it may be cached.
    ///
    /// Short, with one call for all other than the usual case: so the drop of a block can be inlined, and where it is
    /// not, it has no registers to save. Either is worth a third of the time.
    ///
    /// # Safety
    /// As for `free_to_region`.
    #[inline]
    pub(crate) unsafe fn free_to_cache(block: BlockPtr) {
        let region: NonNull<ArenaRegion<S>> = block.home.region().cast();
        // SAFETY: the block is live, so its region lives (invariant 2 of Arena).
        let id = unsafe { (*region.as_ptr()).id };
        if cache::with_last(id, |local| local.push(block)) == Some(true) {
            return;
        }
        // SAFETY: the caller's promise; the block was not freed above.
        unsafe { Self::keep_elsewhere(block) }
    }

    /// Searches for magazines that were not used last, or otherwise for room.
    ///
    /// # Safety
    /// As for `free_to_region`.
    #[cold]
    #[inline(never)]
    unsafe fn keep_elsewhere(block: BlockPtr) {
        let region: NonNull<ArenaRegion<S>> = block.home.region().cast();
        // SAFETY: the block is live, so its region lives (invariant 2 of Arena).
        let id = unsafe { (*region.as_ptr()).id };
        if id == UNCACHED {
            // SAFETY: the caller's promise.
            return unsafe { Self::free_to_region(block) };
        }
        if cache::with_other(id, |local| local.push(block)) != Some(true) {
            // SAFETY: the caller's promise; the block was not freed above.
            unsafe { Self::keep_slowly(block) }
        }
    }

    /// # Safety
    /// As for `free_to_region`.
    #[cold]
    unsafe fn keep_slowly(block: BlockPtr) {
        // SAFETY: the caller's promise.
        let (arena, place) = unsafe { Self::place_of(block) };
        // SAFETY: the block is live, so the arena lives (invariant 1), until it is pushed below at least.
        let shared = unsafe { &*arena.as_ptr() };
        if let Some(keeping) = &shared.keeping
            && let Some(class) = place.class
            && shared.attach_thread(keeping)
        {
            // Captures a pointer, not a reference: a thread that sees the push of the last block may free the arena at
            // once.
            let kept = cache::with_local(keeping.id, |local| {
                if local.push(block) {
                    return true;
                }
                !local.orphaned.is_raised() && {
                    // SAFETY: the block is live still, so the arena lives (invariant 1).
                    let shared = unsafe { &*arena.as_ptr() };
                    shared.make_room(local, class);
                    local.push(block)
                }
            });
            if kept == Some(true) {
                return;
            }
        }
        // SAFETY: the caller's promise; the block was not freed above.
        unsafe { Self::free_to_region(block) }
    }

    /// Takes the budget of another class's magazine, which it empties, for that of `class`; returns whether that has
    /// grown.
    fn steal_budget(&self, keeping: &CacheShared, local: &ThreadCache, class: Class) -> bool {
        let Some(victim) = local.victim(class) else { return false };
        self.unload(local, victim, local.len(victim));
        local.shut(victim, &keeping.large);
        local.grow(class, &keeping.large)
    }

    /// Enlarges the magazine of `class`, or otherwise moves the excess elsewhere.
    fn make_room(&self, local: &ThreadCache, class: Class) {
        let Some(keeping) = &self.keeping else { return };
        if local.grow(class, &keeping.large) {
            return;
        }
        let should_rebalance = local.should_rebalance();
        if should_rebalance && self.steal_budget(keeping, local, class) {
            return;
        }
        let count = local.overflow(class);
        let mut stored = keeping.depot.store(local, class, count);
        if stored < count && should_rebalance {
            let stale = keeping.depot.clear_for(class, count - stored);
            if !stale.is_empty() {
                let mut state = self.lock.lock();
                stale.iter().for_each(|&block| Self::untake(&mut state, block));
                drop(state);
                stored += keeping.depot.store(local, class, count - stored);
            }
        }
        self.unload(local, class, count - stored);
    }

    /// Gives `count` blocks that a thread keeps back to their regions.
    fn unload(&self, local: &ThreadCache, class: Class, count: usize) {
        if count > 0 {
            let mut state = self.lock.lock();
            let blocks = core::iter::from_fn(|| local.unstock(class)).take(count);
            blocks.for_each(|block| Self::untake(&mut state, block));
        }
    }

    fn untake(state: &mut State<S>, block: BlockPtr) {
        // SAFETY: a cached block was taken from its region, which is not removed before the block is returned.
        let (_, place) = unsafe { Self::place_of(block) };
        state.untake(place);
    }

    /// Gives all that this thread and the depot keep back to the regions; returns whether there was something.
    pub(crate) fn drain(&self) -> bool {
        let Some(keeping) = &self.keeping else { return false };
        // The depot is emptied before the regions are locked: their lock is never taken under one of the depot's.
        let mut passed = Vec::new();
        keeping.depot.drain(|block| passed.push(block));
        let mut given = passed.len();
        let mut state = self.lock.lock();
        for block in passed {
            Self::untake(&mut state, block);
        }
        cache::with_local(keeping.id, |local| {
            for class in (0..cache::CLASSES).filter_map(Class::new) {
                while let Some(block) = local.unstock(class) {
                    Self::untake(&mut state, block);
                    given += 1;
                }
                local.shut(class, &keeping.large);
            }
        });
        state.merge_all();
        given > 0
    }

    /// Makes sure that the calling thread has its magazines at hand; returns false if it is ending.
    fn attach_thread(&self, keeping: &CacheShared) -> bool {
        if cache::with_local(keeping.id, |_| ()).is_some() {
            return true;
        }
        let make = || ThreadCache::new(keeping.budget);
        let register = |local| self.lock.lock().register(local);
        // SAFETY: `detach` closes what is registered before it frees the arena, and `retire` is of this type.
        unsafe { cache::adopt(keeping.id, self.this.cast(), Self::retire, make, register) }
    }

    /// Takes all back that a thread keeps which is about to end.
    ///
    /// # Safety
    /// `pool` is an arena of this type, which lives, and `local` is registered with it; its thread, which calls this,
    /// does not use it again.
    unsafe fn retire(
        pool: NonNull<()>,
        local: &ThreadCache,
        teardown: &mut Teardown,
    ) -> Option<DeferredFree> {
        let arena: NonNull<Arena<S>> = pool.cast();
        // SAFETY: the caller's promise: it lives, and who detaches it waits for the `Teardown`.
        let shared = unsafe { &*arena.as_ptr() };
        let (keeping, mut state) = (&shared.keeping, shared.lock.lock());
        for class in (0..cache::CLASSES).filter_map(Class::new) {
            while let Some(block) = local.unstock(class) {
                Self::untake(&mut state, block);
            }
            if let Some(keeping) = keeping {
                local.shut(class, &keeping.large);
            }
        }
        state.unregister(local);
        let is_last = state.is_over();
        drop(state);
        // SAFETY: the pool is dropped and no block is live, as seen under the lock, by this thread alone.
        is_last.then(|| unsafe { Self::detach(arena, teardown) })
    }
}
