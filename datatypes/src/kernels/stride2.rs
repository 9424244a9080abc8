//! Every second element of an array with AVX-512, 64 packed bytes at a time: two registers of the array, in which a
//! mask excludes the other elements, and a permutation.

use super::block_copy::{BlockCopy, Direction};
use super::tile::{Tile, copy_row};
use core::arch::x86_64::{
    __m512i, _mm512_loadu_si512, _mm512_mask_storeu_epi32, _mm512_maskz_loadu_epi32,
    _mm512_permutex2var_epi32, _mm512_permutexvar_epi32, _mm512_set_epi32, _mm512_storeu_si512,
};

pub(super) const fn fits<S: BlockCopy>() -> bool {
    matches!(S::LEN, 4 | 8 | 16)
}

/// Copies a tile whose columns are two blocks apart.
///
/// # Safety
/// That of [`TileKernel`](super::tile::TileKernel) for a routine that [`fits`] and columns two blocks apart, on a
/// machine with AVX-512 F and VL.
#[inline]
#[target_feature(enable = "avx512f,avx512vl")]
pub(super) unsafe fn run<D: Direction, S: BlockCopy>(tile: &Tile) {
    let Tile { user, mut packed, rows, row_stride, columns, ref steps, block } = *tile;
    // Selects those of the 16 words of a register that belong to a block.
    let mask = match S::LEN {
        4 => 0x5555,
        8 => 0x3333,
        _ => 0x0f0f,
    };
    let mut line = user;
    for _ in 0..rows {
        let (mut at, mut left) = (line, columns);
        while left >= 64 / S::LEN {
            let next = at.wrapping_add(64);
            if D::PACKS {
                // SAFETY: the first half of the next 64 / LEN blocks; the mask excludes the bytes between them.
                let low = unsafe { _mm512_maskz_loadu_epi32(mask, at.cast()) };
                // SAFETY: the second half.
                let high = unsafe { _mm512_maskz_loadu_epi32(mask, next.cast()) };
                let dense = _mm512_permutex2var_epi32(low, gather_index(S::LEN), high);
                // SAFETY: the 64 packed bytes of these blocks.
                unsafe { _mm512_storeu_si512(packed.cast(), dense) };
            } else {
                // SAFETY: the 64 packed bytes of the next 64 / LEN blocks.
                let dense = unsafe { _mm512_loadu_si512(packed.cast()) };
                let [low, high] = scatter_index(S::LEN);
                let (low, high) =
                    (_mm512_permutexvar_epi32(low, dense), _mm512_permutexvar_epi32(high, dense));
                // SAFETY: the first half of these blocks; the mask excludes the bytes between them.
                unsafe { _mm512_mask_storeu_epi32(at.cast(), mask, low) };
                // SAFETY: the second half.
                unsafe { _mm512_mask_storeu_epi32(next.cast(), mask, high) };
            }
            at = at.wrapping_add(128);
            packed = packed.wrapping_add(64);
            left -= 64 / S::LEN;
        }
        // SAFETY: the rest of the row.
        unsafe { copy_row::<D, S>(at, packed, left, steps, block) };
        packed = packed.wrapping_add(left * S::LEN);
        line = line.wrapping_offset(row_stride);
    }
}

/// Returns the positions of the blocks' words in the two halves, in packed order.
#[inline]
#[target_feature(enable = "avx512f")]
fn gather_index(block: usize) -> __m512i {
    match block {
        4 => _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0),
        8 => _mm512_set_epi32(29, 28, 25, 24, 21, 20, 17, 16, 13, 12, 9, 8, 5, 4, 1, 0),
        _ => _mm512_set_epi32(27, 26, 25, 24, 19, 18, 17, 16, 11, 10, 9, 8, 3, 2, 1, 0),
    }
}

/// Returns which packed word goes to each position of the two halves. The mask excludes the positions between blocks.
#[inline]
#[target_feature(enable = "avx512f")]
fn scatter_index(block: usize) -> [__m512i; 2] {
    match block {
        4 => [
            _mm512_set_epi32(7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1, 0, 0),
            _mm512_set_epi32(15, 15, 14, 14, 13, 13, 12, 12, 11, 11, 10, 10, 9, 9, 8, 8),
        ],
        8 => [
            _mm512_set_epi32(7, 6, 7, 6, 5, 4, 5, 4, 3, 2, 3, 2, 1, 0, 1, 0),
            _mm512_set_epi32(15, 14, 15, 14, 13, 12, 13, 12, 11, 10, 11, 10, 9, 8, 9, 8),
        ],
        _ => [
            _mm512_set_epi32(7, 6, 5, 4, 7, 6, 5, 4, 3, 2, 1, 0, 3, 2, 1, 0),
            _mm512_set_epi32(15, 14, 13, 12, 15, 14, 13, 12, 11, 10, 9, 8, 11, 10, 9, 8),
        ],
    }
}
