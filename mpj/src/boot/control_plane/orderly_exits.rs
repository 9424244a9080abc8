//! Orderly exits, which are sent only to processes that request them.
//!
//! All replies are sent [`DELAY`] after the first process has both an unanswered request and an exit that it does not
//! know. Most jobs that end normally are over by then. Each process gets at most one reply per [`DELAY`].

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use crate::boot::wire::{ExitRun, ToProcess, WireExit};

/// How long orderly exits are collected before they are sent.
const DELAY: Duration = Duration::from_millis(200);

/// The maximum number of runs and contexts in a message of several runs, so that it stays below the frame limit. A
/// single run is below the limit, because its exit was received in a frame.
const MAX_BATCH: usize = 1 << 14;

#[derive(Debug, Default)]
pub(super) struct OrderlyExits {
    /// The rank of each reported exit, in order; a rank that first closes and then leaves occurs twice.
    exits: Vec<u32>,
    /// By requesting process: the number of entries of `exits` that were sent to it.
    sent_counts: HashMap<usize, usize>,
    /// Processes with an unanswered request.
    waiting_processes: BTreeSet<usize>,
    due: Option<Instant>,
}

impl OrderlyExits {
    pub(super) fn add(&mut self, rank: u32, now: Instant) {
        self.exits.push(rank);
        if !self.waiting_processes.is_empty() {
            self.due.get_or_insert(now + DELAY);
        }
    }

    pub(super) fn add_query(&mut self, process: usize, now: Instant) {
        self.waiting_processes.insert(process);
        if *self.sent_counts.entry(process).or_default() < self.exits.len() {
            self.due.get_or_insert(now + DELAY);
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the messages that are due; `exit_of` returns how a rank exited.
    pub(super) fn take_due(
        &mut self,
        now: Instant,
        exit_of: impl Fn(u32) -> Option<WireExit>,
    ) -> Vec<(usize, ToProcess)> {
        if self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        self.due = None;
        let mut replies = Vec::new();
        let mut by_sent_count = HashMap::new();
        for process in std::mem::take(&mut self.waiting_processes) {
            let sent = self.sent_counts.insert(process, self.exits.len()).unwrap_or_default();
            let batch = by_sent_count.entry(sent).or_insert_with(|| messages(&self.exits[sent..], &exit_of));
            if batch.is_empty() {
                self.waiting_processes.insert(process);
            }
            replies.extend(batch.iter().map(|message| (process, message.clone())));
        }
        replies
    }
}

/// Returns the messages with the latest exit of each of these ranks, except deaths.
fn messages(ranks: &[u32], exit_of: impl Fn(u32) -> Option<WireExit>) -> Vec<ToProcess> {
    let ranks: BTreeSet<u32> = ranks.iter().copied().collect();
    let mut runs: Vec<ExitRun> = Vec::new();
    for rank in ranks {
        // All processes get the deaths, and a death is final.
        let Some(end) = exit_of(rank).filter(|end| !matches!(end, WireExit::Died(_))) else { continue };
        match runs.last_mut().filter(|run| run.ranks().end == rank && run.exit == end) {
            Some(run) => run.len += 1,
            None => runs.push(ExitRun { first: rank, len: 1, exit: end }),
        }
    }
    let (mut messages, mut next, mut weight) = (Vec::new(), Vec::new(), 0);
    for run in runs {
        let own = match &run.exit {
            WireExit::ClosingExcept(contexts) => 1 + contexts.len(),
            WireExit::Closing | WireExit::Left | WireExit::Died(_) => 1,
        };
        if weight + own > MAX_BATCH && !next.is_empty() {
            messages.push(ToProcess::OrderlyExits(std::mem::take(&mut next)));
            weight = 0;
        }
        weight += own;
        next.push(run);
    }
    if !next.is_empty() {
        messages.push(ToProcess::OrderlyExits(next));
    }
    messages
}

#[cfg(test)]
mod tests {
    use super::*;

    const RANKS: u32 = 64;

    fn run(first: u32, len: u32, exit: WireExit) -> ExitRun {
        ExitRun { first, len, exit }
    }

    #[test]
    fn processes_without_query_get_no_exits() {
        let mut exits = OrderlyExits::default();
        let now = Instant::now();
        (0..RANKS).for_each(|rank| exits.add(rank, now));
        assert_eq!(exits.due(), None);
        assert!(exits.take_due(now + DELAY, |_| Some(WireExit::Left)).is_empty());
    }

    /// All 64 ranks close, then all leave, one after another. Every process requests exits before each exit.
    #[test]
    fn each_process_gets_one_reply_per_delay() {
        let mut exits = OrderlyExits::default();
        let begun = Instant::now();
        let (mut count, mut now) = (0, begun);
        for rank in (0..RANKS).chain(0..RANKS) {
            (0..RANKS as usize).for_each(|process| exits.add_query(process, now));
            exits.add(rank, now);
            now += DELAY / 32;
            let replies = exits.take_due(now, |rank| (rank < RANKS).then_some(WireExit::Left));
            assert!(
                replies
                    .iter()
                    .all(|(_, message)| matches!(message, ToProcess::OrderlyExits(runs) if runs.len() == 1))
            );
            count += replies.len();
        }
        assert_eq!(
            count,
            4 * RANKS as usize,
            "128 exits in 4 delays, and one reply to each process per delay"
        );
    }

    #[test]
    fn each_exit_is_sent_once_and_only_the_latest_of_a_rank() {
        let mut exits = OrderlyExits::default();
        let mut last: HashMap<u32, WireExit> = HashMap::new();
        let now = Instant::now();
        let mut add_exit = |exits: &mut OrderlyExits, rank: u32, exit: WireExit| {
            last.insert(rank, exit);
            exits.add(rank, now);
            last.clone()
        };
        let closing_except = || WireExit::ClosingExcept(vec![7]);
        add_exit(&mut exits, 1, closing_except());
        add_exit(&mut exits, 3, WireExit::Closing);
        add_exit(&mut exits, 3, WireExit::Left);
        add_exit(&mut exits, 5, WireExit::Closing);
        add_exit(&mut exits, 5, WireExit::Died("was killed".into()));
        let known = add_exit(&mut exits, 2, WireExit::Left);
        exits.add_query(0, now);
        assert_eq!(exits.due(), Some(now + DELAY));
        assert!(
            exits.take_due(now, |rank| known.get(&rank).cloned()).is_empty(),
            "exits are collected first"
        );
        let all = ToProcess::OrderlyExits(vec![run(1, 1, closing_except()), run(2, 2, WireExit::Left)]);
        assert_eq!(exits.take_due(now + DELAY, |rank| known.get(&rank).cloned()), [(0, all)]);
        exits.add_query(0, now);
        assert_eq!(exits.due(), None, "there is no new exit");
        let known = add_exit(&mut exits, 1, WireExit::Closing);
        let new = ToProcess::OrderlyExits(vec![run(1, 1, WireExit::Closing)]);
        assert_eq!(exits.take_due(now + DELAY, |rank| known.get(&rank).cloned()), [(0, new)]);
        assert!(exits.take_due(now + DELAY, |rank| known.get(&rank).cloned()).is_empty());
    }

    #[test]
    fn many_exits_are_split_into_messages_below_the_limit() {
        // The largest exit that a frame holds; 10 bytes for each context.
        let contexts: Vec<u64> = (0..104_855).map(|i| u64::MAX - i).collect();
        let closing_except =
            [WireExit::ClosingExcept(contexts.clone()), WireExit::ClosingExcept(contexts[1..].to_vec())];
        let ranks: Vec<u32> = (0..8).chain((10..100_000).step_by(2)).collect();
        let exit_of = |rank: u32| match rank {
            1..5 => closing_except.get(rank as usize % 2).cloned(),
            _ => Some(WireExit::Left),
        };
        let messages = messages(&ranks, exit_of);
        let mut sent = 0;
        for message in &messages {
            crate::boot::wire::encode_frame(message).unwrap();
            let ToProcess::OrderlyExits(runs) = message else { panic!("{message:?}") };
            sent += runs.iter().map(|run| run.len as usize).sum::<usize>();
        }
        assert_eq!(sent, ranks.len());
        assert!(messages.len() < 10);
    }
}
