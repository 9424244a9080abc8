//! Tables of the waits and the traffic of the ranks of a job.

mod stats;
mod waits;

use std::ops::Range;

pub use stats::{RankStats, stats_table};
pub use waits::{RankReport, RankWaits, Wait, waits_table};

/// Formats ranks: `ranks 0, 2 to 4 and 7`.
pub fn ranks(ranges: impl IntoIterator<Item = Range<u32>>) -> String {
    let mut ranges: Vec<Range<u32>> = ranges.into_iter().collect();
    ranges.sort_by_key(|range| range.start);
    let mut joined: Vec<Range<u32>> = Vec::new();
    for range in ranges {
        match joined.last_mut().filter(|last| last.end >= range.start) {
            Some(last) => last.end = last.end.max(range.end),
            None => joined.push(range),
        }
    }
    let count: usize = joined.iter().map(Range::len).sum();
    let parts = joined.into_iter().flat_map(|range| match range.len() {
        ..=2 => range.map(|rank| rank.to_string()).collect(),
        _ => vec![format!("{} to {}", range.start, range.end - 1)],
    });
    let parts: Vec<String> = parts.collect();
    let text = match parts.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} and {last}", rest.join(", ")),
        None => String::new(),
    };
    format!("{} {text}", if count == 1 { "rank" } else { "ranks" })
}

/// Formats a list of ranks as [`ranks`] does.
pub fn rank_list(list: impl IntoIterator<Item = u32>) -> String {
    ranks(list.into_iter().map(|rank| rank..rank + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_ranks_are_a_range() {
        assert_eq!(rank_list([7]), "rank 7");
        assert_eq!(ranks([8..10, 0..2, 2..4, 6..7]), "ranks 0 to 3, 6, 8 and 9");
    }
}
