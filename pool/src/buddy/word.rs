//! One bit for each of the 64 children of a group, and searches for runs of set bits.

use core::fmt;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

impl Word {
    pub(super) const NONE: Word = Word(0);
    pub(super) const ALL: Word = Word(u64::MAX);

    /// The first `count` bits, 0 to 63.
    pub(super) const fn first(count: u32) -> Word {
        Word((1 << count) - 1)
    }

    /// `count` bits, 1 to 63, from bit `at` on.
    #[inline]
    pub(super) const fn run(at: u32, count: u32) -> Word {
        Word(((1 << count) - 1) << at)
    }

    /// Returns the first position in `starts` at which `count` adjacent bits, 1 to 63, are set.
    #[inline]
    pub(super) fn find(self, count: u32, starts: Word) -> Option<u32> {
        let mut bits = self.0;
        // Bit i is set if the bits i .. i + len of `self` are all set.
        let mut len = 1;
        while 2 * len <= count {
            bits &= bits >> len;
            len *= 2;
        }
        bits &= bits >> (count - len);
        bits &= starts.0;
        (bits != 0).then(|| bits.trailing_zeros())
    }

    pub(super) fn longest_run(self) -> u32 {
        let mut runs = [self.0; 6];
        for step in 1..6 {
            // Bit i is set if 2^step bits from i on are set.
            runs[step] = runs[step - 1] & runs[step - 1] >> (1 << (step - 1));
        }
        if self == Word::ALL {
            return 64;
        }
        // Runs of `len` bits start at `starts`. Extends them by 2^step bits, if one of them continues that far.
        let (mut starts, mut len) = (u64::MAX, 0);
        for step in (0..6).rev() {
            let longer = starts & (runs[step] >> len);
            if longer != 0 {
                (starts, len) = (longer, len + (1 << step));
            }
        }
        len
    }

    /// Returns the length of the run of set bits that contains the `count` set bits from bit `at` on.
    #[inline]
    pub(super) fn run_around(self, at: u32, count: u32) -> u32 {
        let end = at + count;
        let before = if at == 0 { 0 } else { (self.0 << (64 - at)).leading_ones() };
        let after = if end == 64 { 0 } else { (self.0 >> end).trailing_ones() };
        before + count + after
    }

    #[inline]
    pub(super) const fn has(self, bit: u32) -> bool {
        self.0 >> bit & 1 == 1
    }

    #[inline]
    pub(super) const fn intersects(self, other: Word) -> bool {
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

    fn find(word: u64, count: u32) -> Option<u32> {
        let mask = if count == 64 { u64::MAX } else { (1 << count) - 1 };
        (0..=64 - count).find(|at| word >> at & mask == mask)
    }

    #[test]
    fn runs_match_the_definition() {
        let mut words = vec![0, 1, u64::MAX, u64::MAX - 1, u64::MAX >> 1, 0xffff_ffff, !0xffff_ffff, 0x6666];
        let mut seed = 1u64;
        for i in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let mixed = seed ^ seed >> 29;
            words.push([mixed, mixed | mixed << 1 | mixed << 2, mixed & mixed << 7][i % 3]);
        }
        for word in words {
            for count in 1..64 {
                let found = find(word, count);
                assert_eq!(Word(word).find(count, Word::ALL), found, "{word:#x} {count}");
                let Some(at) = found.filter(|_| word != u64::MAX) else { continue };
                let (mut first, mut end) = (at, at + count);
                while first > 0 && word >> (first - 1) & 1 == 1 {
                    first -= 1;
                }
                while end < 64 && word >> end & 1 == 1 {
                    end += 1;
                }
                assert_eq!(Word(word).run_around(at, count), end - first, "{word:#x} {at} {count}");
            }
            let longest = (1..=64).rev().find(|&count| find(word, count).is_some());
            assert_eq!(Word(word).longest_run(), longest.unwrap_or(0), "{word:#x}");
        }
    }

    #[test]
    fn find_honours_valid_starts() {
        assert_eq!(Word(0b11_1110).find(2, Word(0b1_0101)), Some(2));
        assert_eq!(Word(0b11_1110).find(5, Word(0b1_0101)), None);
    }
}
