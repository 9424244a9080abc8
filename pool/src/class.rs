//! The sizes and alignments of blocks.

use core::fmt;

mod size;
pub(crate) use size::Class;

/// The size in bytes of the smallest block of a `Buddy` or `Magazine`. Their offsets in a region are multiples of it.
pub const MIN_BLOCK: usize = 64;

/// The largest alignment that pools guarantee.
pub const MAX_ALIGN: usize = 4096;

/// The size of the largest block of any `Buddy` or `Magazine`: 32 PiB, or 1 GiB with 32-bit addresses.
pub(crate) const MAX_BLOCK: usize = 1 << if usize::BITS == 64 { 55 } else { 30 };

/// Returns the minimum alignment of a block for `len` bytes: the largest power of two ≤ min(`len`, 4096), at least 64.
///
/// ```
/// assert_eq!(mpj_pool::alignment(0), 64);
/// assert_eq!(mpj_pool::alignment(200), 128);
/// assert_eq!(mpj_pool::alignment(1 << 30), 4096);
/// ```
pub const fn alignment(len: usize) -> usize {
    let len = if len < MIN_BLOCK { MIN_BLOCK } else { len };
    let largest = 1 << len.ilog2();
    if largest > MAX_ALIGN { MAX_ALIGN } else { largest }
}

/// The size of a block as a power of two: `64 << o` bytes for order `o`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Order(u8);

impl Order {
    pub(crate) const MAX: Order = Order::of_block(MAX_BLOCK);

    #[cfg(test)]
    pub(crate) fn new(order: u8) -> Option<Order> {
        (order <= Self::MAX.0).then_some(Order(order))
    }

    #[cfg(test)]
    pub(crate) const fn for_len(len: usize) -> Option<Order> {
        if len > Self::MAX.bytes() {
            return None;
        }
        let last = len.saturating_sub(1) | (MIN_BLOCK - 1);
        Some(Order((last.ilog2() + 1 - MIN_BLOCK.trailing_zeros()) as u8))
    }

    /// Returns the order of blocks of exactly `bytes` bytes, a power of two ≥ 64.
    #[inline]
    pub(crate) const fn of_block(bytes: usize) -> Order {
        Order((bytes.trailing_zeros() - MIN_BLOCK.trailing_zeros()) as u8)
    }

    #[inline]
    pub(crate) const fn bytes(self) -> usize {
        MIN_BLOCK << self.0
    }

    #[inline]
    pub(crate) const fn leaves(self) -> u64 {
        1 << self.0
    }

    #[inline]
    pub(crate) const fn half(self) -> Order {
        Order(self.0.saturating_sub(1))
    }

    #[inline]
    pub(crate) const fn get(self) -> u8 {
        self.0
    }
}

impl fmt::Debug for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "O{}", self.0)
    }
}

const _: () = assert!(usize::BITS == 64 || usize::BITS == 32, "the limits are known for these");
const _: () = assert!(MIN_BLOCK.is_power_of_two() && MAX_ALIGN.is_power_of_two() && MIN_BLOCK <= MAX_ALIGN);
const _: () = assert!(Order::MAX.bytes() <= isize::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_are_the_smallest_that_fit() {
        for len in (0..5000).chain([1 << 20, (1 << 20) + 1, Order::MAX.bytes() / 2 - 1, Order::MAX.bytes()]) {
            let order = Order::for_len(len).unwrap();
            assert!(order.bytes() >= len, "{len}");
            assert!(order.get() == 0 || order.bytes() / 2 < len, "{len}");
            assert!(order.bytes().min(MAX_ALIGN) >= alignment(len), "{len}");
            assert_eq!(Order::of_block(order.bytes()), order);
        }
        assert_eq!(Order::for_len(Order::MAX.bytes() + 1), None);
        assert_eq!(Order::new(50), None);
    }
}
