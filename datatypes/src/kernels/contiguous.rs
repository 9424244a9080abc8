//! Contiguous data: one run.

use super::block_copy::Direction;

/// Below this length, the platform's `memcpy` copies.
#[cfg(target_arch = "x86_64")]
const MIN_WIDE: usize = 192;

/// Copies `len` bytes that are contiguous on both sides.
///
/// # Safety
/// `len` bytes at `user` and at `packed` are valid as points 2 to 4 of [`Kernel`](super::Kernel) say.
#[inline]
pub(super) unsafe fn run<D: Direction>(user: *mut u8, packed: *mut u8, len: usize) {
    let (src, dst) = D::route(user, packed);
    #[cfg(target_arch = "x86_64")]
    if (MIN_WIDE..=super::block_copy::MAX_CHUNKED).contains(&len)
        && super::isa::best() == super::isa::Isa::Avx512
    {
        // SAFETY: the caller's promise; length and machine were checked above.
        return unsafe { wide(src, dst, len) };
    }
    // SAFETY: the caller's promise.
    unsafe { core::ptr::copy_nonoverlapping(src, dst, len) }
}

/// Copies with full registers. In the first cache this is faster than the platform's `memcpy`.
///
/// # Safety
/// `len` bytes, at least 64, are readable at `src` and writable at `dst`, and do not overlap; the machine has AVX-512.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl")]
unsafe fn wide(src: *const u8, dst: *mut u8, len: usize) {
    use super::block_copy::{BlockCopy, ChunkedCopy};
    // SAFETY: the caller's promise.
    unsafe { ChunkedCopy::<64>::copy(src, dst, len) }
}
