//! Where connections wait until both ends have proved who they are.
//!
//! Either rank of a pair may connect first, and both may at once; one connection is to stand. Both proofs come before
//! the decision, and whoever accepts takes it: it says [`Verdict::Go`], unless the pair has a connection, or its own
//! one has already sent its proof and it is the lower rank. So the lower rank's connection wins, and never two stand:
//! the lower rank says Go only while no proof of its own is under way, and sends no proof after it has said Go.

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

/// Connections taken from the kernel's queue in one look, so that a flood of strangers leaves time for peers.
const ARRIVALS: usize = 1024;

/// How long this rank does not listen when it had no descriptor to accept a connection with.
const PAUSE: Duration = Duration::from_millis(100);

/// What came out of the lobby.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A connection stands.
    Established(Arc<TcpConnection>),
    /// A peer cannot be reached.
    Lost(u32, String),
}

#[derive(Debug)]
pub(super) struct ConnManager {
    shared: Arc<Shared>,
    listener: OwnedFd,
    listening: bool,
    /// When to listen again.
    resume: Option<Instant>,
    /// A descriptor in reserve: when no other is left, it serves to accept one connection, prove the key to it and tell it
    /// that this rank is full.
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

    /// Takes the connections that the device has started.
    pub(super) fn collect(&mut self) {
        for started in self.shared.take_started() {
            self.enter(started);
        }
    }

    /// Acts on news of the listener or of a half.
    pub(super) fn act(&mut self, news: ReadyEvent) {
        match news.token {
            Token::Listener => self.accept(),
            Token::Half(at) => self.talk(at),
            Token::Whole(_) => (),
        }
    }

    /// Whether every poll has to visit the lobby: a connection of the job is being made or is to be tried again, or the listener
    /// is closed and is to be opened again. Strangers alone are visited less often.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.seats.is_busy() || !self.retries.is_empty() || !self.listening
    }

    /// Does what is due by the clock, and returns what came out since.
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
        // A peer that has left or died is not reported: the roster has done so.
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
                // The next connection in the queue was closed by its other end.
                Err(_) => (),
            }
        }
    }

    /// Finds a descriptor for a new connection when none is left: that of a stranger, or else the one in reserve.
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

    /// Turns the oldest stranger away; false if there is none.
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
        // Peers speak before they are accepted, and are strangers no longer.
        self.talk(at);
    }

    /// Goes on with a handshake as far as it goes.
    fn talk(&mut self, at: usize) {
        while let Some(mut half) = self.seats.take(at) {
            let was_stranger = half.is_stranger();
            let next = half.advance(&self.shared.poller, at);
            if was_stranger && let Some(rank) = half.claims() {
                // A rank has one place: it has given up its earlier connection, or somebody else sits there.
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

    /// Takes the decision about a connection whose other end has proved itself.
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

    /// Takes note that a way to a peer failed: it is tried again, or the peer is lost.
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
