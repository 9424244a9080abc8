//! The pool of the chunks: the global pool, called directly, or any other pool, through a trait object.

use core::fmt;
use core::ptr::NonNull;

use mpj_pool::{AllocError, AllocErrorKind, DefaultBlock, Pool, RawBuffer, Region, RegionKey};

use crate::header::{RECORD_ALIGN, SECTION_HEADER_LEN};

pub(crate) trait ChunkPool: Send + Sync + fmt::Debug {
    /// Returns a block of at least `len` bytes, or of the pool's maximum if that is less.
    fn block(&self, len: usize) -> Result<Box<dyn RawBuffer + Sync>, AllocError>;
}

impl<P: Pool> ChunkPool for P
where
    P::Block: Sync,
{
    fn block(&self, len: usize) -> Result<Box<dyn RawBuffer + Sync>, AllocError> {
        Ok(Box::new(self.alloc(len.min(self.max_alloc()))?))
    }
}

/// Returns a block of at least `len` bytes, or of the pool's maximum if that is less. Its capacity is rounded down to a
/// multiple of 8.
///
/// # Errors
/// The pool cannot allocate the block, or the block cannot hold a section header.
pub(super) fn alloc_chunk(source: Option<&dyn ChunkPool>, len: usize) -> Result<ChunkBlock, AllocError> {
    let block = match source {
        Some(source) => ChunkBlock::Other(source.block(len)?),
        None => {
            let pool = mpj_pool::global();
            ChunkBlock::Global(pool.alloc(len.min(pool.max_alloc()))?)
        }
    };
    let capacity = block.capacity();
    if capacity < SECTION_HEADER_LEN {
        Err(AllocError::new(len, capacity, 0, AllocErrorKind::TooLarge))
    } else {
        Ok(block)
    }
}

pub(super) enum ChunkBlock {
    Global(DefaultBlock),
    Other(Box<dyn RawBuffer + Sync>),
}

// SAFETY: both variants are blocks that fulfil the contract, and the methods return their values. Only the capacity is
// less, so that a record's length is never split; points 1 to 4 hold for the shorter block too.
unsafe impl RawBuffer for ChunkBlock {
    #[inline]
    fn as_ptr(&self) -> NonNull<u8> {
        match self {
            Self::Global(block) => block.as_ptr(),
            Self::Other(block) => block.as_ptr(),
        }
    }

    #[inline]
    fn capacity(&self) -> usize {
        let capacity = match self {
            Self::Global(block) => block.capacity(),
            Self::Other(block) => block.capacity(),
        };
        capacity / RECORD_ALIGN * RECORD_ALIGN
    }

    fn region_offset(&self) -> Option<(RegionKey, usize)> {
        match self {
            Self::Global(block) => block.region_offset(),
            Self::Other(block) => block.region_offset(),
        }
    }

    fn region(&self) -> Option<&Region> {
        match self {
            Self::Global(block) => block.region(),
            Self::Other(block) => block.region(),
        }
    }
}
