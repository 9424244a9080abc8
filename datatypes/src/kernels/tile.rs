//! The two innermost loops over equal blocks, where regular layouts spend their time.

use super::block_copy::{
    Any, BlockCopy, Direction, KernelPair, MAX_CHUNKED, MAX_CHUNKED_BEYOND_L1, MakeKernel, by_length,
};
use super::isa;
use super::transpose;
#[cfg(target_arch = "x86_64")]
use super::{isa::Isa, sparse, stride2};
use crate::plan::Loop;

/// `rows` × `columns` blocks; the packed side is dense.
#[derive(Clone, Copy)]
pub(crate) struct Tile {
    pub(super) user: *mut u8,
    pub(super) packed: *mut u8,
    pub(super) rows: usize,
    pub(super) row_stride: isize,
    pub(super) columns: usize,
    /// One to four times the distance of columns in bytes. If a kernel computed them, the compiler would make a chain
    /// of additions, one per block.
    pub(super) steps: [isize; 4],
    pub(super) block: usize,
}

impl Tile {
    #[inline(always)]
    pub(super) fn column_stride(&self) -> isize {
        self.steps[0]
    }
}

#[inline(always)]
pub(super) fn steps(column: isize) -> [isize; 4] {
    [column, column.wrapping_mul(2), column.wrapping_mul(3), column.wrapping_mul(4)]
}

/// Copies a tile.
///
/// # Safety
/// Every block and its packed place are valid as [`Kernel`](super::Kernel) says, and the kernel is for this `block`.
pub(crate) type TileKernel = unsafe fn(&Tile);

pub(super) fn choose(block: usize, nest: &[Loop]) -> (TileKernel, TileKernel) {
    if let Some(pair) = transpose::choose(block, nest) {
        return pair;
    }
    by_length(block, &KernelPair::<ForTiles>::NEW)
}

struct ForTiles;

impl MakeKernel for ForTiles {
    type Kernel = TileKernel;

    #[inline]
    fn make<D: Direction, S: BlockCopy>() -> TileKernel {
        match isa::best() {
            // `avx512` selects `stride2` or `sparse` for each tile.
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 if wide::<S>() || stride2::fits::<S>() || sparse::fits::<S>() => avx512::<D, S>,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 | Isa::Avx2 if wide::<S>() => avx2::<D, S>,
            _ => base::<D, S>,
        }
    }
}

/// Returns whether registers of more than 16 bytes can help.
#[cfg(target_arch = "x86_64")]
pub(super) fn wide<S: BlockCopy>() -> bool {
    S::LEN == 0 || S::LEN >= 32
}

/// # Safety
/// That of [`TileKernel`].
pub(super) unsafe fn base<D: Direction, S: BlockCopy>(tile: &Tile) {
    // SAFETY: the caller's promise.
    unsafe { copy_tile::<D, S>(tile) }
}

/// # Safety
/// That of [`TileKernel`], on a machine with AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
pub(super) unsafe fn avx2<D: Direction, S: BlockCopy>(tile: &Tile) {
    // SAFETY: the caller's promise.
    unsafe { copy_tile::<D, S>(tile) }
}

/// # Safety
/// That of [`TileKernel`], on a machine with AVX-512 F and VL.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl")]
pub(super) unsafe fn avx512<D: Direction, S: BlockCopy>(tile: &Tile) {
    if stride2::fits::<S>() && tile.column_stride() == 2 * S::LEN as isize {
        // SAFETY: the caller's promise; the routine and the columns were checked above.
        return unsafe { stride2::run::<D, S>(tile) };
    }
    if sparse::fits::<S>() && sparse::is_faster::<D, S>(tile) {
        // SAFETY: the caller's promise; the routine was checked above.
        return unsafe { sparse::run::<D, S>(tile) };
    }
    // SAFETY: the caller's promise.
    unsafe { copy_tile::<D, S>(tile) }
}

/// # Safety
/// That of [`TileKernel`].
#[inline(always)]
pub(super) unsafe fn copy_tile<D: Direction, S: BlockCopy>(tile: &Tile) {
    let Tile { user, mut packed, rows, row_stride, columns, steps, block } = *tile;
    let block = if S::LEN == 0 { block } else { S::LEN };
    if !S::SHORT && block > MAX_CHUNKED_BEYOND_L1 && rows * columns * block > MAX_CHUNKED {
        // SAFETY: the caller's promise.
        return unsafe { copy_long_blocks::<D>(tile) };
    }
    let mut line = user;
    for _ in 0..rows {
        // SAFETY: the columns of this row, by the caller's promise.
        unsafe { copy_row::<D, S>(line, packed, columns, &steps, block) };
        packed = packed.wrapping_add(columns * block);
        line = line.wrapping_offset(row_stride);
    }
}

/// Copies blocks of several KiB that together exceed the first cache, by the platform's `memcpy`.
///
/// # Safety
/// That of [`TileKernel`].
#[cold]
unsafe fn copy_long_blocks<D: Direction>(tile: &Tile) {
    let Tile { user, mut packed, rows, row_stride, columns, steps, block } = *tile;
    let mut line = user;
    for _ in 0..rows {
        // SAFETY: the columns of this row, by the caller's promise.
        unsafe { copy_row::<D, Any>(line, packed, columns, &steps, block) };
        packed = packed.wrapping_add(columns * block);
        line = line.wrapping_offset(row_stride);
    }
}

/// # Safety
/// That of [`TileKernel`] for this row.
#[inline(always)]
pub(super) unsafe fn copy_row<D: Direction, S: BlockCopy>(
    mut user: *mut u8,
    mut packed: *mut u8,
    columns: usize,
    steps: &[isize; 4],
    block: usize,
) {
    let mut left = columns;
    if matches!(S::LEN, 8 | 16) && steps[0] == 2 * S::LEN as isize {
        // Every second element is common, and with a constant distance the addresses need no computation.
        while left >= 8 {
            for k in 0..8 {
                let (src, dst) = D::route(user.wrapping_add(2 * k * S::LEN), packed.wrapping_add(k * S::LEN));
                // SAFETY: block k of the next eight of the row.
                unsafe { S::copy(src, dst, block) };
            }
            user = user.wrapping_add(16 * S::LEN);
            packed = packed.wrapping_add(8 * S::LEN);
            left -= 8;
        }
    }
    if S::SHORT {
        while left >= 4 {
            for (k, at) in [0, steps[0], steps[1], steps[2]].into_iter().enumerate() {
                let (src, dst) = D::route(user.wrapping_offset(at), packed.wrapping_add(k * block));
                // SAFETY: block k of the next four of the row.
                unsafe { S::copy(src, dst, block) };
            }
            user = user.wrapping_offset(steps[3]);
            packed = packed.wrapping_add(4 * block);
            left -= 4;
        }
    }
    for _ in 0..left {
        let (src, dst) = D::route(user, packed);
        // SAFETY: the next block of the row.
        unsafe { S::copy(src, dst, block) };
        user = user.wrapping_offset(steps[0]);
        packed = packed.wrapping_add(block);
    }
}
