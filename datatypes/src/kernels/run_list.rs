//! Lists of runs of different lengths.

use super::block_copy::{Direction, copy_any_length};
use super::{KernelArgs, item_batches, offset_by_strides};
use crate::plan::{Body, Plan};

/// # Safety
/// That of [`Kernel`](super::Kernel).
pub(super) unsafe fn run<D: Direction>(plan: &Plan, args: KernelArgs) {
    let Body::Runs(runs) = &plan.body else { return };
    let KernelArgs { user, mut packed, mut len, position, count, stride } = args;
    let (item, mut within) =
        if position < plan.size { (0, position) } else { (position / plan.size, position % plan.size) };
    let mut origin = offset_by_strides(user.wrapping_offset(plan.offset as isize), stride, item);
    if within == 0 && count > 1 {
        let pieces = (0..runs.offsets.len()).map(|i| (runs.offsets[i], runs.ends[i] - runs.start(i)));
        // SAFETY: the next len / plan.size items of `args`.
        let n = unsafe {
            item_batches::run::<D>(pieces, runs.span, plan.size, stride, origin, packed, len / plan.size)
        };
        origin = offset_by_strides(origin, stride, n);
        packed = packed.wrapping_add(n * plan.size);
        len -= n * plan.size;
    }
    while len > 0 {
        let i = if within == 0 { 0 } else { runs.ends.partition_point(|&end| end <= within) };
        let mut start = runs.start(i);
        for (&offset, &end) in runs.offsets[i..].iter().zip(&runs.ends[i..]) {
            let inside = within - start;
            let n = (end - within).min(len);
            let at = origin.wrapping_offset(offset as isize).wrapping_add(inside);
            let (src, dst) = D::route(at, packed);
            // SAFETY: `within` lies in run i, `inside` bytes from its start; n bytes stay in the run and in `args`.
            unsafe { copy_any_length(src, dst, n) };
            packed = packed.wrapping_add(n);
            len -= n;
            if len == 0 {
                return;
            }
            within = end;
            start = end;
        }
        within = 0;
        origin = offset_by_strides(origin, stride, 1);
    }
}
