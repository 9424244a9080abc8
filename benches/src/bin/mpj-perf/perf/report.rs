//! What rank 0 prints.

use std::fmt;
use std::io::{self, Write};
use std::path::Path;

use indicatif::{ProgressBar, ProgressStyle};
use mpj::{Intracomm, World};

use super::Failure;
use super::cores;
use super::plot::Page;

/// The bytes with which a rank names its cores.
const AFFINITY: usize = 64;

/// Prints at rank 0 and is silent elsewhere.
#[derive(Debug)]
pub(super) struct Report {
    prints: bool,
    /// On a terminal; where standard error is none, nothing is shown.
    bar: ProgressBar,
}

/// Prints what rank 0 has moved, as remarks.
pub(crate) fn stats(world: &World) -> Result<(), Failure> {
    let report = Report::new(world, 0);
    for line in world.stats().to_string().lines() {
        report.line(format_args!("# {line}"))?;
    }
    Ok(())
}

impl Report {
    /// A report of so many rows.
    pub(super) fn new(world: &Intracomm, rows: usize) -> Self {
        let prints = world.rank() == 0;
        let bar = if prints { progress(rows) } else { ProgressBar::hidden() };
        Report { prints, bar }
    }

    /// Prints one line at once: a reader may be waiting for it.
    pub(super) fn line(&self, line: fmt::Arguments<'_>) -> Result<(), Failure> {
        if !self.prints {
            return Ok(());
        }
        let written = self.bar.suspend(|| {
            let mut out = io::stdout().lock();
            writeln!(out, "{line}").and_then(|()| out.flush())
        });
        Ok(written.map_err(|why| format!("the report cannot be written: {why}"))?)
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

    /// Ends it, and draws its picture if that was asked for.
    pub(super) fn finish(&self, svg: Option<&Path>, page: impl FnOnce() -> Page) -> Result<(), Failure> {
        self.bar.finish_and_clear();
        match svg {
            Some(path) if self.prints => page().write(path),
            _ => Ok(()),
        }
    }

    /// Prints which library this is and on which cores its ranks are. Collective.
    pub(super) fn head(&self, world: &Intracomm) -> Result<(), Failure> {
        let mut mine = [0u8; AFFINITY];
        let cores = cores::affinity();
        let len = cores.len().min(AFFINITY);
        mine[..len].copy_from_slice(&cores.as_bytes()[..len]);
        let mut all = vec![0u8; if self.prints { AFFINITY * world.size() } else { 0 }];
        world.gather(&mine, &mut all, 0)?;

        let build = if cfg!(debug_assertions) { ", a debug build: its figures mean nothing" } else { "" };
        self.line(format_args!("# lib: mpj {}, pure Rust{build}", env!("CARGO_PKG_VERSION")))?;
        let name = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
        let ranks =
            all.chunks(AFFINITY).enumerate().map(|(rank, bytes)| format!("rank{rank}={}", name(bytes)));
        self.line(format_args!("# affinity: {}", ranks.collect::<Vec<_>>().join(" ")))
    }
}

/// Returns a bar on the terminal, or nothing where standard error is none.
pub(super) fn progress(steps: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg:10} {wide_bar} {pos}/{len} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(steps as u64).with_style(style);
    bar.tick();
    bar
}
