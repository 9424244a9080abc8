//! The number and the length of a rank's fragments.

use std::ops::RangeInclusive;

/// Bytes of the shortest and of the longest fragment. A longer fragment carries a longer message in one frame.
pub(crate) const FRAGMENT_BYTES: RangeInclusive<u32> = 16 << 10..=64 << 10;

/// Fragments are longer than the minimum only if the rank then has at least this number of them.
const MIN_COUNT_IF_LONGER: u32 = 8;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct FragmentSizes {
    pub(crate) count: u32,
    /// Bytes of each fragment.
    pub(crate) bytes: u32,
}

impl FragmentSizes {
    /// Gives each rank its share of `total` bytes, clamped to `per_rank` and rounded down to whole fragments.
    pub(crate) fn divide(total: u32, ranks: u32, per_rank: RangeInclusive<u32>) -> Self {
        let own = (total / ranks.max(1)).clamp(*per_rank.start(), *per_rank.end());
        let wanted = (own / MIN_COUNT_IF_LONGER).clamp(*FRAGMENT_BYTES.start(), *FRAGMENT_BYTES.end());
        let bytes = 1 << wanted.ilog2();
        FragmentSizes { count: own / bytes, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_ranks_have_fewer_and_shorter_fragments() {
        let sizes = |ranks| FragmentSizes::divide(32 << 20, ranks, 128 << 10..=4 << 20);
        for (ranks, count, kib) in
            [(0, 64, 64), (2, 64, 64), (8, 64, 64), (9, 56, 64), (64, 8, 64), (128, 8, 32), (100_000, 8, 16)]
        {
            assert_eq!(sizes(ranks), FragmentSizes { count, bytes: kib << 10 }, "{ranks} ranks");
        }
    }
}
