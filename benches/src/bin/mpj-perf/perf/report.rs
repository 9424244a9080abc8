//! The output of rank 0.

use std::cell::Cell;
use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use mpj::{Intracomm, World};

use super::Failure;
use super::plot::Page;
use super::setting::{Setting, devices};

/// A median above this multiple of the minimum suggests that ranks have shared a core.
const WILD: f64 = 3.0;

/// Prints at rank 0 and is silent at other ranks.
#[derive(Debug)]
pub(super) struct Report {
    prints: bool,
    /// A progress bar on the terminal. It is hidden if standard error is not a terminal.
    bar: ProgressBar,
    setting: Setting,
    /// The largest ratio of a median to the minimum time.
    wildest: Cell<f64>,
}

/// Prints the traffic of rank 0, as remarks.
pub(crate) fn stats(world: &World) -> Result<(), Failure> {
    let stats = if world.rank() == 0 { world.stats().to_string() } else { String::new() };
    stats.lines().try_for_each(|line| print(format_args!("# {line}")))
}

fn print(line: fmt::Arguments<'_>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    Ok(written.map_err(|why| format!("the report cannot be written: {why}"))?)
}

impl Report {
    /// Begins a report of `rows` rows: prints the version of the library and the placement of the ranks. Collective.
    pub(super) fn begin(world: &Intracomm, rows: usize) -> Result<Report, Failure> {
        let setting = Setting::gather(world)?;
        let prints = world.rank() == 0;
        let bar = if prints { progress(rows) } else { ProgressBar::hidden() };
        let report = Report { prints, bar, setting, wildest: Cell::new(0.0) };
        let build = if cfg!(debug_assertions) { ", a debug build: its figures mean nothing" } else { "" };
        report.line(format_args!("# lib: mpj {}, pure Rust{build}", env!("CARGO_PKG_VERSION")))?;
        report.line(format_args!("# affinity: {}", report.setting.affinity()))?;
        report.line(format_args!("# {}", report.setting))?;
        Ok(report)
    }

    /// Prints one line and flushes it, because a reader might be waiting for it.
    pub(super) fn line(&self, line: fmt::Arguments<'_>) -> Result<(), Failure> {
        if self.prints { self.bar.suspend(|| print(line)) } else { Ok(()) }
    }

    /// Counts a row that has several lines.
    pub(super) fn step(&self) {
        self.bar.inc(1);
    }

    /// Prints one row.
    pub(super) fn row(&self, line: fmt::Arguments<'_>) -> Result<(), Failure> {
        self.step();
        self.line(line)
    }

    /// Records a median time and the minimum time.
    pub(super) fn note(&self, median: f64, least: f64) {
        if least > 0.0 {
            self.wildest.set(self.wildest.get().max(median / least));
        }
    }

    /// Returns a warning if ranks might have shared a core.
    fn doubt(&self) -> Option<String> {
        let wildest = self.wildest.get();
        (!self.setting.is_bound() && wildest > WILD)
            .then(|| format!("a median is {wildest:.1} times the least time: ranks may have shared a core"))
    }

    /// Ends the report, and draws its picture if one was requested.
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
        if let Some(doubt) = self.doubt() {
            print(format_args!("# warning: not bound, and {doubt} (mpj-perf --help says more of --bind)"))?;
        }
        let Some(path) = svg else { return Ok(()) };
        let doubt = self.doubt().map_or_else(String::new, |doubt| format!("; {doubt}"));
        let setting = format!("{}: {}{doubt}", devices(world), self.setting);
        Page { setting, ..page() }.write(path)
    }
}

/// Returns a progress bar on the terminal, which is hidden if standard error is not a terminal.
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
    fn wild_times_of_unbound_ranks_raise_a_doubt() {
        let report = Report {
            prints: false,
            bar: ProgressBar::hidden(),
            setting: Setting::default(),
            wildest: Cell::new(0.0),
        };
        report.note(2.9, 1.0);
        report.note(5.0, 0.0);
        assert_eq!(report.doubt(), None);
        report.note(6.2, 1.0);
        assert!(report.doubt().is_some_and(|doubt| doubt.contains("6.2 times")));
    }
}
