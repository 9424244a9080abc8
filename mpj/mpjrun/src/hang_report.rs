//! The table of what each rank waits for. On a timeout, SIGINT or SIGQUIT, `mpjrun` queries the processes. When all
//! have replied, or after a second, it makes the table and handles the event. The table of a timeout is printed at the
//! end of the job, unless a failure had already begun to end the job.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mpj::boot::wire::ToProcess;
use mpj::report::{RankReport, RankWaits, waits_table};
use rustix::process::Signal;

use crate::job::Job;
use crate::print_line;
use crate::verdict::LaunchError;

/// The time that processes have to reply.
const REPLY_LIMIT: Duration = Duration::from_secs(1);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// SIGQUIT; the job continues.
    Quit,
    /// The first SIGINT, which is forwarded to the ranks after their replies.
    Interrupt,
    /// The job will be terminated.
    Timeout,
}

/// A pending query, and the replies so far.
#[derive(Debug)]
pub(crate) struct HangReport {
    pub(crate) until: Instant,
    reasons: Vec<Reason>,
    /// The number of ranks that were queried.
    expected: usize,
    replies: BTreeMap<u32, Option<RankWaits>>,
}

impl HangReport {
    pub(crate) fn record_blocked(&mut self, rank: u32, waits: Option<RankWaits>) {
        self.replies.insert(rank, waits);
    }
}

impl Job<'_> {
    /// Queries every running process that has joined. Only adds the reason to a pending query, unless that one does not
    /// tell the processes that the job ends.
    pub(crate) fn query_blocked(&mut self, reason: Reason) {
        let job_ends = reason != Reason::Quit;
        let mut reasons = vec![reason];
        if let Some(report) = &mut self.hang_report {
            if !job_ends || report.reasons.iter().any(|known| *known != Reason::Quit) {
                return report.reasons.push(reason);
            }
            reasons.append(&mut report.reasons);
        }
        let mut expected = 0;
        let plane = &self.plane;
        let running = self.processes.iter_mut().enumerate().filter(|(_, member)| member.status.is_none());
        for (_, member) in running.filter(|(index, _)| plane.has_joined(*index)) {
            expected += member.process.ranks.len();
            member.control.send(&ToProcess::QueryBlocked { job_ends }, None);
        }
        let until = Instant::now() + REPLY_LIMIT;
        self.hang_report = Some(HangReport { until, reasons, expected, replies: BTreeMap::new() });
    }

    /// If the query is complete or its time is over, makes the table and handles the events that caused the query.
    pub(crate) fn report_blocked(&mut self, now: Instant) {
        let Some(report) =
            self.hang_report.take_if(|report| report.replies.len() >= report.expected || report.until <= now)
        else {
            return;
        };
        let waits = self.waits_table(report.replies);
        let is_for = |reason| report.reasons.contains(&reason);
        if is_for(Reason::Interrupt) {
            // No process has joined: the program does not use mpj, or is still starting.
            if report.expected > 0 {
                self.is_interrupt_reported = true;
                print_line(&format!("interrupted; what the ranks wait for:{waits}"));
            }
            self.signal(Signal::INT);
        } else if is_for(Reason::Quit) {
            print_line(&format!("SIGQUIT; what the ranks wait for:{waits}"));
        }
        if is_for(Reason::Timeout) {
            let limit = self.spec.timeout.unwrap_or_default().as_secs_f64();
            let why = format!("timeout of {limit} s reached; the job was terminated:{waits}");
            self.stop_job(LaunchError { why, code: 124 });
        }
    }

    fn waits_table(&self, mut replies: BTreeMap<u32, Option<RankWaits>>) -> String {
        let mut states = BTreeMap::new();
        for (index, member) in self.processes.iter().enumerate() {
            let silent = match (member.status, self.plane.has_joined(index)) {
                (Some(_), _) => "has exited",
                (None, false) => "has not joined the job",
                (None, true) => "did not respond",
            };
            for rank in member.process.ranks.clone() {
                let state = match replies.remove(&rank) {
                    None => RankReport::Missing(silent),
                    Some(None) => RankReport::Missing("has not started, or has left the job"),
                    Some(Some(waits)) => RankReport::Waits(waits),
                };
                states.insert(rank, state);
            }
        }
        waits_table(&states)
    }
}
