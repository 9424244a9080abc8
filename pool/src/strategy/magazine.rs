use core::fmt;
use core::ptr::NonNull;

use crate::arena::{Arena, CacheShared};
use crate::{AllocError, Block, Growth, Pool, PoolStats, Storage, StorageError};

/// A pool whose threads cache freed blocks for their next requests.
///
/// A thread allocates from its own magazines, without a lock. Half or all of a full magazine moves to a depot, where
/// other threads find the blocks; the move takes one lock. A block may be freed on any thread. A stream of small blocks
/// from one thread to another takes locks only once per batch. Blocks without room return to their regions, as in
/// [`Buddy`](crate::Buddy).
///
/// Above 256 bytes, there are four block sizes per power of two, so the right size is at most a quarter larger than the
/// request. A thread without a cached block of that size can use one that is up to 50 % larger.
///
/// ```
/// use mpj_pool::{Growth, Magazine, Pages, Pool, RawBuffer};
///
/// let pool = Magazine::growing(Growth::default(), Pages::create);
/// let block = pool.alloc(70_000)?;
/// assert_eq!(block.capacity(), 80 << 10);
/// let first = block.as_ptr();
/// drop(block);
/// assert_eq!(pool.alloc(70_000)?.as_ptr(), first, "cached");
/// assert_eq!((pool.stats().hits, pool.stats().misses), (1, 1));
/// # Ok::<(), mpj_pool::AllocError>(())
/// ```
///
/// # Invariants
/// 1. `arena` lives until `drop` releases it, and its number is `id`.
pub struct Magazine<S: Storage> {
    arena: NonNull<Arena<S>>,
    id: u64,
}

impl<S: Storage> Magazine<S> {
    /// The largest budget of a thread in bytes for small blocks, and again for blocks above 512 KiB.
    const BUDGET: usize = 8 << 20;

    /// Creates an empty pool, which gets its regions from `source` when it needs them.
    ///
    /// `source` gets a size in bytes and may return a larger storage, but not a smaller one. It must not use the pool.
    pub fn growing(
        growth: Growth,
        source: impl Fn(usize) -> Result<S, StorageError> + Send + Sync + 'static,
    ) -> Magazine<S> {
        let caching = CacheShared::new(budget(growth.limit));
        Self::over(Arena::growing(growth, Box::new(source), Some(caching)))
    }

    /// Creates a pool over one storage, such as a shared segment or a registered region.
    ///
    /// # Errors
    /// As for [`Buddy::fixed`](crate::Buddy::fixed).
    pub fn fixed(storage: S) -> Result<Magazine<S>, StorageError> {
        let caching = CacheShared::new(budget(storage.size()));
        Ok(Self::over(Arena::fixed(storage, Some(caching))?))
    }

    fn over(arena: NonNull<Arena<S>>) -> Magazine<S> {
        // SAFETY: it has just been created.
        let id = unsafe { arena.as_ref() }.id();
        Magazine { arena, id }
    }

    /// Empties the depot and the cache of the calling thread: their blocks return to the regions, for use by other
    /// threads. An exiting thread returns its blocks by itself.
    pub fn drain(&self) {
        self.arena().drain();
    }

    #[inline]
    fn arena(&self) -> &Arena<S> {
        // SAFETY: invariant 1.
        unsafe { self.arena.as_ref() }
    }
}

fn budget(limit: usize) -> usize {
    (limit / 32).min(Magazine::<crate::Heap>::BUDGET)
}

// SAFETY: the arena may be used and released on any thread.
unsafe impl<S: Storage> Send for Magazine<S> {}
// SAFETY: as above; all mutable state is atomic, under the locks of the arena, or belongs to one thread.
unsafe impl<S: Storage> Sync for Magazine<S> {}

impl<S: Storage> Pool for Magazine<S> {
    type Block = Block<S>;

    // See `Block::rebuilt`.
    #[inline(always)]
    fn alloc(&self, len: usize) -> Result<Block<S>, AllocError> {
        Arena::alloc_cached(self.arena(), self.id, len)
    }

    fn max_alloc(&self) -> usize {
        self.arena().max_alloc()
    }

    fn stats(&self) -> PoolStats {
        self.arena().stats()
    }

    fn trim(&self) -> usize {
        self.arena().trim()
    }

    fn validate(&self) -> Result<(), String> {
        self.arena().validate()
    }
}

impl<S: Storage> Drop for Magazine<S> {
    fn drop(&mut self) {
        // SAFETY: invariant 1, and the pool is not used after this.
        unsafe { Arena::drop_pool(self.arena) }
    }
}

impl<S: Storage> fmt::Debug for Magazine<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Magazine").field(self.arena()).finish()
    }
}
