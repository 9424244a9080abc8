//! Which magazines are the calling thread's.

use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{DeferredFree, ThreadCache};

/// Slots in a thread's table; pool `id` uses slot `id % TABLE_SLOTS`.
const TABLE_SLOTS: usize = 16;

/// The number of no pool.
const NO_POOL: u64 = u64::MAX;

/// The number of every pool whose blocks are not cached by threads.
pub(crate) const UNCACHED: u64 = 0;

/// The magazines of one pool, which has this number.
type CacheRef = (u64, NonNull<ThreadCache>);

/// Where a thread finds its magazines for a pool, by the pool's number. It has no destructor.
struct CacheTable {
    /// The magazines used last. They are always at the same address, so the processor can proceed with them while it
    /// still waits for the number of a block's pool, which it compares afterwards.
    last: Cell<CacheRef>,
    slots: [Cell<CacheRef>; TABLE_SLOTS],
    /// The thread is exiting: it keeps nothing any more.
    exiting: Cell<bool>,
}

impl CacheTable {
    const EMPTY: CacheRef = (NO_POOL, NonNull::dangling());

    fn slot(&self, id: u64) -> &Cell<CacheRef> {
        &self.slots[id as usize % TABLE_SLOTS]
    }

    /// Looks for magazines that were not used last; returns whether they now are.
    #[cold]
    #[inline(never)]
    fn make_last(&self, id: u64) -> bool {
        let found = self.slot(id).get();
        let is_it = found.0 == id;
        if is_it {
            self.last.set(found);
        }
        is_it
    }

    fn set(&self, cache: CacheRef) {
        self.slot(cache.0).set(cache);
        self.last.set(cache);
    }

    fn clear(&self) {
        self.last.set(Self::EMPTY);
        self.slots.iter().for_each(|slot| slot.set(Self::EMPTY));
    }
}

/// Retires the magazines of an exiting thread for one pool.
///
/// # Safety
/// Called once, before the magazines are closed, by the thread that owns them and holds the `Teardown`.
type DetachThread =
    unsafe fn(pool: NonNull<()>, cache: &ThreadCache, teardown: &mut Teardown) -> Option<DeferredFree>;

/// The magazines of one thread for one pool.
///
/// # Invariants
/// 1. `cache` was made by `Box::leak` and is freed when this value is dropped, not before.
/// 2. While `cache` is not closed, `pool` lives and `detach_thread` is the function for it.
struct OwnedCache {
    id: u64,
    cache: NonNull<ThreadCache>,
    pool: NonNull<()>,
    detach_thread: DetachThread,
}

/// All magazines of a thread. Its destructor, at the end of the thread, returns the blocks in them.
struct Owner(RefCell<Vec<OwnedCache>>);

thread_local! {
    static TABLE: CacheTable = const {
        CacheTable {
            last: Cell::new(CacheTable::EMPTY),
            slots: [const { Cell::new(CacheTable::EMPTY) }; TABLE_SLOTS],
            exiting: Cell::new(false),
        }
    };
    static OWNER: Owner = const { Owner(RefCell::new(Vec::new())) };
}

/// The lock under which magazines are closed: a dropped pool and an exiting thread each free data that the other refers
/// to.
#[derive(Debug)]
pub(crate) struct Teardown(#[expect(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

/// Returns a number that is unique among the pools of this process.
pub(crate) fn new_id() -> u64 {
    static LAST: Mutex<u64> = Mutex::new(0);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    *last += 1;
    *last
}

/// Locks out all other teardowns of magazines in this process.
pub(crate) fn teardown() -> Teardown {
    static TEARDOWN: Mutex<()> = Mutex::new(());
    Teardown(TEARDOWN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Calls `action` with the calling thread's magazines for the pool `id`, if those were used last.
#[inline]
pub(crate) fn with_last_cache<R>(id: u64, action: impl FnOnce(&ThreadCache) -> R) -> Option<R> {
    TABLE.with(|table| {
        let (last, cache) = table.last.get();
        // SAFETY: what is in the table is owned by this thread's `OWNER`, which clears the table before it frees.
        (last == id).then(|| action(unsafe { cache.as_ref() }))
    })
}

/// Calls `action` with the calling thread's magazines for the pool `id` if they are at hand, but were not used last.
#[inline]
pub(crate) fn with_table_cache<R>(id: u64, action: impl FnOnce(&ThreadCache) -> R) -> Option<R> {
    TABLE
        .with(|table| (table.last.get().0 != id && table.make_last(id)).then(|| with_last_cache(id, action)))
        .flatten()
}

/// Calls `action` with the calling thread's magazines for the pool `id`; returns none if it has none at hand.
#[inline]
pub(crate) fn with_cache<R>(id: u64, action: impl FnOnce(&ThreadCache) -> R) -> Option<R> {
    let is_at_hand = TABLE.with(|table| table.last.get().0 == id || table.make_last(id));
    is_at_hand.then(|| with_last_cache(id, action)).flatten()
}

/// Finds magazines of the calling thread that another pool has pushed out of the table, or makes new ones with `make`;
/// returns none if the thread is exiting.
///
/// `register` is called for new ones, before anybody uses them.
///
/// # Safety
/// `pool` lives until the magazines are closed or retired, and `detach_thread` is the function for it.
#[cold]
pub(crate) unsafe fn attach_thread(
    id: u64,
    pool: NonNull<()>,
    detach_thread: DetachThread,
    make: impl FnOnce() -> ThreadCache,
    register: impl FnOnce(NonNull<ThreadCache>),
) -> bool {
    if TABLE.with(|table| table.exiting.get()) {
        return false;
    }
    let attached = OWNER.try_with(|Owner(owned)| {
        let Ok(mut owned) = owned.try_borrow_mut() else { return None };
        if let Some(known) = owned.iter().find(|known| known.id == id) {
            return Some(known.cache);
        }
        if owned.iter().any(OwnedCache::is_closed) {
            // The table may name what is about to go.
            TABLE.with(CacheTable::clear);
            owned.retain(|owned| !owned.is_closed());
        }
        let cache = NonNull::from(Box::leak(Box::new(make())));
        register(cache);
        owned.push(OwnedCache { id, cache, pool, detach_thread });
        Some(cache)
    });
    let Ok(Some(cache)) = attached else { return false };
    TABLE.with(|table| table.set((id, cache)));
    true
}

impl OwnedCache {
    fn cache(&self) -> &ThreadCache {
        // SAFETY: invariant 1.
        unsafe { self.cache.as_ref() }
    }

    fn is_closed(&self) -> bool {
        self.cache().closed.is_raised()
    }
}

impl Drop for OwnedCache {
    fn drop(&mut self) {
        // SAFETY: invariant 1.
        drop(unsafe { Box::from_raw(self.cache.as_ptr()) });
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        TABLE.with(|table| {
            table.exiting.set(true);
            table.clear();
        });
        for owned in self.0.take() {
            let mut teardown = teardown();
            let mut deferred = None;
            if !owned.is_closed() {
                // SAFETY: invariant 2; the `Teardown` is held, and this happens once, as `owned` is dropped.
                deferred = unsafe { (owned.detach_thread)(owned.pool, owned.cache(), &mut teardown) };
            }
            drop(teardown);
            drop(deferred);
        }
    }
}
