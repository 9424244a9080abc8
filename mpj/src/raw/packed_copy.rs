//! A packed copy of a message in a pool block.

use mpj_datatypes::{Datatype, Primitive};
use mpj_devices::{Buf, ChainSegment, Source, Target};
use mpj_pool::{DefaultBlock, Pool, RawBuffer};

use crate::error::{Error, ErrorClass, Result};

/// The packed items of a send buffer, in a block of the global pool.
///
/// # Invariants
/// 1. The first `bytes` bytes of the block are initialised. They are whole items of `datatype`.
#[derive(Debug)]
pub(super) struct PackedCopy {
    block: DefaultBlock,
    bytes: usize,
    datatype: Datatype,
}

impl PackedCopy {
    /// Copies the items of a send buffer.
    ///
    /// # Errors
    /// The buffer is invalid; [`ErrorClass::NoMem`] if the pool has no block for the items.
    ///
    /// # Safety
    /// The contract of a send buffer, until the call returns.
    pub(super) unsafe fn of(call: &'static str, buf: &Buf) -> Result<Self> {
        // SAFETY: the caller's contract.
        let source = unsafe { Source::new(buf.clone(), None) }.map_err(|error| Error::buf(call, error))?;
        let (bytes, datatype) = (source.bytes(), buf.datatype().clone());
        let block = mpj_pool::global().alloc(bytes);
        let block = block.map_err(|error| Error::new(ErrorClass::NoMem, call, error.to_string()))?;
        let room = Buf::in_block(&block, 0, bytes, Primitive::Packed);
        // SAFETY: the block is ours, and has at least `bytes` bytes.
        let room = unsafe { Target::new(room, None) }.map_err(|error| Error::buf(call, error))?;
        // The items are packed, not checked: a receiver checks each `bool` and `char`.
        source.copy_items(room).map_err(|error| Error::new(ErrorClass::Type, call, error.to_string()))?;
        Ok(PackedCopy { block, bytes, datatype })
    }

    /// Describes the copy. It is a valid send buffer while the copy exists.
    pub(super) fn buf(&self) -> Buf {
        if self.datatype.is_contiguous() && self.datatype.size() > 0 {
            return Buf::in_block(&self.block, 0, self.bytes / self.datatype.size(), self.datatype.clone());
        }
        let packed = ChainSegment { base: self.block.as_ptr().as_ptr(), len: self.bytes };
        Buf::chain([packed], self.datatype.clone())
    }
}
