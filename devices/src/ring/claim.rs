//! Copies data out of a fragment in such a way that the sender can later overwrite the fragment's cache lines quickly.
//!
//! A line that the receiver has only read is in both caches. Before the sender writes it again, the receiver's copy
//! must be invalidated: one slow request per line. A line that the receiver has written is only in the receiver's
//! cache, and the sender fetches many such lines at once. So the receiver stores one byte in each line that it has
//! read. At that time the lines are in its cache, and the fragment still belongs to the receiver.

use std::sync::atomic::{AtomicU8, Ordering};

/// Distance in bytes between two stores: at most the length of a cache line.
const LINE: usize = 64;

/// Number of lines that one round of the loop copies.
const UNROLLED: usize = 4;

/// Copies `len` bytes, and claims the lines of `from` for this core if that makes the sender faster.
///
/// # Safety
/// `len` bytes at `from` may be read and written, and at `to` written. They do not overlap, and nobody else uses them.
#[inline]
pub(super) unsafe fn copy_and_claim(from: *mut u8, to: *mut u8, len: usize) {
    if !is_worthwhile() {
        // SAFETY: the caller's promise.
        return unsafe { std::ptr::copy_nonoverlapping(from, to, len) };
    }
    #[cfg(target_arch = "x86_64")]
    {
        if is_x86_feature_detected!("avx512f") {
            // SAFETY: the caller's promise; the processor has the feature.
            return unsafe { with_avx512(from, to, len) };
        }
        if is_x86_feature_detected!("avx") {
            // SAFETY: as above.
            return unsafe { with_avx(from, to, len) };
        }
    }
    // SAFETY: the caller's promise.
    unsafe { copy_lines(from, to, len) };
}

/// Claims the lines of `len` bytes at `from`, which this core has just read, if that makes the sender faster.
///
/// # Safety
/// `len` bytes at `from` may be read and written, and nobody else uses them.
#[inline]
pub(super) unsafe fn claim(from: *mut u8, len: usize) {
    if !is_worthwhile() {
        return;
    }
    for at in (0..len).step_by(LINE) {
        // SAFETY: the caller's promise, and `at < len`.
        unsafe { store_back(from.wrapping_add(at)) };
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f")]
unsafe fn with_avx512(from: *mut u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_lines(from, to, len) };
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx")]
unsafe fn with_avx(from: *mut u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { copy_lines(from, to, len) };
}

/// Copies line by line, in the widest registers of the function into which this one is inlined.
///
/// # Safety
/// As for [`copy_and_claim`].
#[inline(always)]
unsafe fn copy_lines(from: *mut u8, to: *mut u8, len: usize) {
    type Round = std::mem::MaybeUninit<[[u8; LINE]; UNROLLED]>;
    let rounds = len / size_of::<Round>();
    for at in (0..rounds).map(|round| round * size_of::<Round>()) {
        let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
        // SAFETY: the caller's promise; the round is within `len`, any bytes are a valid `Round`, and the access may be
        // unaligned.
        let lines: Round = unsafe { from.cast::<Round>().read_unaligned() };
        // SAFETY: as above.
        unsafe { to.cast::<Round>().write_unaligned(lines) };
        for line in 0..UNROLLED {
            // SAFETY: as above.
            unsafe { store_back(from.wrapping_add(line * LINE)) };
        }
    }
    let at = rounds * size_of::<Round>();
    let (from, to) = (from.wrapping_add(at), to.wrapping_add(at));
    // SAFETY: the caller's promise, for the rest.
    unsafe { std::ptr::copy_nonoverlapping(from, to, len - at) };
    for at in (0..len - at).step_by(LINE) {
        // SAFETY: as above.
        unsafe { store_back(from.wrapping_add(at)) };
    }
}

/// Stores the byte at `at` again.
///
/// # Safety
/// The byte may be read and written, and nobody else uses it.
#[inline(always)]
unsafe fn store_back(at: *mut u8) {
    // Volatile, because the compiler would remove a store of the same value.
    // SAFETY: the caller's promise.
    let byte = unsafe { at.read_volatile() };
    // SAFETY: the caller's promise.
    unsafe { at.write_volatile(byte) };
}

/// Returns whether claimed lines make the sender faster on this processor. They do on all measured processors, except
/// on AMD's family 26 (Zen 5): there the sender's `memcpy` uses `rep movsb`, which does not wait for the lines.
#[inline]
fn is_worthwhile() -> bool {
    const UNKNOWN: u8 = 2;
    static IS_WORTHWHILE: AtomicU8 = AtomicU8::new(UNKNOWN);
    match IS_WORTHWHILE.load(Ordering::Relaxed) {
        UNKNOWN => {
            let answer = !is_zen5();
            IS_WORTHWHILE.store(u8::from(answer), Ordering::Relaxed);
            answer
        }
        answer => answer == 1,
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[cold]
fn is_zen5() -> bool {
    use std::arch::x86_64::__cpuid;
    let (vendor, version) = (__cpuid(0), __cpuid(1).eax);
    let name = [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_ne_bytes);
    let family = (version >> 8 & 0xf) + (version >> 20 & 0xff);
    name.as_flattened() == b"AuthenticAMD" && family == 26
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn is_zen5() -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_are_complete_and_leave_the_source_unchanged() {
        for len in [0, 1, 63, 64, 65, 255, 256, 257, 1000] {
            let original: Vec<u8> = (0..len + 2).map(|i| (i * 7) as u8).collect();
            for copy in [copy_and_claim, copy_lines as unsafe fn(*mut u8, *mut u8, usize)] {
                let (mut from, mut to) = (original.clone(), vec![0xff; len + 2]);
                // SAFETY: both have `len` bytes from the second byte on.
                unsafe { copy(from.as_mut_ptr().wrapping_add(1), to.as_mut_ptr().wrapping_add(1), len) };
                assert_eq!(
                    (to[0], &to[1..=len], to[len + 1]),
                    (0xff, &original[1..=len], 0xff),
                    "{len} bytes"
                );
                // SAFETY: `from` has `len` bytes.
                unsafe { claim(from.as_mut_ptr(), len) };
                assert_eq!(from, original, "{len} bytes");
            }
        }
    }
}
