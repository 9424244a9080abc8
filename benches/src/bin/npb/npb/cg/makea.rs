//! The matrix of CG: random and sparse, with a known condition number (RNR-94-007, section 2.7.3, `makea`).
//!
//! `A = Σ ωᵢ·vᵢ·vᵢᵀ + (rcond − shift)·I`, where each `vᵢ` is sparse and random with `vᵢ[i] = 0.5` and `ωᵢ` falls
//! geometrically from 1 to nearly `rcond`. Every rank draws every `vᵢ`, because the number of random numbers in a
//! vector is known only after it is drawn. A rank then sums only its own block.

use super::super::random::Lcg;
use super::Params;
use super::grid::Grid;
use super::matvec::Csr;

const SEED: u64 = 314_159_265;

/// The sparse vectors `vᵢ`, one after the other.
struct SparseVectors {
    starts: Vec<usize>,
    at: Vec<u32>,
    value: Vec<f64>,
}

impl SparseVectors {
    fn vector(&self, i: usize) -> (&[u32], &[f64]) {
        let range = self.starts[i]..self.starts[i + 1];
        (&self.at[range.clone()], &self.value[range])
    }
}

/// Makes this rank's block of the matrix. Column indices are relative to the first column of the block.
pub(crate) fn makea(params: &Params, grid: &Grid) -> Csr {
    let vectors = draw(params);
    let vectors_by_row = transposed(&vectors, params.order, grid);
    let weights = weights(params);

    let (rows, cols) = (&grid.block_rows, &grid.block_cols);
    let first = cols.start as u32;
    let mut sums = vec![0.0; cols.len()];
    let mut touched: Vec<u32> = Vec::new();
    let mut seen = vec![false; cols.len()];
    let mut matrix = Csr::new(cols.len());
    for row in rows.clone() {
        let mut add = |col: u32, value: f64| {
            let local = (col - first) as usize;
            if !std::mem::replace(&mut seen[local], true) {
                touched.push(local as u32);
            }
            sums[local] += value;
        };
        for &(vector, factor) in &vectors_by_row[row - rows.start] {
            let (at, value) = vectors.vector(vector as usize);
            let scale = weights[vector as usize] * factor;
            for (&col, &value) in at.iter().zip(value) {
                if cols.contains(&(col as usize)) {
                    add(col, value * scale);
                }
            }
        }
        if cols.contains(&row) {
            add(row as u32, params.rcond - params.shift);
        }
        // Ascending columns, so that the multiplied vector is read forwards.
        touched.sort_unstable();
        matrix.push_row(touched.drain(..).map(|local| {
            seen[local as usize] = false;
            (local, std::mem::take(&mut sums[local as usize]))
        }));
    }
    matrix
}

/// Draws the vectors (`sprnvc` and `vecset`).
fn draw(params: &Params) -> SparseVectors {
    let n = params.order;
    // Indices are drawn below the next power of two; those of `n` and above are discarded.
    let bits = n.next_power_of_two().ilog2();
    let mut random = Lcg::new(SEED);
    // NPB draws a number for zeta before the matrix, and does not use it.
    random.step();

    let entries = n * (params.nonzeros + 1);
    let mut vectors = SparseVectors {
        starts: Vec::with_capacity(n + 1),
        at: Vec::with_capacity(entries),
        value: Vec::with_capacity(entries),
    };
    vectors.starts.push(0);
    for i in 0..n {
        let start = vectors.at.len();
        while vectors.at.len() - start < params.nonzeros {
            let value = random.next();
            let at = random.next_bits(bits);
            if at < n && !vectors.at[start..].contains(&(at as u32)) {
                vectors.at.push(at as u32);
                vectors.value.push(value);
            }
        }
        match vectors.at[start..].iter().position(|&at| at as usize == i) {
            Some(position) => vectors.value[start + position] = 0.5,
            None => {
                vectors.at.push(i as u32);
                vectors.value.push(0.5);
            }
        }
        vectors.starts.push(vectors.at.len());
    }
    vectors
}

/// Returns, for each row of the block, the vectors that are not zero there, with their values.
fn transposed(vectors: &SparseVectors, order: usize, grid: &Grid) -> Vec<Vec<(u32, f64)>> {
    let rows = &grid.block_rows;
    let mut vectors_by_row = vec![Vec::new(); rows.len()];
    for vector in 0..order {
        let (at, value) = vectors.vector(vector);
        for (&row, &value) in at.iter().zip(value) {
            if rows.contains(&(row as usize)) {
                vectors_by_row[row as usize - rows.start].push((vector as u32, value));
            }
        }
    }
    vectors_by_row
}

/// Returns the weights `ωᵢ`, computed by repeated multiplication as in NPB.
fn weights(params: &Params) -> Vec<f64> {
    let ratio = params.rcond.powf(1.0 / params.order as f64);
    std::iter::successors(Some(1.0), |weight| Some(weight * ratio)).take(params.order).collect()
}

#[cfg(test)]
mod tests {
    use super::super::Class;
    use super::*;

    fn nonzeros_of(matrix: &Csr, rows: usize) -> usize {
        (0..rows).map(|row| matrix.row(row).len()).sum()
    }

    #[test]
    fn blocks_are_parts_of_the_matrix() {
        let params = Params::of(Class::S);
        let whole = makea(&params, &Grid::new(0, 1, params.order));
        let x: Vec<f64> = (0..params.order).map(|i| 1.0 + (i % 7) as f64).collect();
        let mut expected = vec![0.0; params.order];
        whole.multiply(&x, &mut expected);

        let mut nonzeros = 0;
        let mut found = vec![0.0; params.order];
        for rank in 0..8 {
            let grid = Grid::new(rank, 8, params.order);
            let block = makea(&params, &grid);
            let mut partial = vec![0.0; grid.block_rows.len()];
            block.multiply(&x[grid.block_cols.clone()], &mut partial);
            for (row, partial) in grid.block_rows.clone().zip(partial) {
                found[row] += partial;
            }
            nonzeros += nonzeros_of(&block, grid.block_rows.len());
        }
        assert_eq!(nonzeros, nonzeros_of(&whole, params.order));
        for (found, expected) in found.iter().zip(&expected) {
            assert!((found - expected).abs() < 1e-12 * expected.abs().max(1.0));
        }
    }

    #[test]
    fn matrix_is_symmetric() {
        let params = Params::of(Class::S);
        let matrix = makea(&params, &Grid::new(0, 1, params.order));
        let entry = |row: usize, col: usize| {
            matrix.row(row).into_iter().find(|&(at, _)| at as usize == col).map_or(0.0, |(_, value)| value)
        };
        for row in (0..params.order).step_by(97) {
            for (col, value) in matrix.row(row) {
                assert!((value - entry(col as usize, row)).abs() < 1e-15);
            }
        }
    }
}
