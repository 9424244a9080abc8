//! Items in a block of a rank's pool.

use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

use mpj_datatypes::{Equivalent, Receivable};
use mpj_devices::RankPool;
use mpj_pool::{Pool, RawBuffer};

use super::{RecvBuf, SendBuf};
use crate::error::{Error, ErrorClass, Result};
use crate::raw::Buf;

/// A slice in a block of [`World::pool`](crate::World::pool), made by
/// [`World::alloc_slice`](crate::World::alloc_slice): see [`recv_block`](crate::Intracomm::recv_block).
///
/// # Invariants
/// 1. The block begins with `len` aligned and initialised items.
pub struct PoolSlice<T> {
    block: <RankPool as Pool>::Block,
    len: usize,
    items: PhantomData<T>,
}

impl<T: Equivalent> PoolSlice<T> {
    pub(crate) fn new(pool: &RankPool, value: T, len: usize) -> Result<Self> {
        const CALL: &str = "alloc_slice";
        let bytes = len.checked_mul(size_of::<T>());
        let bytes = bytes.ok_or_else(|| {
            Error::new(ErrorClass::Count, CALL, format!("{len} items overflow the byte count"))
        })?;
        // The alignment of a block grows with its length, up to 4096.
        let block = pool.alloc(bytes.max(align_of::<T>()));
        let block = block.map_err(|error| Error::new(ErrorClass::NoMem, CALL, error.to_string()))?;
        let first = block.as_ptr().cast::<T>();
        if !first.is_aligned() || block.capacity() < bytes {
            let why = format!("pool blocks are not aligned to {}", align_of::<T>());
            return Err(Error::new(ErrorClass::Type, CALL, why));
        }
        // Zero-sized items need not be written.
        for at in 0..if bytes == 0 { 0 } else { len } {
            let item = first.as_ptr().wrapping_add(at);
            // SAFETY: `len` items lie in the block, which is ours, and they are aligned.
            unsafe { item.write(value) };
        }
        Ok(PoolSlice { block, len, items: PhantomData })
    }
}

impl<T> Deref for PoolSlice<T> {
    type Target = [T];

    #[inline]
    fn deref(&self) -> &[T] {
        // SAFETY: invariant 1, and the block is ours.
        unsafe { std::slice::from_raw_parts(self.block.as_ptr().cast().as_ptr(), self.len) }
    }
}

impl<T> DerefMut for PoolSlice<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: invariant 1, and the block is ours alone.
        unsafe { std::slice::from_raw_parts_mut(self.block.as_ptr().cast().as_ptr(), self.len) }
    }
}

// SAFETY: it owns its items, as a `Vec` does.
unsafe impl<T: Send> Send for PoolSlice<T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for PoolSlice<T> {}

// SAFETY: the items are initialised. They lie in a block, and do not move with the handle.
unsafe impl<T: Equivalent> SendBuf for PoolSlice<T> {
    fn send_buf(&self) -> Buf {
        Buf::slice(self).in_region(self.block.region())
    }
}

// SAFETY: as above, and `Receivable` allows the writes.
unsafe impl<T: Receivable> RecvBuf for PoolSlice<T> {
    fn recv_buf(&mut self) -> Buf {
        let buf = Buf::slice_mut(self);
        buf.in_region(self.block.region())
    }
}

impl<T: fmt::Debug> fmt::Debug for PoolSlice<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}
