//! Short blocks that are cache lines apart, copied with AVX-512 masks, which do not train the stride prefetcher.
//!
//! The prefetcher occupies miss buffers of the first cache, which the copies also need, and has no benefit if the
//! second cache holds the lines. A software prefetch every few blocks replaces it. Beyond the second cache, blocks of 8
//! bytes are packed in pairs, without masks.

use super::block_copy::{BlockCopy, Direction};
use super::tile::{Tile, copy_row};
use core::arch::x86_64::{
    __mmask8, _MM_HINT_T0, _mm_load_sd, _mm_loadh_pd, _mm_mask_storeu_epi32, _mm_maskz_loadu_epi32,
    _mm_prefetch, _mm_storeu_pd,
};

/// Two cache lines: the adjacent-line prefetcher finds closer blocks.
const MIN_STRIDE: usize = 128;
/// The lines of fewer blocks fit the first cache.
const MIN_BLOCKS: usize = 768;
/// The lines of more blocks exceed the second cache. Blocks of 4 bytes, and of 8 to unpack, then need the prefetcher.
const L2_BLOCKS: usize = 12 << 10;
/// Prefetch distance in units of four blocks.
const PREFETCH_DISTANCE: isize = 8;

pub(super) const fn fits<S: BlockCopy>() -> bool {
    matches!(S::LEN, 4 | 8 | 12 | 16)
}

#[inline(always)]
pub(super) fn is_faster<D: Direction, S: BlockCopy>(tile: &Tile) -> bool {
    let few = tile.column_stride().unsigned_abs() < MIN_STRIDE || tile.rows * tile.columns < MIN_BLOCKS;
    !few && (S::LEN > 8 || !exceeds_l2(tile) || packs_pairs::<D, S>())
}

fn exceeds_l2(tile: &Tile) -> bool {
    tile.rows * tile.columns > L2_BLOCKS
}

const fn packs_pairs<D: Direction, S: BlockCopy>() -> bool {
    D::PACKS && S::LEN == 8
}

/// # Safety
/// That of [`TileKernel`](super::tile::TileKernel) for a routine that [`fits`], on a machine with AVX-512 F and VL.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
pub(super) unsafe fn run<D: Direction, S: BlockCopy>(tile: &Tile) {
    let Tile { user, mut packed, rows, row_stride, columns, ref steps, block } = *tile;
    let paired = packs_pairs::<D, S>() && exceeds_l2(tile);
    let mut line = user;
    for _ in 0..rows {
        let mut at = line;
        for _ in 0..columns / 4 {
            if paired {
                // SAFETY: the next four blocks of the row, and their packed bytes.
                unsafe { four_in_pairs(at, packed, steps) };
            } else {
                // SAFETY: as above.
                unsafe { four_by_mask::<D, S>(at, packed, steps, block) };
            }
            at = at.wrapping_offset(steps[3]);
            packed = packed.wrapping_add(4 * S::LEN);
        }
        // SAFETY: the rest of the row.
        unsafe { copy_row::<D, S>(at, packed, columns % 4, steps, block) };
        packed = packed.wrapping_add(columns % 4 * S::LEN);
        line = line.wrapping_offset(row_stride);
    }
}

/// # Safety
/// That of [`run`] for the blocks at `user` and one to three columns on.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
unsafe fn four_by_mask<D: Direction, S: BlockCopy>(
    user: *mut u8,
    packed: *mut u8,
    steps: &[isize; 4],
    block: usize,
) {
    // Not from `S::LEN`: the compiler turns copies by a constant mask into other instructions.
    let mask = ((1u32 << (block / 4)) - 1) as __mmask8;
    for (k, step) in [0, steps[0], steps[1], steps[2]].into_iter().enumerate() {
        let (user, packed) = (user.wrapping_offset(step), packed.wrapping_add(k * S::LEN));
        if k == 0 || (S::LEN > 8 && k == 2) {
            prefetch(user, steps);
        }
        let (src, dst) = D::route(user, packed);
        // SAFETY: block k of the four; the mask excludes all other bytes.
        let words = unsafe { _mm_maskz_loadu_epi32(mask, src.cast()) };
        // SAFETY: its other side.
        unsafe { _mm_mask_storeu_epi32(dst.cast(), mask, words) };
    }
}

/// # Safety
/// That of [`run`] for the blocks at `user` and one to three columns on.
#[inline]
#[target_feature(enable = "sse2")]
unsafe fn four_in_pairs(user: *mut u8, packed: *mut u8, steps: &[isize; 4]) {
    prefetch(user, steps);
    for (k, pair) in [[0, steps[0]], [steps[1], steps[2]]].into_iter().enumerate() {
        let [first, second] = pair.map(|step| user.wrapping_offset(step).cast_const().cast());
        // SAFETY: the first block of the pair; no alignment is needed.
        let low = unsafe { _mm_load_sd(first) };
        // SAFETY: the second one.
        let both = unsafe { _mm_loadh_pd(low, second) };
        // SAFETY: the 16 packed bytes of the two.
        unsafe { _mm_storeu_pd(packed.wrapping_add(16 * k).cast(), both) };
    }
}

#[inline]
#[target_feature(enable = "sse2")]
fn prefetch(user: *mut u8, steps: &[isize; 4]) {
    // An address that is not mapped has no effect.
    _mm_prefetch::<_MM_HINT_T0>(
        user.wrapping_offset(steps[3].wrapping_mul(PREFETCH_DISTANCE)).cast_const().cast(),
    );
}
