//! Collects the reports of an agent about the ranks of its host, so that the root gets a few runs and not a message for
//! each rank.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::time::Instant;

use serde::{Deserialize, Serialize};

use crate::boot::control_plane::{INTERVAL, truncate_cause};
use crate::boot::wire::{MAX_CONTEXTS, ToLauncher, WireExit};

/// The maximum number of bytes of causes and contexts in one message with several runs.
const MAX_BATCH: usize = 1 << 18;

/// A report about a rank. The variants are in the order in which a rank causes them.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) enum ExitReport {
    /// [`ToLauncher::FailedDueTo`], with the rank that is the cause.
    FailedDueTo(u32),
    /// [`ToLauncher::Exited`].
    Exited(WireExit),
    /// The connection to the process of the rank has ended, for this reason.
    Closed(String),
}

/// One report about `len` consecutive ranks.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct ReportRun {
    pub(super) first: u32,
    pub(super) len: u32,
    pub(super) report: ExitReport,
}

impl ReportRun {
    /// Returns the ranks below `size`.
    pub(super) fn ranks(&self, size: u32) -> Range<u32> {
        self.first..self.first.saturating_add(self.len).min(size)
    }
}

/// The reports that were not sent. The first one is sent at once, those that follow within [`INTERVAL`] together.
#[derive(Debug, Default)]
pub(super) struct Reports {
    unsent: Vec<(u32, ExitReport)>,
    /// The ranks that have left or died.
    exited: HashSet<u32>,
    last_sent: Option<Instant>,
    due: Option<Instant>,
}

impl Reports {
    /// Adds the report of a rank about itself, or returns a message that must be passed on at once.
    pub(super) fn add(&mut self, from: u32, message: ToLauncher, now: Instant) -> Option<ToLauncher> {
        let report = match message {
            ToLauncher::FailedDueTo { rank, cause_rank } if rank == from => {
                ExitReport::FailedDueTo(cause_rank)
            }
            ToLauncher::Exited { rank, exit: WireExit::Died(cause) } if rank == from => {
                ExitReport::Exited(WireExit::Died(truncate_cause(cause)))
            }
            ToLauncher::Exited { rank, exit } if rank == from && !is_too_long(&exit) => {
                ExitReport::Exited(exit)
            }
            message => return Some(message),
        };
        if matches!(report, ExitReport::Exited(WireExit::Left | WireExit::Died(_))) {
            self.exited.insert(from);
        }
        self.push(from, report, now);
        None
    }

    /// Adds the end of the connection of a rank.
    pub(super) fn add_closed(&mut self, rank: u32, cause: String, now: Instant) {
        // If the rank has left or died before, the root does not need the cause.
        let cause = if self.exited.contains(&rank) { String::new() } else { cause };
        self.push(rank, ExitReport::Closed(cause), now);
    }

    fn push(&mut self, rank: u32, report: ExitReport, now: Instant) {
        self.due.get_or_insert(self.last_sent.map_or(now, |last| now.max(last + INTERVAL)));
        self.unsent.push((rank, report));
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Returns the content of the messages that are due.
    pub(super) fn take_due(&mut self, now: Instant) -> Vec<Vec<ReportRun>> {
        if self.due.is_none_or(|due| now < due) {
            return Vec::new();
        }
        (self.due, self.last_sent) = (None, Some(now));
        batches(runs(std::mem::take(&mut self.unsent)))
    }
}

/// Returns whether an exit is longer than those that a process sends.
fn is_too_long(exit: &WireExit) -> bool {
    matches!(exit, WireExit::ClosingExcept(contexts) if contexts.len() > MAX_CONTEXTS)
}

/// Returns the reports as runs. The reports of one rank stay in order. Deaths for one cause are together, at the place
/// of the first of them.
fn runs(reports: Vec<(u32, ExitReport)>) -> Vec<ReportRun> {
    let mut causes: HashMap<String, usize> = HashMap::new();
    let mut keyed: Vec<_> = Vec::with_capacity(reports.len());
    for (at, (rank, report)) in reports.into_iter().enumerate() {
        let mut place_of = |cause: &String| *causes.entry(cause.clone()).or_insert(at);
        let kind = match &report {
            ExitReport::FailedDueTo(_) => (0, None),
            ExitReport::Exited(WireExit::ClosingExcept(_)) => (1, None),
            ExitReport::Exited(WireExit::Closing) => (2, None),
            ExitReport::Exited(WireExit::Left) => (3, None),
            ExitReport::Closed(cause) if cause.is_empty() => (5, None),
            ExitReport::Exited(WireExit::Died(cause)) | ExitReport::Closed(cause) => {
                (4, Some(place_of(cause)))
            }
        };
        let is_later = kind.1.is_some_and(|place| place != at);
        keyed.push(((kind, is_later, rank), report));
    }
    keyed.sort_by_key(|(key, _)| *key);
    let mut runs: Vec<ReportRun> = Vec::new();
    for ((_, _, rank), report) in keyed {
        match runs
            .last_mut()
            .filter(|run| run.first.checked_add(run.len) == Some(rank) && run.report == report)
        {
            Some(run) => run.len += 1,
            None => runs.push(ReportRun { first: rank, len: 1, report }),
        }
    }
    runs
}

/// Divides runs into messages below the limit of a frame. A single run is below it.
fn batches(runs: Vec<ReportRun>) -> Vec<Vec<ReportRun>> {
    let (mut batches, mut next, mut len) = (Vec::new(), Vec::new(), 0);
    for run in runs {
        let own = 16
            + match &run.report {
                ExitReport::Exited(WireExit::ClosingExcept(contexts)) => 10 * contexts.len(),
                ExitReport::Exited(WireExit::Died(cause)) | ExitReport::Closed(cause) => cause.len(),
                ExitReport::FailedDueTo(_) | ExitReport::Exited(WireExit::Closing | WireExit::Left) => 0,
            };
        if len + own > MAX_BATCH && !next.is_empty() {
            batches.push(std::mem::take(&mut next));
            len = 0;
        }
        len += own;
        next.push(run);
    }
    if !next.is_empty() {
        batches.push(next);
    }
    batches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exited(rank: u32, exit: WireExit) -> ToLauncher {
        ToLauncher::Exited { rank, exit }
    }

    fn run(first: u32, len: u32, report: ExitReport) -> ReportRun {
        ReportRun { first, len, report }
    }

    #[test]
    fn first_report_is_sent_at_once_and_the_next_ones_as_runs() {
        let (mut reports, now) = (Reports::default(), Instant::now());
        assert_eq!(reports.add(4, exited(4, WireExit::Closing), now), None);
        let first = vec![run(4, 1, ExitReport::Exited(WireExit::Closing))];
        assert_eq!((reports.due(), reports.take_due(now)), (Some(now), vec![first]));
        for rank in [6, 7, 5] {
            for exit in [WireExit::Closing, WireExit::Left] {
                assert_eq!(reports.add(rank, exited(rank, exit), now), None);
            }
            reports.add_closed(rank, format!("(pid {rank}) exited"), now);
        }
        assert_eq!((reports.due(), reports.take_due(now)), (Some(now + INTERVAL), vec![]));
        let exits = [WireExit::Closing, WireExit::Left].map(ExitReport::Exited);
        let all = exits.into_iter().chain([ExitReport::Closed(String::new())]);
        let next: Vec<ReportRun> = all.map(|report| run(5, 3, report)).collect();
        assert_eq!(reports.take_due(now + INTERVAL), [next]);
        assert_eq!(reports.due(), None);
    }

    /// Ranks 9 and 7 are killed, and then ranks 2 and 3 fail because of them.
    #[test]
    fn deaths_stay_in_the_order_of_their_causes() {
        let (mut reports, now) = (Reports::default(), Instant::now());
        reports.add_closed(9, "was killed".into(), now);
        reports.add_closed(7, "was killed".into(), now);
        for rank in [3, 2] {
            let message = ToLauncher::FailedDueTo { rank, cause_rank: 9 };
            assert_eq!(reports.add(rank, message, now), None);
            let error = WireExit::Died("lost rank 9".into());
            assert_eq!(reports.add(rank, exited(rank, error), now), None);
            reports.add_closed(rank, "exited".into(), now);
        }
        let killed = || ExitReport::Closed("was killed".into());
        let died = || ExitReport::Exited(WireExit::Died("lost rank 9".into()));
        let expected = vec![
            run(2, 2, ExitReport::FailedDueTo(9)),
            run(9, 1, killed()),
            run(7, 1, killed()),
            run(3, 1, died()),
            run(2, 1, died()),
            run(2, 2, ExitReport::Closed(String::new())),
        ];
        assert_eq!(reports.take_due(now), [expected]);
    }

    #[test]
    fn other_messages_and_those_about_other_ranks_are_passed_on_at_once() {
        let (mut reports, now) = (Reports::default(), Instant::now());
        let too_long = WireExit::ClosingExcept(vec![1; MAX_CONTEXTS + 1]);
        for message in [ToLauncher::QueryExits, exited(2, WireExit::Left), exited(1, too_long)] {
            assert_eq!(reports.add(1, message.clone(), now), Some(message));
        }
        assert_eq!(reports.due(), None);
        let cause = WireExit::Died("x".repeat(1 << 20));
        assert_eq!(reports.add(1, exited(1, cause), now), None);
        let contexts = WireExit::ClosingExcept(vec![u64::MAX; MAX_CONTEXTS]);
        assert_eq!(reports.add(3, exited(3, contexts), now), None);
        for batch in reports.take_due(now) {
            crate::boot::wire::encode_frame(&batch).unwrap();
        }
    }
}
