//! The way of blocks between regions and the threads that keep them.

use core::ptr::NonNull;

use super::state::State;
use super::{Arena, Keeping, Region};
use crate::block::Block;
use crate::cache::{self, Budget, Entry, Local, PLAIN, Remains, Turn};
use crate::class::Class;
use crate::{AllocError, Storage};

/// The most bytes of small blocks that a thread fetches at once from a region.
const FETCH: usize = 64 << 10;

impl<S: Storage> Arena<S> {
    /// Returns a block that the calling thread keeps or fetches.
    ///
    /// `id` is that of this arena: who asks has it at hand, while the arena may not be in the cache.
    #[inline(always)]
    pub(crate) fn alloc_kept(arena: &Arena<S>, id: u64, len: usize) -> Result<Block<S>, AllocError> {
        let class = Class::index_for_len(len);
        if let Some(Some(entry)) = cache::with_last(id, |local| local.pop(class, len)) {
            // SAFETY: the thread kept a free block of this arena, and has just counted it as live.
            return Ok(unsafe { Block::new(entry) });
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
        if let Some(Some(entry)) = cache::with_other(id, |local| local.pop(class, len)) {
            // SAFETY: as in `alloc_kept`.
            return Ok(unsafe { Block::new(entry) });
        }
        self.fetch_slowly(len)
    }

    #[cold]
    #[inline(never)]
    fn fetch_slowly(&self, len: usize) -> Result<Block<S>, AllocError> {
        if let Some(keeping) = &self.keeping
            && let Some(class) = self.class(len)
            && self.adopt(keeping)
            && let Some(Some(entry)) = cache::with_local(keeping.id, |local| {
                // The magazine may have been another pool's a moment ago.
                let near = local.near(class);
                let is_great = Budget::is_great(class.bytes());
                if let Some(near) = near.filter(|&near| near == class || !local.is_fed_up()) {
                    return local.pop(near.index(), len);
                }
                let entry = if is_great {
                    // It comes alone: a magazine for one that is about to go would only be empty.
                    let found = keeping.depot.take(class);
                    let found = found.or_else(|| near.and_then(|_| self.lock.lock().take(class)));
                    match found.filter(|&entry| local.pass(entry, len)) {
                        Some(entry) => entry,
                        None => return local.pop(near?.index(), len),
                    }
                } else {
                    if local.may_grow(class) && !local.enlarge(class, &keeping.great) && local.is_pressed() {
                        self.rob(keeping, local, class);
                    }
                    let is_stocked = self.restock(keeping, local, class);
                    let from = if is_stocked { class } else { near? };
                    local.pop(from.index(), len)?
                };
                local.miss();
                Some(entry)
            })
        {
            // SAFETY: as in `alloc_kept`.
            return Ok(unsafe { Block::new(entry) });
        }
        self.alloc(len)
    }

    /// Fills an empty magazine from the depot, or else from a region; says whether it got something.
    fn restock(&self, keeping: &Keeping, local: &Local, class: Class) -> bool {
        if keeping.depot.restock(local, class) > 0 {
            return true;
        }
        let wanted = local.wanted(class).min((FETCH / class.bytes()).max(1));
        let mut state = self.lock.lock();
        (0..wanted).take_while(|_| state.take(class).is_some_and(|entry| local.stock(class, entry))).count()
            > 0
    }

    /// Takes a live block back, to be kept by the calling thread if it may.
    ///
    /// Short, with one call for all that is not the usual case: so that dropping a block is inlined where it is dropped, and
    /// where it is not, has no register to save. Either is worth a third of the time.
    ///
    /// # Safety
    /// As for `give`.
    #[inline]
    pub(crate) unsafe fn keep(entry: Entry) {
        let region: NonNull<Region<S>> = entry.home.region().cast();
        // SAFETY: the block is live, so its region lives (invariant 2 of Arena).
        let id = unsafe { (*region.as_ptr()).id };
        if cache::with_last(id, |local| local.push(entry)) == Some(true) {
            return;
        }
        // SAFETY: the caller's promise; the block was not taken back above.
        unsafe { Self::keep_elsewhere(entry) }
    }

    /// Looks for magazines that were not used last, or else for room.
    ///
    /// # Safety
    /// As for `give`.
    #[cold]
    #[inline(never)]
    unsafe fn keep_elsewhere(entry: Entry) {
        let region: NonNull<Region<S>> = entry.home.region().cast();
        // SAFETY: the block is live, so its region lives (invariant 2 of Arena).
        let id = unsafe { (*region.as_ptr()).id };
        if id == PLAIN {
            // SAFETY: the caller's promise.
            return unsafe { Self::give(entry) };
        }
        if cache::with_other(id, |local| local.push(entry)) != Some(true) {
            // SAFETY: the caller's promise; the block was not taken back above.
            unsafe { Self::keep_slowly(entry) }
        }
    }

    /// # Safety
    /// As for `give`.
    #[cold]
    unsafe fn keep_slowly(entry: Entry) {
        // SAFETY: the caller's promise.
        let (arena, place) = unsafe { Self::place_of(entry) };
        // SAFETY: the block is live, so the arena lives (invariant 1), until it is pushed below at least.
        let shared = unsafe { &*arena.as_ptr() };
        if let Some(keeping) = &shared.keeping
            && let Some(class) = place.class
            && shared.adopt(keeping)
        {
            // Captures a pointer, not a reference: who sees the push of the last block may free the arena at once.
            let kept = cache::with_local(keeping.id, |local| {
                if local.push(entry) {
                    return true;
                }
                !local.orphaned.is_raised() && {
                    // SAFETY: the block is live still, so the arena lives (invariant 1).
                    let shared = unsafe { &*arena.as_ptr() };
                    shared.make_room(local, class);
                    local.push(entry)
                }
            });
            if kept == Some(true) {
                return;
            }
        }
        // SAFETY: the caller's promise; the block was not taken back above.
        unsafe { Self::give(entry) }
    }

    /// Empties a magazine that is not in use, or has most bytes set aside, to make that of `class` larger; says whether it
    /// is.
    fn rob(&self, keeping: &Keeping, local: &Local, class: Class) -> bool {
        let Some(rival) = local.rival(class) else { return false };
        self.unload(local, rival, local.len(rival));
        local.shut(rival, &keeping.great);
        local.enlarge(class, &keeping.great)
    }

    /// Makes the magazine of `class` larger, or else puts what is too much elsewhere.
    fn make_room(&self, local: &Local, class: Class) {
        let Some(keeping) = &self.keeping else { return };
        if local.enlarge(class, &keeping.great) {
            return;
        }
        let is_pressed = local.is_pressed();
        if is_pressed && self.rob(keeping, local, class) {
            return;
        }
        let count = local.overflow(class);
        let mut stored = keeping.depot.store(local, class, count);
        if stored < count && is_pressed {
            let stale = keeping.depot.clear_for(class, count - stored);
            if !stale.is_empty() {
                let mut state = self.lock.lock();
                stale.iter().for_each(|&entry| Self::untake(&mut state, entry));
                drop(state);
                stored += keeping.depot.store(local, class, count - stored);
            }
        }
        self.unload(local, class, count - stored);
    }

    /// Gives `count` blocks that a thread keeps back to their regions.
    fn unload(&self, local: &Local, class: Class, count: usize) {
        if count > 0 {
            let mut state = self.lock.lock();
            let entries = core::iter::from_fn(|| local.unstock(class)).take(count);
            entries.for_each(|entry| Self::untake(&mut state, entry));
        }
    }

    fn untake(state: &mut State<S>, entry: Entry) {
        // SAFETY: a block that is kept was taken from its region, which is not removed before it comes back.
        let (_, place) = unsafe { Self::place_of(entry) };
        state.untake(place);
    }

    /// Gives all that this thread and the depot keep back to the regions; says whether there was something.
    pub(crate) fn drain(&self) -> bool {
        let Some(keeping) = &self.keeping else { return false };
        let mut blocks = 0;
        // What is locked must not be locked again: one list, then the other lock.
        let mut entries = Vec::new();
        keeping.depot.drain(|entry| entries.push(entry));
        let mut state = self.lock.lock();
        for entry in entries {
            Self::untake(&mut state, entry);
            blocks += 1;
        }
        cache::with_local(keeping.id, |local| {
            for class in (0..cache::CLASSES).filter_map(Class::new) {
                while let Some(entry) = local.unstock(class) {
                    Self::untake(&mut state, entry);
                    blocks += 1;
                }
                local.shut(class, &keeping.great);
            }
        });
        state.merge_all();
        blocks > 0
    }

    /// Makes sure that the calling thread has its magazines at hand; says no if it is ending.
    fn adopt(&self, keeping: &Keeping) -> bool {
        if cache::with_local(keeping.id, |_| ()).is_some() {
            return true;
        }
        let pool = NonNull::from(self);
        let make = || Local::new(keeping.budget);
        let register = |local| self.lock.lock().register(local);
        // SAFETY: `bury` closes what is registered before it frees the arena, and `retire` is of this type.
        unsafe { cache::adopt(keeping.id, pool.cast(), Self::retire, make, register) }
    }

    /// Takes all back that a thread keeps which is about to end.
    ///
    /// # Safety
    /// `pool` is an arena of this type, which lives, and `local` is registered with it; its thread, which calls this,
    /// does not use it again.
    unsafe fn retire(pool: NonNull<()>, local: &Local, turn: &mut Turn) -> Option<Remains> {
        let arena: NonNull<Arena<S>> = pool.cast();
        // SAFETY: the caller's promise: it lives, and who buries it waits for the turn.
        let shared = unsafe { &*arena.as_ptr() };
        let (keeping, mut state) = (&shared.keeping, shared.lock.lock());
        for class in (0..cache::CLASSES).filter_map(Class::new) {
            while let Some(entry) = local.unstock(class) {
                Self::untake(&mut state, entry);
            }
            if let Some(keeping) = keeping {
                local.shut(class, &keeping.great);
            }
        }
        state.unregister(local);
        let is_last = state.is_over();
        drop(state);
        // SAFETY: the pool is gone and no block is live, as seen under the lock, by this thread alone.
        is_last.then(|| unsafe { Self::bury(arena, turn) })
    }
}
