//! Matrices that are packed by column. A row of the matrix is a column of the tile, contiguous in memory; a row of the
//! tile is packed contiguously. A few blocks of each column are copied together, so that a cache line is not accessed
//! once for each of its blocks.

use super::block_copy::{BlockCopy, Direction, Fixed, Gather, Scatter};
use super::tile::{Tile, TileKernel};
use crate::plan::Loop;

/// Columns that are copied together: the number of streams that a prefetcher follows.
const MAX_COLUMNS: usize = 16;

/// Returns the kernels for a tile of at least 4 × 4 blocks of a supported length, if the blocks of each column are
/// adjacent and no columns overlap.
pub(super) fn choose(block: usize, nest: &[Loop]) -> Option<(TileKernel, TileKernel)> {
    let [.., rows, columns] = nest else { return None };
    let column_bytes = i64::try_from(block.checked_mul(rows.count)?).ok()?;
    // The order of copies changes, so no two blocks may overlap.
    if rows.stride != block as i64 || columns.stride < column_bytes || rows.count < 4 || columns.count < 4 {
        return None;
    }
    match block {
        1 => Some(pair::<1, 16>()),
        2 => Some(pair::<2, 16>()),
        4 => Some(pair::<4, 8>()),
        8 => Some(pair::<8, 8>()),
        12 => Some(pair::<12, 4>()),
        16 => Some(pair::<16, 4>()),
        24 => Some(pair::<24, 4>()),
        32 => Some(pair::<32, 4>()),
        _ => None,
    }
}

fn pair<const N: usize, const K: usize>() -> (TileKernel, TileKernel) {
    (transposed::<Gather, N, K>, transposed::<Scatter, N, K>)
}

/// Copies `K` rows and `MAX_COLUMNS` columns of the tile at a time.
///
/// # Safety
/// That of [`TileKernel`].
unsafe fn transposed<D: Direction, const N: usize, const K: usize>(tile: &Tile) {
    let Tile { user, packed, rows, row_stride, columns, .. } = *tile;
    let column_stride = tile.column_stride();
    let place = |r: usize, c: usize| {
        let at = row_stride.wrapping_mul(r as isize).wrapping_add(column_stride.wrapping_mul(c as isize));
        (user.wrapping_offset(at), packed.wrapping_add((r * columns + c) * N))
    };
    for first in (0..columns).step_by(MAX_COLUMNS) {
        let width = MAX_COLUMNS.min(columns - first);
        for r in (0..rows - rows % K).step_by(K) {
            let (mut from, mut to) = place(r, first);
            for _ in 0..width {
                for k in 0..K {
                    let at = from.wrapping_offset(row_stride.wrapping_mul(k as isize));
                    let (src, dst) = D::route(at, to.wrapping_add(k * columns * N));
                    // SAFETY: the block is in row `r + k` and an existing column, so the contract of `TileKernel`
                    // covers it.
                    unsafe { Fixed::<N>::copy(src, dst, N) };
                }
                from = from.wrapping_offset(column_stride);
                to = to.wrapping_add(N);
            }
        }
        for r in rows - rows % K..rows {
            for c in first..first + width {
                let (from, to) = place(r, c);
                let (src, dst) = D::route(from, to);
                // SAFETY: the block is in row `r` and column `c`, so the contract of `TileKernel` covers it.
                unsafe { Fixed::<N>::copy(src, dst, N) };
            }
        }
    }
}
