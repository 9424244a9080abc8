//! Reports of what each rank waits for. `mpjrun` requests them when a job has run out of time, is interrupted, or gets
//! SIGQUIT.
//!
//! The processes have a second to reply. Then `mpjrun` prints the table and handles the event that led to the request.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use mpj::boot::wire::ToProcess;
use mpj::report::{RankReport, RankWaits, waits_table};
use rustix::process::Signal;

use crate::job::Job;
use crate::print_line;
use crate::verdict::LaunchError;

/// How long processes may take to report what their ranks wait for.
const ANSWER: Duration = Duration::from_secs(1);

/// Why a report was requested.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reason {
    /// SIGQUIT: the job continues.
    Asked,
    /// The first SIGINT, which is passed on to the ranks after their replies.
    Interrupt,
    /// The job has run out of time and will be terminated.
    Timeout,
}

/// A pending request for reports, and the replies so far.
#[derive(Debug)]
pub(crate) struct HangReport {
    pub(crate) until: Instant,
    reasons: Vec<Reason>,
    /// The number of ranks that were queried.
    asked: usize,
    told: BTreeMap<u32, Option<RankWaits>>,
}

impl HangReport {
    /// Stores a rank's reply.
    pub(crate) fn record_blocked(&mut self, rank: u32, waits: Option<RankWaits>) {
        self.told.insert(rank, waits);
    }
}

impl Job<'_> {
    /// Queries every process that has joined and has not exited, unless a query is already pending.
    pub(crate) fn query_blocked(&mut self, reason: Reason) {
        if let Some(hang) = &mut self.hang {
            return hang.reasons.push(reason);
        }
        let mut asked = 0;
        for member in self.processes.iter_mut().filter(|member| member.joined && member.status.is_none()) {
            asked += member.process.ranks.len();
            member.control.send(&ToProcess::QueryBlocked, None);
        }
        let until = Instant::now() + ANSWER;
        self.hang = Some(HangReport { until, reasons: vec![reason], asked, told: BTreeMap::new() });
    }

    /// If all ranks have replied, or the time is over, prints the table and handles the events that led to the query.
    pub(crate) fn format_blocked(&mut self, now: Instant) {
        let Some(hang) = self.hang.take_if(|hang| hang.told.len() >= hang.asked || hang.until <= now) else {
            return;
        };
        let waits = self.waits_table(hang.told);
        let is_for = |reason| hang.reasons.contains(&reason);
        if is_for(Reason::Interrupt) {
            // A program that does not use mpj has nothing to report.
            if hang.asked > 0 {
                self.is_interrupt_told = true;
                print_line(&format!("interrupted; what the ranks wait for:{waits}"));
            }
            self.signal(Signal::INT);
        } else if is_for(Reason::Asked) {
            print_line(&format!("SIGQUIT; what the ranks wait for:{waits}"));
        }
        if is_for(Reason::Timeout) {
            let limit = self.spec.timeout.unwrap_or_default().as_secs_f64();
            let why = format!("the job was ended, since it still ran after {limit} s:{waits}");
            self.stop_job(LaunchError { why, code: 124 });
        }
    }

    fn waits_table(&self, mut told: BTreeMap<u32, Option<RankWaits>>) -> String {
        let mut states = BTreeMap::new();
        for member in &self.processes {
            let silent = match (member.status, member.joined) {
                (Some(_), _) => "has ended",
                (None, false) => "has not joined the job",
                (None, true) => "does not answer",
            };
            for rank in member.process.ranks.clone() {
                let state = match told.remove(&rank) {
                    None => RankReport::Missing(silent),
                    Some(None) => RankReport::Missing("has not begun, or has ended"),
                    Some(Some(waits)) => RankReport::Blocked(waits),
                };
                states.insert(rank, state);
            }
        }
        waits_table(&states)
    }
}
