//! Runs contenders in turns, and compares each with the best other one.

use super::contender::{Contender, Kind, Name};
use super::helper_thread::Second;
use super::tests::{Task, Test};
use crate::perf::interleaved::{Effort, Lane, median, ratio, spread, take};

/// The results of one test at one size.
#[derive(Debug)]
pub(super) struct Series {
    pub(super) test: Test,
    pub(super) bytes: usize,
    pub(super) rows: Vec<Row>,
}

/// The results of one contender.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: Name,
    /// The median of the rounds, per call.
    pub(super) ns: f64,
    /// The minimum and the maximum of the rounds.
    pub(super) spread: (f64, f64),
    /// The median of the rounds' ratios to the best contender of another strategy, and its name.
    pub(super) ratio: Option<(f64, Name)>,
}

/// Runs one test at one size with all contenders that support it. A contender that runs out of memory has no row.
pub(super) fn measure(
    field: &[Box<dyn Contender + Send>],
    (test, bytes): (Test, usize),
    effort: Effort,
    second: Option<&Second>,
) -> Series {
    let taking: Vec<(usize, &dyn Contender)> = field
        .iter()
        .enumerate()
        .map(|(index, contender)| (index, &**contender as &dyn Contender))
        .filter(|(_, contender)| contender.takes(test))
        .collect();
    let lane = |(index, contender)| {
        let run = move |calls| {
            let task = Task { test, bytes, calls };
            match second {
                Some(second) if test.pairs() => second.run(index, contender, task),
                _ => contender.run(task),
            }
        };
        Lane { run: Box::new(run), least: test.least(), settling: test.settling() }
    };
    let mut lanes: Vec<Lane<'_>> = taking.iter().copied().map(lane).collect();
    let rounds = take(&mut lanes, effort);
    taking.iter().for_each(|(_, contender)| contender.rest());
    let named = taking.iter().zip(&rounds);
    let named: Vec<(Name, &[f64])> =
        named.filter_map(|((_, contender), ns)| Some((contender.name(), ns.as_deref()?))).collect();
    Series { test, bytes, rows: rows(&named) }
}

/// Compares each contender with the best one of another strategy. Baselines are not compared.
fn rows(lanes: &[(Name, &[f64])]) -> Vec<Row> {
    let medians: Vec<f64> = lanes.iter().map(|(_, ns)| median(ns.iter().copied())).collect();
    let best = |name: Name| {
        let rivals = lanes.iter().zip(&medians).filter(|((rival, _), _)| {
            rival.strategy != name.strategy && rival.kind != Kind::Baseline && name.kind != Kind::Baseline
        });
        rivals.min_by(|a, b| a.1.total_cmp(b.1)).map(|(rival, _)| rival)
    };
    let row = |((name, ns), median_ns): (&(Name, &[f64]), &f64)| {
        let ratio = best(*name).map(|(rival, theirs)| (ratio(ns, theirs), *rival));
        Row { name: *name, ns: *median_ns, spread: spread(ns), ratio }
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
