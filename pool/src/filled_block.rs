use core::fmt;
use std::io;

use crate::{RawBuffer, Region, RegionKey};

/// A block whose first `len` bytes are written and can be read.
///
/// ```
/// use mpj_pool::{Pool, FilledBlock};
/// let mut text = FilledBlock::new(mpj_pool::global().alloc(100)?);
/// text.extend_from_slice(b"hello")?;
/// text.as_mut()[0] = b'H';
/// assert_eq!(text.as_ref(), b"Hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Invariants
/// 1. `len ≤ block.capacity()`, and the first `len` bytes are initialised. No other code has access to the block.
pub struct FilledBlock<B> {
    block: B,
    len: usize,
}

/// The free space of a block is too small.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overflow {
    /// The bytes that the operation adds, including headers and padding.
    pub needed: usize,
    /// The bytes that are free.
    pub available: usize,
}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes needed, {} left", self.needed, self.available)
    }
}

impl core::error::Error for Overflow {}

impl<B: RawBuffer> FilledBlock<B> {
    /// Wraps a block, with no byte written.
    pub fn new(block: B) -> FilledBlock<B> {
        FilledBlock { block, len: 0 }
    }

    /// Appends all bytes, or none.
    ///
    /// # Errors
    /// [`Overflow`] if they do not fit.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) -> Result<(), Overflow> {
        let spare = &mut self.block.as_uninit_mut()[self.len..];
        let left = spare.len();
        let target = spare.get_mut(..bytes.len()).ok_or(Overflow { needed: bytes.len(), available: left })?;
        target.write_copy_of_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// Shortens the written part to `len` bytes; has no effect if it is shorter.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Returns the number of bytes that can still be appended.
    pub fn remaining_capacity(&self) -> usize {
        self.block.capacity() - self.len
    }

    /// Returns the [`region_offset`](RawBuffer::region_offset) of the block.
    pub fn region_offset(&self) -> Option<(RegionKey, usize)> {
        self.block.region_offset()
    }

    /// Returns the [`region`](RawBuffer::region) of the block.
    pub fn region(&self) -> Option<&Region> {
        self.block.region()
    }

    /// Returns the block. The written bytes stay, but their number is lost.
    pub fn into_block(self) -> B {
        self.block
    }
}

impl<B: RawBuffer> AsRef<[u8]> for FilledBlock<B> {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: invariant 1.
        unsafe { self.block.as_uninit()[..self.len].assume_init_ref() }
    }
}

impl<B: RawBuffer> AsMut<[u8]> for FilledBlock<B> {
    fn as_mut(&mut self) -> &mut [u8] {
        // SAFETY: invariant 1; bytes written through the result keep it.
        unsafe { self.block.as_uninit_mut()[..self.len].assume_init_mut() }
    }
}

impl<B: RawBuffer> io::Write for FilledBlock<B> {
    /// Appends the first of `bytes`, up to the free space of the block.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(self.remaining_capacity());
        self.extend_from_slice(&bytes[..count]).map_err(io::Error::other)?;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<B: fmt::Debug> fmt::Debug for FilledBlock<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FilledBlock({} B of {:?})", self.len, self.block)
    }
}

#[cfg(feature = "bytes")]
mod interop {
    use bytes::buf::UninitSlice;
    use bytes::{BufMut, Bytes};

    use super::FilledBlock;
    use crate::RawBuffer;

    impl<B: RawBuffer + 'static> From<FilledBlock<B>> for Bytes {
        fn from(filled: FilledBlock<B>) -> Bytes {
            Bytes::from_owner(filled)
        }
    }

    // SAFETY: `chunk_mut` returns all bytes that are not written, and `remaining_mut` their number.
    unsafe impl<B: RawBuffer> BufMut for FilledBlock<B> {
        fn remaining_mut(&self) -> usize {
            self.remaining_capacity()
        }

        unsafe fn advance_mut(&mut self, count: usize) {
            assert!(
                count <= self.remaining_capacity(),
                "advanced by {count} bytes of {}",
                self.remaining_capacity()
            );
            // Invariant 1: the caller promises that the bytes are written.
            self.len += count;
        }

        fn chunk_mut(&mut self) -> &mut UninitSlice {
            let len = self.len;
            UninitSlice::uninit(&mut self.block.as_uninit_mut()[len..])
        }
    }
}
