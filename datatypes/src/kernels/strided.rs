//! Blocks of one size in nested loops.

use super::{Direction, Job};
use crate::plan::{Body, LEVELS, Level, Plan};

/// The loops of a strided body with the repetition of the whole around them, and a place in them.
struct Odometer {
    levels: [Level; LEVELS + 1],
    at: [usize; LEVELS + 1],
    depth: usize,
    cursor: *mut u8,
}

impl Odometer {
    /// Moves `steps` blocks on, which the innermost loop must have left.
    #[inline(always)]
    fn advance(&mut self, steps: usize) {
        let last = self.depth - 1;
        self.at[last] += steps;
        self.cursor = step(self.cursor, self.levels[last].stride, steps);
        let mut d = last;
        while self.at[d] >= self.levels[d].count && d > 0 {
            let Level { count, stride } = self.levels[d];
            self.cursor = step(self.cursor, stride.wrapping_neg(), count);
            self.at[d] = 0;
            d -= 1;
            self.at[d] += 1;
            self.cursor = step(self.cursor, self.levels[d].stride, 1);
        }
    }

    /// The blocks left in the innermost loop.
    #[inline(always)]
    fn left(&self) -> usize {
        self.levels[self.depth - 1].count - self.at[self.depth - 1]
    }
}

/// `pointer` moved by `count` strides. It may pass over addresses outside of the buffer, which wrapping arithmetic
/// allows as long as nothing is accessed there.
#[inline(always)]
fn step(pointer: *mut u8, stride: i64, count: usize) -> *mut u8 {
    pointer.wrapping_offset((stride as isize).wrapping_mul(count as isize))
}

/// The kernel: `N` is the size of a block, 0 = as the plan says.
///
/// # Safety
/// That of [`Kernel`](super::Kernel).
pub(super) unsafe fn run<D: Direction, const N: usize>(plan: &Plan, job: Job) {
    let Body::Strided(strided) = &plan.body else { return };
    let Job { user, mut packed, mut len, position, count, stride } = job;
    let origin = user.wrapping_offset(plan.offset as isize);

    if strided.depth == 0 && (count == 1 || stride == strided.block as i64) {
        // SAFETY: all repetitions are one run from `origin` on, of which the job names `position..position + len`.
        unsafe { D::bytes(origin.wrapping_add(position), packed, len) };
        return;
    }

    let block = if N == 0 { strided.block } else { N };
    let mut o = odometer(strided.nest(), Level { count, stride }, origin, position / block);
    let within = position % block;
    if within > 0 {
        let n = len.min(block - within);
        // SAFETY: `position` lies `within` bytes inside the block at the cursor, and n stays in it and in the job.
        unsafe { D::bytes(o.cursor.wrapping_add(within), packed, n) };
        packed = packed.wrapping_add(n);
        len -= n;
        o.advance(1);
    }
    let mut whole = len / block;
    while whole > 0 {
        // Not 0: point 1 of `Kernel` says that the job ends before the loops do.
        let n = whole.min(o.left());
        let stride = o.levels[o.depth - 1].stride;
        // SAFETY: the next n blocks are at the cursor and n - 1 strides on, and all belong to the job.
        unsafe { line::<D, N>(o.cursor, stride, packed, n, block) };
        packed = packed.wrapping_add(n * block);
        whole -= n;
        o.advance(n);
    }
    let rest = len % block;
    if rest > 0 {
        // SAFETY: the job ends inside of the block at the cursor.
        unsafe { D::bytes(o.cursor, packed, rest) };
    }
}

/// Sets the loops on block `index`.
#[inline(always)]
fn odometer(nest: &[Level], outer: Level, origin: *mut u8, mut index: usize) -> Odometer {
    let mut levels = [Level { count: 1, stride: 0 }; LEVELS + 1];
    levels[0] = outer;
    levels[1..=nest.len()].copy_from_slice(nest);
    let depth = nest.len() + 1;
    let mut at = [0; LEVELS + 1];
    let mut cursor = origin;
    for d in (1..depth).rev() {
        at[d] = index % levels[d].count;
        index /= levels[d].count;
        cursor = step(cursor, levels[d].stride, at[d]);
    }
    at[0] = index;
    cursor = step(cursor, outer.stride, index);
    Odometer { levels, at, depth, cursor }
}

/// Moves `n` blocks that lie `stride` bytes apart.
///
/// # Safety
/// Each block and its packed place are valid as [`Kernel`](super::Kernel) says.
#[inline(always)]
unsafe fn line<D: Direction, const N: usize>(
    user: *mut u8,
    stride: i64,
    packed: *mut u8,
    n: usize,
    block: usize,
) {
    for i in 0..n {
        let from = step(user, stride, i);
        if N == 0 {
            // SAFETY: block i, by the contract above.
            unsafe { D::bytes(from, packed.wrapping_add(i * block), block) };
        } else {
            // SAFETY: block i, by the contract above; N is the size of a block.
            unsafe { D::fixed::<N>(from, packed.wrapping_add(i * N)) };
        }
    }
}
