//! The loops that move bytes between a layout in memory and its packed form.
//!
//! Every kernel has the signature [`Kernel`] and is chosen once, when the type is built. A kernel can start and stop
//! at any packed byte: it finds its place by division (strided) or binary search (lists), finishes a split block,
//! then runs over whole blocks. Adding a family = a new file, and a line in [`choose`].

pub(crate) mod check;
mod indexed;
mod nested;
mod strided;

use crate::plan::{Body, Plan};

/// What one call of a kernel moves: `len` packed bytes from packed position `position` on, of `count` repetitions
/// of the plan that lie `stride` bytes apart, the first at `user`.
#[derive(Clone, Copy)]
pub(crate) struct Job {
    pub(crate) user: *mut u8,
    pub(crate) packed: *mut u8,
    pub(crate) len: usize,
    pub(crate) position: usize,
    pub(crate) count: usize,
    pub(crate) stride: i64,
}

/// Moves the bytes of a job.
///
/// # Safety
/// 1. `position + len <= count * plan.size`, as numbers without a limit.
/// 2. Every byte of memory that packed positions `position..position + len` stand for is readable and initialised
///    (to pack) or writable (to unpack).
/// 3. `packed` is writable (to pack) or readable and initialised (to unpack) for `len` bytes.
/// 4. The bytes of 2 and 3 do not overlap.
/// 5. The kernel is the one of `plan`.
pub(crate) type Kernel = unsafe fn(&Plan, Job);

/// Which way the bytes go. One generic loop serves both.
trait Direction {
    /// Moves exactly `N` bytes.
    ///
    /// # Safety
    /// `user` and `packed` are valid for `N` bytes as points 2 to 4 of [`Kernel`] say for this direction.
    unsafe fn fixed<const N: usize>(user: *mut u8, packed: *mut u8);

    /// Moves `len` bytes.
    ///
    /// # Safety
    /// As for [`Direction::fixed`], with `len` bytes.
    unsafe fn bytes(user: *mut u8, packed: *mut u8, len: usize);

    /// The kernel of a part of a plan for this direction.
    fn kernel(plan: &Plan) -> Kernel;
}

/// From the layout to the packed form.
struct Gather;
/// From the packed form to the layout.
struct Scatter;

impl Direction for Gather {
    #[inline(always)]
    unsafe fn fixed<const N: usize>(user: *mut u8, packed: *mut u8) {
        // SAFETY: the caller promises N readable bytes at `user`, N writable ones at `packed`, and no overlap;
        // arrays of bytes have alignment 1.
        unsafe { core::ptr::copy_nonoverlapping(user.cast::<[u8; N]>(), packed.cast::<[u8; N]>(), 1) }
    }

    #[inline(always)]
    unsafe fn bytes(user: *mut u8, packed: *mut u8, len: usize) {
        // SAFETY: as in `fixed`, for `len` bytes.
        unsafe { core::ptr::copy_nonoverlapping(user, packed, len) }
    }

    fn kernel(plan: &Plan) -> Kernel {
        plan.pack
    }
}

impl Direction for Scatter {
    #[inline(always)]
    unsafe fn fixed<const N: usize>(user: *mut u8, packed: *mut u8) {
        // SAFETY: the caller promises N readable bytes at `packed`, N writable ones at `user`, and no overlap;
        // arrays of bytes have alignment 1.
        unsafe { core::ptr::copy_nonoverlapping(packed.cast::<[u8; N]>(), user.cast::<[u8; N]>(), 1) }
    }

    #[inline(always)]
    unsafe fn bytes(user: *mut u8, packed: *mut u8, len: usize) {
        // SAFETY: as in `fixed`, for `len` bytes.
        unsafe { core::ptr::copy_nonoverlapping(packed, user, len) }
    }

    fn kernel(plan: &Plan) -> Kernel {
        plan.unpack
    }
}

/// Nothing to move.
///
/// # Safety
/// None needed; the signature is that of [`Kernel`].
unsafe fn nothing(_: &Plan, _: Job) {}

/// The kernels (pack, unpack) for a body.
pub(crate) fn choose(body: &Body) -> (Kernel, Kernel) {
    match body {
        Body::Empty => (nothing, nothing),
        Body::Strided(strided) => match strided.block {
            1 => (strided::run::<Gather, 1>, strided::run::<Scatter, 1>),
            2 => (strided::run::<Gather, 2>, strided::run::<Scatter, 2>),
            4 => (strided::run::<Gather, 4>, strided::run::<Scatter, 4>),
            8 => (strided::run::<Gather, 8>, strided::run::<Scatter, 8>),
            16 => (strided::run::<Gather, 16>, strided::run::<Scatter, 16>),
            _ => (strided::run::<Gather, 0>, strided::run::<Scatter, 0>),
        },
        Body::Runs(_) => (indexed::run::<Gather>, indexed::run::<Scatter>),
        Body::Sequence(_) => (nested::sequence::<Gather>, nested::sequence::<Scatter>),
        Body::Repeat(_) => (nested::repeat::<Gather>, nested::repeat::<Scatter>),
    }
}
