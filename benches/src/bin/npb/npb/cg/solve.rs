//! The inner loop of CG: 25 steps of conjugate gradients (RNR-94-007, section 2.7.1, `conj_grad`).

use mpj::Error;

use super::exchange::Exchange;
use super::matvec::Csr;

/// The number of steps. The loop does not test for convergence.
pub(crate) const STEPS: usize = 25;

/// The vectors of one rank. All except `partial` are distributed along the columns of the grid.
#[derive(Debug)]
pub(crate) struct Vectors {
    /// The right-hand side.
    pub(crate) x: Vec<f64>,
    /// The solution.
    pub(crate) z: Vec<f64>,
    /// The direction.
    p: Vec<f64>,
    /// The matrix times the direction.
    q: Vec<f64>,
    /// The residual.
    r: Vec<f64>,
    /// A product that is not yet summed over the grid row, distributed along the rows.
    partial: Vec<f64>,
}

impl Vectors {
    pub(crate) fn new(rows: usize, cols: usize) -> Self {
        let along = || vec![0.0; cols];
        Self { x: along(), z: along(), p: along(), q: along(), r: along(), partial: vec![0.0; rows] }
    }
}

/// Solves `A·z = x` approximately and returns the norm of `x − A·z`.
pub(crate) fn conj_grad(matrix: &Csr, exchange: &mut Exchange<'_>, v: &mut Vectors) -> Result<f64, Error> {
    let Vectors { x, z, p, q, r, partial } = v;
    z.fill(0.0);
    r.copy_from_slice(x);
    p.copy_from_slice(x);
    let [mut rho] = exchange.sum([dot(r, r)])?;

    for _ in 0..STEPS {
        matrix.multiply(p, partial);
        exchange.complete(partial, q)?;
        let [curvature] = exchange.sum([dot(p, q)])?;
        let alpha = rho / curvature;
        add_scaled(z, alpha, p);
        add_scaled(r, -alpha, q);
        let before = rho;
        [rho] = exchange.sum([dot(r, r)])?;
        let beta = rho / before;
        for (p, r) in p.iter_mut().zip(&r[..]) {
            *p = r + beta * *p;
        }
    }

    matrix.multiply(z, partial);
    exchange.complete(partial, q)?;
    for (r, (x, q)) in r.iter_mut().zip(x.iter().zip(&q[..])) {
        *r = x - q;
    }
    let [square] = exchange.sum([dot(r, r)])?;
    Ok(square.sqrt())
}

/// Returns the local part of the inner product.
pub(crate) fn dot(a: &[f64], b: &[f64]) -> f64 {
    // Independent sums, because the compiler must not reorder floating-point additions.
    const LANES: usize = 8;
    let ((a, a_left), (b, b_left)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    let mut sums = [0.0; LANES];
    for (a, b) in a.iter().zip(b) {
        for ((sum, a), b) in sums.iter_mut().zip(a).zip(b) {
            *sum += a * b;
        }
    }
    let left: f64 = a_left.iter().zip(b_left).map(|(a, b)| a * b).sum();
    sums.iter().sum::<f64>() + left
}

fn add_scaled(a: &mut [f64], factor: f64, b: &[f64]) {
    for (a, b) in a.iter_mut().zip(b) {
        *a += factor * b;
    }
}
