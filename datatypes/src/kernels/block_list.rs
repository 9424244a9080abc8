//! Lists of blocks of one length.

use super::block_copy::{
    BlockCopy, Direction, KernelPair, MakeKernel, by_length, copy_any_length, copy_bytes,
};
use super::isa;
use super::{KernelArgs, item_batches, offset_by_strides};
#[cfg(target_arch = "x86_64")]
use super::{isa::Isa, tile::wide};
use crate::plan::{BlockList, Body, Offsets, Plan};

/// Copies one block for each offset; the packed side is dense.
///
/// # Safety
/// Every block of `block` bytes at `user` + an offset, and its packed place, are valid as [`Kernel`](super::Kernel)
/// says; `block` is the length for which the kernel was chosen.
pub(crate) type ListKernel = unsafe fn(user: *mut u8, offsets: &[u32], packed: *mut u8, block: usize);

pub(super) fn choose(block: usize, span: i64) -> (ListKernel, ListKernel) {
    // Prefetches blocks of a cache line or more that lie beyond the second cache: the hardware cannot predict them.
    if block >= 64 && span > 1 << 20 {
        by_length(block, &KernelPair::<Each<true>>::NEW)
    } else {
        by_length(block, &KernelPair::<Each<false>>::NEW)
    }
}

struct Each<const FETCH: bool>;

impl<const FETCH: bool> MakeKernel for Each<FETCH> {
    type Kernel = ListKernel;

    #[inline]
    fn make<D: Direction, S: BlockCopy>() -> ListKernel {
        match isa::best() {
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 if wide::<S>() => avx512::<D, S, FETCH>,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 if wide::<S>() => avx2::<D, S, FETCH>,
            _ => base::<D, S, FETCH>,
        }
    }
}

/// # Safety
/// That of [`ListKernel`].
pub(super) unsafe fn base<D: Direction, S: BlockCopy, const FETCH: bool>(
    u: *mut u8,
    offsets: &[u32],
    p: *mut u8,
    n: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { each::<D, S, FETCH>(u, offsets, p, n) }
}

/// # Safety
/// That of [`ListKernel`], on a machine with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn avx2<D: Direction, S: BlockCopy, const FETCH: bool>(
    u: *mut u8,
    offsets: &[u32],
    p: *mut u8,
    n: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { each::<D, S, FETCH>(u, offsets, p, n) }
}

/// # Safety
/// That of [`ListKernel`], on a machine with AVX-512 F and VL.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl")]
pub(super) unsafe fn avx512<D: Direction, S: BlockCopy, const FETCH: bool>(
    u: *mut u8,
    offsets: &[u32],
    p: *mut u8,
    n: usize,
) {
    // SAFETY: the caller's promise.
    unsafe { each::<D, S, FETCH>(u, offsets, p, n) }
}

/// Distance in blocks from the block that is copied to the one that is prefetched.
const PREFETCH_DISTANCE: usize = 16;

/// # Safety
/// That of [`ListKernel`].
#[inline(always)]
unsafe fn each<D: Direction, S: BlockCopy, const FETCH: bool>(
    user: *mut u8,
    offsets: &[u32],
    mut packed: *mut u8,
    block: usize,
) {
    let block = if S::LEN == 0 { block } else { S::LEN };
    let mut one = |offset: u32| {
        let (src, dst) = D::route(user.wrapping_add(offset as usize), packed);
        // SAFETY: the next block of the list.
        unsafe { S::copy(src, dst, block) };
        packed = packed.wrapping_add(block);
    };
    if FETCH {
        for (i, &offset) in offsets.iter().enumerate() {
            if let Some(&later) = offsets.get(i + PREFETCH_DISTANCE) {
                for line in (0..block.min(512)).step_by(64) {
                    fetch(user.wrapping_add(later as usize + line));
                }
            }
            one(offset);
        }
        return;
    }
    let (fours, rest) = offsets.as_chunks::<4>();
    for four in fours {
        four.iter().for_each(|&offset| one(offset));
    }
    rest.iter().for_each(|&offset| one(offset));
}

#[inline(always)]
fn fetch(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch has no effect that the program can observe, and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// # Safety
/// That of [`Kernel`](super::Kernel).
pub(super) unsafe fn run<D: Direction>(plan: &Plan, args: KernelArgs) {
    let Body::Blocks(list) = &plan.body else { return };
    let KernelArgs { user, mut packed, mut len, position, count, stride } = args;
    let BlockList { block, ref offsets, .. } = **list;
    let (item, mut within) =
        if position < plan.size { (0, position) } else { (position / plan.size, position % plan.size) };
    let mut origin = offset_by_strides(user.wrapping_offset(plan.offset as isize), stride, item);
    if within == 0 && count > 1 {
        let pieces = (0..offsets.len()).map(|i| (offsets.get(i), block));
        // SAFETY: the next len / plan.size items of `args`.
        let n = unsafe {
            item_batches::run::<D>(pieces, list.span, plan.size, stride, origin, packed, len / plan.size)
        };
        origin = offset_by_strides(origin, stride, n);
        packed = packed.wrapping_add(n * plan.size);
        len -= n * plan.size;
    }
    while len > 0 {
        let mut i = 0;
        if within > 0 {
            i = within / block;
            within -= i * block;
        }
        if within > 0 {
            let n = len.min(block - within);
            let at = origin.wrapping_offset(offsets.get(i) as isize).wrapping_add(within);
            // SAFETY: the position lies `within` bytes inside block i, and n bytes stay in it and in `args`.
            unsafe { copy_bytes::<D>(at, packed, n) };
            packed = packed.wrapping_add(n);
            len -= n;
            i += 1;
        }
        let whole = (len / block).min(offsets.len() - i);
        match offsets {
            Offsets::Narrow(offsets) => {
                let kernel = D::of(list.kernels);
                // SAFETY: blocks i to i + whole of this item, all in `args`.
                unsafe { kernel(origin, &offsets[i..i + whole], packed, block) };
            }
            Offsets::Wide(offsets) => {
                for (k, &offset) in offsets[i..i + whole].iter().enumerate() {
                    let at = origin.wrapping_offset(offset as isize);
                    let (src, dst) = D::route(at, packed.wrapping_add(k * block));
                    // SAFETY: as above, block i + k.
                    unsafe { copy_any_length(src, dst, block) };
                }
            }
        }
        packed = packed.wrapping_add(whole * block);
        len -= whole * block;
        i += whole;
        if len > 0 && i < offsets.len() {
            // SAFETY: `args` ends inside block i.
            unsafe { copy_bytes::<D>(origin.wrapping_offset(offsets.get(i) as isize), packed, len) };
            return;
        }
        within = 0;
        origin = offset_by_strides(origin, stride, 1);
    }
}
