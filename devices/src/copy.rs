//! Inlined copies of a few bytes.
//!
//! A message of 8 bytes is copied several times on its way, and each call of the platform's copy routine would delay
//! it. A shared routine also spoils the processor's prefetcher, which uses the address of the load instruction. If
//! consecutive messages come from different places of a large array, an inlined copy lets the prefetcher detect the
//! stride, so that the line is in the cache when the message is sent.

use std::mem::MaybeUninit;

/// Copies `bytes` to `room`, and so initialises it.
///
/// # Panics
/// If the lengths differ.
#[inline(always)]
pub(crate) fn fill(room: &mut [MaybeUninit<u8>], bytes: &[u8]) {
    assert!(room.len() == bytes.len(), "the room is as long as the bytes");
    // SAFETY: both have the same length, `bytes` is initialised, and `room` is exclusive.
    unsafe { copy(bytes.as_ptr(), room.as_mut_ptr().cast(), bytes.len()) };
}

/// Copies `len` bytes between ranges that may overlap.
///
/// # Safety
/// `len` bytes at `from` may be read, and at `to` written.
#[inline(always)]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    match len {
        0 => (),
        // SAFETY: the caller's promise; `len` is at least `N`.
        1 => unsafe { copy_two_overlapping::<1>(from, to, len) },
        // SAFETY: as above.
        2..=3 => unsafe { copy_two_overlapping::<2>(from, to, len) },
        // SAFETY: as above.
        4..=7 => unsafe { copy_two_overlapping::<4>(from, to, len) },
        // SAFETY: as above.
        8..=16 => unsafe { copy_two_overlapping::<8>(from, to, len) },
        // SAFETY: as above.
        17..=32 => unsafe { copy_two_overlapping::<16>(from, to, len) },
        // SAFETY: as above.
        33..=64 => unsafe { copy_two_overlapping::<32>(from, to, len) },
        // SAFETY: as above.
        65..=128 => unsafe { copy_two_overlapping::<64>(from, to, len) },
        // SAFETY: the caller's promise.
        _ => unsafe { std::ptr::copy(from, to, len) },
    }
}

/// Copies the first and the last `N` of `len` bytes. These are all bytes if `len` is at most `2 * N`.
///
/// # Safety
/// As [`copy`], and `N <= len`.
#[inline(always)]
unsafe fn copy_two_overlapping<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
    type Unit<const N: usize> = MaybeUninit<[u8; N]>;
    let (end_from, end_to) = (from.wrapping_add(len - N), to.wrapping_add(len - N));
    // SAFETY: the caller's promise; a unit may have any bytes and any address. Both are read before one is written.
    let first: Unit<N> = unsafe { from.cast::<Unit<N>>().read_unaligned() };
    // SAFETY: as above, and `N <= len`.
    let last: Unit<N> = unsafe { end_from.cast::<Unit<N>>().read_unaligned() };
    // SAFETY: as above.
    unsafe { to.cast::<Unit<N>>().write_unaligned(first) };
    // SAFETY: as above.
    unsafe { end_to.cast::<Unit<N>>().write_unaligned(last) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_write_exactly_their_length() {
        let from: Vec<u8> = (1..=200).collect();
        for len in (0..=200).step_by(if cfg!(miri) { 23 } else { 1 }) {
            let mut to = [MaybeUninit::new(0u8); 202];
            fill(&mut to[1..=len], &from[..len]);
            // SAFETY: it was initialised above.
            let to = to.map(|byte| unsafe { byte.assume_init() });
            assert_eq!((to[0], &to[1..=len], to[len + 1]), (0, &from[..len], 0), "{len} bytes");
        }
    }

    #[test]
    fn overlapping_ranges_are_copied() {
        let lengths = (0..=140).step_by(if cfg!(miri) { 23 } else { 1 });
        for (len, by) in lengths.flat_map(|len| [1, 3, 8, 33].map(|by| (len, by))) {
            let original: Vec<u8> = (0..=180).collect();
            for (from, to) in [(0, by), (by, 0)] {
                let (mut bytes, mut wanted) = (original.clone(), original.clone());
                wanted.copy_within(from..from + len, to);
                let base = bytes.as_mut_ptr();
                // SAFETY: both lie in `bytes`, which has 181.
                unsafe { copy(base.wrapping_add(from), base.wrapping_add(to), len) };
                assert_eq!(bytes, wanted, "{len} bytes from {from} to {to}");
            }
        }
    }
}
