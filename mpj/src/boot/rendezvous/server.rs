//! Rank 0 of a rendezvous, to which the others connect.

use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpj_devices::config::Config;
use mpj_devices::handshake::Identity;
use mpj_devices::network::{Listener, listen_at_addresses, listen_on_network};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Resource, Rlimit};

use super::gathering::{Gathering, Step};
use super::messages::{FromServer, ToServer, limit_silence};
use super::sources::RendezvousAddress;
use super::{Placement, Rendezvous, TIMEOUT_NAME};
use crate::boot::control_plane::ControlConnection;
use crate::boot::proven::{MAX_STRANGERS, ProvenListener, random_bytes};

/// The descriptors that a process needs in addition to those for ranks and strangers at the rendezvous.
const OWN_DESCRIPTORS: u64 = 64;

/// The time that rank 0 waits for the others to read why the job cannot start, and to close their connections.
const REFUSAL_TIME: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct RendezvousServer {
    /// `None` after all ranks have passed the fence.
    listener: Option<ProvenListener>,
    others: Vec<Other>,
    gathering: Gathering,
    /// Where the others connect, for messages.
    at: String,
    timeout: Duration,
    values: Vec<(String, String)>,
}

#[derive(Debug)]
struct Other {
    rank: u32,
    connection: ControlConnection<ToServer>,
}

impl RendezvousServer {
    /// Listens for the other ranks.
    ///
    /// # Errors
    /// The port is in use, or the host has no usable address.
    pub(super) fn listen(rendezvous: &Rendezvous, config: &Config) -> Result<RendezvousServer, String> {
        let Rendezvous { size, address, key, host, timeout, .. } = rendezvous;
        let own: Vec<IpAddr> = address.resolve().map(|at| at.map(|at| at.ip()).collect()).unwrap_or_default();
        let listeners = listen(config, address, &own).map_err(|why| {
            format!(
                "rank 0 cannot listen for the others at {address}: {why}; MPJ_RENDEZVOUS selects another port"
            )
        })?;
        raise_descriptor_limit(2 * u64::from(*size) + MAX_STRANGERS as u64 + OWN_DESCRIPTORS);
        let id = Identity { key: Arc::clone(key), rank: 0, size: u32::MAX, purpose: super::PURPOSE };
        let sockets = listeners.into_iter().map(|(socket, _)| socket).collect();
        Ok(RendezvousServer {
            listener: Some(ProvenListener::new(sockets, Arc::new(id), *size)),
            others: Vec::new(),
            gathering: Gathering::new(*size, host.clone()),
            at: address.to_string(),
            timeout: *timeout,
            values: Vec::new(),
        })
    }

    /// Waits until all ranks have joined. Returns the runs of ranks on each host, and a nonce for the job.
    ///
    /// # Errors
    /// A rank is missing after the time limit, or the ranks do not form a job. The others must
    /// [get the reason](Self::refuse).
    pub(super) fn place(&mut self) -> Result<Placement, String> {
        self.wait_for(Step::Joined)?;
        let (hosts, nonce) = (self.gathering.place(), random_bytes()?);
        self.send(&FromServer::Placed { hosts: hosts.clone(), nonce });
        Ok((hosts, nonce))
    }

    pub(super) fn put(&mut self, key: &str, value: &str) {
        self.values.push((key.into(), value.into()));
    }

    /// Waits until all ranks are ready, and sends them the values.
    ///
    /// # Errors
    /// As [`place`](Self::place).
    pub(super) fn fence(&mut self) -> Result<(), String> {
        self.wait_for(Step::Ready)?;
        let values = self.values.clone();
        self.send(&FromServer::Proceed { values });
        self.listener = None;
        Ok(())
    }

    /// Sends the others why the job cannot start.
    pub(super) fn refuse(&mut self, why: &str) {
        self.send(&FromServer::Refused(why.to_owned()));
        let until = Instant::now() + REFUSAL_TIME;
        // If a connection is closed while it has unread data, the kernel can discard the message that was sent.
        while !self.others.is_empty() && Instant::now() < until {
            self.poll_sockets(Some(until));
            for other in &mut self.others {
                let _ = other.connection.receive();
                while other.connection.next().is_some() {}
                other.connection.flush();
            }
            self.others.retain(|other| !other.connection.is_closed());
        }
    }

    fn send(&mut self, message: &FromServer) {
        for other in &mut self.others {
            other.connection.send(message, None);
            other.connection.flush();
        }
    }

    fn wait_for(&mut self, step: Step) -> Result<(), String> {
        let deadline = Instant::now() + self.timeout;
        while !self.gathering.have_all(step) {
            if deadline <= Instant::now() {
                return Err(self.describe_missing(step));
            }
            self.poll_sockets(Some(deadline));
            self.advance()?;
        }
        Ok(())
    }

    fn describe_missing(&self, step: Step) -> String {
        let (missing, at, seconds) = (self.gathering.missing(step), &self.at, self.timeout.as_secs_f64());
        let mut why = format!("{missing} did not come to the rendezvous at {at} within {seconds} s");
        if step == Step::Ready {
            return format!("{missing} did not get ready within {seconds} s ({TIMEOUT_NAME})");
        }
        let unproven = self.listener.iter().flat_map(|listener| listener.unproven());
        let unproven: Vec<String> = unproven.take(8).map(u32::to_string).collect();
        if !unproven.is_empty() {
            why +=
                &format!("; processes with rank {} may have another key (MPJ_SECRET)", unproven.join(", "));
        }
        format!("{why}: check that they were started and can reach that address, or raise {TIMEOUT_NAME}")
    }

    fn poll_sockets(&self, until: Option<Instant>) {
        let due = self.listener.as_ref().and_then(ProvenListener::due);
        let until = [due, until].into_iter().flatten().min();
        let timeout = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout = timeout.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            // The loop must not spin before the time has come.
            tv_nsec: i64::from(left.subsec_nanos()).clamp(1_000_000, 999_999_999),
        });
        let listening = self.listener.iter().flat_map(ProvenListener::to_poll);
        let mut fds: Vec<PollFd<'_>> = listening.map(|socket| PollFd::new(socket, PollFlags::IN)).collect();
        fds.extend(self.others.iter().map(|other| {
            let flags = if other.connection.has_backlog() { PollFlags::OUT } else { PollFlags::empty() };
            PollFd::new(&other.connection, flags | PollFlags::IN)
        }));
        // After an error, such as an interruption, everything is read once more.
        let _ = poll(&mut fds, timeout.as_ref());
    }

    fn advance(&mut self) -> Result<(), String> {
        let others = &self.others;
        // A second process with a rank is accepted, so that both get the reason.
        let arrivals = self.listener.iter_mut().flat_map(|listener| listener.arrivals(|_| false));
        let arrivals: Vec<_> = arrivals.inspect(|(_, socket)| limit_silence(socket)).collect();
        let twice =
            arrivals.iter().map(|(rank, _)| *rank).find(|rank| others.iter().any(|o| o.rank == *rank));
        self.others.extend(
            arrivals
                .into_iter()
                .map(|(rank, socket)| Other { rank, connection: ControlConnection::new(socket) }),
        );
        if let Some(rank) = twice {
            let place = self.gathering.place_of(rank);
            return Err(format!(
                "two processes have rank {rank}{place}: give each process its own rank (MPJ_RANK)"
            ));
        }
        let mut outcome = Ok(());
        for other in &mut self.others {
            let (rank, connection) = (other.rank, &mut other.connection);
            let received = connection.receive().map_err(|why| format!("rank {rank} sent {why}"));
            outcome = outcome.and(received);
            while let Some(message) = connection.next() {
                outcome = outcome.and_then(|()| self.gathering.take(rank, message));
            }
            connection.flush();
            if connection.is_closed() {
                outcome = outcome.and_then(|()| self.gathering.closed(rank));
            }
        }
        self.others.retain(|other| !other.connection.is_closed());
        outcome
    }

    /// Returns the sockets of the ranks that have not connected to their agents.
    pub(super) fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        self.others.iter().map(|other| other.connection.as_fd()).collect()
    }

    /// Returns the ranks that have exited or failed before they connected to their agents.
    pub(super) fn poll(&mut self) -> Vec<(u32, String)> {
        let mut lost = Vec::new();
        let gathering = &self.gathering;
        self.others.retain_mut(|other| {
            let place = gathering.place_of(other.rank);
            let received = other.connection.receive();
            other.connection.flush();
            let cause = match (other.connection.next(), received) {
                (Some(ToServer::Joined), _) => return false,
                (Some(ToServer::Failed(why)), _) => format!("could not join the job{place}: {why}"),
                (Some(_), _) | (None, Err(_)) => format!("violated the protocol of the rendezvous{place}"),
                (None, Ok(())) if other.connection.is_closed() => {
                    format!("exited before it had joined the job{place}")
                }
                (None, Ok(())) => return true,
            };
            lost.push((other.rank, cause));
            false
        });
        lost
    }
}

/// Listens at the addresses of the rendezvous that belong to this host. If the name is unknown now, or belongs to a
/// service that forwards connections, or only this host resolves it to the loopback, listens on the network as well.
fn listen(config: &Config, address: &RendezvousAddress, own: &[IpAddr]) -> Result<Vec<Listener>, String> {
    let mut listeners = listen_at_addresses(config, own, address.port)?;
    let is_local = listeners.iter().all(|(_, at)| at.ip().is_loopback());
    if listeners.is_empty() || (is_local && !address.is_loopback()) {
        match listen_on_network(config, address.port) {
            Ok(more) => listeners.extend(more),
            Err(why) if listeners.is_empty() => return Err(why),
            Err(_) => {}
        }
    }
    Ok(listeners)
}

/// Raises the limit of descriptors of this process, at most to the hard limit.
fn raise_descriptor_limit(needed: u64) {
    let limit = rustix::process::getrlimit(Resource::Nofile);
    if limit.current.is_some_and(|current| current < needed) {
        let current = Some(limit.maximum.map_or(needed, |maximum| maximum.min(needed)));
        // Without enough descriptors, ranks are missing at the time limit.
        let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current, ..limit });
    }
}
