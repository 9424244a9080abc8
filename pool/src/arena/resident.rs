//! Which parts of a region have pages, and which of them have had no block for a while.

use crate::MIN_BLOCK;
use crate::buddy::{BuddyMap, Leaf};
use crate::class::Order;

/// The state of the pages of a region, by chunk. A region has up to 64 chunks of at least 2 MiB, the size of a huge
/// page.
#[derive(Debug)]
pub(super) struct Chunks {
    pub(super) shift: u32,
    /// A bit for each chunk that can be discarded. A last chunk that is not whole cannot.
    whole: u64,
    /// A bit for each chunk that was discarded and has had no block since.
    absent: u64,
    /// A bit for each chunk that might have had pages, but had no block, at the last call of `take_free`.
    free_before: u64,
}

impl Chunks {
    const MIN_SHIFT: u32 = 21;

    /// Returns the chunks of a region of `size` bytes. All of them may have pages.
    pub(super) fn new(size: usize) -> Chunks {
        let shift = size.div_ceil(64).next_power_of_two().ilog2().max(Self::MIN_SHIFT);
        let count = size >> shift;
        let whole = if count == 64 { u64::MAX } else { (1 << count) - 1 };
        Chunks { shift, whole, absent: 0, free_before: 0 }
    }

    /// Notes that a block of `len` bytes, at least 1, has been allocated at `offset`.
    #[inline]
    pub(super) fn touch(&mut self, offset: usize, len: usize) {
        // Most regions never have discarded chunks.
        if self.absent != 0 {
            let (first, last) = (offset >> self.shift, (offset + len - 1) >> self.shift);
            self.absent &= !(u64::MAX >> (63 - (last - first)) << first);
        }
    }

    /// Notes that the chunks of `run`, a bit for each, have no pages.
    pub(super) fn discard(&mut self, run: u64) {
        self.absent |= run;
    }

    fn resident(&self) -> u64 {
        self.whole & !self.absent
    }

    pub(super) fn resident_bytes(&self) -> usize {
        (self.resident().count_ones() as usize) << self.shift
    }

    fn order(&self) -> Order {
        Order::of_block(1 << self.shift)
    }

    fn first_leaf(&self, chunk: u32) -> Leaf {
        Leaf((chunk as u64) << (self.shift - MIN_BLOCK.trailing_zeros()))
    }

    /// Returns the chunks that might have pages and have no block. Without `at_once`, returns only those for which this
    /// was also true at the last call.
    pub(super) fn take_free(&mut self, map: &BuddyMap, at_once: bool) -> u64 {
        let mut candidates = self.resident();
        let mut free = 0;
        while candidates != 0 {
            let chunk = candidates.trailing_zeros();
            candidates &= candidates - 1;
            free |= u64::from(map.is_free(self.first_leaf(chunk), self.order())) << chunk;
        }
        let free_before = core::mem::replace(&mut self.free_before, free);
        if at_once { free } else { free & free_before }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;

    #[test]
    fn block_brings_back_the_discarded_chunks_in_which_it_lies() {
        let mut chunks = Chunks::new(16 << 20);
        assert_eq!((chunks.shift, chunks.resident()), (21, 0xff));
        chunks.touch(0, 16 << 20);
        assert_eq!(chunks.resident(), 0xff);
        chunks.discard(0xff);
        assert_eq!(chunks.resident_bytes(), 0);
        chunks.touch((2 << 20) - 64, 64);
        assert_eq!(chunks.resident(), 1);
        chunks.touch((6 << 20) - 64, 128);
        assert_eq!(chunks.resident(), 0b1101);
        assert_eq!(chunks.resident_bytes(), 6 << 20);
    }

    #[test]
    fn chunks_are_idle_if_they_were_free_at_two_checks() {
        let mut chunks = Chunks::new(8 << 20);
        let mut map = BuddyMap::new((8 << 20) / MIN_BLOCK as u64).unwrap();
        let class = Class::for_len(64).unwrap();
        let block = map.alloc_class(class).unwrap();
        assert_eq!(chunks.take_free(&map, false), 0);
        assert_eq!(chunks.take_free(&map, false), 0b1110);
        map.free_class(block, class).unwrap();
        map.merge_all();
        assert_eq!(chunks.take_free(&map, false), 0b1110);
        assert_eq!(chunks.take_free(&map, false), 0b1111);
        chunks.discard(0b1110);
        assert_eq!(chunks.take_free(&map, true), 1);
    }

    #[test]
    fn large_regions_have_larger_chunks_and_the_rest_is_never_discarded() {
        assert_eq!(Chunks::new(1 << 20).resident(), 0);
        assert_eq!(Chunks::new((4 << 20) + 4096).resident(), 0b11);
        let chunks = Chunks::new(1 << 30);
        assert_eq!((chunks.shift, chunks.resident()), (24, u64::MAX));
        let mut last = Chunks::new((1 << 30) - 4096);
        assert_eq!((last.shift, last.resident()), (24, u64::MAX >> 1));
        last.discard(1);
        last.touch((1 << 30) - 8192, 4096);
        assert_eq!(last.resident(), (u64::MAX >> 1) & !1);
    }
}
