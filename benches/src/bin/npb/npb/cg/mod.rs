//! CG: an eigenvalue of a sparse matrix by inverse iteration (RNR-94-007, section 2.7).
//!
//! Each outer iteration solves `A·z = x` approximately with [`solve`], estimates `zeta = shift + 1/(x·z)` and continues
//! with `x = z/‖z‖`. CG is the kernel with irregular memory accesses and long-distance messages.

use mpj::{Error, Op, World};

use super::{Answer, Class, RunReport};
use exchange::Exchange;
use grid::Grid;
use solve::{Vectors, conj_grad, dot};

mod exchange;
mod grid;
mod makea;
#[allow(unsafe_code, reason = "the inner product of a row reads the vector at checked indices")]
mod matvec;
mod solve;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Params {
    /// Order of the matrix (`na`).
    pub(crate) order: usize,
    /// Nonzeros that are drawn for each random vector (`nonzer`).
    pub(crate) nonzeros: usize,
    /// Timed outer iterations (`niter`).
    pub(crate) iterations: usize,
    /// Subtracted from the diagonal.
    pub(crate) shift: f64,
    /// Approximate reciprocal of the condition number of the matrix without the shift.
    pub(crate) rcond: f64,
    /// The published eigenvalue estimate.
    pub(crate) zeta: f64,
}

impl Params {
    pub(crate) fn of(class: Class) -> Self {
        let of = |order, nonzeros, iterations, shift, zeta| Self {
            order,
            nonzeros,
            iterations,
            shift,
            rcond: 0.1,
            zeta,
        };
        match class {
            Class::S => of(1_400, 7, 15, 10.0, 8.597_177_507_864_8),
            Class::W => of(7_000, 8, 15, 12.0, 10.362_595_087_124),
            Class::A => of(14_000, 11, 15, 20.0, 17.130_235_054_029),
            Class::B => of(75_000, 13, 75, 60.0, 22.712_745_482_631),
            Class::C => of(150_000, 15, 75, 110.0, 28.973_605_592_845),
        }
    }

    /// Returns why `ranks` ranks cannot run this class, if they cannot.
    pub(crate) fn rejection(&self, ranks: usize) -> Option<String> {
        let max = Grid::max_ranks(self.order);
        if !ranks.is_power_of_two() {
            Some(format!("CG needs a power of two as the number of ranks, not {ranks}"))
        } else if ranks > max {
            Some(format!("a matrix of order {} supports at most {max} ranks, not {ranks}", self.order))
        } else {
            None
        }
    }

    /// Returns the millions of operations by the formula of NPB.
    fn mop(&self, iterations: usize) -> f64 {
        let (order, nonzeros) = (self.order as f64, self.nonzeros as f64);
        let row = nonzeros * (nonzeros + 1.0);
        let one = 3.0 + row + solve::STEPS as f64 * (5.0 + row) + 3.0;
        2.0 * iterations as f64 * order * one / 1e6
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Iteration {
    pub(crate) residual: f64,
    pub(crate) zeta: f64,
}

/// Runs `iterations` timed outer iterations of `class` on all ranks of `world`.
///
/// `each` is called on every rank after every timed iteration. On rank 0, the time in the report is that of the
/// slowest rank; other ranks report their own.
pub(crate) fn run(
    world: &World,
    class: Class,
    iterations: usize,
    mut each: impl FnMut(Iteration),
) -> Result<RunReport, Error> {
    let params = Params::of(class);
    let grid = Grid::new(world.rank(), world.size(), params.order);
    let matrix = makea::makea(&params, &grid);
    let mut exchange = Exchange::new(world, &grid);
    let mut vectors = Vectors::new(grid.block_rows.len(), grid.block_cols.len());

    // One untimed iteration touches all memory and establishes all connections. Then `x` is reset.
    vectors.x.fill(1.0);
    iterate(&params, &matrix, &mut exchange, &mut vectors)?;
    vectors.x.fill(1.0);

    world.barrier()?;
    let start = mpj::wtime();
    let mut zeta = 0.0;
    for _ in 0..iterations {
        let found = iterate(&params, &matrix, &mut exchange, &mut vectors)?;
        zeta = found.zeta;
        each(found);
    }
    let own = [mpj::wtime() - start];
    let mut slowest = own;
    world.reduce(&own, &mut slowest, Op::Max, 0)?;

    Ok(RunReport {
        benchmark: "CG",
        class,
        size: params.order.to_string(),
        iterations,
        official_iterations: params.iterations,
        ranks: world.size(),
        seconds: slowest[0],
        mop: params.mop(iterations),
        answer: Answer { name: "zeta", value: zeta, official: params.zeta, tolerance: 1e-10 },
    })
}

fn iterate(
    params: &Params,
    matrix: &matvec::Csr,
    exchange: &mut Exchange<'_>,
    v: &mut Vectors,
) -> Result<Iteration, Error> {
    let residual = conj_grad(matrix, exchange, v)?;
    let [xz, zz] = exchange.sum([dot(&v.x, &v.z), dot(&v.z, &v.z)])?;
    let scale = 1.0 / zz.sqrt();
    for (x, z) in v.x.iter_mut().zip(&v.z) {
        *x = scale * z;
    }
    Ok(Iteration { residual, zeta: params.shift + 1.0 / xz })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reports(ranks: usize, class: Class, iterations: usize) -> Vec<RunReport> {
        mpj::threads(ranks, |world| run(&world, class, iterations, |_| ())).expect("no rank fails")
    }

    #[test]
    fn sample_class_verifies_on_square_and_wide_grids() {
        for ranks in [1, 2, 4, 8, 16] {
            for report in reports(ranks, Class::S, 15) {
                assert!(report.verified(), "{ranks} ranks: {report}");
            }
        }
    }

    #[test]
    fn too_few_iterations_do_not_verify() {
        assert!(!reports(1, Class::S, 14)[0].verified());
        assert!(!reports(1, Class::S, 8)[0].answer.verified());
    }

    #[test]
    fn invalid_numbers_of_ranks_are_rejected() {
        let params = Params::of(Class::S);
        assert_eq!(params.rejection(64), None);
        for ranks in [0, 3, 6, 1 << 20] {
            assert!(params.rejection(ranks).is_some(), "{ranks}");
        }
    }
}
