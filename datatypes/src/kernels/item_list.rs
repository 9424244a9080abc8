//! Equal items at irregular offsets: lists of structures.

use super::block_copy::{Direction, copy_any_length};
use super::{KernelArgs, nested};
use crate::plan::{Body, ItemList, Offsets, Plan};

/// # Safety
/// That of [`Kernel`](super::Kernel).
pub(super) unsafe fn run<D: Direction>(plan: &Plan, args: KernelArgs) {
    let Body::Items(items) = &plan.body else { return };
    let size = items.body.size;
    let kernel = D::of(items.body.kernels);
    for one in nested::repetitions(plan, args) {
        let KernelArgs { user, mut packed, mut len, position, .. } = one;
        let (mut i, mut within) = (position / size, position % size);
        while len > 0 {
            if within == 0 && len >= size && !items.pieces.is_empty() {
                let whole = len / size;
                // SAFETY: items i to i + whole, all in `args`.
                unsafe { whole_items::<D>(items, i, whole, user, packed) };
                packed = packed.wrapping_add(whole * size);
                len -= whole * size;
                i += whole;
                continue;
            }
            let n = len.min(size - within);
            let at = user.wrapping_offset(items.offsets.get(i) as isize);
            let inner = KernelArgs { user: at, packed, len: n, position: within, count: 1, stride: 0 };
            // SAFETY: the inner arguments stand for the bytes of `args` in item i, and the kernel is the item's.
            unsafe { kernel(&items.body, inner) };
            packed = packed.wrapping_add(n);
            len -= n;
            within = 0;
            i += 1;
        }
    }
}

/// Copies items `first..first + count`, which have a list of pieces.
///
/// # Safety
/// These items at `user`, and their packed bytes at `packed`, are valid as [`Kernel`](super::Kernel) says.
unsafe fn whole_items<D: Direction>(
    items: &ItemList,
    first: usize,
    count: usize,
    user: *mut u8,
    packed: *mut u8,
) {
    match &items.offsets {
        Offsets::Narrow(offsets) => {
            let places =
                offsets[first..first + count].iter().map(|&offset| user.wrapping_add(offset as usize));
            // SAFETY: the caller's promise.
            unsafe { each::<D>(places, &items.pieces, packed) }
        }
        Offsets::Wide(offsets) => {
            let places =
                offsets[first..first + count].iter().map(|&offset| user.wrapping_offset(offset as isize));
            // SAFETY: the caller's promise.
            unsafe { each::<D>(places, &items.pieces, packed) }
        }
    }
}

/// Copies `pieces` at each of `places`.
///
/// # Safety
/// Each piece at each place, and its packed bytes, are valid as [`Kernel`](super::Kernel) says.
#[inline(always)]
unsafe fn each<D: Direction>(
    places: impl Iterator<Item = *mut u8>,
    pieces: &[(i64, usize)],
    mut packed: *mut u8,
) {
    for place in places {
        for &(offset, len) in pieces {
            let (src, dst) = D::route(place.wrapping_offset(offset as isize), packed);
            // SAFETY: the next piece of the items.
            unsafe { copy_any_length(src, dst, len) };
            packed = packed.wrapping_add(len);
        }
    }
}
