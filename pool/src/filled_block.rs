//! A block together with the knowledge which of its bytes hold values.

use core::fmt;
use std::io;

use crate::{RawBuffer, Region, RegionKey};

/// A block whose first `len` bytes have been written, so that they can be read.
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
/// With the feature `bytes` it is a `bytes::BufMut`, and becomes a `bytes::Bytes` without a copy.
///
/// # Invariants
/// 1. `len ≤ block.capacity()`, and the first `len` bytes are initialised. Nobody outside gets at the block meanwhile.
pub struct FilledBlock<B> {
    block: B,
    len: usize,
}

/// A block has less room than requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overflow {
    /// Bytes that the operation needs, with what it would add to them, such as headers and padding.
    pub needed: usize,
    /// Bytes that are left.
    pub left: usize,
}

impl fmt::Display for Overflow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes needed, {} left", self.needed, self.left)
    }
}

impl core::error::Error for Overflow {}

impl<B: RawBuffer> FilledBlock<B> {
    /// Takes a block of which nothing is written.
    pub fn new(block: B) -> FilledBlock<B> {
        FilledBlock { block, len: 0 }
    }

    /// Appends bytes, all or none.
    ///
    /// # Errors
    /// [`Overflow`] if they do not fit.
    pub fn extend_from_slice(&mut self, bytes: &[u8]) -> Result<(), Overflow> {
        let spare = &mut self.block.as_uninit_mut()[self.len..];
        let left = spare.len();
        let target = spare.get_mut(..bytes.len()).ok_or(Overflow { needed: bytes.len(), left })?;
        target.write_copy_of_slice(bytes);
        self.len += bytes.len();
        Ok(())
    }

    /// Forgets all but the first `len` bytes.
    pub fn truncate(&mut self, len: usize) {
        self.len = self.len.min(len);
    }

    /// Returns the number of bytes that can still be appended.
    pub fn remaining_capacity(&self) -> usize {
        self.block.capacity() - self.len
    }

    /// Returns the key of the registered or shared region of the bytes, and their offset there.
    pub fn region_offset(&self) -> Option<(RegionKey, usize)> {
        self.block.region_offset()
    }

    /// Returns the region of the bytes, which a device registers once for all its blocks.
    pub fn region(&self) -> Option<&Region> {
        self.block.region()
    }

    /// Returns the block. The written bytes stay, but their number is no longer recorded.
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
    /// Writes as many bytes as fit, which may be 0.
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
        /// Shares the block without a copy; it is freed with the last clone.
        fn from(filled: FilledBlock<B>) -> Bytes {
            Bytes::from_owner(filled)
        }
    }

    // SAFETY: `chunk_mut` is all that is not written, and `remaining_mut` its length.
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
