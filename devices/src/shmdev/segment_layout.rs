//! The layout of a job's segment: a few numbers in its first line determine every offset except those of rings.

use std::ops::{Range, RangeInclusive};

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::control_block::{ControlBlock, LINE};
use super::slot_ids::SLOTS;
use super::{SHM_FRAGMENTS, SHM_POOL_MIB, SHM_RING_KIB, SegmentError};
use crate::config::Config;
use crate::ring::{FRAGMENT_BYTES, FragmentMemory, FragmentSizes, Ring};

const MAGIC: u64 = u64::from_le_bytes(*b"mpj-shm\x07");

pub(super) const PAGE: usize = 4096;

/// Cells of the shortest and of the longest ring.
pub(super) const CELLS: RangeInclusive<u32> = 4..=256;

/// Maximum bytes of the fragments of all ranks by default, unless [`FRAGMENT_BYTES_PER_RANK`] requires more.
const TOTAL_FRAGMENT_BYTES: u32 = 32 << 20;
const FRAGMENT_BYTES_PER_RANK: RangeInclusive<u32> = 128 << 10..=4 << 20;

/// Maximum bytes of all ranks together for rings that are longer than the shortest, by default.
const LONG_RING_BYTES: usize = 4 << 20;

/// Maximum MiB of the pools of all ranks together, by default: with more than 64 ranks, each gets less than the default
/// of [`SHM_POOL_MIB`]. This is address space; memory is reserved when it is used.
const TOTAL_POOL_MIB: u64 = 64 << 10;

pub(super) const MAX_EXPORTS: usize = SLOTS;

/// Bytes before the blocks of a rank, for the state words of the exported blocks.
pub(super) const STATE_BYTES: usize = (MAX_EXPORTS * size_of::<u64>()).next_multiple_of(PAGE);

pub(super) const fn ring_lines(cells: u32) -> u32 {
    (Ring::bytes(cells) / LINE) as u32
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub(super) struct SegmentLayout {
    magic: u64,
    pub(super) ranks: u32,
    /// Fragments of each rank.
    pub(super) fragments: u32,
    /// Bytes of a fragment.
    pub(super) fragment_size: u32,
    /// Lines of each rank for its rings.
    pub(super) lines: u32,
    /// Bytes of each rank's pool, in whole pages; 0 without pools.
    pool: u64,
}

impl SegmentLayout {
    /// Returns the layout for `ranks` ranks of one host. With many ranks, fragments are shorter. Unless the user sets
    /// these numbers, each rank then has fewer fragments, fewer lines for long rings and a smaller pool. The lines
    /// suffice for a shortest ring to every other rank; without a ring, a rank could not reply to a peer that waits.
    pub(super) fn new(ranks: u32, config: &Config) -> Self {
        let sizes = FragmentSizes::divide(TOTAL_FRAGMENT_BYTES, ranks, FRAGMENT_BYTES_PER_RANK);
        let fragments = match config.number(&SHM_FRAGMENTS) as u32 {
            set if config.is_set(&SHM_FRAGMENTS) => set,
            _ => sizes.count,
        };
        let lines = match config.number(&SHM_RING_KIB) {
            0 => Self::default_lines(ranks),
            kib => ((kib << 10).div_ceil(LINE as u64) as u32).max(Self::min_lines(ranks)),
        };
        let pool = match config.number(&SHM_POOL_MIB) {
            set if config.is_set(&SHM_POOL_MIB) => set,
            most => most.min(TOTAL_POOL_MIB / u64::from(ranks.max(1))),
        };
        SegmentLayout { magic: MAGIC, ranks, fragments, fragment_size: sizes.bytes, lines, pool: pool << 20 }
    }

    pub(super) fn without_pools(self) -> Self {
        SegmentLayout { pool: 0, ..self }
    }

    fn default_lines(ranks: u32) -> u32 {
        let long = (LONG_RING_BYTES / LINE) as u32 / ranks.max(1);
        let peers = ranks.saturating_sub(1).max(1);
        Self::min_lines(ranks) + long.min(peers.saturating_mul(ring_lines(*CELLS.end())))
    }

    /// Lines of one shortest ring to every other rank.
    fn min_lines(ranks: u32) -> u32 {
        ranks.saturating_sub(1).max(1).saturating_mul(ring_lines(*CELLS.start()))
    }

    pub(super) fn check(&self, ranks: u32) -> Result<(), SegmentError> {
        let wrong = |why| Err(SegmentError::Layout { why });
        if self.magic != MAGIC {
            return wrong("it has another version");
        }
        if self.ranks != ranks {
            return wrong("it has another number of ranks");
        }
        let most = (SHM_RING_KIB.range.1 << 10) / LINE as u64;
        if self.lines < Self::min_lines(ranks) || u64::from(self.lines) > most {
            return wrong("invalid ring size");
        }
        let (least, most) = SHM_FRAGMENTS.range;
        if !(least..=most).contains(&u64::from(self.fragments))
            || !FRAGMENT_BYTES.contains(&self.fragment_size)
        {
            return wrong("invalid fragment size or count");
        }
        let is_counted =
            || self.pool.checked_mul(u64::from(ranks))?.checked_add(self.rank_area(ranks).start as u64);
        let most = SHM_POOL_MIB.range.1 << 20;
        let is_whole = self.pool.is_multiple_of(PAGE as u64) && self.pool <= most;
        if !is_whole || is_counted().is_none_or(|bytes| bytes > isize::MAX as u64) {
            return wrong("invalid pool size");
        }
        Ok(())
    }

    pub(super) fn control_block(&self, index: u32) -> usize {
        LINE + index as usize * ControlBlock::bytes(self.ranks)
    }

    /// Returns the offset of the word that holds the location of the ring from one rank to another.
    pub(super) fn ring_word(&self, from: u32, to: u32) -> usize {
        let row = (self.ranks as usize * 4).next_multiple_of(LINE);
        self.control_block(self.ranks) + to as usize * row + from as usize * 4
    }

    /// Returns the range of a rank's rings and fragments, in whole pages. The rank itself is the first to write there.
    pub(super) fn rank_area(&self, index: u32) -> Range<usize> {
        let part = (self.lines as usize * LINE).next_multiple_of(PAGE) + self.fragments_len();
        let start = self.ring_word(0, self.ranks).next_multiple_of(PAGE) + index as usize * part;
        start..start + part
    }

    pub(super) fn rings(&self, index: u32) -> Range<usize> {
        let Range { start, .. } = self.rank_area(index);
        start..start + self.lines as usize * LINE
    }

    pub(super) fn fragments(&self, index: u32) -> usize {
        self.rings(index).end.next_multiple_of(PAGE)
    }

    fn fragments_len(&self) -> usize {
        FragmentMemory::bytes(self.fragments, self.fragment_size).next_multiple_of(PAGE)
    }

    /// Returns the number of bytes that are reserved once all ranks have opened the device, without pools.
    pub(super) fn reserved(&self) -> usize {
        self.rank_area(self.ranks).start
    }

    /// Returns the range of a rank's pool, empty without pools: first the state words, then the blocks.
    pub(super) fn pool(&self, index: u32) -> Range<usize> {
        let start = self.reserved() + index as usize * self.pool as usize;
        start..start + self.pool as usize
    }

    /// Returns the length of the segment in bytes, including the pools, which have memory only where they are used.
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

    /// Unpacks the word of a sender that has `room` lines. Returns `None` if such a sender cannot have the ring.
    pub(super) fn from_word(word: u32, room: u32) -> Option<Self> {
        let location = RingLocation { line: word >> 4, cells: 1 << (word & 15) };
        let fits = CELLS.contains(&location.cells) && location.line + ring_lines(location.cells) <= room;
        fits.then_some(location)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_memory_stays_small_with_many_ranks() {
        let mib = |ranks| SegmentLayout::new(ranks, &Config::default()).reserved() >> 20;
        for (ranks, most) in [(2, 8), (8, 36), (16, 36), (64, 42), (128, 48), (256, 72), (512, 208)] {
            assert!(mib(ranks) <= most, "{ranks} ranks: {} MiB", mib(ranks));
        }
    }

    #[test]
    fn configured_sizes_are_used_but_every_rank_has_lines_for_short_rings() {
        let mut config = Config::default();
        config.set(&SHM_FRAGMENTS, 50).unwrap();
        config.set(&SHM_RING_KIB, 3).unwrap();
        for (ranks, lines) in [(1, 48), (2, 48), (7, 48), (300, 299 * 8)] {
            let layout = SegmentLayout::new(ranks, &config);
            assert_eq!((layout.fragments, layout.lines), (50, lines));
            layout.check(ranks).unwrap();
        }
    }

    #[test]
    fn invalid_pool_size_is_refused() {
        let layout = SegmentLayout::new(3, &Config::default());
        for pool in [1, 4097, u64::MAX, !4095, (1 << 40) + 4096, 1 << 62] {
            assert!(SegmentLayout { pool, ..layout }.check(3).is_err(), "{pool}");
        }
        assert!(layout.without_pools().check(3).is_ok());
        assert_eq!(layout.without_pools().bytes(), layout.reserved());
    }

    #[test]
    fn areas_do_not_overlap() {
        for ranks in [1, 2, 3, 65, 200] {
            let layout = SegmentLayout::new(ranks, &Config::default());
            layout.check(ranks).unwrap();
            assert!(layout.control_block(ranks) <= layout.ring_word(0, 0));
            for index in 0..ranks {
                assert_eq!(layout.control_block(index) % LINE, 0);
                assert!(layout.ring_word(ranks - 1, index) + 4 <= layout.ring_word(0, index + 1));
                assert!(layout.rings(index).start >= layout.ring_word(0, ranks));
                assert!(layout.rings(index).end <= layout.fragments(index));
                assert!(layout.fragments(index) + layout.fragments_len() <= layout.rank_area(index).end);
                assert_eq!(layout.rank_area(index).end, layout.rank_area(index + 1).start);
                assert!(layout.rank_area(index).end <= layout.pool(0).start);
                assert_eq!(layout.pool(index).end, layout.pool(index + 1).start);
                assert!(
                    layout.pool(index).len() > MAX_EXPORTS * 8 && layout.pool(index).end <= layout.bytes()
                );
            }
        }
    }

    #[test]
    fn location_outside_of_the_lines_of_the_sender_is_refused() {
        for location in [
            RingLocation { line: 0, cells: 4 },
            RingLocation { line: 92, cells: 4 },
            RingLocation { line: 80, cells: 16 },
        ] {
            assert_eq!(RingLocation::from_word(location.word(), 100), Some(location));
        }
        for word in [
            RingLocation { line: 93, cells: 4 }.word(),
            RingLocation { line: 0, cells: 2 }.word(),
            RingLocation { line: 0, cells: 512 }.word(),
            1,
            15,
            u32::MAX,
        ] {
            assert_eq!(RingLocation::from_word(word, 100), None, "{word:x}");
        }
    }
}
