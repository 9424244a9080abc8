//! Passes messages on between the processes of this host, the monitor of the job, and the other agents.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use mpj_devices::HostId;

use super::event_loop::{Agent, LocalProcess, Relay, Role, Stage};
use super::peers::{FromRoot, ToRoot};
use crate::boot::control_plane::{ControlConnection, Outgoing, To};
use crate::boot::proven::ACCEPT_RETRY;
use crate::boot::wire::{ProtocolVersion, ToLauncher, ToProcess, VERSION, Welcome, encode_frame};

/// How long a process waits for an agent that has no descriptor for its connection. Then the job fails, because the
/// process that would close a descriptor may itself be the one that waits.
const LACK_LIMIT: Duration = Duration::from_secs(20);

/// How often an agent looks for processes that have exited before they connected.
pub(super) const ARRIVAL_INTERVAL: Duration = Duration::from_secs(1);

impl Agent {
    /// Accepts the processes of this host that wait.
    pub(super) fn accept(&mut self) {
        let now = Instant::now();
        if self.accepts_at.is_some_and(|at| now < at) {
            return;
        }
        let Err(error) = self.accept_processes() else {
            (self.accepts_at, self.lacks_since) = (None, None);
            return;
        };
        // The connections that wait would end each poll at once.
        self.accepts_at = Some(now + ACCEPT_RETRY);
        if !self.listener.has_waiting() {
            self.lacks_since = None;
        } else if now >= *self.lacks_since.get_or_insert(now) + LACK_LIMIT && self.stage == Stage::Running {
            let rank = self.processes.first().map_or(0, |process| process.rank);
            self.fail(
                1,
                &format!(
                    "rank {rank} cannot accept the connections of the processes of its host: {error}; raise `ulimit -Hn`"
                ),
            );
        }
    }

    fn accept_processes(&mut self) -> io::Result<()> {
        while let Some(arrival) = self.listener.accept()? {
            let index = self.ranks.index_of(arrival.rank).map(|index| index as usize);
            // The connection of a process with a rank of another host, or with the rank of another process, is dropped.
            let free = index.and_then(|index| self.processes.get_mut(index));
            if let Some(process) = free.filter(|process| process.connection.is_none()) {
                process.pid = arrival.pid;
                process.connection = Some(ControlConnection::new(arrival.stream));
            }
        }
        Ok(())
    }

    /// Finds the processes that have exited before they connected, which not every process manager reports.
    pub(super) fn check_arrivals(&mut self) {
        let now = Instant::now();
        if self.arrivals_due.is_none_or(|due| now < due) {
            return;
        }
        let is_missing = |process: &LocalProcess| process.connection.is_none() && !process.ended;
        let has_exited =
            |process: &LocalProcess| is_missing(process) && self.listener.has_exited(process.rank);
        let indices = 0..self.processes.len();
        let exited: Vec<usize> = indices.filter(|index| has_exited(&self.processes[*index])).collect();
        // They may have connected before they exited.
        self.accept();
        for index in exited {
            let process = &mut self.processes[index];
            if is_missing(process) {
                process.ended = true;
                let rank = process.rank;
                self.on_closed(rank, "exited or was killed before it had joined the job".into());
            }
        }
        self.arrivals_due = self.processes.iter().any(is_missing).then(|| now + ARRIVAL_INTERVAL);
    }

    pub(super) fn read_processes(&mut self) {
        for index in 0..self.processes.len() {
            let process = &mut self.processes[index];
            let (rank, pid) = (process.rank, process.pid);
            let Some(connection) = process.connection.as_mut().filter(|_| !process.ended) else { continue };
            let mut outcome = connection.receive();
            while let Some(message) = self.next_message(index) {
                outcome = outcome.and(self.on_message(index, rank, message));
            }
            let Some(connection) = &mut self.processes[index].connection else { continue };
            let outcome = outcome.and_then(|()| connection.check_backlog());
            let cause = match outcome {
                Err(why) => format!("(pid {pid}) violated the control protocol: {why}"),
                Ok(()) if connection.is_closed() => {
                    format!("(pid {pid}) exited or was killed before leaving the job")
                }
                Ok(()) => continue,
            };
            connection.close();
            self.processes[index].ended = true;
            self.on_closed(rank, cause);
        }
    }

    fn next_message(&mut self, index: usize) -> Option<ToLauncher> {
        self.processes[index].connection.as_mut()?.next()
    }

    /// Handles a message of a process of this host.
    fn on_message(&mut self, index: usize, rank: u32, message: ToLauncher) -> Result<(), String> {
        if let ToLauncher::Hello(theirs) = &message {
            if theirs.version != VERSION {
                let own = ProtocolVersion::own();
                return Err(format!(
                    "it is built with {theirs}, but the first rank of its host with {own}: use one version of mpj"
                ));
            }
            self.welcome(index, rank);
        }
        match &mut self.role {
            Role::Root { monitor, .. } => {
                let outgoing = monitor.take(rank, message, Instant::now())?;
                self.send(outgoing);
            }
            Role::Relay(upstream) => {
                let frame = encode_frame(&ToRoot::Report { rank, message }).map_err(|e| e.to_string())?;
                upstream.send_frame(&frame, None);
            }
        }
        Ok(())
    }

    fn welcome(&mut self, index: usize, rank: u32) {
        let welcome = Welcome {
            job: self.key.job,
            secret: self.key.secret,
            hosts: self.hosts.runs().map(|(host, ranks)| (host.0, ranks.len() as u32)).collect(),
            first_rank: rank,
            ranks_here: 1,
            devices: self.devices.clone(),
            has_segment: self.segment.is_some(),
        };
        let process = &mut self.processes[index];
        if let Some(connection) = process.connection.as_mut().filter(|_| !process.joined) {
            connection.send(&ToProcess::Welcome(welcome), self.segment.clone());
            process.joined = true;
        }
    }

    /// Handles the end of the process of a rank, or of its connection.
    pub(super) fn on_closed(&mut self, rank: u32, cause: String) {
        match &mut self.role {
            Role::Root { monitor, .. } => {
                let outgoing = monitor.closed(rank, &cause, Instant::now());
                self.send(outgoing);
            }
            Role::Relay(upstream) => upstream.send(&ToRoot::Closed { rank, cause }, None),
        }
    }

    /// Handles the messages from the other agents.
    pub(super) fn read_agents(&mut self) {
        match &self.role {
            Role::Relay(_) => self.read_root(),
            Role::Root { .. } => self.read_relays(),
        }
    }

    fn read_root(&mut self) {
        let Role::Relay(upstream) = &mut self.role else { return };
        let outcome = upstream.receive();
        let mut received = Vec::new();
        received.extend(std::iter::from_fn(|| upstream.next()));
        let is_closed = upstream.is_closed();
        for message in received {
            match message {
                FromRoot::ToProcess { rank, message } => {
                    self.send_local(To::Process(rank as usize), &message)
                }
                FromRoot::ToOthers { message: ToProcess::JobEnds { code }, .. } => {
                    self.begin_end(code, Instant::now());
                }
                FromRoot::ToOthers { except, message } => {
                    self.send_local(To::JoinedExcept(except as usize), &message);
                }
                FromRoot::Watch { at } => self.watch(HostId(0), at),
            }
        }
        if self.stage == Stage::Leaving && is_closed {
            self.finish();
        }
        if self.stage == Stage::Running && (outcome.is_err() || is_closed) {
            let why = outcome.err().unwrap_or_else(|| "it has exited".into());
            self.fail(1, &format!("the process of rank 0, which coordinates the job, is lost: {why}"));
        }
    }

    fn read_relays(&mut self) {
        let Role::Root { relays, listener, .. } = &mut self.role else { return };
        let is_known = |host| relays.iter().any(|relay: &Relay| relay.host == host);
        let arrivals = listener.iter_mut().flat_map(|listener| listener.arrivals(is_known));
        for (host, stream) in arrivals.collect::<Vec<_>>() {
            let mut connection = ControlConnection::new(stream);
            if let Some(at) = self.watch_port.as_ref().and_then(|port| port.address_for(connection.as_fd())) {
                connection.send(&FromRoot::Watch { at }, None);
            }
            relays.push(Relay { host, connection, ended: false });
        }
        let mut received = Vec::new();
        let mut lost = Vec::new();
        for relay in relays.iter_mut().filter(|relay| !relay.ended) {
            let outcome = relay.connection.receive();
            let ranks = self.hosts.ranks_of(relay.host);
            received.extend(std::iter::from_fn(|| relay.connection.next()).map(|m| (relay.host, m)));
            let outcome = outcome.and_then(|()| relay.connection.check_backlog());
            if outcome.is_err() || relay.connection.is_closed() {
                relay.connection.close();
                relay.ended = true;
                let why = outcome.err().unwrap_or_else(|| "the agent of its host has exited".into());
                lost.push((ranks, format!("was lost: {why}")));
            }
        }
        for (host, message) in received {
            self.on_report(host, message);
        }
        for (ranks, why) in lost {
            ranks.iter().for_each(|rank| self.on_closed(rank, why.clone()));
        }
    }

    /// Handles a message of the agent of another host.
    fn on_report(&mut self, host: HostId, message: ToRoot) {
        let Role::Root { monitor, .. } = &mut self.role else { return };
        let (now, is_elsewhere) = (Instant::now(), |rank| self.hosts.host_of(rank) != Some(host));
        let (rank, outgoing) = match message {
            ToRoot::Watch { at } => return self.watch(host, at),
            ToRoot::Report { rank, .. } | ToRoot::Closed { rank, .. } if is_elsewhere(rank) => return,
            ToRoot::Report { rank, message } => (rank, monitor.take(rank, message, now)),
            ToRoot::Closed { rank, cause } => (rank, Ok(monitor.closed(rank, &cause, now))),
        };
        match outgoing {
            Ok(outgoing) => self.send(outgoing),
            Err(why) => self.on_closed(rank, format!("violated the control protocol: {why}")),
        }
    }

    /// Sends messages to processes of all hosts.
    pub(super) fn send(&mut self, outgoing: Vec<Outgoing>) {
        for Outgoing { to, message } in outgoing {
            self.send_local(to, &message);
            let Role::Root { relays, .. } = &mut self.role else { continue };
            match to {
                To::Process(rank) => {
                    let rank = rank as u32;
                    let host = self.hosts.host_of(rank);
                    if let Some(relay) = relays.iter_mut().find(|relay| Some(relay.host) == host) {
                        relay.connection.send(&FromRoot::ToProcess { rank, message }, None);
                    }
                }
                To::JoinedExcept(except) => {
                    let message = FromRoot::ToOthers { except: except as u32, message };
                    // Causes are truncated, so the frame is below the limit.
                    let Ok(frame) = encode_frame(&message) else { continue };
                    relays.iter_mut().for_each(|relay| relay.connection.send_frame(&frame, None));
                }
            }
        }
    }

    /// Sends the end of a failed job to the other processes of this host and, from the root, to the other agents.
    pub(super) fn send_end(&mut self, code: u8) {
        let message = ToProcess::JobEnds { code };
        let own = rustix::process::getpid().as_raw_nonzero().get();
        for process in self.processes.iter_mut().filter(|process| process.joined && process.pid != own) {
            process.connection.iter_mut().for_each(|connection| connection.send(&message, None));
        }
        if let Role::Root { relays, .. } = &mut self.role {
            let message = FromRoot::ToOthers { except: u32::MAX, message };
            relays.iter_mut().for_each(|relay| relay.connection.send(&message, None));
        }
    }

    pub(super) fn send_local(&mut self, to: To, message: &ToProcess) {
        let joined = self.processes.iter_mut().filter(|process| process.joined);
        let receivers = joined.filter(|process| match to {
            To::Process(rank) => process.rank as usize == rank,
            To::JoinedExcept(rank) => process.rank as usize != rank,
        });
        for process in receivers {
            process.connection.iter_mut().for_each(|connection| connection.send(message, None));
        }
    }
}
