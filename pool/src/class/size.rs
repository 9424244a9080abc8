//! Size classes: powers of two, and above 256 bytes also the three quarter steps between them.

use core::fmt;

use super::{MAX_BLOCK, MIN_BLOCK, Order};

/// A block size: 64, 128, 256, then 320, 384, 448, 512, 640, … four per power of two.
///
/// Above 256 bytes, a block is at most a quarter larger than the request. Over log-uniform requests, blocks have 9 %
/// more bytes than requested.
///
/// The index is the position in the sequence 64, 80, 96, 112, 128, 160, … with four sizes per power of two. Below 256,
/// only the powers of two are classes, so six indices are unused. This keeps the formulas free of branches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(u8);

impl Class {
    /// Above this size, classes are a quarter of a power of two apart.
    const FINE_ABOVE: usize = 256;
    /// The number of the quarter that ends at 64 bytes. Each power of two has four quarters; number 0 begins at 1 byte.
    const FIRST_QUARTER: u32 = 23;
    /// The exponent bits of 1.0, and the two fraction bits that give the quarter.
    const QUARTER_OF_ONE: u32 = 1f32.to_bits() >> 21;

    /// Returns the smallest class that holds `len` bytes, or `None` above `MAX_BLOCK`.
    #[inline]
    pub(crate) const fn for_len(len: usize) -> Option<Class> {
        if len > MAX_BLOCK {
            return None;
        }
        let last = len.saturating_sub(1) | (MIN_BLOCK - 1);
        let bits = last.ilog2();
        // The leading bit and the next two give the quarter in which `last` lies.
        let quarter = bits * 4 + (last >> (bits - 2)) as u32 - 4;
        Some(Class(((quarter | Self::coarse_mask(len)) - Self::FIRST_QUARTER) as u8))
    }

    /// Returns the [`index`](Self::index) of the smallest class that holds `len` bytes, if `len` is from 1 byte to 8
    /// MiB. Otherwise returns a larger index, with which a lookup in a list of these classes fails.
    ///
    /// The leading bits of a float give the logarithm and the quarter; up to 8 MiB, no rounding changes them. If `len`
    /// is 0 or above `isize::MAX + 1`, `last` is negative: the sign bit makes the index larger than all others.
    #[inline]
    pub(crate) const fn index_for_len(len: usize) -> usize {
        let last = (len.wrapping_sub(1) | (MIN_BLOCK - 1)) as isize;
        let quarter = (last as f32).to_bits() >> 21;
        ((quarter | Self::coarse_mask(len)) - (Self::QUARTER_OF_ONE + Self::FIRST_QUARTER)) as usize
    }

    /// Returns 3 for sizes up to `FINE_ABOVE`, which selects the last quarter of each power, and 0 above. The result is
    /// unspecified for sizes of a quarter of the address range or more.
    #[inline]
    const fn coarse_mask(len: usize) -> u32 {
        (len.wrapping_sub(Self::FINE_ABOVE + 1) >> (usize::BITS - 2)) as u32
    }

    /// Returns the smallest class that holds `len` bytes and is a power of two, or `None` above `MAX_BLOCK`.
    #[inline]
    pub(crate) const fn power_of_two_for_len(len: usize) -> Option<Class> {
        if len > MAX_BLOCK {
            return None;
        }
        let last = len.saturating_sub(1) | (MIN_BLOCK - 1);
        Some(Class((last.ilog2() * 4 + 3 - Self::FIRST_QUARTER) as u8))
    }

    #[inline]
    pub(crate) const fn bytes(self) -> usize {
        (self.eighths() as usize) << ((self.0 as u32 + Self::FIRST_QUARTER) / 4 - 2)
    }

    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    #[inline]
    pub(crate) const fn from_index(index: u8) -> Class {
        Class(index)
    }

    /// Returns the class with this index, or `None` for an index that is unused or past the last class.
    pub(crate) fn new(index: usize) -> Option<Class> {
        let class = Class(u8::try_from(index).ok()?);
        let is_used = class <= Self::for_len(MAX_BLOCK)? && Self::for_len(class.bytes()) == Some(class);
        is_used.then_some(class)
    }

    /// Returns the order of the outer block: the smallest power of two that is at least the size.
    #[inline]
    pub(crate) const fn outer_order(self) -> Order {
        Order::of_block(8 << ((self.0 as u32 + Self::FIRST_QUARTER) / 4 - 2))
    }

    /// Returns the size in eighths of the outer block, 5 to 8.
    #[inline]
    pub(crate) const fn eighths(self) -> u32 {
        5 + ((self.0 as u32 + Self::FIRST_QUARTER) & 3)
    }
}

impl fmt::Debug for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "C{}", self.bytes())
    }
}

const _: () = assert!(matches!(Class::for_len(0), Some(Class(0))));
const _: () = assert!(matches!(Class::for_len(64), Some(Class(0))));
const _: () = assert!(matches!(Class::for_len(65), Some(Class(4))));
const _: () = assert!(matches!(Class::for_len(256), Some(Class(8))));
const _: () = assert!(matches!(Class::for_len(257), Some(Class(9))));
const _: () = assert!(matches!(Class::for_len(512), Some(Class(12))));
const _: () = assert!(matches!(Class::for_len(8 << 20), Some(Class(68))));
const _: () = assert!((8 << 20) < 1 << f32::MANTISSA_DIGITS && Class::index_for_len(0) > 255);
const _: () = assert!(Class::for_len(usize::MAX).is_none());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{MAX_ALIGN, alignment};

    #[test]
    fn class_sizes_round_trip() {
        let classes: Vec<Class> = (0..=255).filter_map(Class::new).collect();
        let sizes: Vec<usize> = classes.iter().map(|class| class.bytes()).collect();
        assert_eq!(sizes[..12], [64, 128, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280]);
        assert!(sizes.is_sorted_by(|a, b| a < b));
        for (&listed, &bytes) in classes.iter().zip(&sizes) {
            let class = Class::for_len(bytes).unwrap();
            assert_eq!((class, class.bytes()), (listed, bytes));
            assert_eq!(class.outer_order().bytes() / 8 * class.eighths() as usize, bytes);
        }
        assert_eq!(*sizes.last().unwrap(), Order::MAX.bytes());
    }

    #[test]
    fn classes_are_the_smallest_that_fit() {
        for len in (0..10_000).chain([1 << 20, (1 << 20) + 1, Order::MAX.bytes() / 2 - 1, Order::MAX.bytes()])
        {
            let class = Class::for_len(len).unwrap();
            assert!(class.bytes() >= len, "{len}");
            let smaller = (0..class.index()).rev().find_map(Class::new);
            assert!(smaller.is_none_or(|smaller| smaller.bytes() < len), "{len}");
            assert!(class.outer_order().bytes().min(MAX_ALIGN) >= alignment(len), "{len}");
            let power = Class::power_of_two_for_len(len).unwrap();
            assert_eq!(power.bytes(), len.next_power_of_two().max(64));
        }
        let last = Class::for_len(8 << 20).unwrap().index();
        for len in (1..20_000).chain((1..24).flat_map(|bits| [(1 << bits) - 1, 1 << bits, (1 << bits) + 1])) {
            let (index, class) = (Class::index_for_len(len), Class::for_len(len).unwrap());
            assert!(index == class.index() || index.min(class.index()) > last, "{len}");
        }
        for bits in 0..usize::BITS {
            for len in [usize::MAX >> bits, usize::MAX << bits, 0] {
                assert!((1..=8 << 20).contains(&len) || Class::index_for_len(len) > last, "{len}");
            }
        }
        assert_eq!(Class::for_len(Order::MAX.bytes() + 1), None);
        assert_eq!(Class::power_of_two_for_len(usize::MAX), None);
    }
}
