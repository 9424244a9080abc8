//! The connection manager: accepts and starts connections, and performs each handshake.
//!
//! Either rank of a pair may connect first, or both at once, but only one connection must be established. The accepting
//! rank decides after both proofs. It sends [`Verdict::Accept`] except in three cases: no descriptor is free; the pair
//! has or had a connection, or can no longer have one; or it is the lower rank and waits for the verdict on its own
//! connection. So the lower rank's connection wins. Two connections are never established, because the lower rank
//! accepts only while no proof of its own is pending, and sends no proof after it has accepted.
//!
//! The accepting rank might compute between the proof and the verdict, and the connecting rank might have closed the
//! connection meanwhile. Then the accepting rank sends no verdict, so that its own attempts continue.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::NioShared;
use super::connection::TcpConnection;
use super::connector::{ConnectFailure, Connector};
use super::half_open::{HalfOpen, HandshakeStatus, Role};
use super::half_open_table::HalfOpenTable;
use super::handshake::Verdict;
use super::poller::{ReadyEvent, Token};
use crate::sys::Interest;
use crate::sys::{Errno, OwnedFd, socket};

/// Maximum number of connections to accept at each address for one event: a flood of strangers leaves time for peers.
const MAX_ACCEPTS_PER_EVENT: usize = 1024;

/// The time for which this rank accepts no connections after it has run out of descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// If an accepted connection ended before anything arrived, the peer is reported lost after this time and this number of
/// polls, whichever is later. Meanwhile the roster usually reports the peer's exit.
const UNCONFIRMED_TIMEOUT: Duration = Duration::from_secs(5);
const UNCONFIRMED_POLLS: u32 = 64;

#[derive(Debug)]
pub(super) enum NioConnEvent {
    /// The flag tells whether this rank has accepted the connection.
    Established(Arc<TcpConnection>, bool),
    /// The peer cannot be reached, for the reason given.
    Lost(u32, String),
}

#[derive(Debug)]
pub(super) struct NioConnManager {
    shared: Arc<NioShared>,
    listeners: Vec<OwnedFd>,
    accepting: bool,
    /// The time at which this rank tries to accept again.
    resume_at: Option<Instant>,
    /// A reserved descriptor. If no other is left, it is closed to accept one connection. If none can be reserved after
    /// the handshake, the verdict is `Full`. While none is reserved, this rank drops each connection that it
    /// starts: if one took the last descriptor, this rank could not even refuse its peers, which would wait for ever.
    reserve_fd: Option<OwnedFd>,
    pub(super) half_open: HalfOpenTable,
    retries: Vec<(Instant, Connector)>,
    /// At most one for each peer.
    unconfirmed_ends: Vec<UnconfirmedEnd>,
    outcomes: Vec<NioConnEvent>,
}

/// The end of an accepted connection on which nothing has arrived. The peer might have exited in an orderly way before it
/// received the verdict, so that it could not send a goodbye.
#[derive(Debug)]
struct UnconfirmedEnd {
    peer: u32,
    why: String,
    since: Instant,
    polls: u32,
}

impl NioConnManager {
    pub(super) fn new(shared: Arc<NioShared>, listeners: Vec<OwnedFd>) -> Result<Self, Errno> {
        watch(&shared, &listeners)?;
        Ok(NioConnManager {
            shared,
            listeners,
            accepting: true,
            resume_at: None,
            reserve_fd: Some(socket::spare().ok_or(Errno::MFILE)?),
            half_open: HalfOpenTable::new(),
            retries: Vec::new(),
            unconfirmed_ends: Vec::new(),
            outcomes: Vec::new(),
        })
    }

    pub(super) fn collect_started(&mut self) {
        for started in self.shared.take_started() {
            self.on_connect(started);
        }
    }

    /// Handles an event of the listener or of a half-open connection.
    pub(super) fn on_event(&mut self, event: ReadyEvent) {
        match event.token {
            Token::Listener => self.accept(),
            Token::Handshaking(at) => self.advance(at),
            Token::Established(_) => (),
        }
    }

    /// Returns whether every pass must poll the sockets: a handshake with a rank is in progress or will be retried, the
    /// listeners are paused, or polls must be counted. Connections of strangers alone are polled less often.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.half_open.has_ranks()
            || !self.retries.is_empty()
            || !self.accepting
            || !self.unconfirmed_ends.is_empty()
    }

    /// Performs the work that is due by the clock, and returns the events since the last call.
    pub(super) fn outcomes(&mut self) -> Vec<NioConnEvent> {
        if self.is_busy() || !self.half_open.is_empty() {
            self.tick(Instant::now());
        }
        std::mem::take(&mut self.outcomes)
    }

    #[cold]
    pub(super) fn tick(&mut self, now: Instant) {
        // A peer that has exited or died is not reported here: the roster has reported it.
        while let Some(obsolete) =
            self.half_open.take_if(|half| half.connector().is_some_and(|a| a.connection.is_closed()))
        {
            drop(obsolete);
        }
        while let Some(late) = self.half_open.take_if(|half| half.is_late(now)) {
            self.reject(late);
        }
        self.retries.retain(|(_, connector)| !connector.connection.is_connected_or_closed());
        let due: Vec<_> = self.retries.extract_if(.., |retry| retry.0 <= now).collect();
        for (_, connector) in due {
            let started = HalfOpen::connect(&self.shared.id, connector);
            self.on_connect(started);
        }
        self.unconfirmed_ends.iter_mut().for_each(|end| end.polls += 1);
        self.report_unconfirmed_ends(|end| {
            end.polls > UNCONFIRMED_POLLS && now.saturating_duration_since(end.since) > UNCONFIRMED_TIMEOUT
        });
        if !self.accepting && self.resume_at.is_none_or(|when| when <= now) {
            self.resume(now);
        }
    }

    /// Records the end of an accepted connection on which nothing has arrived.
    pub(super) fn on_unconfirmed_end(&mut self, peer: u32, why: String) {
        self.unconfirmed_ends.push(UnconfirmedEnd { peer, why, since: Instant::now(), polls: 0 });
    }

    fn report_unconfirmed_ends(&mut self, mut which: impl FnMut(&UnconfirmedEnd) -> bool) {
        let ends = self.unconfirmed_ends.extract_if(.., |end| which(end));
        self.outcomes.extend(ends.map(|end| NioConnEvent::Lost(end.peer, end.why)));
    }

    /// Reserves a descriptor unless one is reserved; returns whether one is.
    fn ensure_reserve(&mut self) -> bool {
        self.reserve_fd = self.reserve_fd.take().or_else(socket::spare);
        self.reserve_fd.is_some()
    }

    fn resume(&mut self, now: Instant) {
        let has_reserve = self.ensure_reserve() || self.make_room() && self.ensure_reserve();
        self.accepting = has_reserve && watch(&self.shared, &self.listeners).is_ok();
        self.resume_at = Some(now + ACCEPT_PAUSE);
    }

    fn accept(&mut self) {
        for at in 0..self.listeners.len() {
            self.accept_at(at);
        }
    }

    fn accept_at(&mut self, at: usize) {
        for _ in 0..MAX_ACCEPTS_PER_EVENT {
            if !self.accepting {
                return;
            }
            match socket::accept(&self.listeners[at]) {
                Ok(stream) => self.on_accept(stream),
                Err(Errno::WOULDBLOCK) => return,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => self.on_fd_exhausted(at),
                // An error of the next connection in the queue: the other end might have closed it.
                Err(_) => (),
            }
        }
    }

    /// Handles a lack of descriptors: rejects a stranger, or, without strangers, accepts one connection with the
    /// reserved descriptor and then pauses for [`ACCEPT_PAUSE`].
    #[cold]
    fn on_fd_exhausted(&mut self, at: usize) {
        if self.make_room() {
            return;
        }
        self.reserve_fd = None;
        if let Ok(stream) = socket::accept(&self.listeners[at]) {
            self.on_accept(stream);
        }
        self.listeners.iter().for_each(|listener| self.shared.poller.remove(listener));
        self.accepting = false;
        self.resume_at = Some(Instant::now() + ACCEPT_PAUSE);
    }

    /// Rejects the oldest stranger. Returns false if the table has no stranger.
    fn make_room(&mut self) -> bool {
        let oldest = self.half_open.take_oldest_stranger();
        oldest.map(|oldest| self.reject(oldest)).is_some()
    }

    fn on_accept(&mut self, stream: OwnedFd) {
        let Some(half) = HalfOpen::accept(&self.shared.id, stream) else { return };
        if self.half_open.is_crowded() {
            self.make_room();
        }
        self.add_half_open(half);
    }

    fn on_connect(&mut self, started: Result<HalfOpen, (Connector, ConnectFailure)>) {
        match started {
            Ok(half) if self.ensure_reserve() => self.add_half_open(half),
            Ok(half) => self.drop_half(
                half,
                ConnectFailure::NoResources("no file descriptor is left: raise `ulimit -n`".into()),
            ),
            Err((connector, failure)) => self.failed(connector, failure),
        }
    }

    fn add_half_open(&mut self, half: HalfOpen) {
        let at = self.half_open.free_index();
        match self.shared.poller.add(&half.stream, Token::Handshaking(at), half.interest()) {
            Ok(()) => self.half_open.put(at, half),
            Err(error) => {
                return self.drop_half(half, ConnectFailure::NoResources(format!("epoll: {error}")));
            }
        }
        // The hello of a peer has usually arrived: after this step, its connection is not a stranger's any more.
        self.advance(at);
    }

    fn advance(&mut self, at: usize) {
        while let Some(mut half) = self.half_open.take(at) {
            let was_stranger = half.is_stranger();
            let next = half.advance(&self.shared.poller, at);
            if was_stranger && let Some(rank) = half.claimed_rank() {
                // A rank has one entry. The rank has abandoned its earlier connection, or an impostor claims the rank.
                let earlier = self.half_open.take_if(|other| other.claimed_rank() == Some(rank));
                earlier.into_iter().for_each(|earlier| self.reject(earlier));
            }
            match next {
                Ok(HandshakeStatus::Wait) => return self.half_open.put(at, half),
                Ok(HandshakeStatus::Continue) => self.half_open.put(at, half),
                Ok(HandshakeStatus::PeerProven) => return self.send_verdict(half),
                Ok(HandshakeStatus::Decided(verdict)) => return self.on_verdict(half, verdict),
                Err(failure) => return self.drop_half(half, failure),
            }
        }
    }

    /// Sends the verdict to a peer that has proved its identity, and establishes the connection if it is accepted.
    fn send_verdict(&mut self, half: HalfOpen) {
        if !half.peer_still_waits() {
            return self.reject(half);
        }
        let peer = half.handshake.from();
        // A peer that connects again has not exited: it has lost the connection.
        self.report_unconfirmed_ends(|end| end.peer == peer);
        let connection = self.shared.connection(peer);
        let is_lower = self.shared.id.rank < peer;
        let own_attempt = |h: &HalfOpen| h.handshake.awaits_verdict() && h.target() == Some(peer);
        let has_reserve = self.ensure_reserve();
        let verdict = if connection.is_connected_or_closed() || is_lower && self.half_open.any(own_attempt) {
            Verdict::Duplicate
        } else if !has_reserve {
            Verdict::Full
        } else {
            Verdict::Accept
        };
        let sent = socket::send(&half.stream, &[verdict.to_byte()]) == Ok(1);
        if verdict == Verdict::Accept && sent {
            self.establish(&connection, half.stream, true);
        } else {
            drop(half);
            self.ensure_reserve();
        }
    }

    fn on_verdict(&mut self, half: HalfOpen, verdict: Verdict) {
        let HalfOpen { stream, role: Role::Connects(mut connector, _), .. } = half else { return };
        match verdict {
            Verdict::Accept => self.establish(&connector.connection, stream, false),
            Verdict::Duplicate => {
                let when = connector.on_duplicate(Instant::now());
                self.retries.push((when, connector));
            }
            Verdict::Full => {
                let why = "it has no file descriptor left for one more connection: raise `ulimit -n` there";
                self.failed(connector, ConnectFailure::NoResources(why.into()));
            }
        }
    }

    fn establish(&mut self, connection: &Arc<TcpConnection>, stream: OwnedFd, accepted: bool) {
        let peer = connection.peer.0;
        while let Some(other) = self.half_open.take_if(|half| half.target() == Some(peer)) {
            drop(other);
        }
        self.retries.retain(|(_, connector)| connector.connection.peer.0 != peer);
        if connection.establish(stream) {
            self.outcomes.push(NioConnEvent::Established(Arc::clone(connection), accepted));
        }
    }

    fn reject(&mut self, half: HalfOpen) {
        self.drop_half(half, ConnectFailure::Transient);
    }

    fn drop_half(&mut self, half: HalfOpen, failure: ConnectFailure) {
        let HalfOpen { stream, role, .. } = half;
        drop(stream);
        self.ensure_reserve();
        match role {
            Role::Accepts => drop(self.shared.rejected.fetch_add(1, Ordering::Relaxed)),
            Role::Connects(connector, _) => self.failed(connector, failure),
        }
    }

    /// Schedules the next attempt, or reports the peer lost.
    fn failed(&mut self, mut connector: Connector, failure: ConnectFailure) {
        if connector.connection.is_connected_or_closed() {
            return;
        }
        if matches!(failure, ConnectFailure::NoResources(_)) {
            self.make_room();
        }
        match connector.failed(Instant::now(), failure) {
            Ok(when) => self.retries.push((when, connector)),
            Err(why) => {
                connector.connection.close();
                self.outcomes.push(NioConnEvent::Lost(connector.connection.peer.0, why));
            }
        }
    }
}

/// Makes the poller report connections at all listeners. After an error, it reports none.
fn watch(shared: &NioShared, listeners: &[OwnedFd]) -> Result<(), Errno> {
    let add = |listener| shared.poller.add(listener, Token::Listener, Interest::Read);
    listeners.iter().try_for_each(add).inspect_err(|_| {
        listeners.iter().for_each(|listener| shared.poller.remove(listener));
    })
}
