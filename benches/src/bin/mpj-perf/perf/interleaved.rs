//! Runs the things to compare in turns in one process: a disturbance of a round affects all of them, so that ratios
//! within a round hold when times do not.

use super::stats::quantile_f64;

/// The duration and the number of the rounds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// The nanoseconds of one lane in one round.
    pub(super) slice: f64,
    pub(super) rounds: usize,
}

/// One of the things to compare.
pub(super) struct Lane<'a> {
    /// Makes the given number of calls and returns their nanoseconds, or `None` if it fails.
    pub(super) run: Box<dyn FnMut(usize) -> Option<u64> + 'a>,
    /// The smallest meaningful number of calls; every number of calls is a multiple of it.
    pub(super) least: usize,
    /// The number of runs of `least` calls before the first measurement.
    pub(super) settling: usize,
}

impl Lane<'_> {
    fn time(&mut self, calls: usize) -> Option<f64> {
        (self.run)(calls).map(|ns| ns.max(1) as f64)
    }

    /// Returns the number of calls that fill a slice.
    fn settle(&mut self, slice: f64) -> Option<usize> {
        let mut calls = self.least;
        for _ in 0..self.settling {
            self.time(calls)?;
        }
        let mut time = self.time(calls)?;
        while time < slice / 4.0 && calls < 1 << 28 {
            calls *= 4;
            time = self.time(calls)?;
        }
        let wanted = (slice / time * calls as f64) as usize;
        Some(wanted.max(self.least).next_multiple_of(self.least))
    }
}

/// Returns the nanoseconds per call in each round for each lane, or `None` for a lane that failed.
pub(super) fn take(lanes: &mut [Lane<'_>], effort: Effort) -> Vec<Option<Vec<f64>>> {
    let calls: Vec<Option<usize>> = lanes.iter_mut().map(|lane| lane.settle(effort.slice)).collect();
    let mut ns: Vec<Vec<f64>> = lanes.iter().map(|_| Vec::with_capacity(effort.rounds)).collect();
    for round in 0..effort.rounds {
        for turn in 0..lanes.len() {
            // Rotate the order in each round, so that a lane does not always run on the cache state that the same
            // other one left.
            let at = (turn + round) % lanes.len();
            let Some(calls) = calls[at] else { continue };
            ns[at].extend(lanes[at].time(calls).map(|time| time / calls as f64));
        }
    }
    ns.into_iter().map(|ns| (ns.len() == effort.rounds).then_some(ns)).collect()
}

/// Returns the median of some numbers, which must not be empty.
pub(super) fn median(numbers: impl IntoIterator<Item = f64>) -> f64 {
    quantile_f64(&mut numbers.into_iter().collect::<Vec<_>>(), 0.5)
}

/// Returns the minimum and the maximum of some numbers.
pub(super) fn spread(numbers: &[f64]) -> (f64, f64) {
    numbers.iter().fold((f64::INFINITY, 0.0), |(low, high), number| (number.min(low), number.max(high)))
}

/// Returns the median of the rounds' ratios.
pub(super) fn ratio(ours: &[f64], theirs: &[f64]) -> f64 {
    median(ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs))
}

#[cfg(test)]
mod tests {
    use super::{Effort, Lane, ratio, take};

    #[test]
    fn slow_things_make_fewer_calls_and_what_fails_has_no_time() {
        let lane = |each: u64| Lane {
            run: Box::new(move |calls| (each > 0).then_some(calls as u64 * each)),
            least: 3,
            settling: 1,
        };
        let mut lanes = [lane(10), lane(0), lane(100_000)];
        let rounds = take(&mut lanes, Effort { slice: 1e4, rounds: 4 });
        assert_eq!(rounds, [Some(vec![10.0; 4]), None, Some(vec![100_000.0; 4])]);
    }

    #[test]
    fn ratios_are_of_the_same_round() {
        assert_eq!(ratio(&[1.0, 20.0, 3.0], &[2.0, 40.0, 3.0]), 0.5);
    }
}
