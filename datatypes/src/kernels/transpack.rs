//! From layout to layout. If one side is one run, the other side's kernel copies. Loops over blocks of compatible
//! lengths are copied block by block. Otherwise the bytes pass through a buffer on the stack.

use super::strided::Odometer;
use super::{KernelArgs, strided_copy};
use crate::plan::{Body, Loop, MAX_LOOPS, Plan, Strided};
use core::mem::MaybeUninit;

/// One side: items in memory, and the packed position to start at.
#[derive(Clone, Copy)]
pub(crate) struct Side<'a> {
    pub(crate) plan: &'a Plan,
    pub(crate) user: *mut u8,
    pub(crate) count: usize,
    pub(crate) stride: i64,
    pub(crate) position: usize,
}

impl Side<'_> {
    fn start_of_single_run(&self) -> Option<*mut u8> {
        let (offset, len) = self.plan.run()?;
        let dense = self.count == 1 || self.stride == len as i64;
        dense.then(|| self.user.wrapping_offset(offset as isize))
    }

    fn args(&self, packed: *mut u8, len: usize, skip: usize) -> KernelArgs {
        let position = self.position + skip;
        KernelArgs { user: self.user, packed, len, position, count: self.count, stride: self.stride }
    }
}

/// Copies the next `len` packed bytes from one side to the other.
///
/// # Safety
/// On both sides, `position + len` is at most the packed size, and every byte that these positions stand for is
/// readable and initialised on side `from`, writable on side `to`. No byte is on both.
pub(crate) unsafe fn transpack(from: Side<'_>, to: Side<'_>, len: usize) {
    if let Some(src) = from.start_of_single_run() {
        // SAFETY: a run is its own packed form; the arguments are for side `to`.
        return unsafe { (to.plan.kernels.1)(to.plan, to.args(src.wrapping_add(from.position), len, 0)) };
    }
    if let Some(dst) = to.start_of_single_run() {
        // SAFETY: a run is its own packed form; the arguments are for side `from`.
        return unsafe { (from.plan.kernels.0)(from.plan, from.args(dst.wrapping_add(to.position), len, 0)) };
    }
    if let (Body::Strided(a), Body::Strided(b)) = (&from.plan.body, &to.plan.body) {
        let block = a.block.min(b.block);
        let whole = [from.position, to.position, len].iter().all(|n| n.is_multiple_of(block));
        if whole && a.block.is_multiple_of(block) && b.block.is_multiple_of(block) {
            // SAFETY: the caller's promise; both sides are loops over blocks of this length or of multiples.
            return unsafe { blocks((from, a), (to, b), block, len / block) };
        }
    }
    // SAFETY: the caller's promise.
    unsafe { staged(from, to, len) }
}

/// Returns the loops of one side, at its position, and the number of pieces of `block` bytes that each step of the
/// innermost loop copies. The number is 1 if a further loop over the pieces of a block fits.
fn odometer((side, strided): (Side<'_>, &Strided), block: usize) -> (Odometer, usize) {
    let index = side.position / block;
    let mut nest = [Loop { count: 1, stride: 0 }; MAX_LOOPS + 1];
    nest[..strided.depth].copy_from_slice(strided.nest());
    let pieces = strided.block / block;
    let origin = side.user.wrapping_offset(side.plan.offset as isize);
    let outer = Loop { count: side.count, stride: side.stride };
    if pieces > 1 && strided.depth < MAX_LOOPS {
        nest[strided.depth] = Loop { count: pieces, stride: block as i64 };
        (Odometer::new(&nest[..strided.depth + 1], outer, origin, index), 1)
    } else {
        (Odometer::new(&nest[..strided.depth], outer, origin, index / pieces), pieces)
    }
}

/// Copies `n` blocks, directly if both sides have loops down to blocks of this length.
///
/// # Safety
/// That of [`transpack`]; both sides are loops over blocks of `block` bytes or of multiples.
unsafe fn blocks(from: (Side<'_>, &Strided), to: (Side<'_>, &Strided), block: usize, n: usize) {
    let ((mut a, pieces_a), (mut b, pieces_b)) = (odometer(from, block), odometer(to, block));
    if pieces_a > 1 || pieces_b > 1 {
        // One side has `MAX_LOOPS` loops, so that a further loop over the pieces of a block does not fit.
        // SAFETY: the caller's promise.
        return unsafe { staged(from.0, to.0, n * block) };
    }
    let (last_a, last_b) = (a.depth - 1, b.depth - 1);
    let (stride_a, stride_b) = (a.levels[last_a].stride as isize, b.levels[last_b].stride as isize);
    let mut left = n;
    while left > 0 {
        // Not 0: the bytes end before the loops of either side do.
        let now = left.min(a.left(last_a)).min(b.left(last_b));
        // SAFETY: the next blocks of both sides, up to the end of the innermost loop of one of them.
        unsafe { strided_copy::run(a.cursor, stride_a, b.cursor, stride_b, now, block) };
        a.advance(last_a, now);
        b.advance(last_b, now);
        left -= now;
    }
}

/// Copies between any layouts, through a stack buffer.
///
/// # Safety
/// That of [`transpack`].
unsafe fn staged(from: Side<'_>, to: Side<'_>, len: usize) {
    const STAGE: usize = 8 << 10;
    let mut stage = [MaybeUninit::<u8>::uninit(); STAGE];
    let packed = stage.as_mut_ptr().cast::<u8>();
    let mut done = 0;
    while done < len {
        let n = STAGE.min(len - done);
        // SAFETY: the next n bytes of side `from`, into local memory.
        unsafe { (from.plan.kernels.0)(from.plan, from.args(packed, n, done)) };
        // SAFETY: the same bytes, which the kernel has just written, to side `to`.
        unsafe { (to.plan.kernels.1)(to.plan, to.args(packed, n, done)) };
        done += n;
    }
}
