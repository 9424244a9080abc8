use core::alloc::Layout;
use core::fmt;
use core::ptr::NonNull;

use allocator_api2::alloc::{AllocError, Allocator};

use crate::strategy::PrivateStorage;
use crate::{Block, MAX_ALIGN, Magazine, Pool, RawBuffer};

/// An allocator whose memory comes from a pool, for `allocator_api2::vec::Vec` or `hashbrown::HashMap`.
///
/// A collection frees memory by its address. Therefore the handle of the block is stored in front of the bytes, which
/// takes max(64, alignment) bytes more, and the storage must be [`PrivateStorage`]. The largest alignment is 2048.
///
/// ```
/// use allocator_api2::vec::Vec;
/// use mpj_pool::{Growth, PoolAllocator, Magazine, Pages, Pool};
///
/// let pool = Magazine::growing(Growth::default(), Pages::create);
/// let mut squares = Vec::new_in(PoolAllocator::new(&pool));
/// squares.extend((0..1000u64).map(|n| n * n));
/// assert_eq!(squares[999], 998_001);
/// assert_eq!(pool.stats().live_blocks, 1);
/// drop(squares);
/// assert_eq!(pool.stats().live_blocks, 0);
/// ```
pub struct PoolAllocator<'p, S: PrivateStorage> {
    pool: &'p Magazine<S>,
}

impl<'p, S: PrivateStorage> PoolAllocator<'p, S> {
    const HEAD: usize = 64;

    /// Returns an allocator that uses `pool`.
    pub fn new(pool: &'p Magazine<S>) -> PoolAllocator<'p, S> {
        const { assert!(size_of::<Block<S>>() <= Self::HEAD && align_of::<Block<S>>() <= Self::HEAD) };
        PoolAllocator { pool }
    }

    fn head(layout: Layout) -> usize {
        layout.align().max(Self::HEAD)
    }

    /// Returns the bytes after the handle.
    fn store_handle(block: Block<S>, head: usize) -> NonNull<[u8]> {
        let (base, capacity) = (block.as_ptr(), block.capacity());
        let handle = base.cast::<Block<S>>();
        // SAFETY: a block is aligned to at least 64 and has `head` ≥ 64 bytes in front of those that are returned.
        unsafe { handle.write(block) };
        // SAFETY: the block is for `head + size` bytes, so it has at least `head`.
        let bytes = unsafe { base.add(head) };
        NonNull::slice_from_raw_parts(bytes, capacity - head)
    }

    /// # Safety
    /// `bytes` came from `store_handle` with this head, and is not used again.
    unsafe fn take_handle(bytes: NonNull<u8>, head: usize) -> Block<S> {
        // SAFETY: the caller's promise: the block starts `head` bytes before.
        let base = unsafe { bytes.sub(head) };
        // SAFETY: `store_handle` has written the handle there, and this is the one time that it is read.
        unsafe { base.cast::<Block<S>>().read() }
    }
}

// SAFETY: memory comes from blocks, which neither move nor end before `deallocate` takes their handle; clones use the
// same pool. Blocks are aligned to the largest power of two ≤ min(length, 4096), so `head + size` bytes with a head of
// `align` ≤ 2048 are aligned to `align`.
unsafe impl<S: PrivateStorage> Allocator for PoolAllocator<'_, S> {
    fn allocate(&self, layout: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let head = Self::head(layout);
        if head > MAX_ALIGN / 2 {
            return Err(AllocError);
        }
        let len = head.checked_add(layout.size()).ok_or(AllocError)?;
        let block = self.pool.alloc(len).map_err(|_| AllocError)?;
        Ok(Self::store_handle(block, head))
    }

    unsafe fn deallocate(&self, bytes: NonNull<u8>, layout: Layout) {
        // SAFETY: the caller's promise: the bytes came from `allocate` with this alignment, and are not used again.
        drop(unsafe { Self::take_handle(bytes, Self::head(layout)) });
    }

    unsafe fn grow(&self, bytes: NonNull<u8>, old: Layout, new: Layout) -> Result<NonNull<[u8]>, AllocError> {
        let head = Self::head(old);
        // `deallocate` computes the address of the handle from the new layout.
        if Self::head(new) == head {
            let len = head.checked_add(new.size()).ok_or(AllocError)?;
            // SAFETY: the caller's promise; the handle is stored there again below, in either case.
            let block = unsafe { Self::take_handle(bytes, head) };
            match block.try_grow(len) {
                Ok(block) => return Ok(Self::store_handle(block, head)),
                Err(block) => Self::store_handle(block, head),
            };
        }
        let target = self.allocate(new)?;
        // SAFETY: they are different blocks, each of at least `old.size()` bytes.
        unsafe { target.cast::<u8>().copy_from_nonoverlapping(bytes, old.size()) };
        // SAFETY: the caller's promise.
        unsafe { self.deallocate(bytes, old) };
        Ok(target)
    }
}

impl<S: PrivateStorage> Clone for PoolAllocator<'_, S> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<S: PrivateStorage> Copy for PoolAllocator<'_, S> {}

impl<S: PrivateStorage> fmt::Debug for PoolAllocator<'_, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PoolAllocator").field(self.pool).finish()
    }
}
