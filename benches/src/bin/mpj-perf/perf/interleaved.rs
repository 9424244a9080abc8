//! Runs candidates in turn, in short rounds in one process. A disturbance that lasts for a round affects all candidates
//! in it, so the median of the ratios within rounds is more reliable than the times.

use super::stats::quantile_f64;

#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// The time to measure each candidate in each round.
    pub(super) slice_ns: f64,
    pub(super) rounds: usize,
}

pub(super) struct Candidate<'a> {
    /// Makes this number of calls and returns their nanoseconds, or `None` if a call fails.
    pub(super) run: Box<dyn FnMut(usize) -> Option<u64> + 'a>,
    /// Every number of calls is a multiple of this.
    pub(super) calls_unit: usize,
    /// How often `calls_unit` calls are made before the first measurement.
    pub(super) warmup_runs: usize,
}

impl Candidate<'_> {
    fn time(&mut self, calls: usize) -> Option<f64> {
        (self.run)(calls).map(|ns| ns.max(1) as f64)
    }

    fn calibrate(&mut self, slice_ns: f64) -> Option<usize> {
        let mut calls = self.calls_unit;
        for _ in 0..self.warmup_runs {
            self.time(calls)?;
        }
        let mut time = self.time(calls)?;
        while time < slice_ns / 4.0 && calls < 1 << 28 {
            calls *= 4;
            time = self.time(calls)?;
        }
        let wanted = (slice_ns / time * calls as f64) as usize;
        Some(wanted.max(self.calls_unit).next_multiple_of(self.calls_unit))
    }
}

/// Returns, for each candidate, the nanoseconds per call in each round, or `None` if the candidate has failed.
pub(super) fn run_interleaved(candidates: &mut [Candidate<'_>], effort: Effort) -> Vec<Option<Vec<f64>>> {
    let calls: Vec<Option<usize>> =
        candidates.iter_mut().map(|candidate| candidate.calibrate(effort.slice_ns)).collect();
    let mut ns: Vec<Vec<f64>> = candidates.iter().map(|_| Vec::with_capacity(effort.rounds)).collect();
    for round in 0..effort.rounds {
        for turn in 0..candidates.len() {
            // Start with another candidate in each round, so that none is always the first.
            let at = (turn + round) % candidates.len();
            let Some(calls) = calls[at] else { continue };
            ns[at].extend(candidates[at].time(calls).map(|time| time / calls as f64));
        }
    }
    ns.into_iter().map(|ns| (ns.len() == effort.rounds).then_some(ns)).collect()
}

/// Returns the median of at least one number.
pub(super) fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    quantile_f64(&mut numbers.into_iter().collect::<Vec<_>>(), 0.5)
}

pub(super) fn spread(numbers: &[f64]) -> (f64, f64) {
    numbers.iter().fold((f64::INFINITY, 0.0), |(low, high), number| (number.min(low), number.max(high)))
}

pub(super) fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    median(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs))
}

#[cfg(test)]
mod tests {
    use super::{Candidate, Effort, ratio, run_interleaved};

    #[test]
    fn times_are_per_call_and_failed_candidates_have_none() {
        let candidate = |each: u64| Candidate {
            run: Box::new(move |calls| (each > 0).then_some(calls as u64 * each)),
            calls_unit: 3,
            warmup_runs: 1,
        };
        let mut candidates = [candidate(10), candidate(0), candidate(100_000)];
        let rounds = run_interleaved(&mut candidates, Effort { slice_ns: 1e4, rounds: 4 });
        assert_eq!(rounds, [Some(vec![10.0; 4]), None, Some(vec![100_000.0; 4])]);
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        assert_eq!(ratio(&[1.0, 20.0, 3.0], &[2.0, 40.0, 3.0]), 0.5);
    }
}
