/// Counters of a pool. While other threads use the pool, the counters might be out of date and inconsistent.
///
/// ```
/// use mpj_pool::{Buddy, Growth, Heap, Pool};
/// let pool = Buddy::growing(Growth::default(), Heap::create);
/// let block = pool.alloc(100)?;
/// let stats = pool.stats();
/// assert_eq!((stats.live_blocks, stats.live_bytes, stats.requested_bytes), (1, 128, 100));
/// drop(block);
/// assert_eq!(pool.stats().live_blocks, 0);
/// # Ok::<(), mpj_pool::AllocError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
#[non_exhaustive]
pub struct PoolStats {
    /// Blocks allocated and not yet freed.
    pub live_blocks: u64,
    /// Bytes granted in live blocks.
    pub live_bytes: u64,
    /// The maximum number of bytes at one time in live and cached blocks.
    pub peak_bytes: u64,
    /// Bytes in blocks cached by threads and the depot.
    pub cached_bytes: u64,
    /// Regions held.
    pub regions: u64,
    /// Bytes in the regions held.
    pub region_bytes: u64,
    /// Bytes requested so far. Growing a block in place counts as a request, here and in `granted_bytes`.
    pub requested_bytes: u64,
    /// Bytes granted so far.
    pub granted_bytes: u64,
    /// Blocks handed out so far.
    pub allocs: u64,
    /// Blocks freed so far.
    pub frees: u64,
    /// Allocations of blocks that the calling thread had cached, except those counted in `misses`.
    pub hits: u64,
    /// All other allocations, and those of small blocks that used a larger cached block after a failed fetch.
    pub misses: u64,
    /// Splits of a block into 64 parts so far, in [`Buddy`](crate::Buddy) and [`Magazine`](crate::Magazine).
    pub splits: u64,
    /// Merges of 64 free neighbours into a block so far, in the same pools.
    pub merges: u64,
}

impl PoolStats {
    /// Returns the bytes granted so far beyond the requested ones, in live and freed blocks.
    ///
    /// ```
    /// use mpj_pool::{Buddy, Growth, Heap, Pool};
    /// let pool = Buddy::growing(Growth::default(), Heap::create);
    /// let block = pool.alloc(100)?;
    /// assert_eq!(pool.stats().waste(), 28);
    /// # Ok::<(), mpj_pool::AllocError>(())
    /// ```
    pub fn waste(&self) -> u64 {
        self.granted_bytes.saturating_sub(self.requested_bytes)
    }
}
