//! Runs contenders interleaved, and compares each with the best contender of another strategy.

use super::contender::{Contender, Kind, Name};
use super::helper_thread::HelperThread;
use super::patterns::{AllocPattern, PatternRun};
use crate::perf::interleaved::{Candidate, Effort, median, ratio, run_interleaved, spread};

#[derive(Debug)]
pub(super) struct Series {
    pub(super) pattern: AllocPattern,
    pub(super) bytes: usize,
    pub(super) rows: Vec<Row>,
}

#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: Name,
    /// The median over the rounds of the time per call, in nanoseconds.
    pub(super) ns: f64,
    /// The minimum and the maximum of the rounds.
    pub(super) spread: (f64, f64),
    /// The median of the rounds' ratios to the best contender of another strategy, and that contender.
    pub(super) ratio: Option<(f64, Name)>,
}

/// Measures a pattern with all contenders that support it. A contender whose calls fail has no row.
pub(super) fn measure(
    contenders: &[Box<dyn Contender + Send>],
    (pattern, bytes): (AllocPattern, usize),
    effort: Effort,
    helper: Option<&HelperThread>,
) -> Series {
    let participants: Vec<(usize, &dyn Contender)> = contenders
        .iter()
        .enumerate()
        .map(|(index, contender)| (index, &**contender as &dyn Contender))
        .filter(|(_, contender)| contender.supports(pattern))
        .collect();
    let candidate = |(index, contender)| {
        let run = move |calls| {
            let run = PatternRun { pattern, bytes, calls };
            match helper {
                Some(helper) if pattern.needs_two_threads() => helper.run(index, contender, run),
                _ => contender.run(run),
            }
        };
        Candidate { run: Box::new(run), calls_unit: pattern.calls_unit(), warmup_runs: pattern.warmup_runs() }
    };
    let mut candidates: Vec<Candidate<'_>> = participants.iter().copied().map(candidate).collect();
    let rounds = run_interleaved(&mut candidates, effort);
    participants.iter().for_each(|(_, contender)| contender.release());
    let named = participants.iter().zip(&rounds);
    let named: Vec<(Name, &[f64])> =
        named.filter_map(|((_, contender), ns)| Some((contender.name(), ns.as_deref()?))).collect();
    Series { pattern, bytes, rows: rows(&named) }
}

/// Compares each contender with the best one of another strategy. Baselines are not compared.
fn rows(candidates: &[(Name, &[f64])]) -> Vec<Row> {
    let medians: Vec<f64> = candidates.iter().map(|(_, ns)| median(ns.iter().copied())).collect();
    let best = |name: Name| {
        let rivals = candidates.iter().zip(&medians).filter(|((rival, _), _)| {
            rival.strategy != name.strategy && rival.kind != Kind::Baseline && name.kind != Kind::Baseline
        });
        rivals.min_by(|a, b| a.1.total_cmp(b.1)).map(|(rival, _)| rival)
    };
    let row = |((name, ns), median_ns): (&(Name, &[f64]), &f64)| {
        let ratio = best(*name).map(|(rival, theirs)| (ratio(ns, theirs), *rival));
        Row { name: *name, ns: *median_ns, spread: spread(ns), ratio }
    };
    candidates.iter().zip(&medians).map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::contender::{Kind, Name};
    use super::rows;

    fn name(strategy: &'static str, storage: &'static str, kind: Kind) -> Name {
        Name { strategy, storage, kind }
    }

    #[test]
    fn ratios_are_to_the_best_of_another_strategy_round_by_round() {
        let candidates: [(Name, &[f64]); 4] = [
            (name("a", "pages", Kind::Ours), &[2.0, 2.0, 8.0]),
            (name("a", "heap", Kind::Ours), &[1.0, 1.0, 1.0]),
            (name("b", "heap", Kind::General), &[4.0, 2.0, 4.0]),
            (name("floor", "", Kind::Baseline), &[0.5, 0.5, 0.5]),
        ];
        let rows = rows(&candidates);
        assert_eq!(rows.iter().map(|row| row.ns).collect::<Vec<_>>(), [2.0, 1.0, 4.0, 0.5]);
        let ratios: Vec<_> =
            rows.iter().map(|row| row.ratio.map(|(ratio, to)| (ratio, to.strategy))).collect();
        assert_eq!(ratios, [Some((1.0, "b")), Some((0.25, "b")), Some((4.0, "a")), None]);
    }
}
