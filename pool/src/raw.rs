//! The two traits everything above the pools is written against.

use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;
use std::sync::Arc;

use crate::registration::Region;
use crate::{AllocError, PoolStats};

/// Names a region of memory to another process that has it mapped.
///
/// With an offset it names a byte. A device's own handle of the region is in the region's
/// [`Registrations`](crate::Registrations).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RegionKey(pub u64);

/// One block of bytes at a fixed address, owned by its handle.
///
/// # Safety
/// For as long as `self` exists, wherever it is moved:
/// 1. `as_ptr()..as_ptr() + capacity()` is one allocation, readable and writable, that neither moves nor unmaps;
/// 2. no other handle reads or writes those bytes;
/// 3. `as_ptr()` and `capacity()` always answer the same;
/// 4. so does `region()`, with a region that stays where it is and holds the block.
///
/// The bytes may be uninitialised.
#[expect(
    unsafe_code,
    reason = "the contract devices and buffers rely on when they read and write through the pointer"
)]
pub unsafe trait RawBuffer: Send {
    /// Returns the first byte of the block.
    fn as_ptr(&self) -> NonNull<u8>;

    /// Returns the usable length in bytes, at least the requested one.
    fn capacity(&self) -> usize;

    /// Returns the key of the shared region the block lies in, and the block's offset there in bytes.
    fn region_offset(&self) -> Option<(RegionKey, usize)> {
        None
    }

    /// Returns the region the block lies in, which a device registers once for all its blocks.
    fn region(&self) -> Option<&Region> {
        None
    }

    /// Views the block as bytes that need not be initialised.
    ///
    /// The type does not record which bytes have been written; a caller that reads one must know.
    fn as_uninit(&self) -> &[MaybeUninit<u8>] {
        // SAFETY: invariant 1 gives one live allocation of `capacity()` bytes, invariant 2 and `&self` exclude writers.
        #[expect(unsafe_code, reason = "see above")]
        unsafe {
            core::slice::from_raw_parts(self.as_ptr().as_ptr().cast(), self.capacity())
        }
    }

    /// Views the block as writable bytes that need not be initialised.
    fn as_uninit_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: invariants 1 and 2, and `&mut self` makes this the only view.
        #[expect(unsafe_code, reason = "see above")]
        unsafe {
            core::slice::from_raw_parts_mut(self.as_ptr().as_ptr().cast(), self.capacity())
        }
    }
}

/// A source of blocks.
///
/// `alloc` and the drop of a block may be called from any thread, and from different threads for the same block. A
/// block may outlive its pool, which keeps the memory until the last block is dropped.
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
    /// The handle of one block; dropping it gives the memory back.
    type Block: RawBuffer + fmt::Debug + 'static;

    /// Returns a block of at least `len` bytes, not zeroed, aligned to the largest power of two ≤ min(len, 4096), at
    /// least 64. A request of 0 bytes gets the smallest block.
    ///
    /// # Errors
    /// [`AllocError`], which contains the request and the state of the pool.
    fn alloc(&self, len: usize) -> Result<Self::Block, AllocError>;

    /// Returns a block as [`alloc`](Self::alloc) does, all of it zero.
    ///
    /// This writes every byte, which takes longer than the allocation; receive buffers need no zeros.
    ///
    /// # Errors
    /// As for `alloc`.
    fn alloc_zeroed(&self, len: usize) -> Result<Self::Block, AllocError> {
        let mut block = self.alloc(len)?;
        block.as_uninit_mut().fill(MaybeUninit::new(0));
        Ok(block)
    }

    /// Returns the largest `len` for which [`alloc`](Self::alloc) can succeed on an empty pool.
    fn max_alloc(&self) -> usize;

    /// Returns counters, summed over threads and regions at the time of the call.
    fn stats(&self) -> PoolStats;

    /// Gives memory that no block uses back to the operating system; returns how many bytes.
    fn trim(&self) -> usize {
        0
    }

    /// Checks every internal count and list; slow, for tests.
    ///
    /// # Errors
    /// A sentence that names the first broken invariant.
    fn validate(&self) -> Result<(), String>;
}

// A pool that is shared is a pool.
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
