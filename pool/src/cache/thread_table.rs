//! Finds the caches of the calling thread.

use core::cell::{Cell, RefCell};
use core::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::{DeferredFree, ThreadCache};

/// The size of a thread's table; pool `id` uses slot `id % TABLE_SLOTS`.
const TABLE_SLOTS: usize = 16;

const NO_POOL: u64 = u64::MAX;

/// The id of all pools whose blocks are not cached.
pub(crate) const UNCACHED: u64 = 0;

type CacheRef = (u64, NonNull<ThreadCache>);

/// The caches of a thread by pool id. It has no destructor, so an access needs no initialisation check.
struct CacheTable {
    /// The cache used last. The CPU can use it speculatively while the id of a block's pool is being loaded.
    last: Cell<CacheRef>,
    slots: [Cell<CacheRef>; TABLE_SLOTS],
    exiting: Cell<bool>,
}

impl CacheTable {
    const EMPTY: CacheRef = (NO_POOL, NonNull::dangling());

    fn slot(&self, id: u64) -> &Cell<CacheRef> {
        &self.slots[id as usize % TABLE_SLOTS]
    }

    /// Stores the cache of pool `id` in `last`. Returns false if it is not in the table.
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

/// Returns the blocks in the cache of an exiting thread to the pool, and the pool to the caller if it must be freed.
///
/// # Safety
/// Called once, before the cache is closed, by the thread that owns it and holds the `Teardown`.
type DetachThread =
    unsafe fn(pool: NonNull<()>, cache: &ThreadCache, teardown: &mut Teardown) -> Option<DeferredFree>;

/// A cache that this thread must free.
///
/// # Invariants
/// 1. `cache` was made by `Box::leak` and is freed only when this value is dropped.
/// 2. While `cache` is not closed, `pool` lives and `detach_thread` is the function for it.
struct OwnedCache {
    id: u64,
    cache: NonNull<ThreadCache>,
    pool: NonNull<()>,
    detach_thread: DetachThread,
}

/// All caches of a thread. The destructor, at thread exit, returns their blocks to the pools.
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

/// The lock for closing caches: a dropped pool and an exiting thread each free data that the other refers to.
#[derive(Debug)]
pub(crate) struct Teardown(#[expect(dead_code, reason = "held, not read")] MutexGuard<'static, ()>);

pub(crate) fn new_id() -> u64 {
    static LAST: Mutex<u64> = Mutex::new(0);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    *last += 1;
    *last
}

pub(crate) fn teardown() -> Teardown {
    static TEARDOWN: Mutex<()> = Mutex::new(());
    Teardown(TEARDOWN.lock().unwrap_or_else(PoisonError::into_inner))
}

/// Calls `action` with the calling thread's cache for the pool `id`, if it was used last.
#[inline]
pub(crate) fn with_last_cache<R>(id: u64, action: impl FnOnce(&ThreadCache) -> R) -> Option<R> {
    TABLE.with(|table| {
        let (last, cache) = table.last.get();
        // SAFETY: this thread's `OWNER` owns the caches in the table, and clears the table before it frees any.
        (last == id).then(|| action(unsafe { cache.as_ref() }))
    })
}

/// As `with_last_cache`, for a cache that is in the table but was not used last.
#[inline]
pub(crate) fn with_table_cache<R>(id: u64, action: impl FnOnce(&ThreadCache) -> R) -> Option<R> {
    TABLE
        .with(|table| (table.last.get().0 != id && table.make_last(id)).then(|| with_last_cache(id, action)))
        .flatten()
}

/// As `with_last_cache`, for any cache in the table.
#[inline]
pub(crate) fn with_cache<R>(id: u64, action: impl FnOnce(&ThreadCache) -> R) -> Option<R> {
    let is_at_hand = TABLE.with(|table| table.last.get().0 == id || table.make_last(id));
    is_at_hand.then(|| with_last_cache(id, action)).flatten()
}

/// As `with_cache`, also for a cache that another pool has evicted from the table.
#[cold]
pub(crate) fn with_owned_cache<R>(id: u64, action: impl FnOnce(&ThreadCache) -> R) -> Option<R> {
    let known = OWNER.try_with(|Owner(owned)| {
        owned.try_borrow().ok()?.iter().find(|known| known.id == id).map(|known| known.cache)
    });
    // SAFETY: this thread's `OWNER` frees it only when the thread exits, or when another cache is attached after the
    // end of the pool. The caller keeps the pool alive during this call.
    known.ok().flatten().map(|cache| action(unsafe { cache.as_ref() }))
}

/// Puts the calling thread's cache for the pool `id` into the table; another pool may have evicted it. Creates the
/// cache with `make` and passes it to `register` if necessary. Returns false at thread exit and in a recursive call.
///
/// # Safety
/// `pool` lives until the cache is closed or detached, and `detach_thread` is the function for it.
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
            // The table may refer to closed caches, which are freed next.
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
