//! The messages of CG: sums over the grid row, and the exchange across the diagonal.

use mpj::{Error, Intracomm};

use super::grid::Grid;

// Different tags, so that a trace distinguishes the kinds of messages.
const SUM: i32 = 1;
const FOLD: i32 = 2;
const TRANSPOSE: i32 = 3;

#[derive(Debug)]
pub(crate) struct Exchange<'a> {
    comm: &'a Intracomm,
    rank: usize,
    grid: &'a Grid,
    /// Partial sums of the partner.
    arrived: Vec<f64>,
}

impl<'a> Exchange<'a> {
    /// Makes the exchanges of this rank of `comm`; `grid` describes its place in the grid.
    pub(crate) fn new(comm: &'a Intracomm, grid: &'a Grid) -> Self {
        Self { comm, rank: comm.rank(), grid, arrived: vec![0.0; grid.piece.len()] }
    }

    /// Sums each of `values` over the grid row. Since every grid row holds a whole vector, this sums over the vector.
    ///
    /// Ranks exchange values in pairs. `a + b` equals `b + a` to the last bit, so all ranks get the same sum.
    pub(crate) fn sum<const N: usize>(&self, mut values: [f64; N]) -> Result<[f64; N], Error> {
        let mut other = [0.0; N];
        for fold in &self.grid.folds {
            self.comm.sendrecv(&values[..], fold.partner, SUM, &mut other[..], fold.partner, SUM)?;
            for (value, other) in values.iter_mut().zip(other) {
                *value += other;
            }
        }
        Ok(values)
    }

    /// Completes the product `partial`, which is distributed along the rows, and stores it distributed along the
    /// columns.
    pub(crate) fn complete(&mut self, partial: &mut [f64], product: &mut [f64]) -> Result<(), Error> {
        for fold in &self.grid.folds {
            let send = &partial[fold.send.clone()];
            self.comm.sendrecv(send, fold.partner, FOLD, &mut self.arrived[..], fold.partner, FOLD)?;
            for (sum, other) in partial[fold.receive.clone()].iter_mut().zip(&self.arrived) {
                *sum += other;
            }
        }
        let piece = &partial[self.grid.piece.clone()];
        let across = self.grid.across;
        if across == self.rank {
            product.copy_from_slice(piece);
        } else {
            self.comm.sendrecv(piece, across, TRANSPOSE, product, across, TRANSPOSE)?;
        }
        Ok(())
    }
}
