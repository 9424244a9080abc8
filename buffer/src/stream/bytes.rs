//! Implementations of the traits of the `bytes` crate.

use std::io::IoSlice;

use bytes::buf::UninitSlice;
use bytes::{Buf, BufMut, Bytes};
use mpj_pool::{RawBuffer, ReadBlock};

use super::{ByteWriter, MessageReader};
use crate::block::FilledRange;
use crate::dynamic::Dynamic;
use crate::{Buffer, FormatError, FromBlockError, Reading, validate};

impl Buf for MessageReader<'_> {
    fn remaining(&self) -> usize {
        self.remaining
    }

    fn chunk(&self) -> &[u8] {
        self.segment
    }

    fn chunks_vectored<'a>(&'a self, dst: &mut [IoSlice<'a>]) -> usize {
        self.fill_slices(dst)
    }

    /// Advances by `count` bytes, at most to the end of the message. Never panics.
    fn advance(&mut self, count: usize) {
        self.advance_by(count);
    }
}

// SAFETY: `chunk_mut` returns the bytes of the block after the last initialised one, no more than `remaining_mut` says,
// and `advance_mut` makes the next call return the bytes after these.
unsafe impl<R: RawBuffer> BufMut for ByteWriter<'_, R> {
    fn remaining_mut(&self) -> usize {
        self.buffer.remaining_capacity()
    }

    fn chunk_mut(&mut self) -> &mut UninitSlice {
        let left = self.buffer.remaining_capacity();
        UninitSlice::uninit(self.buffer.block.spare(left))
    }

    unsafe fn advance_mut(&mut self, count: usize) {
        let count = count.min(self.buffer.remaining_capacity());
        let end = self.buffer.block.end() + count;
        // SAFETY: the caller has initialised the next `count` bytes of the chunk that `chunk_mut` returned, which are
        // those after the end; the block has at least `count` left.
        unsafe { self.buffer.block.assume_filled(end) };
        self.buffer.add_to_count(count as u64);
    }
}

struct Owner<R: ReadBlock>(Buffer<R, Reading>);

impl<R: ReadBlock> AsRef<[u8]> for Owner<R> {
    fn as_ref(&self) -> &[u8] {
        self.0.static_part()
    }
}

impl<R: ReadBlock + 'static> Buffer<R, Reading> {
    /// Returns the message as `Bytes`, which own the block. Copies a message whose dynamic part this process wrote.
    pub fn into_bytes(self) -> Bytes {
        if self.chain.len() > 0 {
            return Bytes::from(self.to_vec());
        }
        // Drop the chunk that `clear` has kept.
        Bytes::from_owner(Owner(Self { chain: Dynamic::default(), ..self }))
    }
}

impl<R: RawBuffer> Buffer<R, Reading> {
    /// Copies a message, in any number of segments, into a block.
    ///
    /// # Errors
    /// Returns the block if it is too small or the bytes are not exactly one message.
    pub fn from_buf(block: R, mut message: impl Buf) -> Result<Self, FromBlockError<R, FormatError>> {
        let error = FormatError::BlockTooSmall {
            needed: message.remaining() as u64,
            available: block.capacity() as u64,
        };
        let mut block = match FilledRange::empty(block, 0) {
            Ok(filled) => filled,
            Err((block, _)) => return Err(FromBlockError { block, error }),
        };
        while message.has_remaining() {
            let count = message.chunk().len();
            if count == 0 || block.push(message.chunk()).is_err() {
                return Err(FromBlockError { block: block.into_block(), error });
            }
            message.advance(count);
        }
        match validate::message(block.bytes()) {
            Ok(layout) => Ok(Self::checked(block, 0, layout)),
            Err(error) => Err(FromBlockError { block: block.into_block(), error }),
        }
    }
}
