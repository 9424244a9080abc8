//! The NAS Parallel Benchmarks according to their specification: classes, report and verification.
//!
//! The kernels follow *The NAS Parallel Benchmarks* (report RNR-94-007) and the structure of the MPI version 3.x. The
//! published numbers decide whether a run verifies.

use std::fmt;

pub(crate) mod cg;
pub(crate) mod random;

/// A problem size, as the specification names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The sample size, which takes almost no time.
    S,
    /// The size of a workstation of the nineties.
    W,
    /// The first of the standard sizes.
    A,
    /// The second.
    B,
    /// The third, the largest whose answer is compiled in.
    C,
}

impl Class {
    /// All supported classes.
    pub(crate) const ALL: [Self; 5] = [Self::S, Self::W, Self::A, Self::B, Self::C];

    /// Parses the letter of a class in either case.
    pub(crate) fn parse(name: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|class| class.to_string().eq_ignore_ascii_case(name))
            .ok_or_else(|| "the classes are S, W, A, B and C".to_owned())
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// The result of a run, printed in NPB's form.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// Two letters: `CG`.
    pub(crate) benchmark: &'static str,
    /// The problem size.
    pub(crate) class: Class,
    /// A line that describes the problem.
    pub(crate) size: String,
    /// The number of timed outer iterations.
    pub(crate) iterations: usize,
    /// The number of outer iterations that the class specifies.
    pub(crate) official_iterations: usize,
    /// The number of ranks.
    pub(crate) ranks: usize,
    /// The slowest rank's time of the timed part, in seconds.
    pub(crate) seconds: f64,
    /// Millions of floating-point operations in the timed part, by NPB's formula.
    pub(crate) mop: f64,
    /// The answer and the official one.
    pub(crate) answer: Answer,
}

/// A computed number and the published one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// The name of the number.
    pub(crate) name: &'static str,
    /// The computed value.
    pub(crate) value: f64,
    /// The published value.
    pub(crate) official: f64,
    /// The relative error that the verification routine of the benchmark allows.
    pub(crate) tolerance: f64,
}

impl Answer {
    /// Returns the relative error.
    pub(crate) fn error(&self) -> f64 {
        ((self.value - self.official) / self.official).abs()
    }

    /// Returns whether the answer is the official one. A NaN is not.
    pub(crate) fn verified(&self) -> bool {
        self.error() <= self.tolerance
    }
}

impl Report {
    /// Returns whether the run has the specified number of iterations, and the official answer.
    ///
    /// The answer alone is not sufficient: CG's zeta has its 13 digits a few iterations before the last one.
    pub(crate) fn verified(&self) -> bool {
        self.iterations == self.official_iterations && self.answer.verified()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { benchmark, class, size, iterations, official_iterations, ranks, seconds, mop, answer } =
            self;
        let rate = if *seconds > 0.0 { mop / seconds } else { 0.0 };
        writeln!(f, " {benchmark} Benchmark Completed")?;
        writeln!(f, " Class = {class}")?;
        writeln!(f, " Size = {size}")?;
        writeln!(f, " Iterations = {iterations}")?;
        if iterations != official_iterations {
            writeln!(f, " (the class asks for {official_iterations} iterations)")?;
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
    fn classes_are_read_in_either_case_and_no_other_letter_is() {
        assert_eq!(Class::parse("a"), Ok(Class::A));
        assert_eq!(Class::parse("W"), Ok(Class::W));
        assert!(Class::parse("Z").is_err());
        assert!(Class::parse("").is_err());
        assert!(Class::parse("AA").is_err());
    }

    #[test]
    fn nothing_that_is_not_a_number_verifies() {
        let answer = |value| Answer { name: "zeta", value, official: 2.0, tolerance: 1e-10 };
        assert!(answer(2.0 + 1e-10).verified());
        assert!(!answer(2.0 + 1e-9).verified());
        assert!(!answer(f64::NAN).verified());
        assert!(!answer(f64::INFINITY).verified());
    }
}
