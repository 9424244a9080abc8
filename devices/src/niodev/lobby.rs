//! Where connections wait until both ends have proved who they are.
//!
//! Either rank of a pair may connect first, and both may at once; one connection is to stand. Both proofs come before
//! the decision, and whoever accepts takes it: it says [`Verdict::Go`], unless the pair has a connection, or its own
//! one has already sent its proof and it is the lower rank. So the lower rank's connection wins, and never two stand:
//! the lower rank says Go only while no proof of its own is under way, and sends no proof after it has said Go.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::SendFlags;

use super::Shared;
use super::connect::{self, Attempt};
use super::half::{Failure, Half, Next, Role};
use super::handshake::{FULL, Verdict};
use super::pipe::Pipe;
use super::poller::{For, News, Token};

/// Strangers that may be in the lobby at once; the others wait in the kernel's queue.
const CAP: usize = 64;

/// How long a stranger may take to prove itself.
const LIMIT: Duration = Duration::from_secs(2);

/// How long a stranger may take when others wait for its place.
const CROWDED: Duration = Duration::from_millis(200);

/// How long nobody is accepted after an error of this process.
const PAUSE: Duration = Duration::from_millis(100);

/// What came out of the lobby.
#[derive(Debug)]
pub(super) enum Outcome {
    /// A connection stands.
    Stands(Arc<Pipe>),
    /// A peer cannot be reached.
    Lost(u32, String),
}

#[derive(Debug)]
pub(super) struct Lobby {
    shared: Arc<Shared>,
    listener: OwnedFd,
    listening: bool,
    /// When to listen again.
    resume: Option<Instant>,
    /// Given up to tell a peer that there are no descriptors left.
    spare: Option<OwnedFd>,
    halves: Vec<Option<Half>>,
    retries: Vec<(Instant, Attempt)>,
    outcomes: Vec<Outcome>,
}

impl Lobby {
    pub(super) fn new(shared: Arc<Shared>, listener: OwnedFd) -> rustix::io::Result<Self> {
        shared.poller.add(&listener, Token::Listener, For::Arrivals)?;
        Ok(Lobby {
            shared,
            listener,
            listening: true,
            resume: None,
            spare: connect::spare(),
            halves: Vec::new(),
            retries: Vec::new(),
            outcomes: Vec::new(),
        })
    }

    /// Takes the connections that the device has started.
    pub(super) fn collect(&mut self) {
        for (attempt, started) in self.shared.take_started() {
            self.enter(attempt, started);
        }
    }

    /// Acts on news of the listener or of a half.
    pub(super) fn act(&mut self, news: News) {
        match news.token {
            Token::Listener => self.accept(),
            Token::Half(at) => self.talk(at),
            Token::Whole(_) => (),
        }
    }

    /// Whether there is anything to do by the clock.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        !(self.halves.is_empty() && self.retries.is_empty() && self.listening)
    }

    /// Does what is due by the clock, and returns what came out since.
    pub(super) fn outcomes(&mut self) -> Vec<Outcome> {
        if self.is_busy() {
            self.tick(Instant::now());
        }
        std::mem::take(&mut self.outcomes)
    }

    #[cold]
    fn tick(&mut self, now: Instant) {
        for at in 0..self.halves.len() {
            let late = |half: &Half| half.accepts() && now - half.since > LIMIT;
            if self.halves[at].as_ref().is_some_and(late) {
                // Its last bytes may have come while this rank was busy.
                self.talk(at);
                self.turn_away(at);
            }
        }
        while self.halves.last().is_some_and(Option::is_none) {
            self.halves.pop();
        }
        let due: Vec<_> = self.retries.extract_if(.., |retry| retry.0 <= now).collect();
        for (_, attempt) in due {
            let started = connect::start(&attempt.at);
            self.enter(attempt, started);
        }
        let waited = self.resume.is_none_or(|when| when <= now);
        if !self.listening && waited && (self.has_room() || self.make_room(now)) {
            self.listen(true);
        }
    }

    fn listen(&mut self, on: bool) {
        self.listening = on;
        if on {
            self.resume = None;
            self.spare = self.spare.take().or_else(connect::spare);
            // It is tried again with the next tick.
            self.listening = self.shared.poller.add(&self.listener, Token::Listener, For::Arrivals).is_ok();
        } else {
            self.shared.poller.remove(&self.listener);
        }
    }

    fn has_room(&self) -> bool {
        self.halves.iter().flatten().filter(|half| half.accepts()).count() < CAP
    }

    /// Turns the oldest stranger away if it was here for long.
    fn make_room(&mut self, now: Instant) -> bool {
        let here = self.halves.iter().enumerate().filter_map(|(at, half)| Some((at, half.as_ref()?)));
        let oldest = here.filter(|(_, half)| half.accepts()).min_by_key(|(_, half)| half.since);
        match oldest {
            Some((at, half)) if now - half.since > CROWDED => self.turn_away(at),
            _ => return false,
        }
        true
    }

    fn accept(&mut self) {
        if !self.listening {
            return;
        }
        let now = Instant::now();
        loop {
            if !self.has_room() && !self.make_room(now) {
                return self.listen(false);
            }
            match connect::accept(&self.listener) {
                Ok(stream) => self.welcome(stream),
                Err(Errno::WOULDBLOCK) => return,
                Err(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS) => return self.overflow(now),
                // The one that was next has gone.
                Err(_) => (),
            }
        }
    }

    /// No descriptor is left: says so to the one that knocks, and pauses.
    #[cold]
    fn overflow(&mut self, now: Instant) {
        self.spare = None;
        if let Ok(stream) = connect::accept(&self.listener) {
            let _ = rustix::net::send(&stream, &[FULL], SendFlags::NOSIGNAL);
        }
        self.spare = connect::spare();
        self.resume = Some(now + PAUSE);
        self.listen(false);
    }

    fn welcome(&mut self, stream: OwnedFd) {
        if let Some(half) = Half::accept(&self.shared.id, stream) {
            self.place(half, For::Arrivals);
        }
    }

    fn enter(&mut self, attempt: Attempt, started: Result<OwnedFd, Errno>) {
        match started {
            Ok(stream) => match Half::connect(&self.shared.id, stream, attempt) {
                Ok(half) => self.place(half, For::Room),
                Err(attempt) => self.failed(attempt, &Failure::new("the host has no random numbers")),
            },
            Err(error) => self.failed(attempt, &Failure::of("cannot connect", error)),
        }
    }

    fn place(&mut self, half: Half, what: For) {
        let at = self.halves.iter().position(Option::is_none).unwrap_or_else(|| {
            self.halves.push(None);
            self.halves.len() - 1
        });
        match self.shared.poller.add(&half.stream, Token::Half(at), what) {
            Ok(()) => self.halves[at] = Some(half),
            Err(error) => self.drop_half(half, &Failure::new(&format!("epoll: {error}"))),
        }
    }

    /// Goes on with a handshake as far as it goes.
    fn talk(&mut self, at: usize) {
        while let Some(mut half) = self.halves.get_mut(at).and_then(Option::take) {
            match half.go_on(&self.shared.poller, at) {
                Ok(Next::Wait) => {
                    self.halves[at] = Some(half);
                    return;
                }
                Ok(Next::Again) => self.halves[at] = Some(half),
                Ok(Next::Proven) => return self.decide(half),
                Ok(Next::Decided(verdict)) => return self.decided(half, verdict),
                Err(failure) => return self.drop_half(half, &failure),
            }
        }
    }

    /// Takes the decision about a connection whose other end has proved itself.
    fn decide(&mut self, half: Half) {
        let peer = half.talk.from();
        let pipe = self.shared.pipe(peer);
        let lower = self.shared.id.rank < peer;
        let busy = |h: &Half| h.talk.awaits_verdict() && h.connects_to() == Some(peer);
        let taken =
            pipe.stream().is_some() || pipe.is_over() || lower && self.halves.iter().flatten().any(busy);
        let verdict = if taken { Verdict::Taken } else { Verdict::Go };
        let told = rustix::net::send(&half.stream, &[verdict.to_byte()], SendFlags::NOSIGNAL) == Ok(1);
        if !taken && told {
            self.stands(pipe, half.stream);
        }
    }

    fn decided(&mut self, half: Half, verdict: Verdict) {
        let Half { stream, role: Role::Connects(mut attempt, _), .. } = half else { return };
        match verdict {
            Verdict::Go => self.stands(self.shared.pipe(attempt.peer), stream),
            Verdict::Taken => {
                let when = attempt.outdone(Instant::now());
                if !self.shared.pipe(attempt.peer).is_met() {
                    self.retries.push((when, attempt));
                }
            }
            Verdict::Full => {
                let why = "it has no file descriptor left for one more connection: raise `ulimit -n` there";
                self.failed(attempt, &Failure::new(why));
            }
        }
    }

    fn stands(&mut self, pipe: Arc<Pipe>, stream: OwnedFd) {
        let peer = pipe.peer.0;
        for half in &mut self.halves {
            if half.as_ref().is_some_and(|half| half.connects_to() == Some(peer)) {
                *half = None;
            }
        }
        self.retries.retain(|(_, attempt)| attempt.peer != peer);
        if pipe.stand(stream) {
            self.outcomes.push(Outcome::Stands(pipe));
        }
    }

    fn turn_away(&mut self, at: usize) {
        if let Some(half) = self.halves[at].take() {
            self.drop_half(half, &Failure::new("too slow"));
        }
    }

    fn drop_half(&mut self, half: Half, failure: &Failure) {
        match half.role {
            Role::Accepts => drop(self.shared.strangers.fetch_add(1, Ordering::Relaxed)),
            Role::Connects(attempt, _) => self.failed(attempt, failure),
        }
    }

    /// Takes note that a way to a peer failed: it is tried again, or the peer is lost.
    fn failed(&mut self, mut attempt: Attempt, failure: &Failure) {
        let pipe = self.shared.pipe(attempt.peer);
        if pipe.is_met() {
            return;
        }
        match attempt.failed(Instant::now(), failure.refused) {
            Some(when) => self.retries.push((when, attempt)),
            None => {
                pipe.end();
                self.outcomes.push(Outcome::Lost(attempt.peer, failure.why.clone()));
            }
        }
    }
}
