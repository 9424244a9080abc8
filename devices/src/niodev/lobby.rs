//! The connection manager: connections until both ends have proved their identity.
//!
//! Either rank of a pair may connect first, or both at once, but only one connection is to be established. Both proofs
//! are sent before the decision, which the accepting rank makes. It sends [`Verdict::Go`] except in two cases: the pair
//! has a connection, or the rank is the lower one and has already sent the proof for its own connection. So the lower
//! rank's connection wins. Two connections are never established, because the lower rank sends Go only while no proof
//! of its own is pending, and sends no proof after it has sent Go.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Shared;
use super::attempt::{ConnectFailure, Connector};
use super::half::{HalfOpen, Next, Role};
use super::handshake::Verdict;
use super::pipe::TcpConnection;
use super::poller::{ReadyEvent, Token};
use super::seats::HalfOpenTable;
use crate::sys::Interest;
use crate::sys::{Errno, OwnedFd, socket};

/// Maximum number of connections to accept in one poll, so that a flood of strangers leaves time for peers.
const ARRIVALS: usize = 1024;

/// How long this rank does not listen after it had no descriptor to accept a connection with.
const PAUSE: Duration = Duration::from_millis(100);

/// A result of the connection manager.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A connection was established.
    Established(Arc<TcpConnection>),
    /// A peer cannot be reached.
    Lost(u32, String),
}

#[derive(Debug)]
pub(super) struct ConnManager {
    shared: Arc<Shared>,
    listener: OwnedFd,
    listening: bool,
    /// The time at which to listen again.
    resume: Option<Instant>,
    /// A reserved descriptor. When no other is left, this rank closes it, accepts one connection with it, and tells the
    /// peer, after a handshake, that it has no descriptor left.
    spare: Option<OwnedFd>,
    pub(super) seats: HalfOpenTable,
    retries: Vec<(Instant, Connector)>,
    outcomes: Vec<Outcome>,
}

impl ConnManager {
    pub(super) fn new(shared: Arc<Shared>, listener: OwnedFd) -> Result<Self, Errno> {
        shared.poller.add(&listener, Token::Listener, Interest::Read)?;
        Ok(ConnManager {
            shared,
            listener,
            listening: true,
            resume: None,
            spare: socket::spare(),
            seats: HalfOpenTable::new(),
            retries: Vec::new(),
            outcomes: Vec::new(),
        })
    }

    /// Takes over the connections that the device has started.
    pub(super) fn collect(&mut self) {
        for started in self.shared.take_started() {
            self.enter(started);
        }
    }

    /// Handles an event of the listener or of a half-open connection.
    pub(super) fn act(&mut self, news: ReadyEvent) {
        match news.token {
            Token::Listener => self.accept(),
            Token::Half(at) => self.talk(at),
            Token::Whole(_) => (),
        }
    }

    /// Returns whether every poll must call it: a connection of the job is being made or will be retried, or the
    /// listener is closed and will be reopened. Connections of strangers alone are polled less often.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.seats.is_busy() || !self.retries.is_empty() || !self.listening
    }

    /// Performs the work that is due by the clock, and returns the results since the last call.
    pub(super) fn outcomes(&mut self) -> Vec<Outcome> {
        if self.is_busy() || !self.seats.is_empty() {
            self.tick(Instant::now());
        }
        std::mem::take(&mut self.outcomes)
    }

    #[cold]
    fn tick(&mut self, now: Instant) {
        self.seats.looked();
        while let Some(late) = self.seats.take_late_stranger(now) {
            self.turn_away(late);
        }
        // A peer that has exited or died is not reported: the roster has done so.
        while let Some(vain) = self.seats.take_if(|half| half.attempt().is_some_and(|a| a.pipe.is_over())) {
            drop(vain);
        }
        self.retries.retain(|(_, attempt)| !attempt.pipe.needs_no_connect());
        let due: Vec<_> = self.retries.extract_if(.., |retry| retry.0 <= now).collect();
        for (_, attempt) in due {
            let started = HalfOpen::connect(&self.shared.id, attempt);
            self.enter(started);
        }
        if !self.listening && self.resume.is_none_or(|when| when <= now) {
            self.resume(now);
        }
    }

    /// Listens again if there is a descriptor to accept with.
    fn resume(&mut self, now: Instant) {
        self.spare = self.spare.take().or_else(socket::spare);
        if self.spare.is_none() && self.make_room() {
            self.spare = socket::spare();
        }
        let watched = || self.shared.poller.add(&self.listener, Token::Listener, Interest::Read).is_ok();
        self.listening = self.spare.is_some() && watched();
        self.resume = Some(now + PAUSE);
    }

    fn accept(&mut self) {
        for _ in 0..ARRIVALS {
            if !self.listening {
                return;
            }
            match socket::accept(&self.listener) {
                Ok(stream) => self.welcome(stream),
                Err(Errno::WOULDBLOCK) => return,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => self.overflow(),
                // The other end has closed the next connection in the queue.
                Err(_) => (),
            }
        }
    }

    /// Handles a lack of descriptors: rejects a stranger, or accepts one connection with the reserved descriptor and
    /// stops listening for a while.
    #[cold]
    fn overflow(&mut self) {
        if self.make_room() {
            return;
        }
        self.spare = None;
        if let Ok(stream) = socket::accept(&self.listener) {
            self.welcome(stream);
        }
        self.shared.poller.remove(&self.listener);
        self.listening = false;
        self.resume = Some(Instant::now() + PAUSE);
    }

    /// Rejects the oldest stranger; returns false if there is none.
    fn make_room(&mut self) -> bool {
        let oldest = self.seats.take_oldest_stranger();
        oldest.map(|oldest| self.turn_away(oldest)).is_some()
    }

    fn welcome(&mut self, stream: OwnedFd) {
        let Some(half) = HalfOpen::accept(&self.shared.id, stream) else { return };
        if self.seats.is_crowded() {
            self.make_room();
        }
        self.place(half);
    }

    fn enter(&mut self, started: Result<HalfOpen, (Connector, ConnectFailure)>) {
        match started {
            Ok(half) => self.place(half),
            Err((attempt, failure)) => self.failed(attempt, failure),
        }
    }

    fn place(&mut self, half: HalfOpen) {
        let at = self.seats.free();
        match self.shared.poller.add(&half.stream, Token::Half(at), half.awaits()) {
            Ok(()) => self.seats.put(at, half),
            Err(error) => {
                return self.drop_half(half, ConnectFailure::NoResources(format!("epoll: {error}")));
            }
        }
        // Peers send their hello before they are accepted, so they are no longer strangers afterwards.
        self.talk(at);
    }

    /// Continues a handshake as far as possible.
    fn talk(&mut self, at: usize) {
        while let Some(mut half) = self.seats.take(at) {
            let was_stranger = half.is_stranger();
            let next = half.advance(&self.shared.poller, at);
            if was_stranger && let Some(rank) = half.claims() {
                // A rank has one entry: it has given up its earlier connection, or another process claims that rank.
                let earlier = self.seats.take_if(|other| other.claims() == Some(rank));
                earlier.into_iter().for_each(|earlier| self.turn_away(earlier));
            }
            match next {
                Ok(Next::Wait) => return self.seats.put(at, half),
                Ok(Next::Continue) => self.seats.put(at, half),
                Ok(Next::PeerProven) => return self.decide(half),
                Ok(Next::Decided(verdict)) => return self.decided(half, verdict),
                Err(failure) => return self.drop_half(half, failure),
            }
        }
    }

    /// Decides about a connection whose other end has proved its identity.
    fn decide(&mut self, half: HalfOpen) {
        let peer = half.handshake.from();
        let pipe = self.shared.pipe(peer);
        let lower = self.shared.id.rank < peer;
        let busy = |h: &HalfOpen| h.handshake.awaits_verdict() && h.connects_to() == Some(peer);
        self.spare = self.spare.take().or_else(socket::spare);
        let verdict = if pipe.needs_no_connect() || lower && self.seats.any(busy) {
            Verdict::Taken
        } else if self.spare.is_none() {
            Verdict::Full
        } else {
            Verdict::Go
        };
        let told = socket::send(&half.stream, &[verdict.to_byte()]) == Ok(1);
        if verdict == Verdict::Go && told {
            self.stands(&pipe, half.stream);
        }
    }

    fn decided(&mut self, half: HalfOpen, verdict: Verdict) {
        let HalfOpen { stream, role: Role::Connects(mut attempt, _), .. } = half else { return };
        match verdict {
            Verdict::Go => self.stands(&attempt.pipe, stream),
            Verdict::Taken => {
                let when = attempt.outdone(Instant::now());
                self.retries.push((when, attempt));
            }
            Verdict::Full => {
                let why = "it has no file descriptor left for one more connection: raise `ulimit -n` there";
                self.failed(attempt, ConnectFailure::NoResources(why.into()));
            }
        }
    }

    fn stands(&mut self, pipe: &Arc<TcpConnection>, stream: OwnedFd) {
        let peer = pipe.peer.0;
        while let Some(other) = self.seats.take_if(|half| half.connects_to() == Some(peer)) {
            drop(other);
        }
        self.retries.retain(|(_, attempt)| attempt.pipe.peer.0 != peer);
        if pipe.establish(stream) {
            self.outcomes.push(Outcome::Established(Arc::clone(pipe)));
        }
    }

    fn turn_away(&mut self, half: HalfOpen) {
        self.drop_half(half, ConnectFailure::Transient);
    }

    fn drop_half(&mut self, half: HalfOpen, failure: ConnectFailure) {
        match half.role {
            Role::Accepts => drop(self.shared.strangers.fetch_add(1, Ordering::Relaxed)),
            Role::Connects(attempt, _) => self.failed(attempt, failure),
        }
    }

    /// Handles a failed attempt: it is retried, or the peer is lost.
    fn failed(&mut self, mut attempt: Connector, failure: ConnectFailure) {
        if attempt.pipe.needs_no_connect() {
            return;
        }
        if matches!(failure, ConnectFailure::NoResources(_)) {
            self.make_room();
        }
        match attempt.failed(Instant::now(), failure) {
            Ok(when) => self.retries.push((when, attempt)),
            Err(why) => {
                attempt.pipe.end();
                self.outcomes.push(Outcome::Lost(attempt.pipe.peer.0, why));
            }
        }
    }
}
