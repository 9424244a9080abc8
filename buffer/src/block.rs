//! The one place with unsafe code: a block together with the knowledge which of its bytes hold values.

use core::fmt;
use core::mem::MaybeUninit;

use mpj_pool::RawBuffer;

use crate::Overflow;

/// A block whose bytes `from..to` are initialised.
///
/// # Invariants
/// 1. `from <= to <= block.capacity()`.
/// 2. Bytes `from..to` of the block are initialised.
///
/// Nobody outside gets `&R` or `&mut R` while this lives, so no safe method of `R` can undo invariant 2.
pub(crate) struct Filled<R> {
    block: R,
    from: usize,
    to: usize,
}

impl<R: RawBuffer> Filled<R> {
    /// Takes a block of which nothing is known; bytes are pushed from offset `from` on.
    pub(crate) fn empty(block: R, from: usize) -> Result<Self, (R, Overflow)> {
        let left = block.capacity();
        if from > left {
            return Err((block, Overflow { needed: from, left }));
        }
        Ok(Self { block, from, to: from })
    }

    /// Widens the initialised bytes to `from..to`; the caller has checked `to` against the capacity.
    ///
    /// # Safety
    /// Bytes `self.to..to` of the block are initialised, and `to` is within the block.
    pub(crate) unsafe fn assume_filled(&mut self, to: usize) {
        debug_assert!(self.to <= to && to <= self.block.capacity());
        self.to = to;
    }

    pub(crate) fn capacity(&self) -> usize {
        self.block.capacity()
    }

    /// Returns the offset behind the last initialised byte, from the start of the block.
    pub(crate) fn end(&self) -> usize {
        self.to
    }

    /// Returns the number of initialised bytes.
    pub(crate) fn len(&self) -> usize {
        self.to - self.from
    }

    pub(crate) fn region(&self) -> Option<(mpj_pool::RegionKey, usize)> {
        self.block.region()
    }

    pub(crate) fn into_block(self) -> R {
        self.block
    }

    /// Returns the initialised bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `RawBuffer` invariants 1 and 3: one live allocation of `capacity()` bytes; invariant 2 and `&self`
        // exclude writers. `MaybeUninit<u8>` needs neither a value nor alignment.
        let all = unsafe {
            core::slice::from_raw_parts(
                self.block.as_ptr().as_ptr().cast::<MaybeUninit<u8>>(),
                self.block.capacity(),
            )
        };
        // SAFETY: invariant 2.
        unsafe { all[self.from..self.to].assume_init_ref() }
    }

    /// Returns the initialised bytes for overwriting.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        let (from, to) = (self.from, self.to);
        // SAFETY: invariant 2; `u8` written through the result keeps it.
        unsafe { self.all_mut()[from..to].assume_init_mut() }
    }

    /// Appends bytes, all or none.
    pub(crate) fn push(&mut self, src: &[u8]) -> Result<(), Overflow> {
        let from = self.to;
        let spare = &mut self.all_mut()[from..];
        let left = spare.len();
        let target = spare.get_mut(..src.len()).ok_or(Overflow { needed: src.len(), left })?;
        target.write_copy_of_slice(src);
        // The `src.len()` bytes from `to` on have just been written: invariant 2.
        self.to += src.len();
        Ok(())
    }

    /// Appends zeros, all or none.
    pub(crate) fn push_zeros(&mut self, count: usize) -> Result<(), Overflow> {
        let from = self.to;
        let spare = &mut self.all_mut()[from..];
        let left = spare.len();
        spare.get_mut(..count).ok_or(Overflow { needed: count, left })?.fill(MaybeUninit::new(0));
        self.to += count;
        Ok(())
    }

    /// Forgets all initialised bytes but the first `len`.
    pub(crate) fn truncate(&mut self, len: usize) {
        self.to = self.to.min(self.from.saturating_add(len));
    }

    fn all_mut(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: `RawBuffer` invariants 1 and 3 as in `bytes`; `&mut self` makes this the only view. The users in
        // this file write values into it, never `MaybeUninit::uninit()` below `to`.
        unsafe {
            core::slice::from_raw_parts_mut(
                self.block.as_ptr().as_ptr().cast::<MaybeUninit<u8>>(),
                self.block.capacity(),
            )
        }
    }
}

impl<R> fmt::Debug for Filled<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Filled").field("from", &self.from).field("to", &self.to).finish_non_exhaustive()
    }
}
