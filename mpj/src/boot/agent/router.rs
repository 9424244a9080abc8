//! The decisions of an agent about the messages of its job, without I/O. The agent (`routing`) and the simulation drive
//! a [`Router`].

use std::time::Instant;

use mpj_devices::{HostId, HostRanks, Hosts};

use super::messages::{FromRoot, ToRoot};
use super::reports::{ExitReport, Reports};
use crate::boot::control_plane::{JobEnd, JobMonitor, Outgoing, To};
use crate::boot::wire::{DeathGroup, ToLauncher, ToProcess};

/// A message that an agent must send.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Outbound {
    /// To processes of this host. A process that has not got its welcome does not receive the message.
    Local(To, ToProcess),
    /// To the root.
    Root(ToRoot),
    /// To the agent of another host.
    Host(HostId, FromRoot),
    /// To the agents of all other hosts.
    Hosts(FromRoot),
}

/// Decides where the messages of an agent go. The router of the root, the agent of the first host, also has the
/// key-value store, the fence and the failures of the job, in a [`JobMonitor`]. All other agents are relays.
#[derive(Debug)]
pub(super) enum Router {
    Root { hosts: Hosts, monitor: Box<JobMonitor> },
    Relay(HostRouter),
}

/// The state of an agent that is not the root.
#[derive(Debug)]
pub(super) struct HostRouter {
    hosts: Hosts,
    ranks: HostRanks,
    reports: Reports,
    /// The deaths that the root has sent to all processes, in order. A process that joins later gets them, too.
    deaths: Vec<ToProcess>,
}

impl HostRouter {
    fn on_message(&mut self, rank: u32, message: ToLauncher, now: Instant) -> Vec<Outbound> {
        let mut outbound = Vec::new();
        if let ToLauncher::Hello(_) = message {
            let known = self.deaths.iter().cloned();
            outbound.extend(known.map(|message| Outbound::Local(To::Process(rank as usize), message)));
        }
        let message = self.reports.add(rank, message, now);
        outbound.extend(message.map(|message| Outbound::Root(ToRoot::FromProcess { rank, message })));
        outbound
    }
}

impl Router {
    /// Creates the router of the agent of the first host.
    pub(super) fn root(hosts: Hosts) -> Router {
        Router::Root { monitor: Box::new(JobMonitor::new(hosts.size())), hosts }
    }

    /// Creates the router of an agent that is not the root.
    pub(super) fn relay(hosts: Hosts, host: HostId) -> Router {
        let ranks = hosts.ranks_of(host);
        Router::Relay(HostRouter { hosts, ranks, reports: Reports::default(), deaths: Vec::new() })
    }

    /// Handles a message from the process of a rank of this host. The caller sends the welcome before it passes a
    /// hello, so that the welcome precedes the known deaths.
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
            Router::Relay(relay) => Ok(relay.on_message(rank, message, now)),
        }
    }

    /// Handles the end of the process of a rank of this host, or of its connection.
    pub(super) fn on_closed(&mut self, rank: u32, cause: String, now: Instant) -> Vec<Outbound> {
        match self {
            Router::Root { hosts, monitor } => spread(hosts, monitor.closed(rank, &cause, now)),
            Router::Relay(relay) => {
                relay.reports.add_closed(rank, cause, now);
                Vec::new()
            }
        }
    }

    /// Handles a message from the agent of another host.
    pub(super) fn on_report(&mut self, host: HostId, message: ToRoot, now: Instant) -> Vec<Outbound> {
        let Router::Root { hosts, monitor } = self else { return Vec::new() };
        let outgoing = match message {
            ToRoot::FromProcess { rank, message } if hosts.host_of(rank) == Some(host) => {
                take(monitor, rank, message, now)
            }
            ToRoot::ExitReports(runs) => {
                let mut outgoing = Vec::new();
                for run in &runs {
                    for rank in run.ranks(hosts.size()).filter(|rank| hosts.host_of(*rank) == Some(host)) {
                        outgoing.extend(take_report(monitor, rank, &run.report, now));
                    }
                }
                outgoing
            }
            ToRoot::PeerCut { host: peer, cause } => {
                let ranks = hosts.ranks_of(HostId(peer));
                ranks
                    .iter()
                    .filter(|_| HostId(peer) != host)
                    .for_each(|rank| monitor.lose(rank, &cause, now));
                Vec::new()
            }
            // Ignore a message about a rank of another host than the agent's. The agent itself handles `Watch`.
            ToRoot::FromProcess { .. } | ToRoot::Watch { .. } => Vec::new(),
        };
        spread(hosts, outgoing)
    }

    /// Returns what the agent of another host must get first: the deaths that the others know.
    pub(super) fn on_connected(&self, host: HostId) -> Vec<Outbound> {
        let Router::Root { monitor, .. } = self else { return Vec::new() };
        let deaths = monitor.known_deaths().into_iter();
        deaths.map(|message| Outbound::Host(host, FromRoot::ToJoined(message))).collect()
    }

    /// Handles the loss of another host or of its agent: reports all ranks of that host dead.
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
            FromRoot::ToJoined(message) => {
                if let Router::Relay(relay) = self {
                    relay.deaths.push(message.clone());
                }
                vec![Outbound::Local(To::Joined, message)]
            }
            // The agent handles these.
            FromRoot::Watch { .. } | FromRoot::WatchPeer { .. } | FromRoot::JobEnds { .. } => Vec::new(),
        }
    }

    /// Handles the loss of the root: reports all ranks of other hosts dead to the processes of this host. Without the
    /// root, which orders the deaths, the agents exchange no messages.
    pub(super) fn on_root_lost(&mut self, why: &str) -> Vec<Outbound> {
        let Router::Relay(HostRouter { hosts, ranks, .. }) = self else { return Vec::new() };
        let elsewhere = (0..hosts.size()).filter(|rank| ranks.index_of(*rank).is_none());
        let deaths = DeathGroup::new(&format!("was lost: {why}"), elsewhere);
        vec![Outbound::Local(To::Joined, ToProcess::Died(vec![deaths]))]
    }

    /// Returns the time at which [`tick`](Self::tick) must be called.
    pub(super) fn due(&self) -> Option<Instant> {
        match self {
            Router::Root { monitor, .. } => monitor.due(),
            Router::Relay(relay) => relay.reports.due(),
        }
    }

    /// Performs what is due.
    pub(super) fn tick(&mut self, now: Instant) -> Vec<Outbound> {
        match self {
            Router::Root { hosts, monitor } => spread(hosts, monitor.tick(now)),
            Router::Relay(HostRouter { reports, .. }) => reports
                .take_due(now)
                .into_iter()
                .map(|runs| Outbound::Root(ToRoot::ExitReports(runs)))
                .collect(),
        }
    }

    /// Returns how the job ends, if this is the router of the root and the job must end now.
    pub(super) fn end(&self, now: Instant) -> Option<JobEnd> {
        match self {
            Router::Root { monitor, .. } => monitor.end(now),
            Router::Relay(_) => None,
        }
    }
}

/// Passes a message of a rank of another host to the monitor. A rank that violates the protocol is reported dead.
fn take(monitor: &mut JobMonitor, rank: u32, message: ToLauncher, now: Instant) -> Vec<Outgoing> {
    let is_hello = matches!(message, ToLauncher::Hello(_));
    match monitor.take(rank, message, now) {
        // The agent of its host has given the process the known deaths.
        Ok(_) if is_hello => Vec::new(),
        Ok(outgoing) => outgoing,
        Err(why) => monitor.closed(rank, &format!("violated the control protocol: {why}"), now),
    }
}

fn take_report(monitor: &mut JobMonitor, rank: u32, report: &ExitReport, now: Instant) -> Vec<Outgoing> {
    match report {
        ExitReport::FailedDueTo(cause_rank) => {
            take(monitor, rank, ToLauncher::FailedDueTo { rank, cause_rank: *cause_rank }, now)
        }
        ExitReport::Exited(exit) => take(monitor, rank, ToLauncher::Exited { rank, exit: exit.clone() }, now),
        ExitReport::Closed(cause) => monitor.closed(rank, cause, now),
    }
}

/// Routes messages of the root to processes of this and other hosts. A message for all processes goes once to the agent
/// of each other host.
fn spread(hosts: &Hosts, outgoing: Vec<Outgoing>) -> Vec<Outbound> {
    let routes = |Outgoing { to, message }| match to {
        To::Process(rank) => {
            let rank = rank as u32;
            match hosts.host_of(rank) {
                Some(HostId(0)) | None => vec![Outbound::Local(to, message)],
                Some(host) => vec![Outbound::Host(host, FromRoot::ToProcess { rank, message })],
            }
        }
        To::Joined => {
            vec![Outbound::Hosts(FromRoot::ToJoined(message.clone())), Outbound::Local(to, message)]
        }
    };
    outgoing.into_iter().flat_map(routes).collect()
}

#[cfg(test)]
mod tests {
    use super::super::reports::ReportRun;
    use super::*;
    use crate::boot::wire::{ProtocolVersion, WireExit};

    fn hello() -> ToLauncher {
        ToLauncher::Hello(ProtocolVersion::own())
    }

    fn two_hosts() -> Hosts {
        Hosts::from_runs([(HostId(0), 2), (HostId(1), 2)]).unwrap()
    }

    /// Rank 1 dies before the agent of the other host connects, rank 0 before the process of rank 3 joins.
    #[test]
    fn late_hosts_and_processes_learn_the_deaths_once_in_order() {
        let now = Instant::now();
        let (mut root, mut relay) = (Router::root(two_hosts()), Router::relay(two_hosts(), HostId(1)));
        let death = |rank| ToProcess::Died(vec![DeathGroup::new("was killed", [rank])]);
        root.on_closed(1, "was killed".into(), now);
        let sent = root.tick(now);
        assert!(sent.contains(&Outbound::Hosts(FromRoot::ToJoined(death(1)))), "{sent:?}");
        let first = FromRoot::ToJoined(death(1));
        assert_eq!(root.on_connected(HostId(1)), [Outbound::Host(HostId(1), first.clone())]);
        assert_eq!(relay.on_root_message(first), [Outbound::Local(To::Joined, death(1))]);
        relay.on_root_message(FromRoot::ToJoined(death(0)));
        let report = ToRoot::FromProcess { rank: 3, message: hello() };
        let learned = [death(1), death(0)].map(|death| Outbound::Local(To::Process(3), death));
        let expected = [&learned[..], &[Outbound::Root(report.clone())]].concat();
        assert_eq!(relay.on_message(3, hello(), now), Ok(expected));
        assert_eq!(root.on_report(HostId(1), report, now), []);
    }

    #[test]
    fn reports_about_ranks_of_other_hosts_are_ignored() {
        let now = Instant::now();
        let mut root = Router::root(two_hosts());
        for rank in 0..4 {
            let host = two_hosts().host_of(rank).unwrap();
            match host.0 {
                0 => drop(root.on_message(rank, hello(), now)),
                _ => drop(root.on_report(host, ToRoot::FromProcess { rank, message: hello() }, now)),
            }
        }
        let closed = ExitReport::Closed("was killed".into());
        let runs = vec![
            ReportRun { first: 0, len: 3, report: closed },
            ReportRun { first: u32::MAX, len: u32::MAX, report: ExitReport::Exited(WireExit::Left) },
        ];
        root.on_report(HostId(1), ToRoot::ExitReports(runs), now);
        let dead = ToProcess::Died(vec![DeathGroup::new("was killed", [2])]);
        assert!(root.tick(now).contains(&Outbound::Local(To::Joined, dead)));
    }
}
