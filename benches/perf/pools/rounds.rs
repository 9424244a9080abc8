//! Everybody in turns: rounds, medians, ratios.

use super::contender::{Contender, Kind, Name};
use super::second::Second;
use super::tests::{Task, Test};
use crate::perf::stats::quantile_f64;

/// How long and how often.
#[derive(Clone, Copy, Debug)]
pub(super) struct Effort {
    /// Nanoseconds that one contender runs at a time.
    pub(super) slice: f64,
    pub(super) rounds: usize,
}

/// What came of one test at one size.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) test: Test,
    pub(super) bytes: usize,
    pub(super) rows: Vec<Row>,
}

/// What came of one contender.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: Name,
    /// The median of the rounds, for one call.
    pub(super) ns: f64,
    /// The median of the rounds' ratios to the best that is another strategy, and who that is.
    pub(super) ratio: Option<(f64, Name)>,
}

/// One contender's calls, and the time of one in each round.
struct Lane<'a> {
    index: usize,
    contender: &'a dyn Contender,
    calls: usize,
    ns: Vec<f64>,
}

impl Lane<'_> {
    /// Runs until the contender has the memory that it needs, and finds out how many calls fill a slice.
    fn settle(&mut self, (test, bytes): (Test, usize), slice: f64, second: Option<&Second>) -> Option<()> {
        let run = |calls| self.run(Task { test, bytes, calls }, second);
        let mut calls = test.least();
        let (mut all, mut last) = (0.0, run(calls)?);
        while all < test.settling() * slice {
            last = run(calls)?;
            all += last;
            // The slower it is the sooner that is known.
            if last < slice / 4.0 && calls < 1 << 28 {
                calls *= 4;
            }
        }
        self.calls = ((slice / last * calls as f64) as usize).max(test.least());
        Some(())
    }

    fn run(&self, task: Task, second: Option<&Second>) -> Option<f64> {
        match second {
            Some(second) if task.test.pairs() => second.run(self.index, self.contender, task),
            _ => self.contender.run(task),
        }
        .map(|ns| ns.max(1) as f64)
    }
}

/// Runs one test at one size with all that take it. Who runs out of memory has no row.
pub(super) fn measure(
    field: &[Box<dyn Contender + Send>],
    (test, bytes): (Test, usize),
    effort: Effort,
    second: Option<&Second>,
) -> Series {
    let taking = field.iter().enumerate().filter(|(_, contender)| contender.takes(test));
    let lanes = taking.map(|(index, contender)| {
        let mut lane = Lane { index, contender: contender.as_ref(), calls: test.least(), ns: Vec::new() };
        lane.settle((test, bytes), effort.slice, second).map(|()| lane)
    });
    let mut lanes: Vec<Lane<'_>> = lanes.flatten().collect();
    for round in 0..effort.rounds {
        // Each goes first once: nobody always inherits the cache of the same one.
        let start = round % lanes.len().max(1);
        let (later, sooner) = lanes.split_at_mut(start);
        for lane in sooner.iter_mut().chain(later) {
            let task = Task { test, bytes, calls: lane.calls };
            lane.ns.extend(lane.run(task, second).map(|time| time / lane.calls as f64));
        }
    }
    lanes.iter().for_each(|lane| lane.contender.rest());
    lanes.retain(|lane| lane.ns.len() == effort.rounds);
    let named: Vec<(Name, &[f64])> = lanes.iter().map(|lane| (lane.contender.name(), &lane.ns[..])).collect();
    Series { test, bytes, rows: rows(&named) }
}

fn median(ns: impl IntoIterator<Item = f64>) -> f64 {
    quantile_f64(&mut ns.into_iter().collect::<Vec<_>>(), 0.5)
}

/// Compares each with the best that is another strategy; baselines are nobody's rivals.
fn rows(lanes: &[(Name, &[f64])]) -> Vec<Row> {
    let medians: Vec<f64> = lanes.iter().map(|(_, ns)| median(ns.iter().copied())).collect();
    let best = |name: Name| {
        let rivals = lanes.iter().zip(&medians).filter(|((rival, _), _)| {
            rival.strategy != name.strategy && rival.kind != Kind::Baseline && name.kind != Kind::Baseline
        });
        rivals.min_by(|a, b| a.1.total_cmp(b.1)).map(|(rival, _)| rival)
    };
    let row = |((name, ns), median_ns): (&(Name, &[f64]), &f64)| {
        let ratio = best(*name).map(|(rival, theirs)| {
            (median(ns.iter().zip(*theirs).map(|(ours, theirs)| ours / theirs)), *rival)
        });
        Row { name: *name, ns: *median_ns, ratio }
    };
    lanes.iter().zip(&medians).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::contender::{Kind, Name};
    use super::rows;

    fn name(strategy: &'static str, storage: &'static str, kind: Kind) -> Name {
        Name { strategy, storage, kind }
    }

    #[test]
    fn each_is_compared_with_the_best_of_another_strategy_round_by_round() {
        let lanes: [(Name, &[f64]); 4] = [
            (name("a", "pages", Kind::Ours), &[2.0, 2.0, 8.0]),
            (name("a", "heap", Kind::Ours), &[1.0, 1.0, 1.0]),
            (name("b", "heap", Kind::General), &[4.0, 2.0, 4.0]),
            (name("floor", "", Kind::Baseline), &[0.5, 0.5, 0.5]),
        ];
        let rows = rows(&lanes);
        assert_eq!(rows.iter().map(|row| row.ns).collect::<Vec<_>>(), [2.0, 1.0, 4.0, 0.5]);
        let ratios: Vec<_> =
            rows.iter().map(|row| row.ratio.map(|(ratio, to)| (ratio, to.strategy))).collect();
        assert_eq!(ratios, [Some((1.0, "b")), Some((0.25, "b")), Some((4.0, "a")), None]);
    }
}
