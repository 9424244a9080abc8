//! Receives the messages of the processes of this host and of the other agents, and sends what the router decides.

use std::io;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use mpj_devices::HostId;

use super::event_loop::{ARRIVAL_INTERVAL, Agent, LocalProcess, Relay, Role, Stage};
use super::local::{has_exited, process_descriptor};
use super::messages::{FromRoot, ToRoot};
use super::router::Outbound;
use crate::boot::control_plane::{ControlConnection, GRACE, To, truncate_cause};
use crate::boot::proven::ACCEPT_RETRY;
use crate::boot::wire::{ProtocolVersion, ToLauncher, ToProcess, VERSION, Welcome, encode_frame, exit_code};

/// How long an agent without a free descriptor tries to accept a process of its host. Then the job fails: the rank of
/// the agent's process, which could close descriptors, might itself wait for that process.
const DESCRIPTOR_WAIT_LIMIT: Duration = Duration::from_secs(20);

/// The time that the root has to end the job after a rank has aborted it. Then the agent of that rank's host ends it:
/// the process of the root might be stopped.
const ABORT_LIMIT: Duration = GRACE.saturating_add(Duration::from_secs(3));

impl Agent {
    /// Accepts the processes of this host that wait.
    pub(super) fn accept(&mut self) {
        let now = Instant::now();
        if self.accepts_at.is_some_and(|at| now < at) {
            return;
        }
        let Err(error) = self.accept_processes() else {
            (self.accepts_at, self.lacks_descriptors_since) = (None, None);
            return;
        };
        // The waiting connections would make every poll return at once.
        self.accepts_at = Some(now + ACCEPT_RETRY);
        if !self.listener.has_waiting() {
            self.lacks_descriptors_since = None;
        } else if now >= *self.lacks_descriptors_since.get_or_insert(now) + DESCRIPTOR_WAIT_LIMIT
            && self.stage == Stage::Running
        {
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
                process.process = process_descriptor(arrival.pid);
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
        // These processes might have connected before they exited.
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
            // A child of the process can keep the connection open, so check the process, too. Check it before reading:
            // then all messages that the process sent before it exited are read below.
            let has_exited = process.process.as_ref().is_some_and(has_exited);
            let Some(connection) = process.connection.as_mut().filter(|_| !process.ended) else { continue };
            let mut outcome = connection.receive();
            while let Some(message) = self.next_message(index) {
                outcome = outcome.and(self.on_message(index, rank, message));
            }
            let Some(connection) = &mut self.processes[index].connection else { continue };
            let outcome = outcome.and_then(|()| connection.check_backlog());
            let cause = match outcome {
                Err(why) => format!("(pid {pid}) violated the control protocol: {why}"),
                Ok(()) if connection.is_closed() || has_exited => {
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
        if let (ToLauncher::Abort { code, reason, .. }, Role::Relay(_)) = (&message, &self.role) {
            let why =
                format!("rank {rank} aborted the job with code {code}: {}", truncate_cause(reason.clone()));
            let why = format!("{why} (the process of rank 0 does not respond)");
            self.abort_due.get_or_insert((Instant::now() + ABORT_LIMIT, exit_code(*code), why));
        }
        let outbound = self.router.on_message(rank, message, Instant::now())?;
        outbound.into_iter().try_for_each(|message| self.send_one(message))
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
        let outbound = self.router.on_closed(rank, cause, Instant::now());
        self.send(outbound);
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
                FromRoot::JobEnds { code } => self.begin_end(code, Instant::now()),
                FromRoot::Watch { at } => self.watch(HostId(0), at),
                FromRoot::WatchPeer { host, at } => self.watch(HostId(host), at),
                message => {
                    let outbound = self.router.on_root_message(message);
                    self.send(outbound);
                }
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
        self.accept_relays();
        let Role::Root { relays, .. } = &mut self.role else { return };
        let mut received = Vec::new();
        let mut lost = Vec::new();
        for (host, relay) in relays.iter_mut().filter(|(_, relay)| !relay.ended) {
            let outcome = relay.connection.receive();
            received.extend(std::iter::from_fn(|| relay.connection.next()).map(|message| (*host, message)));
            let outcome = outcome.and_then(|()| relay.connection.check_backlog());
            if outcome.is_err() || relay.connection.is_closed() {
                relay.connection.close();
                relay.ended = true;
                lost.push((
                    *host,
                    outcome.err().unwrap_or_else(|| "the agent of its host has exited".into()),
                ));
            }
        }
        for (host, message) in received {
            match message {
                ToRoot::Watch { at } => {
                    self.watch(host, at);
                    self.peer_watches.announced(host, at);
                }
                ToRoot::FromProcess { message: ToLauncher::Get { rank, .. }, .. } => {
                    self.peer_watches.communicates(host, self.hosts.host_of(rank));
                }
                _ => {}
            }
            for (host, message) in self.peer_watches.take() {
                self.send(vec![Outbound::Host(host, message)]);
            }
            let outbound = self.router.on_report(host, message, Instant::now());
            self.send(outbound);
        }
        for (host, why) in lost {
            self.on_host_lost(host, &why);
        }
    }

    fn accept_relays(&mut self) {
        let Role::Root { relays, listener, .. } = &mut self.role else { return };
        let is_known = |host| relays.contains_key(&host);
        let arrivals = listener.iter_mut().flat_map(|listener| listener.arrivals(is_known));
        let mut connected = Vec::new();
        for (host, stream) in arrivals.collect::<Vec<_>>() {
            let mut connection = ControlConnection::new(stream);
            if let Some(at) = self.watch_port.as_ref().and_then(|port| port.address_for(connection.as_fd())) {
                connection.send(&FromRoot::Watch { at }, None);
            }
            relays.insert(host, Relay { connection, ended: false });
            connected.push(host);
        }
        for host in connected {
            let outbound = self.router.on_connected(host);
            self.send(outbound);
        }
    }

    pub(super) fn on_host_lost(&mut self, host: HostId, why: &str) {
        let outbound = self.router.on_host_lost(host, why, Instant::now());
        self.send(outbound);
    }

    /// Queues messages to processes of this host and to other agents.
    pub(super) fn send(&mut self, outbound: Vec<Outbound>) {
        for message in outbound {
            // Only a message of a process can be too long for the root, and `on_message` handles that error.
            let _ = self.send_one(message);
        }
    }

    /// Queues a message.
    ///
    /// # Errors
    /// The message is too long.
    fn send_one(&mut self, message: Outbound) -> Result<(), String> {
        match (message, &mut self.role) {
            (Outbound::Local(to, message), _) => self.send_local(to, &message),
            (Outbound::Root(message), Role::Relay(upstream)) => {
                let frame = encode_frame(&message).map_err(|e| e.to_string())?;
                upstream.send_frame(&frame, None);
            }
            (Outbound::Host(host, message), Role::Root { relays, .. }) => {
                relays.get_mut(&host).into_iter().for_each(|relay| relay.connection.send(&message, None));
            }
            (Outbound::Hosts(message), Role::Root { relays, .. }) => {
                let frame = encode_frame(&message).map_err(|e| e.to_string())?;
                relays.values_mut().for_each(|relay| relay.connection.send_frame(&frame, None));
            }
            _ => {}
        }
        Ok(())
    }

    /// Sends the end of a failed job to the other processes of this host and, from the root, to the other agents.
    pub(super) fn send_end(&mut self, code: u8) {
        let message = ToProcess::JobEnds { code };
        let own = rustix::process::getpid().as_raw_nonzero().get();
        for process in self.processes.iter_mut().filter(|process| process.joined && process.pid != own) {
            process.connection.iter_mut().for_each(|connection| connection.send(&message, None));
        }
        self.send(vec![Outbound::Hosts(FromRoot::JobEnds { code })]);
    }

    fn send_local(&mut self, to: To, message: &ToProcess) {
        // A message that exceeds the limit should not exist. Its receivers get no further messages.
        let frame = encode_frame(message);
        let mut send = |process: &mut LocalProcess| {
            let connection = process.connection.iter_mut().filter(|_| process.joined);
            connection.for_each(|connection| match &frame {
                Ok(frame) => connection.send_frame(frame, None),
                Err(_) => connection.close(),
            });
        };
        match to {
            To::Process(rank) => {
                let index = self.ranks.index_of(rank as u32).map(|index| index as usize);
                index.and_then(|index| self.processes.get_mut(index)).into_iter().for_each(send);
            }
            To::Joined => self.processes.iter_mut().for_each(&mut send),
        }
    }
}
