//! Counters of a pool.

/// Counters of a pool at one moment.
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
    /// The most bytes that were ever out of the regions at one time, in live blocks and in what threads keep.
    pub peak_bytes: u64,
    /// Bytes that threads and depots keep for the next requests.
    pub cached_bytes: u64,
    /// Regions held.
    pub regions: u64,
    /// Bytes in the regions held.
    pub region_bytes: u64,
    /// Bytes requested so far.
    pub requested_bytes: u64,
    /// Bytes granted so far for these requests.
    pub granted_bytes: u64,
    /// Blocks handed out so far.
    pub allocs: u64,
    /// Blocks freed so far.
    pub frees: u64,
    /// Requests that the calling thread's own magazines met, without a lock.
    pub hits: u64,
    /// Requests that went further: to a depot, a region, or the system.
    pub misses: u64,
    /// Blocks split so far, each into 64 of a sixty-fourth.
    pub splits: u64,
    /// Times that 64 free neighbours became one block again.
    pub merges: u64,
}

impl PoolStats {
    /// Returns the bytes granted so far beyond the requested ones.
    ///
    /// `waste() / granted_bytes` is their share; of `live_bytes` it is about the same.
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
