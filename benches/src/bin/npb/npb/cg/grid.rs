//! The 2-D grid of ranks of CG, and the exchanges between them.
//!
//! The matrix is cut into `rows × cols` blocks, one for each rank in row-major order, where `cols` is `rows` or twice
//! that (NPB MPI version, `setup_proc_info` and `setup_submatrix_info`). A vector that is multiplied is distributed
//! along the columns: ranks of one grid column hold the same piece of it. The product is distributed along the rows,
//! as partial sums. It is summed over the grid row (*fold*) and sent to the rank across the diagonal (*transpose*),
//! and is then distributed along the columns.
//!
//! ```text
//!        8 ranks, 2 × 4                       after the fold     after the transpose
//!        x0  x1  x2  x3                       of row 0           rank 1 gets from rank 1,
//!      ┌───┬───┬───┬───┐                      0: y0, 1: y1       rank 2 gets from rank 4
//!  y0y1│ 0 │ 1 │ 2 │ 3 │                      2: y0, 3: y1       the piece that it
//!      ├───┼───┼───┼───┤                      of row 1           multiplies next
//!  y2y3│ 4 │ 5 │ 6 │ 7 │                      4: y2, 5: y3 …
//!      └───┴───┴───┴───┘
//! ```

use std::ops::Range;

/// One exchange over the grid row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Fold {
    pub(crate) partner: usize,
    /// Local rows whose partial sums are sent.
    pub(crate) send: Range<usize>,
    /// Local rows to which the received partial sums are added.
    pub(crate) receive: Range<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct Grid {
    /// Rows of the matrix on this rank.
    pub(crate) block_rows: Range<usize>,
    /// Columns of the matrix on this rank.
    pub(crate) block_cols: Range<usize>,
    /// Exchanges that sum a product over the grid row, in order.
    pub(crate) folds: Vec<Fold>,
    /// Local rows that are complete after the folds.
    pub(crate) piece: Range<usize>,
    /// The rank across the diagonal, which holds this rank's columns as its piece, and vice versa.
    pub(crate) across: usize,
}

impl Grid {
    /// Places `rank` of `ranks`, a power of two, over a matrix of order `order`.
    pub(crate) fn new(rank: usize, ranks: usize, order: usize) -> Self {
        assert!(ranks.is_power_of_two() && rank < ranks, "rank {rank} of {ranks}");
        let rows = 1 << (ranks.ilog2() / 2);
        let cols = ranks / rows;
        let (row, col) = (rank / cols, rank % cols);
        let is_wide = cols != rows;

        let block_rows = share(row, rows, order);
        let height = block_rows.len();
        // On a grid that is twice as wide as it is high, each pair of neighbouring grid columns divides the index
        // range of one grid row between its two columns.
        let (block_cols, piece, across) = if is_wide {
            let pair = share(col / 2, rows, order);
            let columns = half(col % 2, pair.len());
            let columns = pair.start + columns.start..pair.start + columns.end;
            (columns, half(col % 2, height), (col / 2) * cols + 2 * row + col % 2)
        } else {
            (share(col, cols, order), 0..height, col * cols + row)
        };

        let folds = (0..cols.ilog2())
            .map(|stage| Fold {
                partner: row * cols + (col ^ (1 << stage)),
                // Neighbours send each other the half that the other one keeps. Later stages add whole pieces of
                // ranks of the same parity.
                send: if is_wide && stage == 0 { half(1 - col % 2, height) } else { piece.clone() },
                receive: piece.clone(),
            })
            .collect();
        Self { block_rows, block_cols, folds, piece, across }
    }

    /// Returns the maximum number of ranks, so that each has at least [`MIN_PIECE`] columns.
    pub(crate) fn max_ranks(order: usize) -> usize {
        let side = 1_usize << (order / MIN_PIECE).max(1).ilog2();
        side * side
    }
}

/// A cache line of doubles. With fewer columns per rank, communication would dominate.
const MIN_PIECE: usize = 8;

/// Returns the `index`-th of `parts` nearly equal parts of `0..len`, the longer ones first.
fn share(index: usize, parts: usize, len: usize) -> Range<usize> {
    let (short, longer) = (len / parts, len % parts);
    let start = index * short + index.min(longer);
    start..start + short + usize::from(index < longer)
}

/// Returns the first or the second half of `0..len`; the first is longer if `len` is odd.
fn half(which: usize, len: usize) -> Range<usize> {
    share(which, 2, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: [usize; 9] = [1, 2, 4, 8, 16, 32, 64, 128, 256];

    #[test]
    fn blocks_tile_the_matrix() {
        for ranks in SIZES {
            for order in [1400, 1401, 1407] {
                let grids: Vec<Grid> = (0..ranks).map(|rank| Grid::new(rank, ranks, order)).collect();
                let area: usize =
                    grids.iter().map(|grid| grid.block_rows.len() * grid.block_cols.len()).sum();
                assert_eq!(area, order * order, "{ranks} ranks");
                let overlap = |a: &Range<usize>, b: &Range<usize>| a.start < b.end && b.start < a.end;
                for (rank, grid) in grids.iter().enumerate() {
                    let overlaps = |other: &Grid| {
                        overlap(&grid.block_rows, &other.block_rows)
                            && overlap(&grid.block_cols, &other.block_cols)
                    };
                    assert!(!grids[..rank].iter().any(overlaps), "rank {rank} of {ranks}");
                }
            }
        }
    }

    #[test]
    fn exchanges_are_mutual_and_of_equal_length() {
        for ranks in SIZES {
            let grids: Vec<Grid> = (0..ranks).map(|rank| Grid::new(rank, ranks, 1403)).collect();
            for (rank, grid) in grids.iter().enumerate() {
                for (stage, fold) in grid.folds.iter().enumerate() {
                    let back = &grids[fold.partner].folds[stage];
                    assert_eq!((back.partner, &back.receive), (rank, &fold.send));
                }
                let across = &grids[grid.across];
                assert_eq!(across.across, rank);
                let base = across.block_rows.start;
                assert_eq!(base + across.piece.start..base + across.piece.end, grid.block_cols);
            }
        }
    }

    #[test]
    fn largest_grid_keeps_the_minimum_width() {
        let max = Grid::max_ranks(1400);
        assert_eq!(max, 128 * 128);
        assert!(Grid::new(max - 1, max, 1400).block_cols.len() >= MIN_PIECE);
    }
}
