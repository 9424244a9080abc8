//! Allocates a rank's rings out of its lines of the segment, at first contact and for the life of the job.
//!
//! No other rank allocates from these lines, so the allocator's state is not in shared memory. The first peers get long
//! rings, each at most a quarter of the lines to spare, so later peers get shorter ones. The last three peers may get a
//! larger part. The lines of one shortest ring are reserved for each peer without a ring.

use super::segment_layout::{CELLS, RingLocation, SegmentLayout, lines};

/// A ring gets at most one in `PARTS` of the lines to spare, or one in `peers` if fewer peers are left.
const PARTS: u32 = 4;

/// The unused lines of a rank.
#[derive(Debug)]
pub(super) struct RingAllocator {
    next: u32,
    end: u32,
    /// Number of peers without a ring.
    peers: u32,
}

impl RingAllocator {
    pub(super) fn new(plan: &SegmentLayout) -> Self {
        RingAllocator { next: 0, end: plan.lines, peers: plan.ranks.saturating_sub(1) }
    }

    /// Allocates the ring to one more peer; returns `None` if there are too few lines for even the shortest ring.
    pub(super) fn alloc(&mut self) -> Option<RingLocation> {
        let (least, most) = CELLS.into_inner();
        let left = self.end - self.next;
        let others = self.peers.saturating_sub(1);
        let spare = left.saturating_sub(others.saturating_mul(lines(least)));
        let share = spare / self.peers.clamp(1, PARTS);
        let mut cells = most;
        while cells > least && lines(cells) > share {
            cells /= 2;
        }
        if lines(cells) > left {
            return None;
        }
        let contact = RingLocation { line: self.next, cells };
        self.next += lines(cells);
        self.peers = others;
        Some(contact)
    }
}

#[cfg(test)]
mod tests {
    use super::super::SHM_RING_KIB;
    use super::*;
    use crate::config::Config;

    /// Allocates the rings of one of `ranks` ranks to all others; returns their cells.
    fn rings(ranks: u32, config: &Config) -> Vec<u32> {
        let plan = SegmentLayout::new(ranks, config);
        let mut heap = RingAllocator::new(&plan);
        let mut next = 0;
        let take = || {
            let contact = heap.alloc()?;
            assert_eq!(contact.line, next, "one behind the other");
            assert_eq!(RingLocation::of(contact.word(), plan.lines), Some(contact), "inside");
            next += lines(contact.cells);
            Some(contact.cells)
        };
        std::iter::from_fn(take).take(ranks as usize - 1).collect()
    }

    #[test]
    fn few_peers_have_the_longest_rings() {
        for ranks in 2..=16 {
            assert_eq!(rings(ranks, &Config::default()), vec![256; ranks as usize - 1]);
        }
    }

    #[test]
    fn the_first_of_many_peers_have_longer_rings_and_each_has_one() {
        for (ranks, first) in [(32, 256), (64, 128), (128, 64), (256, 32), (512, 16), (2000, 4)] {
            let rings = rings(ranks, &Config::default());
            assert_eq!(rings.len(), ranks as usize - 1, "{ranks} ranks");
            assert!(rings[0] >= first, "{ranks} ranks: {}", rings[0]);
        }
    }

    #[test]
    fn little_room_is_enough_for_a_ring_to_each() {
        let mut config = Config::default();
        config.set(&SHM_RING_KIB, 2).unwrap();
        assert_eq!(rings(100, &config), [4; 99]);
    }
}
