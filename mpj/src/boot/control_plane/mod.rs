//! The services that the processes of a job share, without I/O: the key-value store, the fence, and the exits of ranks.
//!
//! `mpjrun` drives a [`ControlPlane`] for the processes that it has started. In other jobs, the agent of rank 0's host
//! drives it (`agent/README.md`). Both decide what a failure means; the control plane only checks the reports and
//! passes the deaths on, in one order for all processes.
//!
//! | file | contents |
//! |---|---|
//! | `kvs` | the values, the requests that wait for them, and the fence |
//! | `deaths` | the order of deaths, for all processes |
//! | `orderly_exits` | exits other than deaths, for the processes that request them |
//! | `monitor` | the failures of a job and its end, for an agent |
//! | `connection` | one end of a control connection, which never blocks |
//! | `memory` | the segment of a host, after a check that the memory is available |

mod connection;
mod deaths;
mod kvs;
mod memory;
mod monitor;
mod orderly_exits;
#[cfg(test)]
mod tests;

use std::ops::Range;
use std::time::Instant;

use mpj_devices::Exit;

use super::wire::{MAX_MESSAGE, ToLauncher, ToProcess, WireExit};
pub use connection::{ControlConnection, Unsent};
use deaths::Deaths;
pub use deaths::INTERVAL;
use kvs::KvsServer;
pub use memory::host_segment;
pub use monitor::{GRACE, JobEnd, JobMonitor, code_of_cause};
pub(crate) use monitor::{TIMED_OUT, TIMEOUT_CODE};
use orderly_exits::OrderlyExits;

/// The maximum length in bytes of a cause that is forwarded.
const MAX_CAUSE_LEN: usize = 4096;
const _: () = assert!(2 * MAX_CAUSE_LEN < MAX_MESSAGE);

/// The receivers of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum To {
    /// The process with this index.
    Process(usize),
    /// Every process that has joined.
    Joined,
}

/// A message to send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Outgoing {
    pub to: To,
    pub message: ToProcess,
}

/// The result of a message from a process.
#[derive(Debug)]
pub enum Taken {
    /// The control plane has handled the message, with these replies.
    Replies(Vec<Outgoing>),
    /// The caller must handle the message. Its ranks are valid, and a cause or reason in it is truncated.
    Report(ToLauncher),
}

/// The services for one job.
#[derive(Debug)]
pub struct ControlPlane {
    kvs: KvsServer,
    deaths: Deaths,
    orderly_exits: OrderlyExits,
    /// The ranks of each process, in order, and whether the process has joined.
    processes: Vec<(Range<u32>, bool)>,
}

impl ControlPlane {
    /// Creates the services for processes with these ranks, in order of rank and without gaps.
    pub fn new(processes: impl IntoIterator<Item = Range<u32>>) -> ControlPlane {
        let processes: Vec<_> = processes.into_iter().map(|ranks| (ranks, false)).collect();
        let size = processes.last().map_or(0, |(ranks, _)| ranks.end);
        let (kvs, deaths) = (KvsServer::new(size), Deaths::default());
        ControlPlane { kvs, deaths, orderly_exits: OrderlyExits::default(), processes }
    }

    /// Returns the number of ranks.
    pub fn size(&self) -> u32 {
        self.processes.last().map_or(0, |(ranks, _)| ranks.end)
    }

    /// Returns the index of the process that hosts a rank.
    pub fn process_of(&self, rank: u32) -> usize {
        self.processes.partition_point(|(ranks, _)| ranks.end <= rank)
    }

    /// Returns whether a process has joined the job.
    pub fn has_joined(&self, process: usize) -> bool {
        self.processes.get(process).is_some_and(|(_, joined)| *joined)
    }

    /// Returns the latest exit of a rank.
    pub fn exit_of(&self, rank: u32) -> Option<&Exit> {
        self.kvs.exit_of(rank)
    }

    /// Returns whether a rank has left or died.
    pub fn has_exited(&self, rank: u32) -> bool {
        matches!(self.exit_of(rank), Some(Exit::Left | Exit::Died(_)))
    }

    /// Handles a message of process `from`, or checks it and returns it.
    ///
    /// # Errors
    /// The message violates the protocol, for the reason given.
    pub fn take(&mut self, from: usize, message: ToLauncher, now: Instant) -> Result<Taken, String> {
        let (own, joined) = self.processes.get(from).cloned().ok_or("it is not a process of the job")?;
        let size = self.size();
        match message {
            ToLauncher::Put { rank, .. }
            | ToLauncher::Exited { rank, .. }
            | ToLauncher::FailedDueTo { rank, .. }
            | ToLauncher::Abort { rank, .. }
            | ToLauncher::BlockedReport { rank, .. }
            | ToLauncher::Stats { rank, .. }
                if !own.contains(&rank) =>
            {
                Err(format!("it sent a message for rank {rank}, which it does not host"))
            }
            ToLauncher::Hello(_) if joined => Err("it sent a second hello".into()),
            ToLauncher::Hello(_) => Ok(Taken::Report(message)),
            _ if !joined => Err("it sent a message before hello".into()),
            ToLauncher::PeerLost { rank, .. } if own.contains(&rank) || rank >= size => Err(format!(
                "it reported the loss of rank {rank}, which it hosts itself or which does not exist"
            )),
            ToLauncher::FailedDueTo { cause_rank, .. } if cause_rank >= size => {
                Err(format!("it named rank {cause_rank}, which does not exist, as the cause"))
            }
            // The reply to a `Get` contains the value, and must not exceed the limit of a frame.
            ToLauncher::Put { value, .. } if value.len() > MAX_MESSAGE - 64 => {
                Err(format!("it put a value of {} bytes, which is too long", value.len()))
            }
            ToLauncher::Exited { rank, exit: WireExit::Died(cause) } => {
                let exit = WireExit::Died(truncate_cause(cause));
                Ok(Taken::Report(ToLauncher::Exited { rank, exit }))
            }
            ToLauncher::PeerLost { rank, cause } => {
                Ok(Taken::Report(ToLauncher::PeerLost { rank, cause: truncate_cause(cause) }))
            }
            ToLauncher::Abort { rank, code, reason } => {
                Ok(Taken::Report(ToLauncher::Abort { rank, code, reason: truncate_cause(reason) }))
            }
            ToLauncher::FailedDueTo { .. } | ToLauncher::Stats { .. } | ToLauncher::BlockedReport { .. } => {
                Ok(Taken::Report(message))
            }
            ToLauncher::Exited { rank, exit } => Ok(Taken::Replies(self.record_exit(rank, exit, now))),
            ToLauncher::QueryExits => {
                self.orderly_exits.add_query(from, now);
                Ok(Taken::Replies(Vec::new()))
            }
            ToLauncher::Put { .. } | ToLauncher::Get { .. } | ToLauncher::Fence { .. } => {
                Ok(Taken::Replies(self.kvs.request(from, message)))
            }
        }
    }

    /// Records that a process has joined. Returns the deaths that the others know, to be sent after its welcome.
    pub fn join(&mut self, process: usize) -> Vec<Outgoing> {
        let Some((_, joined)) = self.processes.get_mut(process) else { return Vec::new() };
        *joined = true;
        let to = To::Process(process);
        self.known_deaths().into_iter().map(|message| Outgoing { to, message }).collect()
    }

    /// Returns the messages with all deaths that were sent.
    pub fn known_deaths(&self) -> Vec<ToProcess> {
        self.deaths.all_sent()
    }

    /// Records a rank's exit. Returns the replies to requests that the exit fails. A death goes to all processes when
    /// it is [due](Self::due). Processes get other exits when they request them.
    pub fn record_exit(&mut self, rank: u32, exit: WireExit, now: Instant) -> Vec<Outgoing> {
        let exit = match Exit::from(exit) {
            Exit::Died(cause) => Exit::Died(self.deaths.intern(cause)),
            exit => exit,
        };
        let Some(replies) = self.kvs.record_exit(rank, &exit) else { return Vec::new() };
        match exit {
            Exit::Died(cause) => self.deaths.add(rank, cause, now),
            _ => self.orderly_exits.add(rank, now),
        }
        replies
    }

    /// Returns the time at which [`take_due`](Self::take_due) must be called.
    pub fn due(&self) -> Option<Instant> {
        [self.deaths.due(), self.orderly_exits.due()].into_iter().flatten().min()
    }

    /// Returns the messages that are due.
    pub fn take_due(&mut self, now: Instant) -> Vec<Outgoing> {
        let deaths = self.deaths.take_due(now).into_iter();
        let mut due: Vec<Outgoing> = deaths.map(|message| Outgoing { to: To::Joined, message }).collect();
        let kvs = &self.kvs;
        let exits = self.orderly_exits.take_due(now, |rank| kvs.exit_of(rank).map(WireExit::from));
        due.extend(
            exits.into_iter().map(|(process, message)| Outgoing { to: To::Process(process), message }),
        );
        due
    }
}

/// Truncates a cause to the maximum length.
pub(super) fn truncate_cause(mut cause: String) -> String {
    cause.truncate(cause.floor_char_boundary(MAX_CAUSE_LEN));
    cause
}
