//! Who waits for whom when a job has run out of time.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::{Duration, Instant};

use mpj::boot::wire::ToProcess;

use crate::job::Job;

/// How long processes may take to tell what their ranks wait for.
const ANSWER: Duration = Duration::from_secs(1);

/// The most ranks that are told of.
const RANKS: usize = 64;

/// What was asked of the ranks, and what they have told.
#[derive(Debug)]
pub(crate) struct Hang {
    pub(crate) until: Instant,
    /// How many ranks were asked.
    asked: usize,
    told: BTreeMap<u32, Vec<String>>,
}

impl Job<'_> {
    /// Asks every process that has joined and has not ended.
    pub(crate) fn ask_waits(&mut self) -> Hang {
        let mut asked = 0;
        for member in self.members.iter_mut().filter(|member| member.joined && member.status.is_none()) {
            asked += member.process.ranks.len();
            member.control.send(&ToProcess::Waits, None);
        }
        Hang { until: Instant::now() + ANSWER, asked, told: BTreeMap::new() }
    }

    /// Returns a line for each rank: what it waits for, or why it did not say so.
    pub(crate) fn tell_waits(&self, hang: &Hang) -> String {
        let mut lines = String::new();
        for member in &self.members {
            let silent = match (member.status, member.joined) {
                (Some(_), _) => "has ended",
                (None, false) => "has not joined the job",
                (None, true) => "does not answer",
            };
            for rank in member.process.ranks.clone().take_while(|rank| (*rank as usize) < RANKS) {
                let waits = match hang.told.get(&rank).map(Vec::as_slice) {
                    None => silent.to_owned(),
                    Some([]) => "not in a call, or looking again and again".to_owned(),
                    Some(waits) => waits.join("; "),
                };
                // Writing to a string does not fail.
                let _ = write!(lines, "\n  rank {rank}: {waits}");
            }
        }
        match (self.spec.size as usize).saturating_sub(RANKS) {
            0 => lines,
            more => lines + &format!("\n  and {more} more ranks"),
        }
    }
}

impl Hang {
    /// Takes an answer.
    pub(crate) fn hear(&mut self, rank: u32, waits: Vec<String>) {
        self.told.insert(rank, waits);
    }

    /// Whether nothing more is waited for.
    pub(crate) fn is_told(&self, now: Instant) -> bool {
        self.told.len() >= self.asked || self.until <= now
    }
}
