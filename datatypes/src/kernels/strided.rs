//! Equal blocks in nested loops: finds the position, then passes whole tiles to the selected kernel.

use super::block_copy::{Direction, copy_bytes};
use super::tile::{Tile, steps};
use super::{KernelArgs, contiguous, offset_by_strides};
use crate::plan::{Body, Loop, MAX_LOOPS, Plan, Strided};

/// The loops of a strided body, the outermost over the items, with a position.
pub(super) struct Odometer {
    pub(super) levels: [Loop; MAX_LOOPS + 1],
    pub(super) at: [usize; MAX_LOOPS + 1],
    pub(super) depth: usize,
    pub(super) cursor: *mut u8,
}

impl Odometer {
    #[inline(always)]
    pub(super) fn new(nest: &[Loop], outer: Loop, origin: *mut u8, mut index: usize) -> Odometer {
        let mut levels = [Loop { count: 1, stride: 0 }; MAX_LOOPS + 1];
        levels[0] = outer;
        levels[1..=nest.len()].copy_from_slice(nest);
        let depth = nest.len() + 1;
        let mut at = [0; MAX_LOOPS + 1];
        let mut cursor = origin;
        for d in (1..depth).rev() {
            if index == 0 {
                break;
            }
            at[d] = index % levels[d].count;
            index /= levels[d].count;
            cursor = offset_by_strides(cursor, levels[d].stride, at[d]);
        }
        at[0] = index;
        cursor = offset_by_strides(cursor, outer.stride, index);
        Odometer { levels, at, depth, cursor }
    }

    #[inline(always)]
    pub(super) fn advance(&mut self, mut d: usize, steps: usize) {
        self.at[d] += steps;
        self.cursor = offset_by_strides(self.cursor, self.levels[d].stride, steps);
        while self.at[d] >= self.levels[d].count && d > 0 {
            let Loop { count, stride } = self.levels[d];
            self.cursor = offset_by_strides(self.cursor, stride.wrapping_neg(), count);
            self.at[d] = 0;
            d -= 1;
            self.at[d] += 1;
            self.cursor = offset_by_strides(self.cursor, self.levels[d].stride, 1);
        }
    }

    #[inline(always)]
    pub(super) fn left(&self, d: usize) -> usize {
        self.levels[d].count - self.at[d]
    }
}

/// # Safety
/// That of [`Kernel`](super::Kernel).
pub(super) unsafe fn run<D: Direction>(plan: &Plan, args: KernelArgs) {
    let Body::Strided(strided) = &plan.body else { return };
    let KernelArgs { user, packed, len, position, count, stride } = args;
    let origin = user.wrapping_offset(plan.offset as isize);
    let block = strided.block;
    if strided.depth == 0 && (count == 1 || stride == block as i64) {
        // SAFETY: all repetitions are one run from `origin` on, of which `args` has `position..position + len`.
        unsafe { contiguous::run::<D>(origin.wrapping_add(position), packed, len) };
        return;
    }
    if position == 0 && plan.size.checked_mul(count) == Some(len) {
        let (row, column) = match (strided.nest(), count) {
            (&[], _) => (Loop { count: 1, stride: 0 }, Loop { count, stride }),
            (&[only], _) => (Loop { count, stride }, only),
            (&[row, column], 1) => (row, column),
            _ => {
                // SAFETY: the same arguments.
                unsafe { copy_part::<D>(strided, origin, args) };
                return;
            }
        };
        let tile = Tile {
            user: origin,
            packed,
            rows: row.count,
            row_stride: row.stride as isize,
            columns: column.count,
            steps: steps(column.stride as isize),
            block,
        };
        // SAFETY: the tile is all blocks of `args`.
        unsafe { D::of(strided.tiles)(&tile) };
        return;
    }
    // SAFETY: the same arguments.
    unsafe { copy_part::<D>(strided, origin, args) };
}

/// Copies any range of packed bytes, in this order: the rest of a block, the rest of a row, whole rows, the first
/// blocks of a row, the start of a block. Each part can be absent.
///
/// # Safety
/// That of [`Kernel`](super::Kernel) for the plan with this body, whose first block is at `origin`.
unsafe fn copy_part<D: Direction>(strided: &Strided, origin: *mut u8, args: KernelArgs) {
    let KernelArgs { mut packed, mut len, position, count, stride, .. } = args;
    let block = strided.block;
    let (index, within) = if position == 0 { (0, 0) } else { (position / block, position % block) };
    let mut o = Odometer::new(strided.nest(), Loop { count, stride }, origin, index);
    let last = o.depth - 1;
    if within > 0 {
        let n = len.min(block - within);
        // SAFETY: `position` lies `within` bytes inside the block at the cursor, and n stays in it and in `args`.
        unsafe { copy_bytes::<D>(o.cursor.wrapping_add(within), packed, n) };
        packed = packed.wrapping_add(n);
        len -= n;
        o.advance(last, 1);
    }
    let mut whole = len / block;
    let rest = len - whole * block;
    let column = o.levels[last];
    let steps = steps(column.stride as isize);
    let kernel = D::of(strided.tiles);
    while whole > 0 {
        // The next whole rows or, if no whole row follows, the next blocks of this row. `columns` is not 0, because the
        // range ends within the items (point 1 of `Kernel`), so that blocks are left in this row.
        let at_start = last > 0 && o.at[last] == 0;
        let rows = if at_start { o.left(last - 1).min(whole / column.count) } else { 0 };
        let (rows, columns) = if rows > 0 { (rows, column.count) } else { (1, whole.min(o.left(last))) };
        let row_stride = if last > 0 { o.levels[last - 1].stride as isize } else { 0 };
        let tile = Tile { user: o.cursor, packed, rows, row_stride, columns, steps, block };
        // SAFETY: the tile is the next rows * columns blocks at the cursor, and all belong to `args`.
        unsafe { kernel(&tile) };
        let n = rows * columns;
        packed = packed.wrapping_add(n * block);
        whole -= n;
        if columns == o.levels[last].count && last > 0 {
            o.advance(last - 1, rows);
        } else {
            o.advance(last, columns);
        }
    }
    if rest > 0 {
        // SAFETY: `args` ends inside the block at the cursor.
        unsafe { copy_bytes::<D>(o.cursor, packed, rest) };
    }
}
