//! The loops that move bytes between a layout in memory and its packed form.
//!
//! A plan's kernel has the signature [`Kernel`] and is selected when the type is built; see `README.md` in this folder.

mod block_copy;
mod block_list;
pub(crate) mod check;
mod contiguous;
mod isa;
mod item_batches;
mod item_list;
mod nested;
mod run_list;
#[cfg(target_arch = "x86_64")]
mod sparse;
#[cfg(target_arch = "x86_64")]
mod stride2;
mod strided;
mod strided_copy;
#[cfg(test)]
mod tests;
mod tile;
mod transpack;
mod transpose;

pub(crate) use block_list::ListKernel;
pub(crate) use tile::TileKernel;
pub(crate) use transpack::{Side, transpack};

use crate::plan::{Body, Loop, Plan};
use block_copy::{Gather, Scatter};

/// Arguments of one kernel call, which copies `len` packed bytes from packed position `position` on. The items are
/// `count` repetitions of the plan, `stride` bytes apart, the first at `user`.
#[derive(Clone, Copy)]
pub(crate) struct KernelArgs {
    pub(crate) user: *mut u8,
    pub(crate) packed: *mut u8,
    pub(crate) len: usize,
    pub(crate) position: usize,
    pub(crate) count: usize,
    pub(crate) stride: i64,
}

/// Copies the bytes of one kernel call.
///
/// # Safety
/// 1. `position + len <= count * plan.size`, without overflow.
/// 2. Every byte of memory that packed positions `position..position + len` stand for is readable and initialised
///    (to pack) or writable (to unpack).
/// 3. `packed` is writable (to pack) or readable and initialised (to unpack) for `len` bytes.
/// 4. The bytes of 2 and 3 do not overlap.
/// 5. The kernel is the one of `plan`.
pub(crate) type Kernel = unsafe fn(&Plan, KernelArgs);

/// Returns `pointer` moved by `count` strides. The result may be outside of the buffer, if it is not accessed.
#[inline(always)]
fn offset_by_strides(pointer: *mut u8, stride: i64, count: usize) -> *mut u8 {
    pointer.wrapping_offset((stride as isize).wrapping_mul(count as isize))
}

/// Packs by the plan's kernel. Non-temporal stores of packed pieces were slower, even for 64 MiB.
///
/// # Safety
/// That of [`Kernel`].
#[inline]
pub(crate) unsafe fn pack(plan: &Plan, args: KernelArgs) {
    // SAFETY: the caller's promise; the kernel is the plan's own.
    unsafe { (plan.kernels.0)(plan, args) }
}

/// # Safety
/// That of [`Kernel`].
#[inline]
pub(crate) unsafe fn unpack(plan: &Plan, args: KernelArgs) {
    // SAFETY: the caller's promise; the kernel is the plan's own.
    unsafe { (plan.kernels.1)(plan, args) }
}

/// # Safety
/// None needed; the signature is that of [`Kernel`].
unsafe fn nothing(_: &Plan, _: KernelArgs) {}

pub(crate) fn choose(body: &Body) -> (Kernel, Kernel) {
    match body {
        Body::Empty => (nothing, nothing),
        Body::Strided(_) => (strided::run::<Gather>, strided::run::<Scatter>),
        Body::Blocks(_) => (block_list::run::<Gather>, block_list::run::<Scatter>),
        Body::Runs(_) => (run_list::run::<Gather>, run_list::run::<Scatter>),
        Body::Items(_) => (item_list::run::<Gather>, item_list::run::<Scatter>),
        Body::Sequence(_) => (nested::sequence::<Gather>, nested::sequence::<Scatter>),
        Body::Repeat(_) => (nested::repeat::<Gather>, nested::repeat::<Scatter>),
    }
}

pub(crate) fn tiles(block: usize, nest: &[Loop]) -> (TileKernel, TileKernel) {
    tile::choose(block, nest)
}

pub(crate) fn lists(block: usize, span: i64) -> (ListKernel, ListKernel) {
    block_list::choose(block, span)
}
