use core::fmt;
use core::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::class::MAX_ALIGN;
use crate::registration::{Region, RegisteredStorage};
use crate::{AllocError, AllocErrorKind, Pool, PoolStats, RawBuffer, RegionKey, Storage, StorageError};

/// Creates a storage for each block and drops it with the block: the baseline for pools.
///
/// ```
/// use mpj_pool::{Heap, Pool, Unpooled};
/// let pool = Unpooled::new(usize::MAX, Heap::create);
/// drop(pool.alloc(100)?);
/// assert_eq!(pool.stats().regions, 0);
/// # Ok::<(), mpj_pool::AllocError>(())
/// ```
pub struct Unpooled<S: Storage> {
    source: Box<dyn Fn(usize) -> Result<S, StorageError> + Send + Sync>,
    limit: usize,
    usage: Arc<Mutex<Usage>>,
}

#[derive(Debug, Default)]
struct Usage {
    stats: PoolStats,
    /// Bytes that count against the limit while a storage is being created.
    pending: u64,
}

/// Pending bytes. Dropping the value releases them.
struct Pending<'a> {
    usage: &'a Arc<Mutex<Usage>>,
    size: u64,
}

/// The bytes of a live block. Dropping the value releases them.
struct Live {
    usage: Arc<Mutex<Usage>>,
    size: u64,
}

/// A block of [`Unpooled`].
pub struct UnpooledBlock<S: Storage> {
    /// Not a `Box`: moving a box invalidates pointers to its content, and the program might have some.
    storage: Arc<RegisteredStorage<S>>,
    // Dropped after the storage: until then, the bytes count against the limit.
    _live: Live,
}

impl Pending<'_> {
    /// Counts the pending bytes as those of a block for `requested` bytes.
    fn commit(mut self, requested: usize) -> Live {
        let size = std::mem::take(&mut self.size);
        let mut usage = lock(self.usage);
        usage.pending -= size;
        let stats = &mut usage.stats;
        stats.allocs += 1;
        stats.misses += 1;
        stats.live_blocks += 1;
        stats.regions += 1;
        stats.requested_bytes += requested as u64;
        stats.granted_bytes += size;
        stats.live_bytes += size;
        stats.region_bytes += size;
        stats.peak_bytes = stats.peak_bytes.max(stats.live_bytes);
        drop(usage);
        Live { usage: Arc::clone(self.usage), size }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        lock(self.usage).pending -= self.size;
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        let stats = &mut lock(&self.usage).stats;
        stats.frees += 1;
        stats.live_blocks -= 1;
        stats.regions -= 1;
        stats.live_bytes -= self.size;
        stats.region_bytes -= self.size;
    }
}

fn lock(usage: &Mutex<Usage>) -> MutexGuard<'_, Usage> {
    usage.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<S: Storage> Unpooled<S> {
    /// Creates a pool whose blocks have at most `limit` bytes together, rounded down to a multiple of 4096.
    pub fn new(
        limit: usize,
        source: impl Fn(usize) -> Result<S, StorageError> + Send + Sync + 'static,
    ) -> Unpooled<S> {
        Unpooled { source: Box::new(source), limit: limit & !(MAX_ALIGN - 1), usage: Arc::default() }
    }

    fn reserve(&self, size: u64) -> Option<Pending<'_>> {
        let mut usage = lock(&self.usage);
        let used = usage.stats.region_bytes + usage.pending;
        used.checked_add(size).filter(|all| *all <= self.limit as u64)?;
        usage.pending += size;
        Some(Pending { usage: &self.usage, size })
    }

    fn alloc_error(&self, requested: usize, kind: AllocErrorKind) -> AllocError {
        AllocError::new(requested, self.max_alloc(), self.stats().live_bytes as usize, kind)
    }
}

impl<S: Storage> Pool for Unpooled<S> {
    type Block = UnpooledBlock<S>;

    fn alloc(&self, len: usize) -> Result<UnpooledBlock<S>, AllocError> {
        if len.max(1) > self.max_alloc() {
            return Err(self.alloc_error(len, AllocErrorKind::TooLarge));
        }
        let size = len.max(1).next_multiple_of(MAX_ALIGN) as u64;
        let full = AllocErrorKind::Full { capacity: self.limit };
        let Some(mut pending) = self.reserve(size) else { return Err(self.alloc_error(len, full)) };
        let storage = (self.source)(size as usize)
            .and_then(|storage| match storage.size() {
                got if got as u64 >= size => Ok(storage),
                most => Err(StorageError::Size { asked: size as usize, most }),
            })
            .map_err(|error| self.alloc_error(len, AllocErrorKind::Storage(error)))?;
        let Some(mut more) = self.reserve(storage.size() as u64 - size) else {
            return Err(self.alloc_error(len, full));
        };
        pending.size += std::mem::take(&mut more.size);
        let live = pending.commit(len);
        Ok(UnpooledBlock { storage: Arc::new(RegisteredStorage::new(storage)), _live: live })
    }

    fn max_alloc(&self) -> usize {
        self.limit.min(isize::MAX as usize & !(MAX_ALIGN - 1))
    }

    fn stats(&self) -> PoolStats {
        lock(&self.usage).stats
    }

    fn validate(&self) -> Result<(), String> {
        let stats = self.stats();
        if stats.live_blocks == stats.regions && stats.live_bytes == stats.region_bytes {
            Ok(())
        } else {
            let PoolStats { live_blocks, live_bytes, regions, region_bytes, .. } = stats;
            Err(format!("{live_blocks} blocks of {live_bytes} B, but {regions} storages of {region_bytes} B"))
        }
    }
}

// SAFETY: 1 to 3: the contract of `Storage`; the block owns a whole one. 4: the `Arc` does not move the region.
unsafe impl<S: Storage> RawBuffer for UnpooledBlock<S> {
    fn as_ptr(&self) -> NonNull<u8> {
        self.storage.base()
    }

    fn capacity(&self) -> usize {
        self.storage.size()
    }

    fn region_offset(&self) -> Option<(RegionKey, usize)> {
        self.storage.key().map(|key| (key, 0))
    }

    fn region(&self) -> Option<&Region> {
        Some(self.storage.as_region())
    }
}

impl<S: Storage> fmt::Debug for UnpooledBlock<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Block({} B, unpooled)", self.storage.size())
    }
}

impl<S: Storage> fmt::Debug for Unpooled<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PoolStats { live_blocks, live_bytes, .. } = self.stats();
        write!(f, "Unpooled({live_bytes} B live in {live_blocks} blocks)")
    }
}
