use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;

use crate::arena::Arena;
use crate::class::MAX_ALIGN;
use crate::{AllocError, Block, Pool, PoolStats, Storage, StorageError};

/// How a pool grows: regions double in size, from the first to the largest, until the limit.
///
/// A block above half the largest region gets a region of its own, except in the pools of the paper.
///
/// ```
/// use mpj_pool::{Buddy, Growth, Pages, Pool};
/// let pool = Buddy::growing(Growth::default().limit(16 << 20), Pages::create);
/// assert_eq!(pool.max_alloc(), 16 << 20);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Growth {
    pub(crate) first_region: usize,
    pub(crate) max_region: usize,
    pub(crate) limit: usize,
    pub(crate) eager_merge: bool,
    pub(crate) return_after: Option<Duration>,
}

impl Growth {
    /// Regions from 1 MiB to 16 MiB, without limit.
    pub const DEFAULT: Growth = Growth {
        first_region: 1 << 20,
        max_region: 16 << 20,
        limit: usize::MAX,
        eager_merge: false,
        return_after: None,
    };

    /// As in the mpjbuf paper: regions from 8 MiB to 1 GiB, without limit.
    pub const PAPER: Growth = Growth { first_region: 8 << 20, max_region: 1 << 30, ..Growth::DEFAULT };

    /// Sets the size of the first region, rounded up to a power of two and at least 4096. Raises the size at which
    /// regions stop doubling to this size if necessary.
    pub const fn first_region(mut self, bytes: usize) -> Growth {
        self.first_region = power(bytes);
        self.max_region =
            if self.max_region < self.first_region { self.first_region } else { self.max_region };
        self
    }

    /// Sets the size at which regions stop doubling, rounded up to a power of two and at least 4096. Lowers the size of
    /// the first region to this size if necessary.
    pub const fn max_region(mut self, bytes: usize) -> Growth {
        self.max_region = power(bytes);
        self.first_region =
            if self.first_region > self.max_region { self.max_region } else { self.first_region };
        self
    }

    /// Sets the maximum size of all regions together, in bytes. A storage that is larger than requested can exceed it.
    /// [`Buddy`] and [`Magazine`](crate::Magazine) free idle regions before a request fails because of the limit.
    pub const fn limit(mut self, bytes: usize) -> Growth {
        self.limit = bytes;
        self
    }

    /// Merges each block that returns to its region at once with its free neighbours, as in the mpjbuf paper.
    ///
    /// By default, a region keeps a few merges pending until a request finds no block, because the same blocks are
    /// likely to be split again. No request fails because of a pending merge.
    ///
    /// ```
    /// use mpj_pool::{Buddy, Growth, Heap, Pool};
    /// let pool = Buddy::growing(Growth::default().eager_merge(), Heap::create);
    /// drop(pool.alloc(64)?);
    /// let stats = pool.stats();
    /// assert!(stats.splits > 0 && stats.splits == stats.merges);
    /// # Ok::<(), mpj_pool::AllocError>(())
    /// ```
    pub const fn eager_merge(mut self) -> Growth {
        self.eager_merge = true;
        self
    }

    /// Returns pages to the system: about every `idle`, those that have no block and had none the last time.
    ///
    /// Only a [`Magazine`](crate::Magazine) does so, and only with storages that can
    /// [discard](Storage::discard) pages and are not registered with a device. It has no thread for this: threads do it
    /// when they need more blocks than they cache or have no room for freed ones, and when they end. Each thread first
    /// returns its cached blocks of sizes that it has not used meanwhile, and all above 512 KiB.
    ///
    /// ```
    /// use std::time::Duration;
    /// use mpj_pool::{Growth, Magazine, Pages};
    /// let pool = Magazine::growing(Growth::default().return_after(Duration::from_secs(1)), Pages::create);
    /// # drop(pool);
    /// ```
    pub const fn return_after(mut self, idle: Duration) -> Growth {
        self.return_after = Some(idle);
        self
    }

    pub(crate) fn next_region(&self, largest: usize) -> usize {
        largest.saturating_mul(2).clamp(self.first_region, self.max_region)
    }
}

impl Default for Growth {
    fn default() -> Growth {
        Growth::DEFAULT
    }
}

/// Rounds up to a power of two, at least 4096 and at most a quarter of the address range.
const fn power(bytes: usize) -> usize {
    const MAX: usize = 1 << (usize::BITS - 2);
    if bytes <= MAX_ALIGN {
        MAX_ALIGN
    } else if bytes >= MAX {
        MAX
    } else {
        bytes.next_power_of_two()
    }
}

/// A pool over buddy allocators, one for each region.
///
/// The size of a block is the smallest power of two that holds the request, at least 64 bytes. A block with a region of
/// its own has a multiple of 4096 bytes, and can be up to twice as large as the request. The map of free blocks lies
/// outside the memory. All threads share one lock.
///
/// ```
/// use mpj_pool::{Buddy, Growth, Heap, Pool, RawBuffer};
///
/// let pool = Buddy::growing(Growth::default(), Heap::create);
/// let mut block = pool.alloc(1500)?;
/// assert_eq!(block.capacity(), 2048);
/// assert_eq!(block.as_ptr().addr().get() % 1024, 0);
/// block.as_uninit_mut()[..3].write_copy_of_slice(b"mpj");
/// drop(pool); // the block keeps what it needs
/// # Ok::<(), mpj_pool::AllocError>(())
/// ```
///
/// # Invariants
/// 1. `arena` lives until `drop` releases it.
pub struct Buddy<S: Storage + 'static> {
    arena: NonNull<Arena<S>>,
}

impl<S: Storage> Buddy<S> {
    /// Creates an empty pool, which gets its regions from `source` when it needs them.
    ///
    /// `source` gets a size in bytes and may return a larger storage, but not a smaller one. It must not use the pool.
    pub fn growing(
        growth: Growth,
        source: impl Fn(usize) -> Result<S, StorageError> + Send + Sync + 'static,
    ) -> Buddy<S> {
        Buddy { arena: Arena::growing(growth, Box::new(source), None) }
    }

    /// Creates a pool over one storage, such as a shared segment or a registered region.
    ///
    /// ```
    /// use mpj_pool::{Buddy, Heap, Pool};
    /// let pool = Buddy::fixed(Heap::create(1 << 20)?)?;
    /// let all = pool.alloc(1 << 20)?;
    /// assert!(pool.alloc(1).is_err());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`StorageError::Size`] if the storage has less than 64 bytes or more than 8 TiB (1 GiB with 32-bit addresses),
    /// [`StorageError::MapMemory`] if its map cannot be allocated.
    pub fn fixed(storage: S) -> Result<Buddy<S>, StorageError> {
        Ok(Buddy { arena: Arena::fixed(storage, None)? })
    }

    #[inline]
    fn arena(&self) -> &Arena<S> {
        // SAFETY: invariant 1.
        unsafe { self.arena.as_ref() }
    }
}

// SAFETY: the arena may be used and released on any thread.
unsafe impl<S: Storage> Send for Buddy<S> {}
// SAFETY: as above; all mutable state is under the locks of the arena.
unsafe impl<S: Storage> Sync for Buddy<S> {}

impl<S: Storage> Pool for Buddy<S> {
    type Block = Block<S>;

    #[inline(always)]
    fn alloc(&self, len: usize) -> Result<Block<S>, AllocError> {
        self.arena().alloc(len)
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

impl<S: Storage> Drop for Buddy<S> {
    fn drop(&mut self) {
        // SAFETY: invariant 1, and the pool is not used after this.
        unsafe { Arena::drop_pool(self.arena) }
    }
}

impl<S: Storage> fmt::Debug for Buddy<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Buddy").field(self.arena()).finish()
    }
}
