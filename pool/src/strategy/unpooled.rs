use core::fmt;
use core::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

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
    stats: Arc<Mutex<PoolStats>>,
    pending: Mutex<u64>,
}

/// Bytes that count against the limit while a storage is being created. Dropping the value releases them.
struct Pending<'a> {
    all: &'a Mutex<u64>,
    size: u64,
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        *self.all.lock().unwrap_or_else(PoisonError::into_inner) -= self.size;
    }
}

/// A block of [`Unpooled`].
pub struct UnpooledBlock<S: Storage> {
    /// Not a `Box`: moving a box invalidates pointers to its content, and the program might have some.
    storage: Arc<RegisteredStorage<S>>,
    stats: Arc<Mutex<PoolStats>>,
}

impl<S: Storage> Unpooled<S> {
    /// Creates a pool whose blocks have at most `limit` bytes together, rounded down to a multiple of 4096.
    pub fn new(
        limit: usize,
        source: impl Fn(usize) -> Result<S, StorageError> + Send + Sync + 'static,
    ) -> Unpooled<S> {
        Unpooled {
            source: Box::new(source),
            limit: limit & !(MAX_ALIGN - 1),
            stats: Arc::default(),
            pending: Mutex::new(0),
        }
    }

    fn reserve(&self, size: u64) -> Option<Pending<'_>> {
        let mut pending = self.pending.lock().unwrap_or_else(PoisonError::into_inner);
        let used = self.stats().region_bytes + *pending;
        let fits = used.checked_add(size).is_some_and(|all| all <= self.limit as u64);
        fits.then(|| {
            *pending += size;
            Pending { all: &self.pending, size }
        })
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
        let Some(pending) = self.reserve(size) else { return Err(self.alloc_error(len, full)) };
        let storage = (self.source)(size as usize)
            .and_then(|storage| match storage.size() {
                got if got as u64 >= size => Ok(storage),
                most => Err(StorageError::Size { asked: size as usize, most }),
            })
            .map_err(|error| self.alloc_error(len, AllocErrorKind::Storage(error)))?;
        let Some(_more) = self.reserve(storage.size() as u64 - size) else {
            return Err(self.alloc_error(len, full));
        };
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        stats.allocs += 1;
        stats.misses += 1;
        stats.live_blocks += 1;
        stats.regions += 1;
        stats.requested_bytes += len as u64;
        stats.granted_bytes += storage.size() as u64;
        stats.live_bytes += storage.size() as u64;
        stats.region_bytes += storage.size() as u64;
        stats.peak_bytes = stats.peak_bytes.max(stats.live_bytes);
        drop(stats);
        drop(pending);
        Ok(UnpooledBlock {
            storage: Arc::new(RegisteredStorage::new(storage)),
            stats: Arc::clone(&self.stats),
        })
    }

    fn max_alloc(&self) -> usize {
        self.limit.min(isize::MAX as usize & !(MAX_ALIGN - 1))
    }

    fn stats(&self) -> PoolStats {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner)
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

impl<S: Storage> Drop for UnpooledBlock<S> {
    fn drop(&mut self) {
        let mut stats = self.stats.lock().unwrap_or_else(PoisonError::into_inner);
        stats.frees += 1;
        stats.live_blocks -= 1;
        stats.regions -= 1;
        stats.live_bytes -= self.storage.size() as u64;
        stats.region_bytes -= self.storage.size() as u64;
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
