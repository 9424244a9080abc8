//! The table of traffic.

use std::collections::BTreeMap;
use std::fmt::Write;

use mpj_devices::{Count, Stats, Traffic};
use serde::{Deserialize, Serialize};

use super::rank_list;

/// The maximum number of ranks with a line each. For more ranks only the sum is printed.
const MAX_LINES: usize = 256;

/// The traffic of one rank.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct RankStats {
    /// The names of the devices with traffic.
    pub devices: Vec<String>,
    /// The number and the bytes of each column.
    pub totals: [(u64, u64); COLUMNS.len()],
}

/// The columns and their descriptions.
const COLUMNS: [(&str, &str); 6] = [
    ("eager", "messages copied through the device"),
    ("rendezvous", "messages whose bodies are transferred or read after the receive has matched"),
    (
        "zero copy",
        "bodies or pieces that a device transfers between the memories of two ranks, or that are read in place; counted at the \
         rank that requested this",
    ),
    ("registered", "memory registered with a device"),
    ("copied", "copies made by this rank, or by the kernel for it"),
    ("to self", "messages of a rank to itself"),
];

impl RankStats {
    pub fn of(stats: &Stats) -> Self {
        let mut sum = Traffic::default();
        let used = stats.devices.iter().filter(|(_, traffic)| *traffic != Traffic::default());
        let devices = used.map(|(name, _)| (*name).to_owned()).collect();
        stats.devices.iter().for_each(|(_, traffic)| sum += *traffic);
        let counts =
            [sum.eager, sum.rendezvous, sum.zero_copy, sum.registered, stats.copies(), stats.local.to_self];
        RankStats { devices, totals: counts.map(|Count { number, bytes, .. }| (number, bytes)) }
    }
}

/// Formats the traffic of ranks. Also lists those of `expected` that have no entry.
pub fn stats_table(expected: impl IntoIterator<Item = u32>, ranks: &BTreeMap<u32, RankStats>) -> String {
    let mut lines = vec![("rank".to_owned(), COLUMNS.map(|(name, _)| name.to_owned()), "devices".to_owned())];
    let mut sum = RankStats::default();
    for (rank, stats) in ranks {
        for (all, own) in sum.totals.iter_mut().zip(stats.totals) {
            *all = (all.0.saturating_add(own.0), all.1.saturating_add(own.1));
        }
        sum.devices.extend(
            stats.devices.iter().filter(|name| !sum.devices.contains(name)).cloned().collect::<Vec<_>>(),
        );
        if ranks.len() <= MAX_LINES {
            lines.push(line(&rank.to_string(), stats));
        }
    }
    if ranks.len() > 1 {
        lines.push(line("sum", &sum));
    }
    let widths: Vec<usize> = (0..COLUMNS.len())
        .map(|at| lines.iter().map(|(_, cells, _)| cells[at].chars().count()).max().unwrap_or(0))
        .collect();
    let mut text = String::from("traffic of the ranks: number (bytes)");
    for (rank, cells, devices) in &lines {
        let _ = write!(text, "\n  {rank:>5}");
        for (cell, width) in cells.iter().zip(&widths) {
            let _ = write!(text, "  {cell:>width$}");
        }
        let _ = write!(text, "  {devices}");
    }
    let missing: Vec<u32> = expected.into_iter().filter(|rank| !ranks.contains_key(rank)).collect();
    if !missing.is_empty() {
        let _ = write!(text, "\n  not counted, because they did not finalize: {}", rank_list(missing));
    }
    for (name, meaning) in COLUMNS {
        let _ = write!(text, "\n  {name}: {meaning}");
    }
    text
}

fn line(rank: &str, stats: &RankStats) -> (String, [String; COLUMNS.len()], String) {
    let cells = stats.totals.map(|(number, bytes)| {
        if number == 0 { "–".to_owned() } else { format!("{number} ({})", amount(bytes)) }
    });
    (rank.to_owned(), cells, stats.devices.join(", "))
}

/// Formats bytes in the largest unit up to PiB that gives a number of at least 1.
fn amount(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    let mut amount = bytes as f64 / 1024.0;
    let mut unit = 0;
    while amount >= 1024.0 && unit + 1 < UNITS.len() {
        amount /= 1024.0;
        unit += 1;
    }
    format!("{amount:.1} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_has_a_line_per_rank_and_the_sum() {
        let of = |device: &str, number, bytes| {
            let mut stats = RankStats { devices: vec![device.into()], ..RankStats::default() };
            stats.totals[0] = (number, bytes);
            stats.totals[4] = (1, 1 << 20);
            stats
        };
        let table =
            stats_table(0..3, &BTreeMap::from([(0, of("shmdev", 2, 100)), (2, of("niodev", 10, 5000))]));
        let lines: Vec<&str> = table.lines().collect();
        assert_eq!(lines[0], "traffic of the ranks: number (bytes)");
        assert_eq!(
            lines[1],
            "   rank         eager  rendezvous  zero copy  registered       copied  to self  devices"
        );
        assert_eq!(
            lines[2],
            "      0     2 (100 B)           –          –           –  1 (1.0 MiB)        –  shmdev"
        );
        assert_eq!(
            lines[4],
            "    sum  12 (5.0 KiB)           –          –           –  2 (2.0 MiB)        –  shmdev, niodev"
        );
        assert_eq!(lines[5], "  not counted, because they did not finalize: rank 1");
        assert_eq!(lines.len(), 6 + COLUMNS.len());
    }

    #[test]
    fn sums_do_not_overflow() {
        let most = RankStats { devices: Vec::new(), totals: [(1, u64::MAX); COLUMNS.len()] };
        let table = stats_table(0..2, &BTreeMap::from([(0, most.clone()), (1, most)]));
        assert!(table.contains("2 (16384.0 PiB)"), "{table}");
    }
}
