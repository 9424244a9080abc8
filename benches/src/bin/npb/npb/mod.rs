//! Classes, report and verification of the NAS Parallel Benchmarks.
//!
//! The kernels follow *The NAS Parallel Benchmarks* (report RNR-94-007) and the structure of the MPI version 3.x.

use std::fmt;

pub(crate) mod cg;
pub(crate) mod random;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    S,
    W,
    A,
    B,
    C,
}

impl Class {
    pub(crate) const ALL: [Self; 5] = [Self::S, Self::W, Self::A, Self::B, Self::C];

    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|class| class.to_string().eq_ignore_ascii_case(name))
            .ok_or_else(|| "expected S, W, A, B or C".to_owned())
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The result of a run, printed in NPB's form.
#[derive(Clone, Debug)]
pub(crate) struct RunReport {
    pub(crate) benchmark: &'static str,
    pub(crate) class: Class,
    pub(crate) size: String,
    /// Timed outer iterations.
    pub(crate) iterations: usize,
    /// Outer iterations that the class specifies.
    pub(crate) official_iterations: usize,
    pub(crate) ranks: usize,
    /// Time of the timed part: at rank 0 that of the slowest rank, at another rank its own.
    pub(crate) seconds: f64,
    /// Millions of floating-point operations in the timed part, by NPB's formula.
    pub(crate) mop: f64,
    pub(crate) answer: Answer,
}

/// A computed number and the published one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) official: f64,
    /// The relative error that the benchmark allows.
    pub(crate) tolerance: f64,
}

impl Answer {
    pub(crate) fn error(&self) -> f64 {
        ((self.value - self.official) / self.official).abs()
    }

    /// Returns whether the answer is the official one; false for NaN.
    pub(crate) fn verified(&self) -> bool {
        self.error() <= self.tolerance
    }
}

impl RunReport {
    /// Returns whether the run has the specified number of iterations and the official answer. The answer alone is not
    /// sufficient, because CG's zeta is within the tolerance a few iterations before the last one.
    pub(crate) fn verified(&self) -> bool {
        self.iterations == self.official_iterations && self.answer.verified()
    }
}

impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { benchmark, class, size, iterations, official_iterations, ranks, seconds, mop, answer } =
            self;
        let rate = if *seconds > 0.0 { mop / seconds } else { 0.0 };
        writeln!(f, " {benchmark} Benchmark Completed")?;
        writeln!(f, " Class = {class}")?;
        writeln!(f, " Size = {size}")?;
        writeln!(f, " Iterations = {iterations}")?;
        if iterations != official_iterations {
            writeln!(f, " (the class specifies {official_iterations} iterations)")?;
        }
        writeln!(f, " Total processes = {ranks}")?;
        writeln!(f, " {} = {:>19.13}", answer.name, answer.value)?;
        writeln!(f, " official = {:.13}, relative error = {:.1e}", answer.official, answer.error())?;
        writeln!(f, " Time in seconds = {seconds:.4}")?;
        writeln!(f, " Mop/s total = {rate:.2}")?;
        writeln!(f, " Mop/s/process = {:.2}", rate / *ranks as f64)?;
        let verdict = if self.verified() { "SUCCESSFUL" } else { "FAILED" };
        write!(f, " VERIFICATION {verdict}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_parsed_in_either_case() {
        assert_eq!(Class::parse("a"), Ok(Class::A));
        assert_eq!(Class::parse("W"), Ok(Class::W));
        assert!(Class::parse("Z").is_err());
        assert!(Class::parse("").is_err());
        assert!(Class::parse("AA").is_err());
    }

    #[test]
    fn nan_and_infinity_do_not_verify() {
        let answer = |value| Answer { name: "zeta", value, official: 2.0, tolerance: 1e-10 };
        assert!(answer(2.0 + 1e-10).verified());
        assert!(!answer(2.0 + 1e-9).verified());
        assert!(!answer(f64::NAN).verified());
        assert!(!answer(f64::INFINITY).verified());
    }
}
