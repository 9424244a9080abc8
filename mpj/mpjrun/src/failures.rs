//! Decides which ranks have failed, and in which order.
//!
//! Three kinds of reports say that a rank is dead: the rank reports its own failure, its process exits abnormally, or
//! another rank reports it. Hundreds of reports can arrive at once, in any order, and one failure causes others.
//! Therefore a report is only queued when it is received. `process_reports` handles the queue after all ready sockets
//! have been read, in this order:
//!
//! 1. Silent deaths. The first reported failure may be the result of a death that `mpjrun` has not noticed yet, because
//!    a killed process sends nothing. The exits of processes that reported nothing come first.
//! 2. The reports of processes about their own ranks, and their exits, in the order of arrival.
//! 3. The reports about other processes. A connection breaks *because* a rank failed. Before `mpjrun` believes such a
//!    report, it reads the messages of the reported process and checks whether it has exited. The process's own report,
//!    or its exit status, is the better explanation.
//!
//! A rank that fails in a call because another rank has failed sends `FailedDueTo`, and may exit first. If the other
//! rank fails, too, its failure is the cause (see `report`). If a rank runs for longer than the grace period after
//! `FailedDueTo`, its later failure is independent.
//!
//! A process that exited with code 0 and never joined has failed only if another process joins, because programs that
//! do not use `mpj` may also be started.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use mpj::boot::wire::{ToProcess, WireExit, encode_frame};
use rustix::event::epoll;

use crate::job::{Job, JobPhase};
use crate::print_line;
use crate::spawn::ExitStatus;
use crate::verdict::{Failure, FailureKind};

/// Failure reports that have not been processed, and what is needed to judge them.
#[derive(Debug, Default)]
pub(crate) struct FailureReports {
    /// Reports of processes about their own ranks, and exits of processes.
    own: VecDeque<FailureReport>,
    /// Reports about ranks of other processes: the rank and the cause.
    noticed: VecDeque<(u32, String)>,
    /// By rank: the rank that caused its last failed call, and when it reported that.
    told: HashMap<u32, (u32, Instant)>,
    /// Processes that exited with code 0 before any process joined.
    never_joined: Vec<usize>,
    /// Whether a process has joined.
    joined: bool,
}

/// A report that ranks of a process are dead.
#[derive(Debug)]
struct FailureReport {
    process: usize,
    ranks: Range<u32>,
    kind: FailureKind,
}

impl FailureReports {
    /// Queues a failure that a process reported about its own ranks or that follows from its exit.
    pub(crate) fn own(&mut self, process: usize, ranks: Range<u32>, how: FailureKind) {
        self.own.push_back(FailureReport { process, ranks, kind: how });
    }

    /// Queues a process's report that a rank of another process is dead.
    pub(crate) fn reported_by_peer(&mut self, rank: u32, cause: String) {
        self.noticed.push_back((rank, cause));
    }

    /// Records that a call of `rank` failed because `first` had failed.
    pub(crate) fn failed_due_to(&mut self, rank: u32, first: u32) {
        self.told.insert(rank, (first, Instant::now()));
    }

    /// Returns the rank that one of `ranks` named in `FailedDueTo` at most `not_long` ago.
    fn first_before(&self, ranks: Range<u32>, not_long: Duration) -> Option<u32> {
        let told = ranks.filter_map(|rank| self.told.get(&rank));
        told.filter(|(_, at)| at.elapsed() <= not_long).map(|(first, _)| *first).next()
    }
}

impl Job<'_> {
    /// Records that a process has joined. From now on, a process that exits without having joined has failed.
    pub(crate) fn on_join(&mut self, index: usize) {
        self.processes[index].joined = true;
        self.claims.joined = true;
        for absent in std::mem::take(&mut self.claims.never_joined) {
            let ranks = self.processes[absent].process.ranks.clone();
            self.claims.own(absent, ranks, FailureKind::NeverJoined);
        }
    }

    /// Records a process's exit, if it has exited.
    pub(crate) fn on_exit(&mut self, index: usize) {
        if self.processes[index].status.is_some() {
            return;
        }
        let Some(status) = self.processes[index].process.status() else { return };
        self.processes[index].status = Some(status);
        // The process has exited, so all messages that it sent are in the socket.
        self.read_messages(index);
        let member = &mut self.processes[index];
        let torn = member.control.torn();
        // An error means that the descriptor was already removed.
        let _ = epoll::delete(&self.epoll, member.process.pidfd());
        let _ = epoll::delete(&self.epoll, &member.control);
        member.control.close();
        let (ranks, joined) = (member.process.ranks.clone(), member.joined);
        let left = ranks.clone().all(|rank| self.board.end(rank) == Some(&WireExit::Left));
        match (status, joined, left) {
            (ExitStatus::Code(0), true, true) => {}
            (ExitStatus::Code(0), false, _) if self.claims.joined => {
                self.claims.own(index, ranks, FailureKind::NeverJoined)
            }
            (ExitStatus::Code(0), false, _) => self.claims.never_joined.push(index),
            (_, false, _) => {
                self.claims.own(index, ranks, FailureKind::Exited(status, "before joining the job"))
            }
            (_, true, false) => {
                let ended = FailureKind::Exited(status, "before leaving the job");
                let how = match (status, torn) {
                    (ExitStatus::Code(_), Some(torn)) => FailureKind::Torn(status, torn),
                    _ => ended,
                };
                self.claims.own(index, ranks, how);
            }
            (_, true, true) => {
                self.claims.own(index, ranks, FailureKind::Exited(status, "after leaving the job"))
            }
        }
    }

    /// Processes all queued failure reports.
    pub(crate) fn process_reports(&mut self) {
        let any = !self.claims.own.is_empty() || !self.claims.noticed.is_empty();
        if any && self.failures.is_empty() && !self.is_terminating() {
            self.collect_silent_exits();
        }
        self.weigh_own();
        while let Some((rank, cause)) = self.claims.noticed.pop_front() {
            if self.has_exited(rank) {
                continue;
            }
            let index = self.spec.process_of(rank);
            self.read_messages(index);
            self.on_exit(index);
            self.weigh_own();
            if !self.has_exited(rank) {
                self.record_exit(rank, WireExit::Died(cause.clone()));
                self.record_failure(FailureReport {
                    process: index,
                    ranks: rank..rank + 1,
                    kind: FailureKind::ReportedByPeer(cause),
                });
            }
        }
    }

    fn weigh_own(&mut self) {
        while let Some(claim) = self.claims.own.pop_front() {
            self.record_failure(claim);
        }
    }

    /// Puts the exits of processes that reported nothing before the reports of the others.
    fn collect_silent_exits(&mut self) {
        let said = std::mem::take(&mut self.claims.own);
        let spoke: HashSet<usize> = said.iter().map(|claim| claim.process).collect();
        (0..self.processes.len())
            .filter(|index| !spoke.contains(index))
            .for_each(|index| self.on_exit(index));
        self.claims.own.extend(said);
    }

    fn has_exited(&self, rank: u32) -> bool {
        matches!(self.board.end(rank), Some(WireExit::Left | WireExit::Died(_)))
    }

    /// Returns whether `mpjrun` itself terminates the processes.
    fn is_terminating(&self) -> bool {
        matches!(self.phase, JobPhase::Asked(_) | JobPhase::Killed) || self.stop_reason.is_some()
    }

    /// Records a failure, unless `mpjrun` caused it or the process has failed before.
    fn record_failure(&mut self, claim: FailureReport) {
        let FailureReport { process, ranks, kind: how } = claim;
        let (text, abort) = (how.text(), matches!(how, FailureKind::Abort(..)));
        let ours = self.is_terminating();
        let told_of = self.claims.first_before(ranks.clone(), self.spec.grace);
        if !ours {
            self.failed.extend(ranks.clone());
        }
        let known = self.processes[process].failure.and_then(|index| self.failures.get_mut(index));
        match known {
            _ if ours => {}
            // The process's own report, or its exit, replaces the report of another rank.
            Some(earlier) if matches!(earlier.how, FailureKind::ReportedByPeer(_)) => {
                (earlier.how, earlier.format_ranks) = (how, ranks.clone());
            }
            // The failure of `first`, a rank of this process, caused the recorded one, so it replaces that.
            Some(earlier) if earlier.caused_by.is_some_and(|first| ranks.contains(&first)) => {
                (earlier.how, earlier.format_ranks, earlier.caused_by) = (how, ranks.clone(), told_of);
            }
            Some(_) => {}
            None => {
                let pid = self.processes[process].process.pid();
                self.processes[process].failure = Some(self.failures.len());
                let at = Instant::now();
                let failure =
                    Failure { process, pid, format_ranks: ranks.clone(), how, at, caused_by: told_of };
                if self.spec.continue_on_failure && !failure.follows(&self.failures) {
                    // The job may run for a long time: report the failure now.
                    print_line(&format!("{failure}; the others go on"));
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

    /// Records a rank's exit. A death is sent to all processes; an orderly exit only to those that request it.
    pub(crate) fn record_exit(&mut self, rank: u32, exit: WireExit) {
        let Some(answers) = self.board.ended(rank, &exit) else { return };
        self.send_replies(answers);
        let WireExit::Died(_) = exit else { return self.ends.add(rank, Instant::now()) };
        // Causes are short, so the frame is below the limit.
        let Ok(news) = encode_frame(&ToProcess::Exited { rank, exit }) else { return };
        let others = self.processes.iter_mut().filter(|m| m.joined && !m.process.ranks.contains(&rank));
        others.for_each(|member| member.control.send_frame(&news, None));
    }
}
