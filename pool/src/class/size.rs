//! Size classes: powers of two, and from 256 bytes on the three steps of a quarter between them.

use core::fmt;

use super::{MIN_BLOCK, MOST, Order};

/// A size that blocks have: 64, 128, 256, then 320, 384, 448, 512, 640, … four a power of two.
///
/// So a block is at most a quarter larger than what was asked for, once that is more than 256 bytes, and 9 % on average
/// over sizes spread evenly on a logarithmic scale.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Class(u8);

impl Class {
    /// From this size on there are steps of a quarter.
    const FINE: usize = 256;
    /// The classes up to `FINE`.
    const COARSE: u32 = 3;

    /// Returns the smallest class that holds `len` bytes; none if none does.
    #[inline]
    pub(crate) const fn for_len(len: usize) -> Option<Class> {
        if len > MOST {
            return None;
        }
        let last = len.saturating_sub(1) | (MIN_BLOCK - 1);
        let bits = last.ilog2();
        if len <= Self::FINE {
            return Some(Class((bits + 1 - MIN_BLOCK.trailing_zeros()) as u8));
        }
        // The two bits behind the leading one say which quarter of the way to the next power `last` is in.
        let quarter = (last >> (bits - 2)) as u32 & 3;
        Some(Class(((bits - Self::FINE.trailing_zeros()) * 4 + quarter + Self::COARSE) as u8))
    }

    /// Returns the smallest class that is a power of two and holds `len` bytes; none if none does.
    #[inline]
    pub(crate) const fn power_for_len(len: usize) -> Option<Class> {
        if len > MOST { None } else { Self::for_len(len.next_power_of_two()) }
    }

    /// Returns the size in bytes.
    #[inline]
    pub(crate) const fn bytes(self) -> usize {
        match (self.0 as u32).checked_sub(Self::COARSE) {
            None => MIN_BLOCK << self.0,
            Some(step) => (5 + (step as usize & 3)) << (step / 4 + Self::FINE.trailing_zeros() - 2),
        }
    }

    /// Returns the place of the class in a list of all, from the smallest.
    #[inline]
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }

    /// Returns the class of that place; none behind the last.
    pub(crate) fn new(index: usize) -> Option<Class> {
        let last = Self::for_len(MOST)?;
        (index <= last.index()).then_some(Class(index as u8))
    }

    /// Returns the order of the smallest power of two that holds such a block.
    #[inline]
    pub(crate) const fn outer(self) -> Order {
        Order::of_block(self.bytes().next_power_of_two())
    }

    /// Returns how many eighths of its outer block it is: 5, 6, 7, or 8 if it is one.
    #[inline]
    pub(crate) const fn eighths(self) -> u32 {
        match (self.0 as u32).checked_sub(Self::COARSE) {
            None => 8,
            Some(step) => 5 + (step & 3),
        }
    }
}

impl fmt::Debug for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "C{}", self.bytes())
    }
}

const _: () = assert!(matches!(Class::for_len(0), Some(Class(0))));
const _: () = assert!(matches!(Class::for_len(64), Some(Class(0))));
const _: () = assert!(matches!(Class::for_len(256), Some(Class(2))));
const _: () = assert!(matches!(Class::for_len(257), Some(Class(3))));
const _: () = assert!(matches!(Class::for_len(512), Some(Class(6))));
const _: () = assert!(matches!(Class::for_len(8 << 20), Some(Class(62))));
const _: () = assert!(Class::for_len(usize::MAX).is_none());

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::{MAX_ALIGN, alignment};

    #[test]
    fn classes_grow_and_describe_themselves() {
        let sizes: Vec<usize> = (0..).map_while(Class::new).map(Class::bytes).collect();
        assert_eq!(sizes[..12], [64, 128, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280]);
        assert!(sizes.is_sorted_by(|a, b| a < b));
        for (index, &bytes) in sizes.iter().enumerate() {
            let class = Class::for_len(bytes).unwrap();
            assert_eq!((class.index(), class.bytes()), (index, bytes));
            assert_eq!(class.outer().bytes() / 8 * class.eighths() as usize, bytes);
        }
        assert_eq!(*sizes.last().unwrap(), Order::MAX.bytes());
    }

    #[test]
    fn smallest_class_that_fits() {
        for len in (0..10_000).chain([1 << 20, (1 << 20) + 1, (1 << 40) - 1, Order::MAX.bytes()]) {
            let class = Class::for_len(len).unwrap();
            assert!(class.bytes() >= len, "{len}");
            assert!(class.index() == 0 || Class::new(class.index() - 1).unwrap().bytes() < len, "{len}");
            // Blocks start where their outer block does.
            assert!(class.outer().bytes().min(MAX_ALIGN) >= alignment(len), "{len}");
            let power = Class::power_for_len(len).unwrap();
            assert_eq!(power.bytes(), len.next_power_of_two().max(64));
        }
        assert_eq!(Class::for_len(Order::MAX.bytes() + 1), None);
        assert_eq!(Class::power_for_len(usize::MAX), None);
    }
}
