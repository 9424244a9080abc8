use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::sync::Arc;

use crate::registration::Region;
use crate::{AllocError, PoolStats};

/// Identifies a region for other processes that map it; with an offset, it identifies a byte.
///
/// The handles by which devices access the region are in its [`Registrations`](crate::Registrations).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RegionKey(pub u64);

/// One block of bytes at a fixed address, owned by its handle.
///
/// # Safety
/// For as long as `self` exists, wherever it is moved:
/// 1. `as_ptr()..as_ptr() + capacity()` is one allocation, readable and writable, that neither moves nor is unmapped;
/// 2. no other handle reads or writes those bytes;
/// 3. `as_ptr()` and `capacity()` always return the same values;
/// 4. so does `region()`, and the region does not move and contains the block.
///
/// The bytes may be uninitialised.
#[expect(
    unsafe_code,
    reason = "the contract devices and buffers rely on when they read and write through the pointer"
)]
pub unsafe trait RawBuffer: Send {
    /// Returns the address of the first byte of the block.
    fn as_ptr(&self) -> NonNull<u8>;

    /// Returns the size in bytes, at least the requested one.
    fn capacity(&self) -> usize;

    /// Returns the key of the block's region and the offset of the block in it in bytes, or `None` if other processes
    /// cannot map the region.
    fn region_offset(&self) -> Option<(RegionKey, usize)> {
        None
    }

    /// Returns the region of the block, which a device registers once for all its blocks, or `None` if devices cannot
    /// register it.
    fn region(&self) -> Option<&Region> {
        None
    }

    /// Returns the bytes of the block, which may be uninitialised.
    fn as_uninit(&self) -> &[MaybeUninit<u8>] {
        // SAFETY: points 1 and 2 of the contract; `&self` excludes writers.
        #[expect(unsafe_code, reason = "see above")]
        unsafe {
            core::slice::from_raw_parts(self.as_ptr().as_ptr().cast(), self.capacity())
        }
    }

    /// Returns the bytes of the block for writing.
    fn as_uninit_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: points 1 and 2 of the contract; `&mut self` makes this the only view.
        #[expect(unsafe_code, reason = "see above")]
        unsafe {
            core::slice::from_raw_parts_mut(self.as_ptr().as_ptr().cast(), self.capacity())
        }
    }
}

/// Bytes at a fixed address that can be read: those of every [`RawBuffer`], and memory whose handle must not write it.
///
/// # Safety
/// For as long as `self` exists, wherever it is moved:
/// 1. `bytes` always returns the same bytes, which neither move nor are unmapped;
/// 2. `region_of_bytes` always returns the same region, which does not move and contains the bytes.
///
/// The bytes may be uninitialised. Initialised bytes stay initialised, and change only as
/// [`is_shared`](Self::is_shared) says.
#[expect(unsafe_code, reason = "the contract that buffers rely on when they read messages in place")]
pub unsafe trait ReadBlock: Send {
    /// Returns the bytes, which may be uninitialised.
    fn bytes(&self) -> &[MaybeUninit<u8>];

    /// Returns whether a defect of another process could change the bytes. If an invalid value would be undefined
    /// behaviour, the reader must then copy the bytes and check the copy. The result is always the same.
    fn is_shared(&self) -> bool {
        false
    }

    /// As [`RawBuffer::region_offset`], for these bytes.
    fn region_offset_of_bytes(&self) -> Option<(RegionKey, usize)> {
        None
    }

    /// As [`RawBuffer::region`], for these bytes.
    fn region_of_bytes(&self) -> Option<&Region> {
        None
    }
}

// SAFETY: points 1, 3 and 4 of the contract of `RawBuffer`.
#[expect(unsafe_code, reason = "every block can be read")]
unsafe impl<R: RawBuffer> ReadBlock for R {
    #[inline]
    fn bytes(&self) -> &[MaybeUninit<u8>] {
        // SAFETY: points 1 and 2 of `RawBuffer`; `&self` excludes writers.
        unsafe { core::slice::from_raw_parts(self.as_ptr().as_ptr().cast(), self.capacity()) }
    }

    fn region_offset_of_bytes(&self) -> Option<(RegionKey, usize)> {
        self.region_offset()
    }

    fn region_of_bytes(&self) -> Option<&Region> {
        self.region()
    }
}

/// A source of blocks.
///
/// `alloc` and the drop of a block may be called on any thread. A pool keeps the memory of blocks that outlive it.
///
/// ```
/// use mpj_pool::{AllocError, Pool, RawBuffer};
///
/// /// Returns a copy of `bytes` in a block of any pool.
/// fn copy<P: Pool>(pool: &P, bytes: &[u8]) -> Result<P::Block, AllocError> {
///     let mut block = pool.alloc(bytes.len())?;
///     block.as_uninit_mut()[..bytes.len()].write_copy_of_slice(bytes);
///     Ok(block)
/// }
///
/// assert!(copy(mpj_pool::global(), b"hello")?.capacity() >= 5);
/// # Ok::<(), AllocError>(())
/// ```
pub trait Pool: Send + Sync + fmt::Debug {
    /// The handle of a block; dropping it frees the block.
    type Block: RawBuffer + fmt::Debug + 'static;

    /// Allocates a block of at least `len` bytes, not zeroed, aligned to the largest power of two ≤ min(len, 4096), at
    /// least 64. A request of 0 bytes gets the smallest block.
    ///
    /// # Errors
    /// [`AllocError`] if `len` exceeds [`max_alloc`](Self::max_alloc), the limit of the pool is reached, or a region
    /// cannot be created.
    fn alloc(&self, len: usize) -> Result<Self::Block, AllocError>;

    /// Allocates a block as [`alloc`](Self::alloc) does, and fills it with zeros.
    ///
    /// Filling takes longer than the allocation; receive buffers do not need it.
    ///
    /// # Errors
    /// As for `alloc`.
    fn alloc_zeroed(&self, len: usize) -> Result<Self::Block, AllocError> {
        let mut block = self.alloc(len)?;
        block.as_uninit_mut().fill(MaybeUninit::new(0));
        Ok(block)
    }

    /// Returns the largest `len` that [`alloc`](Self::alloc) accepts. Larger requests always fail.
    fn max_alloc(&self) -> usize;

    /// Returns the counters, summed over threads and regions.
    fn stats(&self) -> PoolStats;

    /// Frees unused regions. Returns the number of bytes freed. The default implementation frees nothing.
    fn trim(&self) -> usize {
        0
    }

    /// Checks internal counts and lists. Slow; for tests.
    ///
    /// # Errors
    /// A sentence that names the first broken invariant.
    fn validate(&self) -> Result<(), String>;
}

macro_rules! shared {
    ($shared:ty) => {
        impl<P: Pool + ?Sized> Pool for $shared {
            type Block = P::Block;

            #[inline]
            fn alloc(&self, len: usize) -> Result<P::Block, AllocError> {
                (**self).alloc(len)
            }

            fn alloc_zeroed(&self, len: usize) -> Result<P::Block, AllocError> {
                (**self).alloc_zeroed(len)
            }

            fn max_alloc(&self) -> usize {
                (**self).max_alloc()
            }

            fn stats(&self) -> PoolStats {
                (**self).stats()
            }

            fn trim(&self) -> usize {
                (**self).trim()
            }

            fn validate(&self) -> Result<(), String> {
                (**self).validate()
            }
        }
    };
}

shared!(&P);
shared!(Arc<P>);
