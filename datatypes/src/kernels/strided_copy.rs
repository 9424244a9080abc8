//! Equidistant blocks copied to equidistant blocks.

use super::block_copy::{BlockCopy, SelectRoutine, by_length};

type StridedCopyKernel = unsafe fn(*const u8, isize, *mut u8, isize, usize, usize);

/// Copies `n` blocks of `len` bytes from `src` on, `from` bytes apart, to `dst` on, `to` bytes apart, in this order.
///
/// # Safety
/// Every source block is readable, every target block writable, and no source block overlaps a target block.
#[inline]
pub(super) unsafe fn run(src: *const u8, from: isize, dst: *mut u8, to: isize, n: usize, len: usize) {
    // SAFETY: the caller's promise; the kernel is one for this length.
    unsafe { by_length(len, &StridedCopy)(src, from, dst, to, n, len) }
}

struct StridedCopy;

impl SelectRoutine for StridedCopy {
    type Out = StridedCopyKernel;

    #[inline]
    fn pick<S: BlockCopy>(&self) -> StridedCopyKernel {
        line::<S>
    }
}

/// # Safety
/// That of [`run`], for a length of this routine.
unsafe fn line<S: BlockCopy>(
    mut src: *const u8,
    from: isize,
    mut dst: *mut u8,
    to: isize,
    n: usize,
    len: usize,
) {
    let mut one = || {
        // SAFETY: the next block.
        unsafe { S::copy(src, dst, len) };
        src = src.wrapping_offset(from);
        dst = dst.wrapping_offset(to);
    };
    for _ in 0..n / 4 {
        one();
        one();
        one();
        one();
    }
    for _ in 0..n % 4 {
        one();
    }
}
