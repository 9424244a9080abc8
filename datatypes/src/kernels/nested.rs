//! The kernels of plans made of plans.

use super::KernelArgs;
use super::block_copy::Direction;
use crate::plan::{Body, Plan};

/// Splits a kernel call into calls for single repetitions, the first and the last possibly partial.
pub(super) fn repetitions(plan: &Plan, args: KernelArgs) -> impl Iterator<Item = KernelArgs> {
    let KernelArgs { user, mut packed, mut len, position, stride, .. } = args;
    let size = plan.size;
    let (item, mut within) = if position < size { (0, position) } else { (position / size, position % size) };
    let mut origin = super::offset_by_strides(user.wrapping_offset(plan.offset as isize), stride, item);
    core::iter::from_fn(move || {
        if len == 0 {
            return None;
        }
        let n = len.min(size - within);
        let one = KernelArgs { user: origin, packed, len: n, position: within, count: 1, stride: 0 };
        packed = packed.wrapping_add(n);
        len -= n;
        within = 0;
        origin = origin.wrapping_offset(stride as isize);
        Some(one)
    })
}

/// The kernel of a loop over another plan.
///
/// # Safety
/// That of [`Kernel`](super::Kernel).
pub(super) unsafe fn repeat<D: Direction>(plan: &Plan, args: KernelArgs) {
    let Body::Repeat(repeat) = &plan.body else { return };
    let kernel = D::of(repeat.body.kernels);
    for one in repetitions(plan, args) {
        let inner = KernelArgs { count: repeat.level.count, stride: repeat.level.stride, ..one };
        // SAFETY: the inner arguments stand for a part of the bytes of `args`: one repetition is `level.count` of the
        // body, and the kernel is the body's.
        unsafe { kernel(&repeat.body, inner) };
    }
}

/// The kernel of a sequence of plans.
///
/// # Safety
/// That of [`Kernel`](super::Kernel).
pub(super) unsafe fn sequence<D: Direction>(plan: &Plan, args: KernelArgs) {
    let Body::Sequence(sequence) = &plan.body else { return };
    for one in repetitions(plan, args) {
        let KernelArgs { user, mut packed, mut len, mut position, .. } = one;
        let mut i = if position == 0 { 0 } else { sequence.ends.partition_point(|&end| end <= position) };
        while len > 0 {
            let n = len.min(sequence.ends[i] - position);
            let part = &sequence.parts[i];
            let inner = KernelArgs {
                user,
                packed,
                len: n,
                position: position - sequence.start(i),
                count: 1,
                stride: 0,
            };
            // SAFETY: the inner arguments stand for the bytes of `args` in part i, and the kernel is that part's.
            unsafe { D::of(part.kernels)(part, inner) };
            packed = packed.wrapping_add(n);
            position += n;
            len -= n;
            i += 1;
        }
    }
}
