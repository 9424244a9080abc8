//! Decides when a job has failed and why, for an agent. `mpjrun` has more evidence and its own rules (`failures.rs`).
//!
//! | event | what the monitor does |
//! |---|---|
//! | a rank reports its own failure, or aborts; the connection of its process ends before the rank has left | records the death at once |
//! | a rank reports another one as lost | records that death after [`LOSS_DELAY`], unless the rank has exited by then: a connection often breaks because a rank failed, and its own report explains more |
//! | the first death | requests the end of the job after [`GRACE`], or as soon as all processes have ended their connections |

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpj_devices::Exit;

use super::{ControlPlane, Outgoing, Taken};
use crate::boot::wire::{ToLauncher, ToProcess, WireExit, exit_code};

/// How long the report of a peer about a lost rank waits for the report of that rank itself.
const LOSS_DELAY: Duration = Duration::from_millis(100);

/// The time that the other ranks get after a failure to end by themselves.
pub const GRACE: Duration = Duration::from_secs(2);

/// The exit code of a job in which a rank panicked, as of any Rust program.
const PANICKED: u8 = 101;
/// The exit code of a job in which a rank has [timed out](TIMED_OUT), as for timeout(1).
pub(crate) const TIMEOUT_CODE: u8 = 124;

/// The cause that ranks report when they reach `MPJ_TIMEOUT`.
pub(crate) const TIMED_OUT: &str = "timed out (MPJ_TIMEOUT)";

/// The beginning of the cause of an abort.
const ABORTED: &str = "aborted the job";

/// Returns the exit code of a job that ends because a rank has reported this cause.
pub fn code_of_cause(cause: &str) -> u8 {
    match cause {
        TIMED_OUT => TIMEOUT_CODE,
        _ if cause.starts_with("panicked") => PANICKED,
        _ => 1,
    }
}

/// How a job ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum JobEnd {
    /// All ranks have left.
    Orderly,
    /// A rank has failed; the remaining processes must end.
    Failed {
        /// The exit code of the job.
        code: u8,
        /// The failed rank and the cause, for the user.
        line: String,
    },
}

/// The failures of a job, and the services of its processes. Each process hosts one rank, which is its index.
#[derive(Debug)]
pub struct JobMonitor {
    plane: ControlPlane,
    /// Reports about lost ranks: when they count, the rank, and the cause.
    lost: VecDeque<(Instant, u32, String)>,
    /// By rank that has failed: the cause, and the exit code.
    failures: BTreeMap<u32, (Arc<str>, u8)>,
    /// The rank that failed first, and when the job must end because of it.
    first: Option<(u32, Instant)>,
    /// By rank: the rank that caused its last failed call.
    causes: BTreeMap<u32, u32>,
    /// The ranks whose processes have ended their connections.
    closed: BTreeSet<u32>,
}

impl JobMonitor {
    /// Creates the monitor of a job with `size` processes.
    pub fn new(size: u32) -> JobMonitor {
        JobMonitor {
            plane: ControlPlane::new((0..size).map(|rank| rank..rank + 1)),
            lost: VecDeque::new(),
            failures: BTreeMap::new(),
            first: None,
            causes: BTreeMap::new(),
            closed: BTreeSet::new(),
        }
    }

    /// Handles a message from the process of a rank; returns the messages to send. The caller sends the welcome before
    /// it passes a hello, so that the welcome precedes the known deaths.
    ///
    /// # Errors
    /// The message violates the protocol, for the reason given.
    pub fn take(&mut self, from: u32, message: ToLauncher, now: Instant) -> Result<Vec<Outgoing>, String> {
        let report = match self.plane.take(from as usize, message, now)? {
            Taken::Replies(replies) => return Ok(replies),
            Taken::Report(report) => report,
        };
        Ok(match report {
            ToLauncher::Hello(_) => self.plane.join(from as usize),
            ToLauncher::Exited { rank, exit: WireExit::Died(cause) } => {
                let code = code_of_cause(&cause);
                self.fail(rank, cause, code, now)
            }
            ToLauncher::Abort { rank, code, reason } => {
                self.fail(rank, format!("{ABORTED} with code {code}: {reason}"), exit_code(code), now)
            }
            ToLauncher::PeerLost { rank, cause } => {
                self.lose(rank, &cause, now);
                Vec::new()
            }
            ToLauncher::FailedDueTo { rank, cause_rank } => {
                self.causes.insert(rank, cause_rank);
                Vec::new()
            }
            // An agent requests no reports, and the control plane handles the other messages.
            _ => Vec::new(),
        })
    }

    /// Handles the report that a rank does not respond.
    pub fn lose(&mut self, rank: u32, cause: &str, now: Instant) {
        self.lost.push_back((now + LOSS_DELAY, rank, cause.to_owned()));
    }

    /// Returns the messages with all deaths that were sent.
    pub fn known_deaths(&self) -> Vec<ToProcess> {
        self.plane.known_deaths()
    }

    /// Handles the end of the connection to the process of a rank; returns the messages to send.
    pub fn closed(&mut self, rank: u32, cause: &str, now: Instant) -> Vec<Outgoing> {
        self.closed.insert(rank);
        self.fail(rank, cause.to_owned(), 1, now)
    }

    /// Returns the time at which [`tick`](Self::tick) must be called.
    pub fn due(&self) -> Option<Instant> {
        let lost = self.lost.front().map(|(due, ..)| *due);
        [lost, self.plane.due(), self.first.map(|(_, end)| end)].into_iter().flatten().min()
    }

    /// Performs what is due; returns the messages to send.
    pub fn tick(&mut self, now: Instant) -> Vec<Outgoing> {
        let mut outgoing = Vec::new();
        while let Some((_, rank, cause)) = self.lost.pop_front_if(|(due, ..)| *due <= now) {
            outgoing.extend(self.fail(rank, format!("stopped responding to its peers: {cause}"), 1, now));
        }
        outgoing.extend(self.plane.take_due(now));
        outgoing
    }

    /// Returns how the job ends, if it must end now.
    pub fn end(&self, now: Instant) -> Option<JobEnd> {
        let all_closed = self.closed.len() == self.plane.size() as usize;
        match self.first {
            None => all_closed.then_some(JobEnd::Orderly),
            Some((first, end)) => (all_closed || end <= now).then(|| self.describe(first)),
        }
    }

    fn fail(&mut self, rank: u32, cause: String, code: u8, now: Instant) -> Vec<Outgoing> {
        if self.plane.has_exited(rank) {
            return Vec::new();
        }
        let replies = self.plane.record_exit(rank, WireExit::Died(cause), now);
        if let Some(Exit::Died(cause)) = self.plane.exit_of(rank) {
            self.first.get_or_insert((rank, now + GRACE));
            self.failures.insert(rank, (Arc::clone(cause), code));
        }
        replies
    }

    fn code_of(&self, rank: u32) -> Option<u8> {
        self.failures.get(&rank).map(|(_, code)| *code)
    }

    fn has_aborted(&self, rank: u32) -> bool {
        self.failures.get(&rank).is_some_and(|(cause, _)| cause.starts_with(ABORTED))
    }

    /// Describes the failure that began with the death of `first`. If that rank failed because of another one that has
    /// failed as well, the other one is the cause, and so on. The chain of causes ends at a rank that has aborted the
    /// job, or when it returns to a rank. An abort with code 0 does not hide a panic that no other rank has caused.
    fn describe(&self, first: u32) -> JobEnd {
        let (mut root, mut visited) = (first, BTreeSet::new());
        while visited.insert(root) && !self.has_aborted(root) {
            match self.causes.get(&root).filter(|cause| self.failures.contains_key(cause)) {
                Some(cause) => root = *cause,
                None => break,
            }
        }
        let panicked = |rank: &u32| self.code_of(*rank) == Some(PANICKED) && !self.causes.contains_key(rank);
        if self.code_of(root) == Some(0)
            && let Some(rank) = self.failures.keys().find(|rank| panicked(rank))
        {
            root = *rank;
        }
        let (cause, code) = self.failures.get(&root).cloned().unwrap_or_else(|| ("".into(), 1));
        let others = self.failures.len().saturating_sub(1);
        let line = match others {
            0 => format!("rank {root} {cause}"),
            1 => format!("rank {root} {cause}; 1 other rank failed"),
            others => format!("rank {root} {cause}; {others} other ranks failed"),
        };
        JobEnd::Failed { code, line }
    }
}
