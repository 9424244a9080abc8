//! The decisions of an agent about the messages of its job, without I/O. The agent (`routing`) and the simulation drive
//! a [`Router`].

use std::time::Instant;

use mpj_devices::{HostId, HostRanks, Hosts};

use super::messages::{FromRoot, ToRoot};
use crate::boot::control_plane::{JobEnd, JobMonitor, Outgoing, To};
use crate::boot::wire::{ToLauncher, ToProcess, WireExit};

/// A message that an agent must send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outbound {
    /// To processes of this host. The receivers are those of `To` that have got their welcome.
    Local(To, ToProcess),
    /// To the root.
    Root(ToRoot),
    /// To the agent of another host.
    Host(HostId, FromRoot),
    /// To the agents of all other hosts.
    Hosts(FromRoot),
}

/// Decides where the messages of an agent go. That of the root has the services of the job.
#[derive(Debug)]
pub(super) enum Router {
    Root { hosts: Hosts, monitor: Box<JobMonitor> },
    Relay { hosts: Hosts, ranks: HostRanks },
}

impl Router {
    /// Creates the router of the agent of the first host.
    pub(super) fn root(hosts: Hosts) -> Router {
        Router::Root { monitor: Box::new(JobMonitor::new(hosts.size())), hosts }
    }

    /// Creates the router of the agent of another host.
    pub(super) fn relay(hosts: Hosts, host: HostId) -> Router {
        Router::Relay { ranks: hosts.ranks_of(host), hosts }
    }

    /// Handles a message from the process of a rank of this host. The sender of a hello must have got its welcome.
    ///
    /// # Errors
    /// The message violates the protocol, for the reason given.
    pub(super) fn on_message(
        &mut self,
        rank: u32,
        message: ToLauncher,
        now: Instant,
    ) -> Result<Vec<Outbound>, String> {
        match self {
            Router::Root { hosts, monitor } => {
                monitor.take(rank, message, now).map(|outgoing| spread(hosts, outgoing))
            }
            Router::Relay { .. } => Ok(vec![Outbound::Root(ToRoot::Report { rank, message })]),
        }
    }

    /// Handles the end of the process of a rank of this host, or of its connection.
    pub(super) fn on_closed(&mut self, rank: u32, cause: String, now: Instant) -> Vec<Outbound> {
        match self {
            Router::Root { hosts, monitor } => spread(hosts, monitor.closed(rank, &cause, now)),
            Router::Relay { .. } => vec![Outbound::Root(ToRoot::Closed { rank, cause })],
        }
    }

    /// Handles a message from the agent of another host.
    pub(super) fn on_report(&mut self, host: HostId, message: ToRoot, now: Instant) -> Vec<Outbound> {
        let Router::Root { hosts, monitor } = self else { return Vec::new() };
        let (rank, outgoing) = match message {
            ToRoot::Report { rank, .. } | ToRoot::Closed { rank, .. }
                if hosts.host_of(rank) != Some(host) =>
            {
                return Vec::new();
            }
            ToRoot::Report { rank, message } => (rank, monitor.take(rank, message, now)),
            ToRoot::Closed { rank, cause } => (rank, Ok(monitor.closed(rank, &cause, now))),
            // The agent handles this.
            ToRoot::Watch { .. } => return Vec::new(),
        };
        let outgoing = outgoing.unwrap_or_else(|why| {
            monitor.closed(rank, &format!("violated the control protocol: {why}"), now)
        });
        spread(hosts, outgoing)
    }

    /// Handles the loss of another host or of its agent, which kills all ranks of that host.
    pub(super) fn on_host_lost(&mut self, host: HostId, why: &str, now: Instant) -> Vec<Outbound> {
        let Router::Root { hosts, monitor } = self else { return Vec::new() };
        let cause = format!("was lost: {why}");
        let deaths = hosts.ranks_of(host).iter().flat_map(|rank| monitor.closed(rank, &cause, now)).collect();
        spread(hosts, deaths)
    }

    /// Handles a message from the root.
    pub(super) fn on_root_message(&mut self, message: FromRoot) -> Vec<Outbound> {
        match message {
            FromRoot::ToProcess { rank, message } => {
                vec![Outbound::Local(To::Process(rank as usize), message)]
            }
            FromRoot::ToOthers { except, message } => {
                vec![Outbound::Local(To::JoinedExcept(except as usize), message)]
            }
            // The agent handles these.
            FromRoot::Watch { .. } | FromRoot::JobEnds { .. } => Vec::new(),
        }
    }

    /// Handles the loss of the root, which has the order of deaths and connects the agents: all ranks of other hosts are
    /// dead for this host.
    pub(super) fn on_root_lost(&mut self, why: &str) -> Vec<Outbound> {
        let Router::Relay { hosts, ranks } = self else { return Vec::new() };
        let elsewhere = (0..hosts.size()).filter(|rank| ranks.index_of(*rank).is_none());
        let death = |rank| {
            let exit = WireExit::Died(format!("was lost: {why}"));
            Outbound::Local(To::JoinedExcept(usize::MAX), ToProcess::Exited { rank, exit })
        };
        elsewhere.map(death).collect()
    }

    /// Returns the time at which [`tick`](Self::tick) must be called.
    pub(super) fn due(&self) -> Option<Instant> {
        match self {
            Router::Root { monitor, .. } => monitor.due(),
            Router::Relay { .. } => None,
        }
    }

    /// Performs what is due.
    pub(super) fn tick(&mut self, now: Instant) -> Vec<Outbound> {
        match self {
            Router::Root { hosts, monitor } => spread(hosts, monitor.tick(now)),
            Router::Relay { .. } => Vec::new(),
        }
    }

    /// Returns how the job ends, if this is the router of the root and the job must end now.
    pub(super) fn end(&self, now: Instant) -> Option<JobEnd> {
        match self {
            Router::Root { monitor, .. } => monitor.end(now),
            Router::Relay { .. } => None,
        }
    }
}

/// Returns the messages of the root for processes of all hosts. A message for all processes is sent once to each host.
fn spread(hosts: &Hosts, outgoing: Vec<Outgoing>) -> Vec<Outbound> {
    let routes = |Outgoing { to, message }| match to {
        To::Process(rank) => {
            let rank = rank as u32;
            match hosts.host_of(rank) {
                Some(HostId(0)) | None => vec![Outbound::Local(to, message)],
                Some(host) => vec![Outbound::Host(host, FromRoot::ToProcess { rank, message })],
            }
        }
        To::JoinedExcept(except) => {
            let to_others = FromRoot::ToOthers { except: except as u32, message: message.clone() };
            vec![Outbound::Local(to, message), Outbound::Hosts(to_others)]
        }
    };
    outgoing.into_iter().flat_map(routes).collect()
}
