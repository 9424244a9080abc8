//! Lists of runs.

use super::{Direction, Job};
use crate::plan::{Body, Plan};

/// The kernel.
///
/// # Safety
/// That of [`Kernel`](super::Kernel).
pub(super) unsafe fn run<D: Direction>(plan: &Plan, job: Job) {
    let Body::Runs(runs) = &plan.body else { return };
    let Job { user, mut packed, mut len, position, stride, .. } = job;
    let item = position / plan.size;
    let mut within = position % plan.size;
    let skipped = (stride as isize).wrapping_mul(item as isize);
    let mut origin = user.wrapping_offset(plan.offset as isize).wrapping_offset(skipped);
    let mut i = runs.ends.partition_point(|&end| end <= within);
    while len > 0 {
        let inside = within - runs.start(i);
        let whole = runs.ends[i] - within;
        let n = whole.min(len);
        let from = origin.wrapping_offset(runs.offsets[i] as isize).wrapping_add(inside);
        // SAFETY: `within` lies in run i, `inside` bytes from its start; n bytes stay in the run and in the job.
        unsafe { short::<D>(from, packed, n) };
        packed = packed.wrapping_add(n);
        len -= n;
        within += n;
        i += 1;
        if i == runs.ends.len() {
            i = 0;
            within = 0;
            origin = origin.wrapping_offset(stride as isize);
        }
    }
}

/// Moves `n` bytes; the usual sizes of numbers without a call.
///
/// # Safety
/// That of [`Direction::bytes`].
#[inline(always)]
unsafe fn short<D: Direction>(user: *mut u8, packed: *mut u8, n: usize) {
    match n {
        // SAFETY: the caller's n bytes, here and in the arms below.
        4 => unsafe { D::fixed::<4>(user, packed) },
        // SAFETY: as above.
        8 => unsafe { D::fixed::<8>(user, packed) },
        // SAFETY: as above.
        16 => unsafe { D::fixed::<16>(user, packed) },
        // SAFETY: as above.
        _ => unsafe { D::bytes(user, packed, n) },
    }
}
