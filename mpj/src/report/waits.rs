//! The table of what each rank waits for, printed when a job hangs or is interrupted.
//!
//! A rank reports what its threads and futures wait for ([`RankWaits`]). [`waits_table`] combines the reports: a line
//! for all ranks with the same wait, the ranks that have not entered a collective call in which others wait, and a
//! cycle of ranks in which each waits for the next.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::time::Duration;

use mpj_devices::Engine;
use serde::{Deserialize, Serialize};

use super::rank_list;

// Limits of one rank's report (waits, contexts) and of each part of the table (lines).
const MAX_WAITS: usize = 16;
const MAX_CONTEXTS: usize = 4096;
const MAX_LINES: usize = 64;

/// The waits of a rank, and its position in the sequence of collective calls of each communicator. The waits are those
/// of pending futures, and of threads that have slept or parked.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct RankWaits {
    pub waits: Vec<Wait>,
    /// The context of each communicator, and the sequence number of its next collective call.
    pub calls: Vec<(u64, u32)>,
}

#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Wait {
    /// The call, its peer and its communicator.
    pub what: String,
    pub millis: u64,
    /// A world rank without which the wait cannot end, if one is known.
    pub peer: Option<u32>,
    /// The context and the sequence number of the collective call, if the wait is in one.
    pub call: Option<(u64, u32)>,
}

#[derive(Clone, Debug)]
pub enum RankReport {
    Waits(RankWaits),
    /// The rank has not reported, for this reason.
    Missing(&'static str),
}

impl RankWaits {
    pub fn of(engine: &Engine) -> Self {
        let waits = engine.waits().into_iter().take(MAX_WAITS).map(|waiting| Wait {
            what: waiting.to_string(),
            millis: waiting.elapsed().as_millis().try_into().unwrap_or(u64::MAX),
            peer: waiting.peer(),
            call: waiting.collective(),
        });
        let waits = waits.collect();
        let mut calls = engine.calls();
        calls.truncate(MAX_CONTEXTS);
        RankWaits { waits, calls }
    }
}

/// Returns the table; each line begins with a line break.
pub fn waits_table(ranks: &BTreeMap<u32, RankReport>) -> String {
    let mut text = String::new();
    let lines = lines(ranks);
    for Line { what, ranks, millis } in lines.iter().take(MAX_LINES) {
        let time = millis.map_or(String::new(), |millis| {
            format!(", for {:.1} s", Duration::from_millis(millis).as_secs_f64())
        });
        let _ = write!(text, "\n  {}: {what}{time}", rank_list(ranks.iter().copied()));
    }
    if lines.len() > MAX_LINES {
        let _ = write!(text, "\n  and {} more lines", lines.len() - MAX_LINES);
    }
    let calls = calls(ranks);
    for Call { what, missing, .. } in calls.iter().filter(|call| !call.missing.is_empty()).take(MAX_LINES) {
        let has = if missing.len() == 1 { "has" } else { "have" };
        let _ = write!(text, "\n  {} {has} not entered: {what}", rank_list(missing.iter().copied()));
    }
    if let Some(cycle) = cycle(ranks, &calls) {
        let cycle: Vec<String> = cycle.iter().chain(cycle.first()).map(u32::to_string).collect();
        let _ = write!(text, "\n  a cycle of waiting ranks: {}", cycle.join(" → "));
    }
    text
}

/// Ranks with the same text: their call, or why they have no wait to report.
struct Line<'a> {
    what: &'a str,
    ranks: Vec<u32>,
    /// The longest wait.
    millis: Option<u64>,
}

fn lines(ranks: &BTreeMap<u32, RankReport>) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut indices: HashMap<(&str, bool), usize> = HashMap::new();
    let mut add = |rank: u32, what, millis: Option<u64>| {
        let index = *indices.entry((what, millis.is_some())).or_insert_with(|| {
            lines.push(Line { what, ranks: Vec::new(), millis });
            lines.len() - 1
        });
        lines[index].ranks.push(rank);
        lines[index].millis = lines[index].millis.max(millis);
    };
    for (rank, state) in ranks {
        match state {
            RankReport::Missing(why) => add(*rank, why, None),
            RankReport::Waits(RankWaits { waits, .. }) if waits.is_empty() => {
                add(*rank, "in no blocking call (running user code, or polling)", None);
            }
            RankReport::Waits(RankWaits { waits, .. }) => {
                waits.iter().for_each(|wait| add(*rank, &wait.what, Some(wait.millis)));
            }
        }
    }
    lines.iter_mut().for_each(|line| line.ranks.dedup());
    lines
}

/// A collective call in which ranks wait.
struct Call<'a> {
    key: (u64, u32),
    what: &'a str,
    /// The ranks that are known not to have entered it.
    missing: Vec<u32>,
}

fn calls(ranks: &BTreeMap<u32, RankReport>) -> Vec<Call<'_>> {
    let reports = || {
        ranks.iter().filter_map(|(rank, state)| match state {
            RankReport::Waits(waits) => Some((*rank, waits)),
            RankReport::Missing(_) => None,
        })
    };
    let mut calls: Vec<Call<'_>> = Vec::new();
    let mut known = HashMap::new();
    for wait in reports().flat_map(|(_, report)| &report.waits) {
        let Some(key) = wait.call else { continue };
        known.entry(key).or_insert_with(|| {
            calls.push(Call { key, what: &wait.what, missing: Vec::new() });
        });
    }
    let mut by_context: HashMap<u64, Vec<usize>> = HashMap::new();
    for (index, call) in calls.iter().enumerate() {
        by_context.entry(call.key.0).or_default().push(index);
    }
    for (rank, waits) in reports() {
        for (context, next) in &waits.calls {
            for index in by_context.get(context).into_iter().flatten() {
                // Sequence numbers wrap around.
                let has_entered = calls[*index].key.1.wrapping_sub(*next).cast_signed() < 0;
                if !has_entered {
                    calls[*index].missing.push(rank);
                }
            }
        }
    }
    calls
}

/// Returns a cycle of ranks in which each waits for the next, starting with its lowest rank, or `None`.
fn cycle(ranks: &BTreeMap<u32, RankReport>, calls: &[Call<'_>]) -> Option<Vec<u32>> {
    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    enum Node {
        Rank(u32),
        Call(usize),
    }
    let indices: HashMap<(u64, u32), usize> =
        calls.iter().enumerate().map(|(index, call)| (call.key, index)).collect();
    let next = |node: Node| -> Vec<Node> {
        match node {
            Node::Call(index) => calls[index].missing.iter().copied().map(Node::Rank).collect(),
            Node::Rank(rank) => match ranks.get(&rank) {
                Some(RankReport::Waits(RankWaits { waits, .. })) => waits
                    .iter()
                    .filter_map(|wait| {
                        let call = wait.call.and_then(|key| indices.get(&key)).copied().map(Node::Call);
                        wait.peer.map(Node::Rank).or(call)
                    })
                    .collect(),
                _ => Vec::new(),
            },
        }
    };
    // Depth-first search: an edge to a node on the path from the root closes a cycle. Nodes on the path are unfinished.
    let mut is_finished: HashMap<Node, bool> = HashMap::new();
    for root in ranks.keys().copied().map(Node::Rank) {
        if is_finished.contains_key(&root) {
            continue;
        }
        is_finished.insert(root, false);
        let mut path = vec![(root, next(root))];
        while let Some((node, unvisited)) = path.last_mut() {
            let Some(to) = unvisited.pop() else {
                is_finished.insert(*node, true);
                path.pop();
                continue;
            };
            match is_finished.get(&to) {
                Some(true) => {}
                Some(false) => {
                    let begin = path.iter().position(|(node, _)| *node == to)?;
                    let ranks = path[begin..].iter().filter_map(|(node, _)| match node {
                        Node::Rank(rank) => Some(*rank),
                        Node::Call(_) => None,
                    });
                    let mut ranks: Vec<u32> = ranks.collect();
                    let least =
                        ranks.iter().enumerate().min_by_key(|(_, rank)| **rank).map_or(0, |(at, _)| at);
                    ranks.rotate_left(least);
                    return Some(ranks);
                }
                None => {
                    is_finished.insert(to, false);
                    path.push((to, next(to)));
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(what: &str, peer: Option<u32>, call: Option<(u64, u32)>, next: u32) -> RankReport {
        let wait = Wait { what: what.into(), millis: 2000, peer, call };
        RankReport::Waits(RankWaits { waits: vec![wait], calls: vec![(3, next)] })
    }

    fn reports(states: impl IntoIterator<Item = RankReport>) -> String {
        waits_table(&(0..).zip(states).collect())
    }

    #[test]
    fn cycle_of_waiting_ranks_is_found() {
        let recv = |peer| waits("recv", Some(peer), None, 0);
        let text = reports([recv(2), recv(3), recv(3), recv(1)]);
        assert!(text.ends_with("\n  a cycle of waiting ranks: 1 → 3 → 1"), "{text}");
        assert!(reports([recv(0)]).ends_with(": 0 → 0"));
        assert!(!reports([recv(1), recv(2), RankReport::Missing("has exited")]).contains("cycle"));
    }

    #[test]
    fn ranks_missing_in_a_collective_are_named_once() {
        let barrier = || waits("barrier", None, Some((3, 8)), 9);
        let early = RankWaits { waits: Vec::new(), calls: vec![(3, 8)] };
        let text = reports([barrier(), RankReport::Waits(early), barrier(), waits("recv", Some(0), None, 8)]);
        assert_eq!(
            text,
            "\n  ranks 0 and 2: barrier, for 2.0 s\n  rank 1: in no blocking call (running user code, or polling)\n  \
             rank 3: recv, for 2.0 s\n  ranks 1 and 3 have not entered: barrier\n  \
             a cycle of waiting ranks: 0 → 3 → 0"
        );
    }

    #[test]
    fn sequence_numbers_wrap_around() {
        let text =
            reports([waits("barrier", None, Some((3, u32::MAX)), 0), waits("bcast", None, Some((3, 0)), 1)]);
        assert!(!text.contains("entered: barrier"), "{text}");
        assert!(text.contains("rank 0 has not entered: bcast"), "{text}");
    }

    #[test]
    fn table_length_is_limited() {
        let text = reports((0..100).map(|rank| waits(&format!("recv {rank}"), None, None, 0)));
        assert_eq!(text.lines().count(), 1 + MAX_LINES + 1);
        assert!(text.ends_with("and 36 more lines"), "{text}");
    }
}
