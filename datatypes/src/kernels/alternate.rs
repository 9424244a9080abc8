//! Every second element of an array, packed with AVX-512: two loads that skip the others by mask, one permutation, one
//! store. Twice to three times as fast as element by element while the data is in the first two caches.

use super::copy::{Gather, Shape};
use super::sheet::{Sheet, cover_row};
use core::arch::x86_64::{
    _mm512_maskz_loadu_epi32, _mm512_permutex2var_epi32, _mm512_set_epi32, _mm512_storeu_si512,
};

/// Packs a sheet whose columns are two blocks of 4, 8 or 16 bytes apart.
///
/// # Safety
/// That of [`SheetKernel`](super::sheet::SheetKernel), on a machine with AVX-512 F.
#[target_feature(enable = "avx512f,avx512vl")]
pub(super) unsafe fn pack<S: Shape>(sheet: &Sheet) {
    let Sheet { user, mut packed, rows, row, columns, ref steps, .. } = *sheet;
    let (block, mut line) = (S::LEN, user);
    // Of 16 words of 4 bytes, those that belong to a block; and where they are in the two halves put together.
    let (mask, order) = match block {
        4 => (0x5555, _mm512_set_epi32(30, 28, 26, 24, 22, 20, 18, 16, 14, 12, 10, 8, 6, 4, 2, 0)),
        8 => (0x3333, _mm512_set_epi32(29, 28, 25, 24, 21, 20, 17, 16, 13, 12, 9, 8, 5, 4, 1, 0)),
        _ => (0x0f0f, _mm512_set_epi32(27, 26, 25, 24, 19, 18, 17, 16, 11, 10, 9, 8, 3, 2, 1, 0)),
    };
    for _ in 0..rows {
        let (mut from, mut left) = (line, columns);
        while left >= 64 / block {
            // SAFETY: the first half of the next 64 / block blocks; the mask leaves out what lies between them.
            let low = unsafe { _mm512_maskz_loadu_epi32(mask, from.cast()) };
            // SAFETY: the second half.
            let high = unsafe { _mm512_maskz_loadu_epi32(mask, from.wrapping_add(64).cast()) };
            let dense = _mm512_permutex2var_epi32(low, order, high);
            // SAFETY: the 64 packed bytes of these blocks.
            unsafe { _mm512_storeu_si512(packed.cast(), dense) };
            from = from.wrapping_add(128);
            packed = packed.wrapping_add(64);
            left -= 64 / block;
        }
        // SAFETY: the rest of the row.
        unsafe { cover_row::<Gather, S>(from, packed, left, steps, block) };
        packed = packed.wrapping_add(left * block);
        line = line.wrapping_offset(row);
    }
}
