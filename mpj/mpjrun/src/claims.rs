//! Who has failed, and in which order.
//!
//! Three kinds of claims say that a rank is dead: it says so itself, its process ends as it should not, or another rank
//! noticed. They come in any order, hundreds at once, and one of them leads to others; so whoever hears one only notes
//! it, and all are weighed when everything that was ready has been heard:
//!
//! 1. silent deaths: when somebody says the first time that it fails, this may be over a death that nobody has seen
//!    yet, since a killed process says nothing. The end of a process that said nothing comes first;
//! 2. then what was said by the processes themselves, and their ends, in the order of hearing;
//! 3. then what others noticed. A connection breaks *because* a rank failed, so before such a claim is believed the
//!    accused is heard, and its end looked at: what it says itself, or how it ended, is the better account.
//!
//! A rank that fails in a call because it was told that another one has failed says so (`Told`) and may end first. If the other
//! ends by it, too, that is the cause (`report`). Who goes on for longer than the grace time has got over it.
//!
//! A process that ended with 0 and never joined has failed only if another one joins: programs that are not written for
//! `mpj` may be started as well.

use std::collections::{HashMap, HashSet, VecDeque};
use std::ops::Range;
use std::time::{Duration, Instant};

use mpj::boot::wire::{ToProcess, WireExit, encode_frame};
use rustix::event::epoll;

use crate::job::{Job, Phase};
use crate::print_line;
use crate::report::{Failure, FailureKind};
use crate::spawn::Status;

/// What is claimed and not weighed yet.
#[derive(Debug, Default)]
pub(crate) struct FailureReports {
    /// What processes said of their own ranks, and how they ended.
    own: VecDeque<FailureReport>,
    /// What others noticed: the rank, and what is wrong with it.
    noticed: VecDeque<(u32, String)>,
    /// By rank, which rank it was last told to have failed before it, and when.
    told: HashMap<u32, (u32, Instant)>,
    /// Processes that ended with 0 before anybody joined.
    absent: Vec<usize>,
    /// Whether a process has joined.
    joined: bool,
}

/// That ranks of a process are dead.
#[derive(Debug)]
struct FailureReport {
    process: usize,
    ranks: Range<u32>,
    kind: FailureKind,
}

impl FailureReports {
    /// A process said, or did, something that is the end of these ranks of its own.
    pub(crate) fn own(&mut self, process: usize, ranks: Range<u32>, how: FailureKind) {
        self.own.push_back(FailureReport { process, ranks, kind: how });
    }

    /// A process noticed that a rank of another one is dead.
    pub(crate) fn reported_by_peer(&mut self, rank: u32, cause: String) {
        self.noticed.push_back((rank, cause));
    }

    /// A rank was told that `first` has failed before it.
    pub(crate) fn failed_due_to(&mut self, rank: u32, first: u32) {
        self.told.insert(rank, (first, Instant::now()));
    }

    /// Returns whom ranks that fail were told of not long ago.
    fn first_before(&self, ranks: Range<u32>, not_long: Duration) -> Option<u32> {
        let told = ranks.filter_map(|rank| self.told.get(&rank));
        told.filter(|(_, at)| at.elapsed() <= not_long).map(|(first, _)| *first).next()
    }
}

impl Job<'_> {
    /// Notes that a process has joined. From now on one that ended without having joined has failed.
    pub(crate) fn joins(&mut self, index: usize) {
        self.members[index].joined = true;
        self.claims.joined = true;
        for absent in std::mem::take(&mut self.claims.absent) {
            let ranks = self.members[absent].process.ranks.clone();
            self.claims.own(absent, ranks, FailureKind::NeverJoined);
        }
    }

    /// Takes note of a process's end, if it has ended.
    pub(crate) fn on_exit(&mut self, index: usize) {
        if self.members[index].status.is_some() {
            return;
        }
        let Some(status) = self.members[index].process.status() else { return };
        self.members[index].status = Some(status);
        // It has ended, so everything it said is in the socket.
        self.read_messages(index);
        let member = &mut self.members[index];
        let torn = member.control.torn();
        // An error says that the descriptor was not watched any more.
        let _ = epoll::delete(&self.epoll, member.process.pidfd());
        let _ = epoll::delete(&self.epoll, &member.control);
        member.control.close();
        let (ranks, joined) = (member.process.ranks.clone(), member.joined);
        let left = ranks.clone().all(|rank| self.board.end(rank) == Some(&WireExit::Left));
        match (status, joined, left) {
            (Status::Code(0), true, true) => {}
            (Status::Code(0), false, _) if self.claims.joined => {
                self.claims.own(index, ranks, FailureKind::NeverJoined)
            }
            (Status::Code(0), false, _) => self.claims.absent.push(index),
            (_, false, _) => {
                self.claims.own(index, ranks, FailureKind::Exited(status, "before joining the job"))
            }
            (_, true, false) => {
                let ended = FailureKind::Exited(status, "before leaving the job");
                let how = match (status, torn) {
                    (Status::Code(_), Some(torn)) => FailureKind::Torn(status, torn),
                    _ => ended,
                };
                self.claims.own(index, ranks, how);
            }
            (_, true, true) => {
                self.claims.own(index, ranks, FailureKind::Exited(status, "after leaving the job"))
            }
        }
    }

    /// Weighs all claims.
    pub(crate) fn process_reports(&mut self) {
        let any = !self.claims.own.is_empty() || !self.claims.noticed.is_empty();
        if any && self.failures.is_empty() && !self.ends_by_us() {
            self.collect_silent_exits();
        }
        self.weigh_own();
        while let Some((rank, cause)) = self.claims.noticed.pop_front() {
            if self.is_over(rank) {
                continue;
            }
            let index = self.spec.process_of(rank);
            self.read_messages(index);
            self.on_exit(index);
            self.weigh_own();
            if !self.is_over(rank) {
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

    /// Puts the ends of processes that have not spoken before what others said.
    fn collect_silent_exits(&mut self) {
        let said = std::mem::take(&mut self.claims.own);
        let spoke: HashSet<usize> = said.iter().map(|claim| claim.process).collect();
        (0..self.members.len()).filter(|index| !spoke.contains(index)).for_each(|index| self.on_exit(index));
        self.claims.own.extend(said);
    }

    fn is_over(&self, rank: u32) -> bool {
        matches!(self.board.end(rank), Some(WireExit::Left | WireExit::Died(_)))
    }

    /// Whether the processes end because we make them.
    fn ends_by_us(&self) -> bool {
        matches!(self.phase, Phase::Asked(_) | Phase::Killed) || self.stopped.is_some()
    }

    /// Takes note of a failure, unless we have brought it about or the process has failed before.
    fn record_failure(&mut self, claim: FailureReport) {
        let FailureReport { process, ranks, kind: how } = claim;
        let (text, abort) = (how.text(), matches!(how, FailureKind::Abort(..)));
        let ours = self.ends_by_us();
        let told_of = self.claims.first_before(ranks.clone(), self.spec.grace);
        if !ours {
            self.failed.extend(ranks.clone());
        }
        let known = self.members[process].failure.and_then(|index| self.failures.get_mut(index));
        match known {
            _ if ours => {}
            // The process's own account, or its end, replaces what other ranks had noticed.
            Some(earlier) if matches!(earlier.how, FailureKind::ReportedByPeer(_)) => {
                (earlier.how, earlier.ranks) = (how, ranks.clone());
            }
            // What a rank here has failed over is a better account of the process than that it has.
            Some(earlier) if earlier.caused_by.is_some_and(|first| ranks.contains(&first)) => {
                (earlier.how, earlier.ranks, earlier.caused_by) = (how, ranks.clone(), told_of);
            }
            Some(_) => {}
            None => {
                let pid = self.members[process].process.pid();
                self.members[process].failure = Some(self.failures.len());
                let at = Instant::now();
                let failure = Failure { process, pid, ranks: ranks.clone(), how, at, caused_by: told_of };
                if self.spec.go_on && !failure.follows(&self.failures) {
                    // The job may go on for long.
                    print_line(&format!("{failure}; the others go on"));
                }
                self.failures.push(failure);
                if !self.spec.go_on {
                    self.start_grace();
                }
            }
        }
        if abort {
            self.start_grace();
        }
        ranks.for_each(|rank| self.record_exit(rank, WireExit::Died(text.clone())));
    }

    /// Takes note of a rank's end. Everybody is told of a death; a good end is kept for those who ask.
    pub(crate) fn record_exit(&mut self, rank: u32, end: WireExit) {
        let Some(answers) = self.board.ended(rank, &end) else { return };
        self.answer(answers);
        let WireExit::Died(_) = end else { return self.ends.add(rank, Instant::now()) };
        // Causes are short: it fits.
        let Ok(news) = encode_frame(&ToProcess::Ended { rank, end }) else { return };
        let others = self.members.iter_mut().filter(|m| m.joined && !m.process.ranks.contains(&rank));
        others.for_each(|member| member.control.send_frame(&news, None));
    }
}
