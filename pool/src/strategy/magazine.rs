//! The default pool: magazines for each thread, then a depot, then buddy regions.

use core::fmt;
use core::ptr::NonNull;

use crate::arena::{Arena, CacheShared};
use crate::{AllocError, Block, Growth, Pool, PoolStats, Storage, StorageError};

/// A pool whose threads cache freed blocks for their next requests.
///
/// A thread finds a block in its own magazines, without a lock and without an atomic instruction. Half or all of a full
/// magazine goes to a depot under one lock, where threads that have run out find it. So a block may be freed on any
/// thread, and a stream of blocks from one thread to another takes two locks for dozens of blocks. Blocks that fit
/// neither in the magazines nor in the depot go back to regions, which are those of [`Buddy`](crate::Buddy).
///
/// From 256 bytes on there are four block sizes to each power of two, so a block is at most a quarter larger than the
/// request, and 9 % on average. If a thread caches no block of the right size but one that is up to 50 % larger, it
/// uses that.
///
/// ```
/// use mpj_pool::{Growth, Magazine, Pages, Pool, RawBuffer};
///
/// let pool = Magazine::growing(Growth::default(), Pages::create);
/// let block = pool.alloc(70_000)?;
/// assert_eq!(block.capacity(), 80 << 10);
/// let first = block.as_ptr();
/// drop(block);
/// assert_eq!(pool.alloc(70_000)?.as_ptr(), first, "still warm");
/// assert_eq!((pool.stats().hits, pool.stats().misses), (1, 1));
/// # Ok::<(), mpj_pool::AllocError>(())
/// ```
///
/// # Invariants
/// 1. `arena` lives until `drop` leaves it, and its number is `id`.
pub struct Magazine<S: Storage> {
    arena: NonNull<Arena<S>>,
    id: u64,
}

impl<S: Storage> Magazine<S> {
    /// The bytes that a thread keeps at most in small blocks, and again in blocks above 512 KiB.
    const BUDGET: usize = 8 << 20;

    /// Returns an empty pool that gets its regions from `source` as it needs them.
    ///
    /// `source` is called with a size in bytes and may return a larger storage, not a smaller one. It must not use the
    /// pool.
    pub fn growing(
        growth: Growth,
        source: impl Fn(usize) -> Result<S, StorageError> + Send + Sync + 'static,
    ) -> Magazine<S> {
        let caching = CacheShared::new(budget(growth.limit));
        Self::over(Arena::growing(growth, Box::new(source), Some(caching)))
    }

    /// Returns a pool of just the bytes of `storage`, such as a shared segment or a registered region.
    ///
    /// # Errors
    /// [`StorageError::Size`] if it has less than 64 bytes, more than 8 TiB, or more than there is memory to keep track
    /// of.
    pub fn fixed(storage: S) -> Result<Magazine<S>, StorageError> {
        let caching = CacheShared::new(budget(storage.size()));
        Ok(Self::over(Arena::fixed(storage, Some(caching))?))
    }

    fn over(arena: NonNull<Arena<S>>) -> Magazine<S> {
        // SAFETY: it has just been made.
        let id = unsafe { arena.as_ref() }.id();
        Magazine { arena, id }
    }

    /// Returns the blocks that the calling thread and the depot cache to the regions, where other threads can use them.
    ///
    /// A thread that ends does so by itself.
    pub fn drain(&self) {
        self.arena().drain();
    }

    #[inline]
    fn arena(&self) -> &Arena<S> {
        // SAFETY: invariant 1.
        unsafe { self.arena.as_ref() }
    }
}

/// Returns what a thread may keep of a pool of at most `limit` bytes: no more than a 32nd.
fn budget(limit: usize) -> usize {
    (limit / 32).min(Magazine::<crate::Heap>::BUDGET)
}

// SAFETY: the arena may be used, and left, from any thread.
unsafe impl<S: Storage> Send for Magazine<S> {}
// SAFETY: as above; everything that changes is under the arena's locks or belongs to one thread.
unsafe impl<S: Storage> Sync for Magazine<S> {}

impl<S: Storage> Pool for Magazine<S> {
    type Block = Block<S>;

    // Inlined, so that the handle is made in registers. Otherwise it goes through memory twice, which takes longer than
    // the allocation itself.
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
