//! Which rank waits for what: the table that a job prints which hangs or is interrupted.
//!
//! A rank reports what each of its threads waits for ([`RankWaits`]). [`table`] combines the reports: a line for all
//! ranks with the same wait, the ranks that have not entered a collective call in which others wait, and a cycle of
//! ranks of which each waits for the next.

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write;
use std::time::Duration;

use mpj_devices::Engine;
use serde::{Deserialize, Serialize};

use super::each;

/// The most threads of a rank that are reported.
const THREADS: usize = 16;

/// The most communicators of a rank whose collective calls are reported.
const CONTEXTS: usize = 4096;

/// The most lines with waits in a table.
const LINES: usize = 64;

/// The waits of a rank's threads, and the collective calls that the rank has entered.
#[derive(Clone, PartialEq, Eq, Default, Debug, Serialize, Deserialize)]
pub struct RankWaits {
    /// The threads that sleep in a call.
    pub threads: Vec<ThreadWait>,
    /// By the context of a communicator, the number of the next collective call.
    pub calls: Vec<(u64, u32)>,
}

/// The wait of one thread.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ThreadWait {
    /// The call, its partner and its communicator.
    pub what: String,
    /// For how long, in milliseconds.
    pub millis: u64,
    /// The rank without which the wait cannot end, if it is one rank.
    pub peer: Option<u32>,
    /// The context and the number of the collective call that waits.
    pub call: Option<(u64, u32)>,
}

/// The report of a rank, if there is one.
#[derive(Clone, Debug)]
pub enum State {
    /// It has reported.
    Told(RankWaits),
    /// It has not reported, and the reason.
    Silent(&'static str),
}

impl RankWaits {
    /// Returns what a rank waits for now.
    pub fn of(engine: &Engine) -> Self {
        let threads = engine.waits().into_iter().take(THREADS).map(|waiting| ThreadWait {
            what: waiting.to_string(),
            millis: waiting.elapsed().as_millis().try_into().unwrap_or(u64::MAX),
            peer: waiting.peer(),
            call: waiting.collective(),
        });
        let threads = threads.collect();
        let mut calls = engine.calls();
        calls.truncate(CONTEXTS);
        RankWaits { threads, calls }
    }
}

/// Returns the table, each line of which begins with a line break.
pub fn table(ranks: &BTreeMap<u32, State>) -> String {
    let mut text = String::new();
    let lines = lines(ranks);
    for Line { what, ranks, millis } in lines.iter().take(LINES) {
        let time = millis.map_or(String::new(), |millis| {
            format!(", for {:.1} s", Duration::from_millis(millis).as_secs_f64())
        });
        // Writing to a string does not fail.
        let _ = write!(text, "\n  {}: {what}{time}", each(ranks.iter().copied()));
    }
    if lines.len() > LINES {
        let _ = write!(text, "\n  and {} more lines", lines.len() - LINES);
    }
    let calls = calls(ranks);
    for Call { what, missing, .. } in calls.iter().filter(|call| !call.missing.is_empty()).take(LINES) {
        let has = if missing.len() == 1 { "has" } else { "have" };
        let _ = write!(text, "\n  {} {has} not entered: {what}", each(missing.iter().copied()));
    }
    if let Some(cycle) = cycle(ranks, &calls) {
        let cycle: Vec<String> = cycle.iter().chain(cycle.first()).map(u32::to_string).collect();
        let _ = write!(text, "\n  a cycle of waiting ranks: {}", cycle.join(" → "));
    }
    text
}

/// Ranks that wait for the same.
struct Line<'a> {
    what: &'a str,
    ranks: Vec<u32>,
    /// For how long the one waits that has waited longest.
    millis: Option<u64>,
}

fn lines(ranks: &BTreeMap<u32, State>) -> Vec<Line<'_>> {
    let mut lines: Vec<Line<'_>> = Vec::new();
    let mut places: HashMap<(&str, bool), usize> = HashMap::new();
    let mut add = |rank: u32, what, millis: Option<u64>| {
        let place = *places.entry((what, millis.is_some())).or_insert_with(|| {
            lines.push(Line { what, ranks: Vec::new(), millis });
            lines.len() - 1
        });
        lines[place].ranks.push(rank);
        lines[place].millis = lines[place].millis.max(millis);
    };
    for (rank, state) in ranks {
        match state {
            State::Silent(why) => add(*rank, why, None),
            State::Told(RankWaits { threads, .. }) if threads.is_empty() => {
                add(*rank, "not in a call, or looking again and again", None);
            }
            State::Told(waits) => {
                waits.threads.iter().for_each(|thread| add(*rank, &thread.what, Some(thread.millis)));
            }
        }
    }
    lines.iter_mut().for_each(|line| line.ranks.dedup());
    lines
}

/// A collective call that ranks wait in.
struct Call<'a> {
    key: (u64, u32),
    what: &'a str,
    /// The ranks that are known not to have entered it.
    missing: Vec<u32>,
}

fn calls(ranks: &BTreeMap<u32, State>) -> Vec<Call<'_>> {
    let told = || {
        ranks.iter().filter_map(|(rank, state)| match state {
            State::Told(waits) => Some((*rank, waits)),
            State::Silent(_) => None,
        })
    };
    let mut calls: Vec<Call<'_>> = Vec::new();
    let mut known = HashMap::new();
    for thread in told().flat_map(|(_, waits)| &waits.threads) {
        let Some(key) = thread.call else { continue };
        known.entry(key).or_insert_with(|| {
            calls.push(Call { key, what: &thread.what, missing: Vec::new() });
        });
    }
    let mut by_context: HashMap<u64, Vec<usize>> = HashMap::new();
    for (place, call) in calls.iter().enumerate() {
        by_context.entry(call.key.0).or_default().push(place);
    }
    for (rank, waits) in told() {
        for (context, next) in &waits.calls {
            for place in by_context.get(context).into_iter().flatten() {
                // Numbers wrap around.
                let has_entered = calls[*place].key.1.wrapping_sub(*next).cast_signed() < 0;
                if !has_entered {
                    calls[*place].missing.push(rank);
                }
            }
        }
    }
    calls
}

/// Returns ranks of which each waits for the next, and the last for the first.
fn cycle(ranks: &BTreeMap<u32, State>, calls: &[Call<'_>]) -> Option<Vec<u32>> {
    #[derive(Clone, Copy, PartialEq, Eq, Hash)]
    enum Node {
        Rank(u32),
        Call(usize),
    }
    let places: HashMap<(u64, u32), usize> =
        calls.iter().enumerate().map(|(place, call)| (call.key, place)).collect();
    let next = |node: Node| -> Vec<Node> {
        match node {
            Node::Call(place) => calls[place].missing.iter().copied().map(Node::Rank).collect(),
            Node::Rank(rank) => match ranks.get(&rank) {
                Some(State::Told(waits)) => waits
                    .threads
                    .iter()
                    .filter_map(|thread| {
                        let call = thread.call.and_then(|key| places.get(&key)).copied().map(Node::Call);
                        thread.peer.map(Node::Rank).or(call)
                    })
                    .collect(),
                _ => Vec::new(),
            },
        }
    };
    // Depth first: a node that is met again while it is on the path from the root closes a cycle.
    let mut done: HashMap<Node, bool> = HashMap::new();
    for root in ranks.keys().copied().map(Node::Rank) {
        if done.contains_key(&root) {
            continue;
        }
        done.insert(root, false);
        let mut way = vec![(root, next(root))];
        while let Some((node, open)) = way.last_mut() {
            let Some(to) = open.pop() else {
                done.insert(*node, true);
                way.pop();
                continue;
            };
            match done.get(&to) {
                Some(true) => {}
                Some(false) => {
                    let begin = way.iter().position(|(node, _)| *node == to)?;
                    let ranks = way[begin..].iter().filter_map(|(node, _)| match node {
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
                    done.insert(to, false);
                    way.push((to, next(to)));
                }
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(what: &str, peer: Option<u32>, call: Option<(u64, u32)>, next: u32) -> State {
        let thread = ThreadWait { what: what.into(), millis: 2000, peer, call };
        State::Told(RankWaits { threads: vec![thread], calls: vec![(3, next)] })
    }

    fn told(states: impl IntoIterator<Item = State>) -> String {
        table(&(0..).zip(states).collect())
    }

    #[test]
    fn ranks_that_wait_for_each_other_are_a_cycle() {
        let recv = |peer| waits("recv", Some(peer), None, 0);
        let text = told([recv(2), recv(3), recv(3), recv(1)]);
        assert!(text.ends_with("\n  a cycle of waiting ranks: 1 → 3 → 1"), "{text}");
        assert!(told([recv(0)]).ends_with(": 0 → 0"));
        assert!(!told([recv(1), recv(2), State::Silent("has ended")]).contains("cycle"));
    }

    #[test]
    fn who_has_not_entered_a_collective_is_named_once() {
        let barrier = || waits("barrier", None, Some((3, 8)), 9);
        let early = RankWaits { threads: Vec::new(), calls: vec![(3, 8)] };
        let text = told([barrier(), State::Told(early), barrier(), waits("recv", Some(0), None, 8)]);
        assert_eq!(
            text,
            "\n  ranks 0 and 2: barrier, for 2.0 s\n  rank 1: not in a call, or looking again and again\n  \
             rank 3: recv, for 2.0 s\n  ranks 1 and 3 have not entered: barrier\n  \
             a cycle of waiting ranks: 0 → 3 → 0"
        );
    }

    #[test]
    fn numbers_of_calls_wrap_around() {
        let text =
            told([waits("barrier", None, Some((3, u32::MAX)), 0), waits("bcast", None, Some((3, 0)), 1)]);
        assert!(!text.contains("entered: barrier"), "{text}");
        assert!(text.contains("rank 0 has not entered: bcast"), "{text}");
    }

    #[test]
    fn a_table_has_an_end() {
        let text = told((0..100).map(|rank| waits(&format!("recv {rank}"), None, None, 0)));
        assert_eq!(text.lines().count(), 1 + LINES + 1);
        assert!(text.ends_with("and 36 more lines"), "{text}");
    }
}
