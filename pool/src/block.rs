use core::fmt;
use core::hint::black_box;
use core::marker::PhantomData;
use core::mem::ManuallyDrop;
use core::ptr::NonNull;

use crate::arena::{Arena, ArenaRegion};
use crate::cache::BlockPtr;
use crate::class::MIN_BLOCK;
use crate::{RawBuffer, RegionKey, Storage, registration};

/// A block of a [`Buddy`](crate::Buddy) or [`Magazine`](crate::Magazine) pool. Dropping it, on any thread, frees it.
///
/// A block may outlive its pool: its memory stays valid until the block is dropped.
///
/// ```
/// use mpj_pool::{DefaultBlock, Pool, RawBuffer};
/// let mut block: DefaultBlock = mpj_pool::global().alloc(100)?;
/// assert_eq!(block.capacity(), 128);
/// block.as_uninit_mut()[0].write(7);
/// std::thread::spawn(move || drop(block)).join().unwrap();
/// # Ok::<(), mpj_pool::AllocError>(())
/// ```
///
/// # Invariants
/// 1. The region of `raw.tag` lives, and with it its arena, for as long as the arena counts this block as live.
/// 2. The bytes of the class, or of the region if the block has no class, start at `raw.base` and lie in the region.
///    They belong to this block alone until it is freed, and are at least [`MIN_BLOCK`].
pub struct Block<S: Storage> {
    raw: BlockPtr,
    region: PhantomData<NonNull<ArenaRegion<S>>>,
}

/// The value that a debug build writes to the start of a freed block.
const POISON: u8 = 0xdb;
const MAX_POISONED_BYTES: usize = 64 << 10;

impl<S: Storage> Block<S> {
    /// # Safety
    /// The arena of the region in the tag, with storage of type `S`, has just granted these bytes as one live block.
    #[inline]
    pub(crate) unsafe fn new(raw: BlockPtr) -> Block<S> {
        Block { raw, region: PhantomData }
    }

    #[inline]
    fn into_raw(self) -> BlockPtr {
        ManuallyDrop::new(self).raw
    }

    /// Returns the same block, with its handle in registers.
    ///
    /// A function with a fast path calls this on its slow path. Otherwise both paths might store the handle in memory,
    /// and the caller would load it with another width, which stalls.
    #[inline(always)]
    pub(crate) fn rebuilt(self) -> Block<S> {
        let BlockPtr { base, tag } = self.into_raw();
        Block { raw: BlockPtr { base: black_box(base), tag: black_box(tag) }, region: PhantomData }
    }

    /// Grows the block in place to at least `len` bytes, if the memory after it is free and a block of that size may
    /// start at its address. The block keeps its content. A block that is large enough is returned unchanged.
    ///
    /// ```
    /// use mpj_pool::{Growth, Heap, Magazine, Pool, RawBuffer};
    /// let pool = Magazine::growing(Growth::default(), Heap::create);
    /// let block = pool.alloc(1 << 19)?;
    /// let at = block.as_ptr();
    /// let block = block.try_grow(3 << 18).expect("the pool is empty otherwise");
    /// assert_eq!((block.as_ptr(), block.capacity()), (at, 3 << 18));
    /// # Ok::<(), mpj_pool::AllocError>(())
    /// ```
    ///
    /// # Errors
    /// Returns the unchanged block if it cannot grow in place.
    pub fn try_grow(self, len: usize) -> Result<Block<S>, Block<S>> {
        if len <= self.capacity() {
            return Ok(self);
        }
        let raw = self.into_raw();
        // SAFETY: invariants 1 and 2; the handle below describes the result.
        match unsafe { Arena::<S>::grow(raw, len) } {
            Some(raw) => Ok(Block { raw, region: PhantomData }),
            None => Err(Block { raw, region: PhantomData }),
        }
    }

    /// Overwrites the start of the block, so that a read after the free returns an obviously wrong value.
    fn poison(&mut self) {
        let bytes = self.as_uninit_mut();
        let len = bytes.len().min(MAX_POISONED_BYTES);
        bytes[..len].fill(core::mem::MaybeUninit::new(POISON));
    }

    fn region_of(&self) -> &ArenaRegion<S> {
        // SAFETY: invariant 1: this block is live, so the region lives.
        unsafe { self.raw.tag.region().cast().as_ref() }
    }
}

// SAFETY: the block owns its bytes, the region is `Sync` as storages are, and the arena may be used from any thread.
unsafe impl<S: Storage> Send for Block<S> {}
// SAFETY: through `&Block` only fields that never change are read, and the region, which is `Sync` as storages are.
unsafe impl<S: Storage> Sync for Block<S> {}

// SAFETY: 1: invariants 1 and 2, and the contract of Storage: the region's bytes neither move nor unmap while it lives.
// 2: invariant 2, and point 4 of Storage. 3: no field changes, nor does the size of a storage.
// 4: blocks point to their region, which holds its description.
unsafe impl<S: Storage> RawBuffer for Block<S> {
    #[inline]
    fn as_ptr(&self) -> NonNull<u8> {
        self.raw.base
    }

    #[inline]
    fn capacity(&self) -> usize {
        let capacity = match self.raw.tag.class() {
            Some(class) => class.bytes(),
            None => self.region_of().storage.size(),
        };
        // Removes the bounds check of callers that index the first byte.
        // SAFETY: invariant 2: every class and every region has at least the smallest block.
        unsafe { core::hint::assert_unchecked(capacity >= MIN_BLOCK) };
        capacity
    }

    fn region_offset(&self) -> Option<(RegionKey, usize)> {
        let region = self.region_of();
        region.storage.key().map(|key| (key, region.offset(self.raw.base)))
    }

    fn region(&self) -> Option<&registration::Region> {
        Some(self.region_of().storage.as_region())
    }
}

impl<S: Storage> Drop for Block<S> {
    #[inline]
    fn drop(&mut self) {
        // Not under Miri: poison would initialise the bytes, and so hide reads of uninitialised memory.
        if cfg!(debug_assertions) && !cfg!(miri) {
            self.poison();
        }
        // SAFETY: invariants 1 and 2; this runs once, so the block is live until here and not used afterwards.
        unsafe { Arena::<S>::free_to_cache(self.raw) }
    }
}

impl<S: Storage> fmt::Debug for Block<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = self.region_of().offset(self.raw.base);
        write!(f, "Block({} B at +{offset:#x})", self.capacity())
    }
}
