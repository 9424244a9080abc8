//! 64 neighbours in one word: finding, taking and giving back aligned runs of them.

use core::fmt;

/// Returns a word with the lowest of each `1 << run` bits set: where an aligned run of that length may start.
const fn starts(run: u32) -> u64 {
    u64::MAX / ((1 << (1 << run)) - 1)
}

const STARTS: [u64; 6] = [u64::MAX, starts(1), starts(2), starts(3), starts(4), starts(5)];

const _: () = assert!(STARTS[1] == 0x5555_5555_5555_5555 && STARTS[5] == 0x0000_0001_0000_0001);

/// 64 bits, one for each neighbour.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

impl Word {
    pub(super) const NONE: Word = Word(0);
    pub(super) const ALL: Word = Word(u64::MAX);

    /// Returns the first `count` bits, at most 63.
    pub(super) const fn first(count: u32) -> Word {
        Word((1 << count) - 1)
    }

    /// Returns the bits of the run of `1 << run` neighbours from `at`; `run` ≤ 5.
    #[inline]
    pub(super) const fn run(at: u32, run: u32) -> Word {
        Word(((1 << (1 << run)) - 1) << at)
    }

    /// Returns the lowest aligned run of `1 << run` set bits; `run` ≤ 5.
    #[inline]
    pub(super) fn find(self, run: u32) -> Option<u32> {
        let mut bits = self.0;
        // After step s, bit i says that the bits i .. i + 2^(s+1) were all set.
        for step in 0..run {
            bits &= bits >> (1 << step);
        }
        bits &= STARTS[run as usize];
        (bits != 0).then(|| bits.trailing_zeros())
    }

    /// Returns the greatest `run` for which an aligned run of `1 << run` set bits exists, 0..=6; none if no bit is set.
    #[inline]
    pub(super) fn greatest(self) -> Option<u32> {
        let mut bits = self.0;
        let mut count = u32::from(bits != 0);
        for step in 0..6 {
            // Runs of 2^step that start a run of 2^(step+1) with their right neighbour.
            bits &= bits >> (1 << step);
            bits &= if step < 5 { STARTS[step + 1] } else { 1 };
            count += u32::from(bits != 0);
        }
        count.checked_sub(1)
    }

    /// Returns the greatest run, up to 5, of which the free aligned run of `1 << run` bits at `at` is part.
    #[inline]
    pub(super) fn greatest_around(self, at: u32, mut run: u32) -> u32 {
        while run < 5 {
            let whole = Word::run(at & !((2 << run) - 1), run + 1);
            if self.with(whole) != self {
                break;
            }
            run += 1;
        }
        run
    }

    #[inline]
    pub(super) const fn has(self, bit: u32) -> bool {
        self.0 >> bit & 1 == 1
    }

    #[inline]
    pub(super) const fn meets(self, other: Word) -> bool {
        self.0 & other.0 != 0
    }

    #[inline]
    pub(super) const fn with(self, other: Word) -> Word {
        Word(self.0 | other.0)
    }

    #[inline]
    pub(super) const fn without(self, other: Word) -> Word {
        Word(self.0 & !other.0)
    }

    #[inline]
    pub(super) const fn count(self) -> u32 {
        self.0.count_ones()
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: looks at each aligned place.
    fn find(word: u64, run: u32) -> Option<u32> {
        let mask = if run == 6 { u64::MAX } else { (1 << (1 << run)) - 1 };
        (0..64).step_by(1 << run).find(|at| word >> at & mask == mask)
    }

    #[test]
    fn agrees_with_the_definition() {
        let mut words = vec![0, 1, u64::MAX, u64::MAX - 1, u64::MAX >> 1, 0xffff_ffff, !0xffff_ffff, 0x6666];
        let mut seed = 1u64;
        for i in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Dense, even and sparse words.
            let mixed = seed ^ seed >> 29;
            words.push([mixed, mixed | mixed << 1 | mixed << 2, mixed & mixed << 7][i % 3]);
        }
        for word in words {
            for run in 0..6 {
                assert_eq!(Word(word).find(run), find(word, run), "{word:#x} {run}");
            }
            let greatest = (0..=6).rev().find(|&run| find(word, run).is_some());
            assert_eq!(Word(word).greatest(), greatest, "{word:#x}");
            for run in 0..6 {
                let Some(at) = find(word, run) else { continue };
                let holds = |run: &u32| find(word >> (at >> run << run), *run) == Some(0);
                let around = (run..6).take_while(holds).last();
                assert_eq!(Some(Word(word).greatest_around(at, run)), around, "{word:#x} {at} {run}");
            }
        }
    }
}
