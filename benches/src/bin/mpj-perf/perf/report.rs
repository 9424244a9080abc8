//! The output of the programs with ranks.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use mpj::{Intracomm, World};

use super::Failure;
use super::plot::Page;
use super::setting::{Placement, devices};

/// A median above this multiple of the minimum suggests that ranks shared a core.
const SUSPICIOUS_RATIO: f64 = 3.0;

/// The report of a measurement. Only rank 0 prints.
#[derive(Debug)]
pub(super) struct Report {
    prints: bool,
    bar: ProgressBar,
    placement: Placement,
    /// The largest ratio of a median to its minimum.
    max_ratio: Cell<f64>,
}

pub(crate) fn print_stats(world: &World) -> Result<(), Failure> {
    let stats = if world.rank() == 0 { world.stats().to_string() } else { String::new() };
    stats.lines().try_for_each(|line| print(format_args!("# {line}")))
}

fn print(line: fmt::Arguments<'_>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let result = writeln!(out, "{line}").and_then(|()| out.flush());
    Ok(result.map_err(|why| format!("cannot write the report: {why}"))?)
}

impl Report {
    /// Begins a report with the version and the placement of the ranks, and a progress bar of `steps` steps.
    /// Collective.
    pub(super) fn begin(world: &Intracomm, steps: usize) -> Result<Report, Failure> {
        let placement = Placement::gather(world)?;
        let prints = world.rank() == 0;
        let bar = if prints { progress(steps) } else { ProgressBar::hidden() };
        let report = Report { prints, bar, placement, max_ratio: Cell::new(0.0) };
        let build = if cfg!(debug_assertions) { ", a debug build: its figures mean nothing" } else { "" };
        report.line(format_args!("# lib: mpj {}, pure Rust{build}", env!("CARGO_PKG_VERSION")))?;
        report.line(format_args!("# affinity: {}", report.placement.affinity()))?;
        report.line(format_args!("# {}", report.placement))?;
        Ok(report)
    }

    pub(super) fn line(&self, line: fmt::Arguments<'_>) -> Result<(), Failure> {
        if self.prints { self.bar.suspend(|| print(line)) } else { Ok(()) }
    }

    /// Advances the progress bar by one step.
    pub(super) fn step(&self) {
        self.bar.inc(1);
    }

    pub(super) fn row(&self, line: fmt::Arguments<'_>) -> Result<(), Failure> {
        self.step();
        self.line(line)
    }

    pub(super) fn note_spread(&self, median: f64, min: f64) {
        if min > 0.0 {
            self.max_ratio.set(self.max_ratio.get().max(median / min));
        }
    }

    fn warning(&self) -> Option<String> {
        let max_ratio = self.max_ratio.get();
        (!self.placement.is_bound() && max_ratio > SUSPICIOUS_RATIO)
            .then(|| format!("a median is {max_ratio:.1} times its minimum"))
    }

    pub(super) fn finish(
        &self,
        world: &World,
        svg: Option<&Path>,
        page: impl FnOnce() -> Page,
    ) -> Result<(), Failure> {
        self.bar.finish_and_clear();
        if !self.prints {
            return Ok(());
        }
        if let Some(warning) = self.warning() {
            print(format_args!(
                "# warning: not bound, and {warning}: ranks may have shared a core (see --bind in mpj-perf PROGRAM --help)"
            ))?;
        }
        let Some(path) = svg else { return Ok(()) };
        let warning = self.warning().map_or_else(String::new, |warning| format!("; {warning}"));
        let setting = format!("{}: {}{warning}", devices(world), self.placement);
        Page { setting, ..page() }.write(path)
    }
}

/// Returns a progress bar on standard error, hidden if that is not a terminal.
pub(super) fn progress(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:10} {wide_bar} {pos}/{len} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(steps as u64).with_style(style);
    bar.tick();
    bar
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_spread_of_unbound_ranks_is_a_warning() {
        let report = Report {
            prints: false,
            bar: ProgressBar::hidden(),
            placement: Placement::default(),
            max_ratio: Cell::new(0.0),
        };
        report.note_spread(2.9, 1.0);
        report.note_spread(5.0, 0.0);
        assert_eq!(report.warning(), None);
        report.note_spread(6.2, 1.0);
        assert!(report.warning().is_some_and(|warning| warning.contains("6.2 times")));
    }
}
