//! Which parts of a region have pages, and which of them no block has used for a while.

use crate::MIN_BLOCK;
use crate::buddy::{BuddyMap, Leaf};
use crate::class::Order;

/// The use of a region by chunk: the region has up to 64 of them, of at least 2 MiB each, the size of a huge page.
#[derive(Debug)]
pub(super) struct Chunks {
    pub(super) shift: u32,
    /// A bit for each chunk of which a byte has been allocated since the last call of `RegionEntry::discard_idle`.
    touched: u64,
    /// A bit for each chunk that may have pages.
    pub(super) resident: u64,
}

impl Chunks {
    const MIN_SHIFT: u32 = 21;

    /// Returns the chunks of a region of `size` bytes. All of them may have pages.
    pub(super) fn new(size: usize) -> Chunks {
        let shift = size.div_ceil(64).next_power_of_two().ilog2().max(Self::MIN_SHIFT);
        // A last chunk that is not whole is never discarded.
        let whole = size >> shift;
        Chunks { shift, touched: 0, resident: if whole == 64 { u64::MAX } else { (1 << whole) - 1 } }
    }

    /// Notes that a block of `len` bytes, at least 1, has been allocated at `offset`.
    #[inline]
    pub(super) fn touch(&mut self, offset: usize, len: usize) {
        let (first, last) = (offset >> self.shift, (offset + len - 1) >> self.shift);
        self.touched |= u64::MAX >> (63 - (last - first)) << first;
    }

    pub(super) fn resident_bytes(&self) -> usize {
        (self.resident.count_ones() as usize) << self.shift
    }

    fn order(&self) -> Order {
        Order::of_block(1 << self.shift)
    }

    fn first_leaf(&self, chunk: u32) -> Leaf {
        Leaf((chunk as u64) << (self.shift - MIN_BLOCK.trailing_zeros()))
    }

    /// Returns the chunks without a block, and begins a new interval for `touched`.
    pub(super) fn take_free(&mut self, map: &BuddyMap, also_touched: bool) -> u64 {
        let touched = core::mem::take(&mut self.touched);
        self.resident |= touched;
        let mut candidates = if also_touched { self.resident } else { self.resident & !touched };
        let mut free = 0;
        while candidates != 0 {
            let chunk = candidates.trailing_zeros();
            candidates &= candidates - 1;
            free |= u64::from(map.is_free(self.first_leaf(chunk), self.order())) << chunk;
        }
        free
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_marked_by_the_blocks_in_them() {
        let mut chunks = Chunks::new(16 << 20);
        assert_eq!((chunks.shift, chunks.resident), (21, 0xff));
        chunks.touch(0, 1);
        chunks.touch((2 << 20) - 64, 64);
        assert_eq!(chunks.touched, 1);
        chunks.touch((6 << 20) - 64, 128);
        assert_eq!(chunks.touched, 0b1101);
        assert_eq!(chunks.resident_bytes(), 16 << 20);
    }

    #[test]
    fn large_regions_have_larger_chunks_and_the_rest_is_never_discarded() {
        assert_eq!(Chunks::new(1 << 20).resident, 0);
        assert_eq!(Chunks::new((4 << 20) + 4096).resident, 0b11);
        let chunks = Chunks::new(1 << 30);
        assert_eq!((chunks.shift, chunks.resident), (24, u64::MAX));
        let mut last = Chunks::new((1 << 30) - 4096);
        assert_eq!((last.shift, last.resident), (24, u64::MAX >> 1));
        last.touch((1 << 30) - 8192, 4096);
        assert_eq!(last.touched, 1 << 63);
    }
}
