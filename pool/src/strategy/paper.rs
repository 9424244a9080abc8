//! The pools of the mpjbuf paper, for comparisons: one lock around Knuth's buddy system, with two forms of free lists.

use core::fmt;
use core::ptr::NonNull;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::class::{MAX_ALIGN, alignment};
use crate::{AllocError, AllocErrorKind, Growth, PoolStats, RegionKey, Storage, StorageError};

#[allow(unsafe_code, reason = "tags and links lie in the blocks, as in the paper")]
mod buddy1;
mod buddy2;

pub use buddy1::{Buddy1, Buddy1Lists, PrivateStorage};
pub use buddy2::{Buddy2, Buddy2Lists};

/// The smallest block: mpjbuf's chunk.
const CHUNK: usize = 128;

/// The size of the largest region. The links of [`Buddy1`] are numbers of chunks with 32 bits.
const MAX_REGION: usize = 1 << if usize::BITS == 64 { 38 } else { 30 };

/// The size of a block as a power of two: `CHUNK << level`.
type Level = u8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BlockPos {
    region: usize,
    offset: usize,
    level: Level,
}

pub(crate) trait FreeLists: Send + Default + fmt::Debug + 'static {
    /// Returns how many bytes the strategy itself uses in front of the `len` bytes of a block.
    fn overhead(len: usize) -> usize;

    /// Adds a region, which is one free block of `level`.
    fn insert(&mut self, base: NonNull<u8>, level: Level);

    /// Allocates a block of `level`, split off a larger one if necessary.
    fn alloc(&mut self, level: Level) -> Option<BlockPos>;

    fn free(&mut self, pos: BlockPos);

    /// Returns the number of free bytes, or the first inconsistency.
    fn check(&self) -> Result<usize, String>;
}

pub(crate) struct PaperPool<S, B> {
    state: Mutex<State<S, B>>,
    growth: Growth,
    source: Box<dyn Fn(usize) -> Result<S, StorageError> + Send + Sync>,
}

#[derive(Debug)]
struct State<S, B> {
    // Dropped before the regions, to which it has pointers.
    free_lists: B,
    regions: Vec<S>,
    stats: PoolStats,
}

/// A block of [`Buddy1`] or [`Buddy2`].
pub struct PaperBlock<S: Storage, B: 'static> {
    shared: Arc<PaperPool<S, B>>,
    base: NonNull<u8>,
    capacity: usize,
    pos: BlockPos,
    /// Frees the block. A function pointer, so that this public type needs no bound on the private `FreeLists`.
    drop_fn: fn(&mut PaperBlock<S, B>),
}

impl<S: Storage, B: FreeLists> PaperPool<S, B> {
    fn new(
        growth: Growth,
        source: Box<dyn Fn(usize) -> Result<S, StorageError> + Send + Sync>,
    ) -> Arc<PaperPool<S, B>> {
        let state = State { free_lists: B::default(), regions: Vec::new(), stats: PoolStats::default() };
        Arc::new(PaperPool { state: Mutex::new(state), growth, source })
    }

    fn lock(&self) -> MutexGuard<'_, State<S, B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the size of the largest region within the limit. Regions are powers of two, so that blocks have buddies.
    fn max_region(&self) -> usize {
        let most = self.growth.limit.min(MAX_REGION);
        if most < MAX_ALIGN { 0 } else { 1 << most.ilog2() }
    }

    fn max_alloc(&self) -> usize {
        self.max_region().saturating_sub(B::overhead(usize::MAX))
    }

    fn alloc(self: &Arc<Self>, len: usize) -> Result<PaperBlock<S, B>, AllocError> {
        let mut state = self.lock();
        if len.max(1) > self.max_alloc() {
            return Err(self.alloc_error(&state, len, AllocErrorKind::TooLarge));
        }
        let overhead = B::overhead(len);
        let size = (len + overhead).max(CHUNK).next_power_of_two();
        let level = level(size);
        let pos = match state.free_lists.alloc(level) {
            Some(pos) => pos,
            None => {
                self.grow(&mut state, len, size)?;
                let pos = state.free_lists.alloc(level);
                pos.ok_or_else(|| self.alloc_error(&state, len, self.full()))?
            }
        };
        let capacity = size - overhead;
        let stats = &mut state.stats;
        stats.allocs += 1;
        stats.misses += 1;
        stats.live_blocks += 1;
        stats.requested_bytes += len as u64;
        stats.granted_bytes += capacity as u64;
        stats.live_bytes += capacity as u64;
        stats.peak_bytes = stats.peak_bytes.max(stats.live_bytes);
        let base = buddy1::within(&state.regions[pos.region], pos.offset + overhead);
        drop(state);
        let shared = Arc::clone(self);
        Ok(PaperBlock { shared, base, capacity, pos, drop_fn: free_block })
    }

    fn grow(&self, state: &mut State<S, B>, len: usize, size: usize) -> Result<(), AllocError> {
        let region_bytes = state.stats.region_bytes as usize;
        let greatest = state.regions.iter().map(Storage::size).max().unwrap_or(0);
        let left = self.growth.limit.saturating_sub(region_bytes);
        let mut wanted = self.growth.next_region(greatest).next_power_of_two();
        wanted = wanted.min(self.max_region()).max(size);
        while wanted > left && wanted > size {
            wanted /= 2;
        }
        if wanted > left {
            return Err(self.alloc_error(state, len, self.full()));
        }
        let made = (self.source)(wanted).and_then(|storage| match storage.size() {
            size if size >= wanted => Ok(storage),
            most => Err(StorageError::Size { asked: wanted, most }),
        });
        let storage = made.map_err(|error| self.alloc_error(state, len, AllocErrorKind::Storage(error)))?;
        state.free_lists.insert(storage.base(), level(wanted));
        state.regions.push(storage);
        state.stats.regions += 1;
        state.stats.region_bytes += wanted as u64;
        Ok(())
    }

    fn full(&self) -> AllocErrorKind {
        AllocErrorKind::Full { capacity: self.growth.limit }
    }

    fn alloc_error(&self, state: &State<S, B>, len: usize, kind: AllocErrorKind) -> AllocError {
        AllocError::new(len, self.max_alloc(), state.stats.live_bytes as usize, kind)
    }

    fn stats(&self) -> PoolStats {
        self.lock().stats
    }

    fn validate(&self) -> Result<(), String> {
        let state = self.lock();
        let free = state.free_lists.check()?;
        let region_bytes = state.stats.region_bytes as usize;
        if state.stats.live_blocks == 0 && free != region_bytes {
            return Err(format!("{free} of {region_bytes} bytes are free, but no block is live"));
        }
        if free + state.stats.live_bytes as usize > region_bytes {
            return Err(format!("{free} bytes free and {} live in {region_bytes}", state.stats.live_bytes));
        }
        Ok(())
    }
}

fn free_block<S: Storage, B: FreeLists>(block: &mut PaperBlock<S, B>) {
    let mut state = block.shared.lock();
    state.free_lists.free(block.pos);
    let stats = &mut state.stats;
    stats.frees += 1;
    stats.live_blocks -= 1;
    stats.live_bytes -= block.capacity as u64;
}

impl<S: Storage, B> PaperBlock<S, B> {
    fn key_and_offset(&self) -> Option<(RegionKey, usize)> {
        let state = self.shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        let storage = &state.regions[self.pos.region];
        storage.key().map(|key| (key, self.base.addr().get() - storage.base().addr().get()))
    }
}

impl<S: Storage, B> Drop for PaperBlock<S, B> {
    fn drop(&mut self) {
        (self.drop_fn)(self);
    }
}

impl<S: Storage, B> fmt::Debug for PaperBlock<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BlockPos { region, offset, .. } = self.pos;
        write!(f, "Block({} B in region {region} at +{offset:#x})", self.capacity)
    }
}

impl<S: Storage, B> fmt::Debug for PaperPool<S, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let PoolStats { regions, region_bytes, live_blocks, live_bytes, .. } = state.stats;
        write!(f, "{live_bytes} of {region_bytes} B live in {live_blocks} blocks, {regions} regions")
    }
}

fn level(size: usize) -> Level {
    (size / CHUNK).ilog2() as Level
}

fn bytes(level: Level) -> usize {
    CHUNK << level
}

macro_rules! pool {
    ($name:ident, $lists:ty, $bound:path) => {
        impl<S: $bound> $name<S> {
            /// Creates an empty pool, which gets its regions from `source` when it needs them.
            ///
            /// `source` gets a size in bytes, a power of two, and may return a larger storage, but not a smaller one.
            /// It must not use the pool.
            pub fn growing(
                growth: $crate::Growth,
                source: impl Fn(usize) -> Result<S, $crate::StorageError> + Send + Sync + 'static,
            ) -> $name<S> {
                $name { shared: super::PaperPool::new(growth, Box::new(source)) }
            }
        }

        impl<S: $bound> $crate::Pool for $name<S> {
            type Block = super::PaperBlock<S, $lists>;

            fn alloc(&self, len: usize) -> Result<Self::Block, $crate::AllocError> {
                self.shared.alloc(len)
            }

            fn max_alloc(&self) -> usize {
                self.shared.max_alloc()
            }

            fn stats(&self) -> $crate::PoolStats {
                self.shared.stats()
            }

            fn validate(&self) -> Result<(), String> {
                self.shared.validate()
            }
        }
    };
}
use pool;

const _: () = assert!(alignment(usize::MAX) == MAX_ALIGN && CHUNK >= 64);
