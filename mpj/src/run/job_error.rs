//! The failure of a job, for its caller and for the user.

use std::fmt;

use super::threads::RankFailure;
use crate::boot::control_plane::TIMEOUT_CODE;
use crate::boot::wire::exit_code;
use crate::report::rank_list;

/// The exit code of a job in which a rank panicked, as of any Rust program.
const PANICKED: u8 = 101;

/// Returns whether a rank has died because it called `abort`. Its own process can record the death with "it".
fn is_abort(cause: &str) -> bool {
    cause.strip_prefix("it ").unwrap_or(cause).starts_with("aborted the job ")
}

/// The maximum number of other causes that are printed.
const MAX_OTHERS: usize = 16;

/// The failure of a job: the rank that failed first, and the cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JobError {
    rank: usize,
    cause: String,
    panicked: bool,
    pub(super) aborted: Option<i32>,
    timed_out: bool,
    /// The other ranks that have failed for the same cause, but not because of another rank.
    same_cause: Vec<usize>,
    /// The number of other ranks that have failed because of another rank.
    pub(super) followers: usize,
    /// The ranks that have failed for causes of their own, and these causes.
    pub(super) others: Vec<(usize, String)>,
    pub(super) is_reported: bool,
}

impl JobError {
    pub(crate) fn new(rank: usize, cause: String, panicked: bool) -> Self {
        let (followers, others) = (0, Vec::new());
        JobError {
            rank,
            cause,
            panicked,
            aborted: None,
            timed_out: false,
            same_cause: Vec::new(),
            followers,
            others,
            is_reported: false,
        }
    }

    pub(super) fn timed_out(report: String) -> Self {
        JobError { timed_out: true, ..JobError::new(0, report, false) }
    }

    /// Returns what to print for the failure, if it was not printed when it happened.
    pub(super) fn summary(&self) -> Option<String> {
        let is_alone = self.followers == 0 && self.others.is_empty() && self.same_cause.is_empty();
        let is_printed = self.panicked && is_alone;
        if self.timed_out || self.is_reported || is_printed {
            return None;
        }
        // A panic after an abort was not printed when it happened.
        let follows_abort = self.others.first().is_some_and(|(_, cause)| is_abort(cause));
        let mut summary = if self.panicked && !follows_abort {
            format!("{} panicked", self.ranks())
        } else {
            self.to_string()
        };
        match self.followers {
            0 => {}
            1 => summary += "; 1 rank failed because of it",
            ranks => summary += &format!("; {ranks} ranks failed because of it"),
        }
        for (rank, cause) in self.others.iter().take(MAX_OTHERS) {
            summary += &format!("\n  also: rank {rank} {cause}");
        }
        if let more @ 1.. = self.others.len().saturating_sub(MAX_OTHERS) {
            summary += &format!("\n  and {more} more");
        }
        Some(summary)
    }

    /// Returns the error of a job in which `rank` has died first. `aborted` is the code with which a rank of this
    /// process has aborted the job. It takes precedence over all failures, except that 0 must not hide one.
    pub(super) fn from_death(
        rank: u32,
        cause: &str,
        mut failures: Vec<(usize, RankFailure)>,
        aborted: Option<i32>,
    ) -> Self {
        let rank = rank as usize;
        if aborted == Some(0) && is_abort(cause) {
            let has_own_cause = |(other, failure): &(usize, RankFailure)| {
                *other != rank && !failure.is_consequence && !failure.cause.contains(cause)
            };
            if let Some(at) = failures.iter().position(has_own_cause) {
                let (other, own) = failures.remove(at);
                failures.retain(|(failed, _)| *failed != rank);
                let mut error = JobError::new(other, own.cause, own.panicked).with_others(failures);
                error.others.insert(0, (rank, cause.to_owned()));
                return error;
            }
        }
        // Take the cause from the roster: a rank that aborts the job can fail with another error later, or return.
        let panicked = failures.iter().any(|(r, f)| *r == rank && f.panicked && *f.cause == *cause);
        let aborted = aborted.filter(|code| *code != 0 || is_abort(cause));
        let error = JobError::new(rank, cause.to_owned(), panicked).with_others(failures);
        JobError { aborted, ..error }
    }

    /// Sets the other ranks that have failed.
    pub(super) fn with_others(mut self, failures: impl IntoIterator<Item = (usize, RankFailure)>) -> Self {
        let rank = self.rank;
        for (other, failure) in failures.into_iter().filter(|(other, _)| *other != rank) {
            match failure {
                RankFailure { is_consequence: true, .. } => self.followers += 1,
                RankFailure { cause, .. } if cause == self.cause => self.same_cause.push(other),
                RankFailure { cause, .. } => self.others.push((other, cause)),
            }
        }
        self
    }

    /// Returns the ranks that have failed for this cause, as a text.
    fn ranks(&self) -> String {
        let ranks = self.same_cause.iter().chain([&self.rank]);
        rank_list(ranks.map(|rank| u32::try_from(*rank).unwrap_or(u32::MAX)))
    }

    pub(super) fn exit_code(&self) -> u8 {
        match self.aborted {
            Some(code) => exit_code(code),
            None if self.timed_out => TIMEOUT_CODE,
            None if self.panicked => PANICKED,
            None => 1,
        }
    }

    /// Returns the world rank that failed first; 0 if the job timed out (`MPJ_TIMEOUT`) or no rank was started.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Returns whether the rank panicked.
    pub fn is_panic(&self) -> bool {
        self.panicked
    }
}

impl fmt::Display for JobError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.timed_out {
            return f.write_str(&self.cause);
        }
        write!(f, "{} {}", self.ranks(), self.cause)
    }
}

impl std::error::Error for JobError {}
