//! Decides which ranks have failed, and in which order.
//!
//! A rank fails if it reports its own failure or aborts the job, another rank reports it as lost, or its process
//! violates the protocol, exits too early or exits with an error. Many reports can arrive at once, in any order, and
//! one failure causes others. So reports are queued on receipt. After the sockets of a pass of the event loop have been
//! read, `process_reports` handles the reports in this order:
//!
//! 1. For the first failure only: exits of processes without a queued report. A killed process might be the cause.
//! 2. Reports of processes about their own ranks, and their exits, in the order of arrival.
//! 3. Reports about ranks of other processes. A connection often breaks *because* a rank failed. So the messages and
//!    the exit status of the reported process, which explain more, are read first. For the first failure, `mpjrun`
//!    waits a moment for that exit.
//!
//! A rank whose call fails because of another rank sends `FailedDueTo`, and might exit before the other rank. If both
//! fail, the failure of the other rank is the root cause (`verdict`). A failure later than the grace period after
//! `FailedDueTo` is independent.
//!
//! A process that exited with code 0 and never joined has failed only if another process joins, because `mpjrun` also
//! starts programs that do not use `mpj`.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use mpj::boot::wire::WireExit;
use mpj_devices::Exit;
use rustix::event::epoll;

use crate::job::{Job, JobPhase};
use crate::print_line;
use crate::spawn::ExitStatus;
use crate::verdict::{Failure, FailureKind};

/// How long `mpjrun` waits for the exit of a process whose connection a peer has reported as closed: the kernel closes
/// the connections of a process before it reports the exit.
const EXIT_TIME: Duration = Duration::from_millis(200);

/// Failure reports that have not been processed, and the data that their processing needs.
#[derive(Debug, Default)]
pub(crate) struct FailureReports {
    /// Reports of processes about their own ranks, and exits and protocol violations of processes.
    own: VecDeque<FailureReport>,
    /// Reports about ranks of other processes: the lost rank and the cause.
    by_peers: VecDeque<(u32, String)>,
    /// For each rank that has reported it: the rank that caused its last failed call, and the time of that report.
    causes: HashMap<u32, (u32, Instant)>,
    /// Processes that exited with code 0 before any process joined.
    never_joined: Vec<usize>,
    any_joined: bool,
}

/// A report that ranks of a process have failed.
#[derive(Debug)]
struct FailureReport {
    process: usize,
    ranks: Range<u32>,
    kind: FailureKind,
}

impl FailureReports {
    /// Queues a failure that a process reported about its own ranks, or that its exit or a protocol violation shows.
    pub(crate) fn queue_own_report(&mut self, process: usize, ranks: Range<u32>, kind: FailureKind) {
        self.own.push_back(FailureReport { process, ranks, kind });
    }

    pub(crate) fn queue_peer_report(&mut self, rank: u32, cause: String) {
        self.by_peers.push_back((rank, cause));
    }

    /// Records that a call of `rank` failed because of `cause_rank`.
    pub(crate) fn failed_due_to(&mut self, rank: u32, cause_rank: u32) {
        self.causes.insert(rank, (cause_rank, Instant::now()));
    }

    /// Returns the rank that one of `ranks` named in `FailedDueTo` at most `max_age` ago.
    fn cause_of(&self, ranks: Range<u32>, max_age: Duration) -> Option<u32> {
        let causes = ranks.filter_map(|rank| self.causes.get(&rank));
        causes.filter(|(_, at)| at.elapsed() <= max_age).map(|(cause_rank, _)| *cause_rank).next()
    }
}

impl Job<'_> {
    /// Records that a process has joined, which makes earlier and later exits without joining failures.
    pub(crate) fn on_join(&mut self) {
        self.reports.any_joined = true;
        for absent in std::mem::take(&mut self.reports.never_joined) {
            let ranks = self.processes[absent].process.ranks.clone();
            self.reports.queue_own_report(absent, ranks, FailureKind::NeverJoined);
        }
    }

    pub(crate) fn on_exit(&mut self, index: usize) {
        if self.processes[index].status.is_some() {
            return;
        }
        let Some(status) = self.processes[index].process.status() else { return };
        self.processes[index].status = Some(status);
        // The process has exited, so all messages that it sent are in the socket.
        self.read_messages(index);
        let member = &mut self.processes[index];
        let incomplete = member.control.incomplete_frame();
        let _ = epoll::delete(&self.epoll, member.process.pidfd());
        let _ = epoll::delete(&self.epoll, &member.control);
        member.control.close();
        let (ranks, joined) = (member.process.ranks.clone(), self.plane.has_joined(index));
        let left = ranks.clone().all(|rank| self.plane.exit_of(rank) == Some(&Exit::Left));
        match (status, joined, left) {
            (ExitStatus::Code(0), true, true) => {}
            (ExitStatus::Code(0), false, _) if self.reports.any_joined => {
                self.reports.queue_own_report(index, ranks, FailureKind::NeverJoined)
            }
            (ExitStatus::Code(0), false, _) => self.reports.never_joined.push(index),
            (_, false, _) => self.reports.queue_own_report(
                index,
                ranks,
                FailureKind::Exited(status, "before joining the job".into()),
            ),
            (_, true, false) => {
                let exited = FailureKind::Exited(status, "before leaving the job".into());
                let kind = match (status, incomplete) {
                    (ExitStatus::Code(_), Some(incomplete)) => {
                        FailureKind::ExitedMidMessage(status, incomplete)
                    }
                    _ => exited,
                };
                self.reports.queue_own_report(index, ranks, kind);
            }
            (_, true, true) => self.reports.queue_own_report(
                index,
                ranks,
                FailureKind::Exited(status, "after leaving the job".into()),
            ),
        }
    }

    pub(crate) fn process_reports(&mut self) {
        let any = !self.reports.own.is_empty() || !self.reports.by_peers.is_empty();
        if any && self.failures.is_empty() && !self.is_terminating() {
            self.collect_silent_exits();
        }
        self.process_own_reports();
        while let Some((rank, cause)) = self.reports.by_peers.pop_front() {
            if self.plane.has_exited(rank) {
                continue;
            }
            let index = self.spec.process_of(rank);
            if self.failures.is_empty() && !self.is_terminating() {
                self.processes[index].process.wait_for_exit(EXIT_TIME);
            }
            self.read_messages(index);
            self.on_exit(index);
            self.process_own_reports();
            if !self.plane.has_exited(rank) {
                self.record_exit(rank, WireExit::Died(cause.clone()));
                self.record_failure(FailureReport {
                    process: index,
                    ranks: rank..rank + 1,
                    kind: FailureKind::ReportedByPeer(cause),
                });
            }
        }
    }

    fn process_own_reports(&mut self) {
        while let Some(report) = self.reports.own.pop_front() {
            self.record_failure(report);
        }
    }

    /// Queues the exits of processes without a queued report before the reports of the others.
    fn collect_silent_exits(&mut self) {
        let own = std::mem::take(&mut self.reports.own);
        let reporting: HashSet<usize> = own.iter().map(|report| report.process).collect();
        (0..self.processes.len())
            .filter(|index| !reporting.contains(index))
            .for_each(|index| self.on_exit(index));
        self.reports.own.extend(own);
    }

    /// Returns whether `mpjrun` is ending the job, so that exits are not failures.
    fn is_terminating(&self) -> bool {
        matches!(self.phase, JobPhase::Terminating(_) | JobPhase::Killed) || self.stop_reason.is_some()
    }

    /// Records deaths and, unless `mpjrun` is ending the job, one failure per process: the one that explains most.
    fn record_failure(&mut self, report: FailureReport) {
        let FailureReport { process, ranks, kind } = report;
        let (text, abort) = (kind.text(), matches!(kind, FailureKind::Abort(..)));
        let is_terminating_job = self.is_terminating();
        let caused_by = self.reports.cause_of(ranks.clone(), self.spec.grace);
        let known = self.processes[process].failure_index.and_then(|index| self.failures.get_mut(index));
        // An exit code adds nothing to a failure that the process itself has reported.
        let is_exit_code = matches!(kind, FailureKind::Exited(ExitStatus::Code(_), _));
        let adds_nothing = is_exit_code
            && known.as_ref().is_some_and(|earlier| !matches!(earlier.kind, FailureKind::ReportedByPeer(_)));
        if !is_terminating_job && !adds_nothing {
            self.failed.extend(ranks.clone());
        }
        match known {
            _ if is_terminating_job || adds_nothing => {}
            Some(earlier) if matches!(earlier.kind, FailureKind::ReportedByPeer(_)) => {
                if let Some(kind) = kind.after(&earlier.kind) {
                    (earlier.kind, earlier.ranks) = (kind, ranks.clone());
                }
            }
            // A rank of this report caused the failure that is recorded for the process.
            Some(earlier) if earlier.caused_by.is_some_and(|cause_rank| ranks.contains(&cause_rank)) => {
                (earlier.kind, earlier.ranks, earlier.caused_by) = (kind, ranks.clone(), caused_by);
            }
            // Another rank of the process has aborted the job with code 0, which must not hide this failure.
            Some(earlier)
                if earlier.kind.is_abort_with_code_0()
                    && caused_by.is_none()
                    && !ranks.contains(&earlier.ranks.start) =>
            {
                (earlier.kind, earlier.ranks, earlier.caused_by) = (kind, ranks.clone(), caused_by);
            }
            Some(_) => {}
            None => {
                let pid = self.processes[process].process.pid();
                self.processes[process].failure_index = Some(self.failures.len());
                let at = Instant::now();
                let failure = Failure { process, pid, ranks: ranks.clone(), kind, at, caused_by };
                if self.spec.continue_on_failure && !failure.follows(&self.failures) {
                    // The job may run for a long time, so report the failure now.
                    let then = if abort { "the job ends" } else { "the other ranks continue" };
                    print_line(&format!("{failure}; {then}"));
                }
                self.failures.push(failure);
                if !self.spec.continue_on_failure {
                    self.start_grace();
                }
            }
        }
        if abort {
            self.start_grace();
        }
        ranks.for_each(|rank| self.record_exit(rank, WireExit::Died(text.clone())));
    }

    /// Records a rank's exit, and fails the requests that need the rank.
    fn record_exit(&mut self, rank: u32, end: WireExit) {
        let outgoing = self.plane.record_exit(rank, end, Instant::now());
        self.send(outgoing);
    }
}
