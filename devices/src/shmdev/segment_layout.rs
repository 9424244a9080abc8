//! The layout of a job's segment: a few numbers in its first line determine every offset.

use std::ops::{Range, RangeInclusive};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::control_block::ControlBlock;
use super::slot_ids::PLACES;
use super::{SHM_FRAGMENTS, SHM_POOL_MIB, SHM_RING_KIB, SegmentError};
use crate::config::Config;
use crate::ring::{FragmentMemory, Ring};

const MAGIC: u64 = u64::from_le_bytes(*b"mpj-shm\x04");

/// A cache line.
pub(super) const LINE: usize = 64;
pub(super) const PAGE: usize = 4096;

/// Bytes of a fragment.
pub(super) const FRAGMENT: u32 = 32 << 10;

/// The sizes that fragments may have in a segment of this version.
const FRAGMENT_SIZES: RangeInclusive<u32> = 4096..=1 << 20;
const _: () = assert!(*FRAGMENT_SIZES.start() <= FRAGMENT && FRAGMENT <= *FRAGMENT_SIZES.end());

/// Cells of the shortest and of the longest ring.
pub(super) const CELLS: RangeInclusive<u32> = 4..=256;

/// Number of fragments that all ranks share by default, and the fewest that a rank gets by default. A rank gets at most
/// the default of `SHM_FRAGMENTS`.
const FRAGMENTS: u32 = 1024;
const FEWEST: u32 = 4;

/// Bytes of all ranks together for rings that are longer than the shortest, by default.
const LONG_RINGS: usize = 4 << 20;

/// MiB of the pools of all ranks together, by default. This is address space; memory is reserved when it is used.
const POOLS: u64 = 64 << 10;

/// Number of blocks that a rank can export at one time.
pub(super) const MAX_EXPORTS: usize = PLACES;

/// Bytes before the blocks of a rank, for the state words of the exported blocks.
pub(super) const WORDS: usize = (MAX_EXPORTS * size_of::<u64>()).next_multiple_of(PAGE);

/// Returns the number of lines of a ring of `cells` cells.
pub(super) const fn lines(cells: u32) -> u32 {
    (Ring::bytes(cells) / LINE) as u32
}

/// The layout of a segment.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SegmentLayout {
    magic: u64,
    pub(super) ranks: u32,
    /// Fragments of each rank.
    pub(super) fragments: u32,
    pub(super) fragment: u32,
    /// Lines of each rank for its rings.
    pub(super) lines: u32,
    /// Bytes of each rank's pool, in whole pages; 0 without pools.
    pool: u64,
}

impl SegmentLayout {
    /// Returns the layout for `ranks` ranks of one host. With more ranks, each has fewer fragments and fewer lines for
    /// long rings, unless their number is set. There are always lines for a shortest ring to every other rank: a rank
    /// without a ring to a peer could not reply to it, and the peer would wait for ever.
    pub(super) fn new(ranks: u32, config: &Config) -> Self {
        let fragments = match config.number(&SHM_FRAGMENTS) as u32 {
            set if config.is_set(&SHM_FRAGMENTS) => set,
            most => (FRAGMENTS / ranks.max(1)).clamp(FEWEST, most),
        };
        let lines = match config.number(&SHM_RING_KIB) {
            0 => Self::lines(ranks),
            kib => ((kib << 10).div_ceil(LINE as u64) as u32).max(Self::least(ranks)),
        };
        let pool = match config.number(&SHM_POOL_MIB) {
            set if config.is_set(&SHM_POOL_MIB) => set,
            most => most.min(POOLS / u64::from(ranks.max(1))),
        };
        SegmentLayout { magic: MAGIC, ranks, fragments, fragment: FRAGMENT, lines, pool: pool << 20 }
    }

    /// Returns the same layout without pools.
    pub(super) fn without_pools(self) -> Self {
        SegmentLayout { pool: 0, ..self }
    }

    fn lines(ranks: u32) -> u32 {
        let long = (LONG_RINGS / LINE) as u32 / ranks.max(1);
        let peers = ranks.saturating_sub(1).max(1);
        Self::least(ranks) + long.min(peers.saturating_mul(lines(*CELLS.end())))
    }

    /// Returns the lines of a shortest ring to every other rank.
    fn least(ranks: u32) -> u32 {
        ranks.saturating_sub(1).max(1).saturating_mul(lines(*CELLS.start()))
    }

    pub(super) fn check(&self, ranks: u32) -> Result<(), SegmentError> {
        let wrong = |why| Err(SegmentError::Plan { why });
        if self.magic != MAGIC {
            return wrong("it has another version");
        }
        if self.ranks != ranks {
            return wrong("it has another number of ranks");
        }
        let most = (SHM_RING_KIB.range.1 << 10) / LINE as u64;
        if self.lines < Self::least(ranks) || u64::from(self.lines) > most {
            return wrong("its rings make no sense");
        }
        let (least, most) = SHM_FRAGMENTS.range;
        if !(least..=most).contains(&u64::from(self.fragments)) || !FRAGMENT_SIZES.contains(&self.fragment) {
            return wrong("its fragments make no sense");
        }
        let is_counted =
            || self.pool.checked_mul(u64::from(ranks))?.checked_add(self.rank_area(ranks).start as u64);
        let most = SHM_POOL_MIB.range.1 << 20;
        let is_whole = self.pool.is_multiple_of(PAGE as u64) && self.pool <= most;
        if !is_whole || is_counted().is_none_or(|bytes| bytes > isize::MAX as u64) {
            return wrong("its pools make no sense");
        }
        Ok(())
    }

    /// Returns the offset of a rank's control block.
    pub(super) fn desk(&self, index: u32) -> usize {
        LINE + index as usize * ControlBlock::bytes(self.ranks)
    }

    /// Returns the offset of the word that holds the location of the ring from one rank to another.
    pub(super) fn ring_word(&self, from: u32, to: u32) -> usize {
        let row = (self.ranks as usize * 4).next_multiple_of(LINE);
        self.desk(self.ranks) + to as usize * row + from as usize * 4
    }

    /// Returns the range of a rank's part, in whole pages. The rank itself is the first to write there.
    pub(super) fn rank_area(&self, index: u32) -> Range<usize> {
        let part = (self.lines as usize * LINE).next_multiple_of(PAGE) + self.fragment_bytes();
        let start = self.ring_word(0, self.ranks).next_multiple_of(PAGE) + index as usize * part;
        start..start + part
    }

    /// Returns the range of the lines in which a rank makes its rings.
    pub(super) fn rings(&self, index: u32) -> Range<usize> {
        let Range { start, .. } = self.rank_area(index);
        start..start + self.lines as usize * LINE
    }

    /// Returns the offset of a rank's fragments.
    pub(super) fn fragments(&self, index: u32) -> usize {
        self.rings(index).end.next_multiple_of(PAGE)
    }

    fn fragment_bytes(&self) -> usize {
        FragmentMemory::bytes(self.fragments, self.fragment).next_multiple_of(PAGE)
    }

    /// Returns the bytes that are reserved once all ranks have opened the device.
    pub(super) fn reserved(&self) -> usize {
        self.rank_area(self.ranks).start
    }

    /// Returns the range of a rank's pool: first the state words of the exported blocks, then the blocks. It is empty
    /// without pools.
    pub(super) fn pool(&self, index: u32) -> Range<usize> {
        let start = self.reserved() + index as usize * self.pool as usize;
        start..start + self.pool as usize
    }

    /// Returns the bytes of the segment, including the pools, which have memory only where they are used.
    pub(super) fn bytes(&self) -> usize {
        self.pool(self.ranks).start
    }
}

/// The location of a ring among the lines of its sender. It packs into one word that is never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RingLocation {
    pub(super) line: u32,
    pub(super) cells: u32,
}

impl RingLocation {
    pub(super) fn word(self) -> u32 {
        self.line << 4 | self.cells.trailing_zeros()
    }

    /// Unpacks the word of a sender that has `room` lines. Returns `None` if the ring does not fit into them.
    pub(super) fn of(word: u32, room: u32) -> Option<Self> {
        let contact = RingLocation { line: word >> 4, cells: 1 << (word & 15) };
        let fits = CELLS.contains(&contact.cells) && contact.line + lines(contact.cells) <= room;
        fits.then_some(contact)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_segment_grows_little_faster_than_the_ranks() {
        let mib = |ranks| SegmentLayout::new(ranks, &Config::default()).reserved() >> 20;
        for (ranks, most) in [(2, 8), (8, 36), (16, 36), (64, 42), (128, 48), (256, 72), (512, 208)] {
            assert!(mib(ranks) <= most, "{ranks} ranks: {} MiB", mib(ranks));
        }
    }

    #[test]
    fn what_is_set_is_so_for_any_number_of_ranks() {
        let mut config = Config::default();
        config.set(&SHM_FRAGMENTS, 50).unwrap();
        config.set(&SHM_RING_KIB, 3).unwrap();
        for (ranks, lines) in [(1, 48), (2, 48), (7, 48), (300, 299 * 8)] {
            let plan = SegmentLayout::new(ranks, &config);
            assert_eq!((plan.fragments, plan.lines), (50, lines));
            plan.check(ranks).unwrap();
        }
    }

    #[test]
    fn a_pool_that_cannot_be_counted_is_refused() {
        let plan = SegmentLayout::new(3, &Config::default());
        for pool in [1, 4097, u64::MAX, !4095, (1 << 40) + 4096, 1 << 62] {
            assert!(SegmentLayout { pool, ..plan }.check(3).is_err(), "{pool}");
        }
        assert!(plan.without_pools().check(3).is_ok());
        assert_eq!(plan.without_pools().bytes(), plan.reserved());
    }

    #[test]
    fn no_two_things_overlap() {
        for ranks in [1, 2, 3, 65, 200] {
            let plan = SegmentLayout::new(ranks, &Config::default());
            plan.check(ranks).unwrap();
            assert!(plan.desk(ranks) <= plan.ring_word(0, 0));
            for index in 0..ranks {
                assert_eq!(plan.desk(index) % LINE, 0);
                assert!(plan.ring_word(ranks - 1, index) + 4 <= plan.ring_word(0, index + 1));
                assert!(plan.rings(index).start >= plan.ring_word(0, ranks));
                assert!(plan.rings(index).end <= plan.fragments(index));
                assert!(plan.fragments(index) + plan.fragment_bytes() <= plan.rank_area(index).end);
                assert_eq!(plan.rank_area(index).end, plan.rank_area(index + 1).start);
                assert!(plan.rank_area(index).end <= plan.pool(0).start);
                assert_eq!(plan.pool(index).end, plan.pool(index + 1).start);
                assert!(plan.pool(index).len() > MAX_EXPORTS * 8 && plan.pool(index).end <= plan.bytes());
            }
        }
    }

    #[test]
    fn a_contact_outside_of_the_senders_lines_is_none() {
        for contact in [
            RingLocation { line: 0, cells: 4 },
            RingLocation { line: 92, cells: 4 },
            RingLocation { line: 80, cells: 16 },
        ] {
            assert_eq!(RingLocation::of(contact.word(), 100), Some(contact));
        }
        for word in [
            RingLocation { line: 93, cells: 4 }.word(),
            RingLocation { line: 0, cells: 2 }.word(),
            RingLocation { line: 0, cells: 512 }.word(),
            1,
            15,
            u32::MAX,
        ] {
            assert_eq!(RingLocation::of(word, 100), None, "{word:x}");
        }
    }
}
