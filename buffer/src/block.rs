//! A block that knows which of its bytes are initialised.

use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use mpj_pool::{RawBuffer, ReadBlock};

mod spare_writer;

pub(crate) use self::spare_writer::SpareWriter;
use crate::Overflow;

/// A block whose bytes `from..to` are initialised.
///
/// # Invariants
/// 1. `from <= to <= block.capacity()`.
/// 2. Bytes `from..to` of the block are initialised.
///
/// No `&R` or `&mut R` leaves this type while it lives, so no safe method of `R` can break invariant 2.
pub(crate) struct FilledRange<R> {
    block: R,
    from: usize,
    to: usize,
}

impl<R: ReadBlock> FilledRange<R> {
    /// Takes a block that is filled up to `len`.
    ///
    /// # Safety
    /// The block has at least `len` bytes, and the first `len` are initialised.
    pub(crate) unsafe fn filled(block: R, len: usize) -> Self {
        debug_assert!(len <= block.bytes().len());
        Self { block, from: 0, to: len }
    }

    #[inline]
    pub(crate) fn capacity(&self) -> usize {
        self.block.bytes().len()
    }

    /// Returns the end of the initialised bytes, as an offset from the start of the block.
    #[inline]
    pub(crate) fn end(&self) -> usize {
        self.to
    }

    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.to - self.from
    }

    pub(crate) fn region(&self) -> Option<&mpj_pool::Region> {
        self.block.region_of_bytes()
    }

    pub(crate) fn region_offset(&self) -> Option<(mpj_pool::RegionKey, usize)> {
        self.block.region_offset_of_bytes()
    }

    #[inline]
    pub(crate) fn is_shared(&self) -> bool {
        self.block.is_shared()
    }

    #[inline]
    pub(crate) fn into_block(self) -> R {
        self.block
    }

    #[inline]
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: invariant 2.
        unsafe { self.block.bytes()[self.from..self.to].assume_init_ref() }
    }
}

impl<R: RawBuffer> FilledRange<R> {
    /// Takes a block without initialised bytes; bytes are appended from offset `from` on.
    pub(crate) fn empty(block: R, from: usize) -> Result<Self, (R, Overflow)> {
        let left = block.capacity();
        if from > left {
            return Err((block, Overflow { needed: from, available: left }));
        }
        Ok(Self { block, from, to: from })
    }

    /// Extends the initialised bytes to `from..to`.
    ///
    /// # Safety
    /// Bytes `self.to..to` of the block are initialised, and `to` is within the block.
    pub(crate) unsafe fn assume_filled(&mut self, to: usize) {
        debug_assert!(self.to <= to && to <= self.block.capacity());
        self.to = to;
    }

    /// Returns the address of the first spare byte, and the number of spare bytes.
    pub(crate) fn spare_raw(&self) -> (NonNull<u8>, usize) {
        // SAFETY: invariant 1 and point 1 of `RawBuffer`: within the allocation, or one past its end.
        let at = unsafe { self.block.as_ptr().add(self.to) };
        (at, self.block.capacity() - self.to)
    }

    #[inline]
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let (from, to) = (self.from, self.to);
        // SAFETY: invariant 2; `u8` written through the result keeps it.
        unsafe { self.all_mut()[from..to].assume_init_mut() }
    }

    #[inline]
    pub(crate) fn push(&mut self, src: &[u8]) -> Result<(), Overflow> {
        let from = self.to;
        let spare = &mut self.all_mut()[from..];
        let left = spare.len();
        let target = spare.get_mut(..src.len()).ok_or(Overflow { needed: src.len(), available: left })?;
        target.write_copy_of_slice(src);
        // The `src.len()` bytes from `to` on were just written: invariant 2.
        self.to += src.len();
        Ok(())
    }

    /// Appends the bytes that `fill` writes, at most `count`; nothing if `count` do not fit, or `fill` fails or panics.
    #[inline]
    pub(crate) fn push_with(
        &mut self,
        count: usize,
        fill: impl FnOnce(&mut SpareWriter<'_>),
    ) -> Result<(), Overflow> {
        self.push_through(count, false, fill)
    }

    /// Appends as [`push_with`](Self::push_with) does, and reverses the bytes of each element.
    pub(crate) fn push_swapped(
        &mut self,
        count: usize,
        fill: impl FnOnce(&mut SpareWriter<'_>),
    ) -> Result<(), Overflow> {
        self.push_through(count, true, fill)
    }

    #[inline]
    fn push_through(
        &mut self,
        count: usize,
        is_swapped: bool,
        fill: impl FnOnce(&mut SpareWriter<'_>),
    ) -> Result<(), Overflow> {
        let from = self.to;
        let rest = &mut self.all_mut()[from..];
        let left = rest.len();
        let overflow = Overflow { needed: count, available: left };
        let mut spare = SpareWriter::new(rest.get_mut(..count).ok_or(overflow)?, is_swapped);
        fill(&mut spare);
        // `spare` counts only initialised bytes, from `to` on: invariant 2.
        self.to += spare.filled().ok_or(overflow)?;
        Ok(())
    }

    /// Appends zeros, all or none. Does not borrow the block if `count` is 0: other threads might be reading it.
    #[inline]
    pub(crate) fn push_zeros(&mut self, count: usize) -> Result<(), Overflow> {
        if count == 0 {
            return Ok(());
        }
        let from = self.to;
        let spare = &mut self.all_mut()[from..];
        let left = spare.len();
        spare.get_mut(..count).ok_or(Overflow { needed: count, available: left })?.fill(MaybeUninit::new(0));
        self.to += count;
        Ok(())
    }

    /// Discards all initialised bytes. Bytes are then appended from offset `from` on, or at the end of a shorter block.
    #[inline]
    pub(crate) fn restart(&mut self, from: usize) {
        self.from = from.min(self.block.capacity());
        self.to = self.from;
    }

    #[inline]
    pub(crate) fn truncate(&mut self, len: usize) {
        self.to = self.to.min(self.from.saturating_add(len));
    }

    /// Returns the next `count` bytes, or fewer at the end of the block. They do not count as initialised.
    #[cfg(feature = "bytes")]
    pub(crate) fn spare(&mut self, count: usize) -> &mut [MaybeUninit<u8>] {
        let from = self.to;
        let rest = &mut self.all_mut()[from..];
        let count = count.min(rest.len());
        &mut rest[..count]
    }

    #[inline]
    fn all_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: points 1 to 3 of `RawBuffer`; `&mut self` makes this the only view. No caller writes an uninitialised
        // byte below `to`.
        unsafe {
            core::slice::from_raw_parts_mut(
                self.block.as_ptr().as_ptr().cast::<MaybeUninit<u8>>(),
                self.block.capacity(),
            )
        }
    }
}

impl<R> fmt::Debug for FilledRange<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FilledRange").field("from", &self.from).field("to", &self.to).finish_non_exhaustive()
    }
}
