//! Appends to the spare capacity of a block.

use core::mem::MaybeUninit;

use bytemuck::NoUninit;

use crate::{ALIGN, Element};

/// Spare bytes of a block, filled from front to back.
///
/// # Invariants
/// 1. `bytes[..filled]` are initialised.
pub(crate) struct SpareWriter<'a> {
    bytes: &'a mut [MaybeUninit<u8>],
    filled: usize,
    /// Whether `put` reverses the bytes of elements. Never changes, so inlining removes the test from the common path.
    is_swapped: bool,
    failed: bool,
}

impl<'a> SpareWriter<'a> {
    #[inline]
    pub(super) fn new(bytes: &'a mut [MaybeUninit<u8>], is_swapped: bool) -> Self {
        Self { bytes, filled: 0, is_swapped, failed: false }
    }

    /// Returns how many bytes are initialised, or `None` if an append has failed.
    #[inline]
    pub(super) fn filled(self) -> Option<usize> {
        (!self.failed).then_some(self.filled)
    }

    /// Appends the elements that fit, in the section's byte order.
    #[inline]
    pub(crate) fn put<T: Element>(&mut self, src: &[T]) {
        if self.is_swapped {
            return self.put_swapped(src);
        }
        self.put_slice_as_is(src);
    }

    /// Appends the elements that fit, without swapping them.
    #[inline(always)]
    pub(crate) fn put_slice_as_is<T: NoUninit>(&mut self, src: &[T]) {
        let Some(rest) = self.bytes.get_mut(self.filled..) else { return };
        let fit = src.len().min(rest.len() / size_of::<T>());
        let src: &[u8] = bytemuck::cast_slice(&src[..fit]);
        rest[..src.len()].write_copy_of_slice(src);
        self.filled += src.len();
    }

    #[cold]
    fn put_swapped<T: Element>(&mut self, src: &[T]) {
        const { assert!(size_of::<T::Swapped>() == size_of::<T>()) };
        #[cfg(target_arch = "x86_64")]
        if size_of_val(src) >= 64 && is_x86_feature_detected!("avx2") {
            // SAFETY: this processor has AVX2, which is all that the function needs.
            return unsafe { self.put_swapped_avx2(src) };
        }
        self.put_as_is(src.iter().map(|element| element.swapped()));
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "avx2")]
    fn put_swapped_avx2<T: Element>(&mut self, src: &[T]) {
        self.put_as_is(src.iter().map(|element| element.swapped()));
    }

    /// Appends `count` zeros, fewer than [`ALIGN`].
    #[inline]
    pub(crate) fn pad(&mut self, count: usize) {
        if count > 0 {
            self.put(&[0u8; ALIGN][..count % ALIGN]);
        }
    }

    /// Appends the elements that fit, in the section's byte order.
    #[inline]
    pub(crate) fn put_each<T: Element>(&mut self, elements: impl Iterator<Item = T>) {
        if self.is_swapped {
            self.put_as_is(elements.map(T::swapped));
        } else {
            self.put_as_is(elements);
        }
    }

    /// Returns whether `put` swaps elements, so that a caller with many appends can test it once.
    #[inline]
    pub(crate) fn is_swapped(&self) -> bool {
        self.is_swapped
    }

    /// Appends the elements that fit, without swapping them.
    #[inline(always)]
    pub(crate) fn put_as_is<T: NoUninit>(&mut self, elements: impl Iterator<Item = T>) {
        let places = self.bytes[self.filled..].chunks_exact_mut(size_of::<T>());
        let mut put = 0;
        for (place, element) in places.zip(elements) {
            place.write_copy_of_slice(bytemuck::bytes_of(&element));
            put += 1;
        }
        self.filled += put * size_of::<T>();
    }

    /// Appends `make(item)` for each item. If `make` returns `None` or the elements do not fit, the whole append fails.
    #[inline]
    pub(crate) fn put_all<S: Copy, T: Element>(&mut self, items: &[S], make: impl Fn(S) -> Option<T>) {
        let all =
            if self.is_swapped { self.put_all_swapped(items, make) } else { self.put_all_as_is(items, make) };
        self.failed |= all.is_none();
    }

    // Not inlined, because a second inlined loop would slow calls with few items.
    #[cold]
    #[inline(never)]
    fn put_all_swapped<S: Copy, T: Element>(
        &mut self,
        items: &[S],
        make: impl Fn(S) -> Option<T>,
    ) -> Option<()> {
        self.put_all_as_is(items, |item| make(item).map(T::swapped))
    }

    #[inline(always)]
    fn put_all_as_is<S: Copy, T: NoUninit>(
        &mut self,
        items: &[S],
        make: impl Fn(S) -> Option<T>,
    ) -> Option<()> {
        let places =
            self.bytes.get_mut(self.filled..)?.get_mut(..size_of::<T>().checked_mul(items.len())?)?;
        let put = places.len();
        // The first loop has a constant trip count per chunk, so that an item costs one check, one load and one store.
        let (eights, rest) = items.as_chunks::<8>();
        let (wide, narrow) = places.split_at_mut(eights.len() * 8 * size_of::<T>());
        for (places, eight) in wide.chunks_exact_mut(8 * size_of::<T>()).zip(eights) {
            store_elements(places, eight, &make)?;
        }
        store_elements(narrow, rest, &make)?;
        self.filled += put;
        Some(())
    }
}

/// Stores one element for each item. The caller counts all of `places` as initialised, so each place needs an item.
#[inline(always)]
fn store_elements<S: Copy, T: NoUninit>(
    places: &mut [MaybeUninit<u8>],
    items: &[S],
    make: impl Fn(S) -> Option<T>,
) -> Option<()> {
    for (place, item) in places.chunks_exact_mut(size_of::<T>()).zip(items) {
        place.write_copy_of_slice(bytemuck::bytes_of(&make(*item)?));
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_byte_orders_put_the_elements_that_fit() {
        for is_swapped in [false, true] {
            for room in 0..100 {
                let mut bytes = vec![MaybeUninit::new(0xee_u8); room];
                let mut spare = SpareWriter::new(&mut bytes, is_swapped);
                spare.put(&[1u8]);
                spare.put(&[0x0102_u16; 40]);
                let fit = room.saturating_sub(1) / 2;
                let expected = room.min(1) + 2 * fit.min(40);
                assert_eq!(spare.filled(), Some(expected), "capacity {room}, swapped: {is_swapped}");
                let element = if is_swapped { 0x0201_u16 } else { 0x0102 }.to_ne_bytes();
                // SAFETY: all were initialised above.
                let bytes: Vec<u8> = bytes.iter().map(|byte| unsafe { byte.assume_init() }).collect();
                let put = bytes.get(1..expected).unwrap_or_default();
                assert!(put.chunks(2).all(|pair| pair == element), "capacity {room}");
                assert!(bytes[expected..].iter().all(|byte| *byte == 0xee), "capacity {room}");
            }
        }
    }
}
