//! The NAS Parallel Benchmarks, after their specification: classes, report and verification.
//!
//! The kernels follow *The NAS Parallel Benchmarks* (report RNR-94-007) and the arrangement of the
//! MPI version 3.x; the numbers that decide success are the published ones.

use std::fmt;

pub(crate) mod cg;
pub(crate) mod random;

/// A problem size, as the specification names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// The sample: a check that takes no time.
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
    /// Every class that can be run.
    pub(crate) const ALL: [Self; 5] = [Self::S, Self::W, Self::A, Self::B, Self::C];

    /// Reads the letter of a class, of either case.
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

/// What a run leaves behind, printed as NPB prints it.
#[derive(Clone, Debug)]
pub(crate) struct Report {
    /// Two letters: `CG`.
    pub(crate) benchmark: &'static str,
    /// The problem size.
    pub(crate) class: Class,
    /// A line that describes the problem.
    pub(crate) size: String,
    /// How many outer iterations were timed.
    pub(crate) iterations: usize,
    /// How many the class asks for.
    pub(crate) official_iterations: usize,
    /// How many ranks took part.
    pub(crate) ranks: usize,
    /// The slowest rank's time of the timed part.
    pub(crate) seconds: f64,
    /// Millions of floating-point operations in the timed part, by the formula of NPB.
    pub(crate) mop: f64,
    /// The answer and the official one.
    pub(crate) answer: Answer,
}

/// A computed number beside the published one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// What the number is called.
    pub(crate) name: &'static str,
    /// What was computed.
    pub(crate) value: f64,
    /// What was published.
    pub(crate) official: f64,
    /// The relative error that the verification routine of the benchmark allows.
    pub(crate) tolerance: f64,
}

impl Answer {
    /// Returns the relative error.
    pub(crate) fn error(&self) -> f64 {
        ((self.value - self.official) / self.official).abs()
    }

    /// Whether the answer is the official one. A NaN is not.
    pub(crate) fn verified(&self) -> bool {
        self.error() <= self.tolerance
    }
}

impl Report {
    /// Whether the run is the one that the specification asks for, and its answer the official one.
    ///
    /// The answer alone does not tell: CG's zeta has its 13 digits a few iterations before the last.
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
