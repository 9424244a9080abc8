//! The output: comma-separated lines, or human-readable tables.

use std::io::{self, Write};

use super::contender::{Kind, Name};
use super::memory::Peak;
use super::patterns::AllocPattern;
use super::rounds::{Row, Series};
use crate::perf::Failure;

/// The sizes in the table of a pattern that has more than seven sizes; comma-separated lines have all sizes.
const SHOWN: [usize; 7] = [64, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 8 << 20];

pub(in crate::perf) fn lines(lines: impl IntoIterator<Item = String>) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    let written = lines.into_iter().try_for_each(|line| writeln!(out, "{line}"));
    Ok(written.and_then(|()| out.flush()).map_err(|why| format!("cannot write the report: {why}"))?)
}

pub(super) fn csv(series: &Series) -> Vec<String> {
    let line = |row: &Row| {
        let Name { strategy, storage, .. } = row.name;
        let ratio = row.ratio.map_or_else(String::new, |(ratio, _)| format!("{ratio:.3}"));
        format!("POOL,{},{strategy},{storage},{},{:.2},{ratio}", series.pattern.name(), series.bytes, row.ns)
    };
    series.rows.iter().map(line).collect()
}

pub(super) fn memory_csv(name: Name, peak: Peak) -> String {
    let ratio = peak.resident as f64 / peak.live as f64;
    format!("POOLMEM,mix,{},{},{},{},{ratio:.3}", name.strategy, name.storage, peak.live, peak.resident)
}

/// Returns the table of a pattern: a line for each contender, a column for each size.
pub(super) fn table(pattern: AllocPattern, all: &[Series]) -> Vec<String> {
    let columns: Vec<&Series> = all.iter().filter(|series| series.pattern == pattern).collect();
    let shown: Vec<&Series> = match columns.len() {
        0..=7 => columns,
        _ => columns.into_iter().filter(|series| SHOWN.contains(&series.bytes)).collect(),
    };
    let mut names: Vec<Name> = Vec::new();
    for row in shown.iter().flat_map(|series| &series.rows) {
        if !names.contains(&row.name) {
            names.push(row.name);
        }
    }
    let cells = |text: &dyn Fn(&Series) -> String| -> String {
        shown.iter().map(|series| format!("{:>13}", text(series))).collect()
    };
    let mut lines = vec![format!("\n{}, ns", pattern.title())];
    lines.push(format!("  {:<20}{}", "", cells(&|series| size(series.bytes))));
    for name in names {
        let of = |series: &Series| series.rows.iter().find(|row| row.name == name).map(|row| row.ns);
        let cells = cells(&|series| of(series).map_or_else(|| "-".to_owned(), time));
        lines.push(format!("  {:<20}{cells}", title(name)));
    }
    for name in shown.iter().flat_map(|s| &s.rows).map(|row| row.name).filter(is_default).take(1) {
        let ratio =
            |series: &Series| series.rows.iter().find(|row| row.name == name).and_then(|row| row.ratio);
        lines.push(format!(
            "  {:<20}{}",
            "magazine / best other",
            cells(&|series| ratio(series).map_or_else(String::new, |(ratio, _)| format!("{ratio:.2}")))
        ));
        lines.push(format!(
            "  {:<20}{}",
            "best other",
            cells(&|series| ratio(series).map_or_else(String::new, |(_, best)| best.strategy.to_owned()))
        ));
    }
    lines
}

fn is_default(name: &Name) -> bool {
    name.strategy == "magazine" && name.storage == "pages"
}

pub(super) fn memory_table(peaks: &[(Name, Peak)]) -> Vec<String> {
    let mut lines =
        vec!["\nMemory in the mix: peak resident / peak requested bytes (one process each)".to_owned()];
    for (name, peak) in peaks {
        let mib = |bytes: usize| bytes as f64 / f64::from(1 << 20);
        let ratio = peak.resident as f64 / peak.live as f64;
        lines.push(format!(
            "  {:<20}{ratio:>11.2}{:>11.0} MiB of {:.0} MiB",
            title(*name),
            mib(peak.resident),
            mib(peak.live)
        ));
    }
    lines
}

fn title(name: Name) -> String {
    match name.kind {
        Kind::General | Kind::Arena | Kind::Fixed => name.strategy.to_owned(),
        Kind::Ours | Kind::Baseline => format!("{} {}", name.strategy, name.storage),
    }
}

/// Formats a size with its unit; 0 means mixed sizes.
pub(in crate::perf) fn size(bytes: usize) -> String {
    match bytes {
        0 => "mixed".to_owned(),
        1..1024 => format!("{bytes} B"),
        1024..1_048_576 => format!("{} KiB", bytes >> 10),
        _ => format!("{} MiB", bytes >> 20),
    }
}

fn time(ns: f64) -> String {
    match ns {
        ..100.0 => format!("{ns:.1}"),
        _ => format!("{ns:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::{size, time};

    #[test]
    fn numbers_are_short() {
        assert_eq!([size(0), size(64), size(2048), size(8 << 20)].join(" "), "mixed 64 B 2 KiB 8 MiB");
        assert_eq!([time(1.44), time(99.94), time(283_258.8)].join(" "), "1.4 99.9 283259");
    }
}
