//! Allocates a rank's rings out of its lines of the segment, at first contact and for the life of the job.
//!
//! No other rank allocates from these lines, so the allocator's state is not in shared memory. The lines of one
//! shortest ring are reserved for each peer without a ring. The first peers get longer rings, each at most a quarter of
//! the other lines (the last three peers a larger part).

use super::segment_layout::{CELLS, RingLocation, SegmentLayout, ring_lines};

/// A longer ring gets at most 1 / `PARTS` of the lines that are not reserved, or 1 / `peers` if fewer peers are left.
const PARTS: u32 = 4;

#[derive(Debug)]
pub(super) struct RingAllocator {
    next: u32,
    end: u32,
    /// Number of peers without a ring.
    peers: u32,
}

impl RingAllocator {
    pub(super) fn new(layout: &SegmentLayout) -> Self {
        RingAllocator { next: 0, end: layout.lines, peers: layout.ranks.saturating_sub(1) }
    }

    /// Allocates the lines of the next ring. Returns `None` if they are too few even for the shortest ring.
    pub(super) fn alloc(&mut self) -> Option<RingLocation> {
        let (least, most) = CELLS.into_inner();
        let left = self.end - self.next;
        let others = self.peers.saturating_sub(1);
        let spare = left.saturating_sub(others.saturating_mul(ring_lines(least)));
        let share = spare / self.peers.clamp(1, PARTS);
        let mut cells = most;
        while cells > least && ring_lines(cells) > share {
            cells /= 2;
        }
        if ring_lines(cells) > left {
            return None;
        }
        let location = RingLocation { line: self.next, cells };
        self.next += ring_lines(cells);
        self.peers = others;
        Some(location)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SHM_RING_KIB;
    use super::*;
    use crate::config::Config;

    /// Allocates the rings of one of `ranks` ranks to all others; returns their cells.
    fn rings(ranks: u32, config: &Config) -> Vec<u32> {
        let layout = SegmentLayout::new(ranks, config);
        let mut ring_allocator = RingAllocator::new(&layout);
        let mut next = 0;
        let take = || {
            let location = ring_allocator.alloc()?;
            assert_eq!(location.line, next, "the rings are adjacent");
            assert_eq!(
                RingLocation::from_word(location.word(), layout.lines),
                Some(location),
                "the ring is inside"
            );
            next += ring_lines(location.cells);
            Some(location.cells)
        };
        std::iter::from_fn(take).take(ranks as usize - 1).collect()
    }

    #[test]
    fn few_peers_get_the_longest_rings() {
        for ranks in 2..=16 {
            assert_eq!(rings(ranks, &Config::default()), vec![256; ranks as usize - 1]);
        }
    }

    #[test]
    fn every_peer_gets_a_ring_and_the_first_ring_is_long_enough() {
        for (ranks, first) in [(32, 256), (64, 128), (128, 64), (256, 32), (512, 16), (2000, 4)] {
            let rings = rings(ranks, &Config::default());
            assert_eq!(rings.len(), ranks as usize - 1, "{ranks} ranks");
            assert!(rings[0] >= first, "{ranks} ranks: {}", rings[0]);
        }
    }

    #[test]
    fn few_lines_are_enough_for_a_ring_to_each_peer() {
        let mut config = Config::default();
        config.set(&SHM_RING_KIB, 2).unwrap();
        assert_eq!(rings(100, &config), [4; 99]);
    }
}
