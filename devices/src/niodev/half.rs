//! A connection that does not stand yet: its socket and its handshake.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::Instant;

use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::rand::GetRandomFlags;

use super::connect::{self, Attempt};
use super::handshake::{Handshake, Identity, Nonce, Step, Verdict};
use super::poller::{For, Poller, Token};

#[derive(Debug)]
pub(super) enum Role {
    /// This rank connects; false until the kernel says that the connection is made.
    Connects(Attempt, bool),
    Accepts,
}

/// A connection whose handshake is under way.
#[derive(Debug)]
pub(super) struct Half {
    pub(super) stream: OwnedFd,
    pub(super) talk: Handshake,
    /// What is said first.
    pub(super) hello: Vec<u8>,
    pub(super) role: Role,
    pub(super) since: Instant,
}

/// How a handshake goes on.
#[derive(Debug)]
pub(super) enum Next {
    Wait,
    Again,
    Proven,
    Decided(Verdict),
}

/// Why a handshake failed.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) why: String,
    /// The peer's host refused the connection.
    pub(super) refused: bool,
}

impl Failure {
    pub(super) fn new(why: &str) -> Self {
        Failure { why: why.into(), refused: false }
    }

    pub(super) fn of(doing: &str, error: Errno) -> Self {
        Failure { why: connect::explain(doing, error), refused: error == Errno::CONNREFUSED }
    }
}

impl Half {
    /// Begins with a connection that was accepted.
    pub(super) fn accept(id: &Arc<Identity>, stream: OwnedFd) -> Option<Self> {
        connect::tune(&stream);
        let talk = Handshake::accept(Arc::clone(id), nonce()?);
        Some(Half { stream, talk, hello: Vec::new(), role: Role::Accepts, since: Instant::now() })
    }

    /// Begins with a connection that this rank makes.
    pub(super) fn connect(id: &Arc<Identity>, stream: OwnedFd, attempt: Attempt) -> Result<Self, Attempt> {
        connect::tune(&stream);
        let Some(nonce) = nonce() else { return Err(attempt) };
        let (talk, hello) = Handshake::connect(Arc::clone(id), attempt.peer, nonce);
        Ok(Half { stream, talk, hello, role: Role::Connects(attempt, false), since: Instant::now() })
    }

    pub(super) fn accepts(&self) -> bool {
        matches!(self.role, Role::Accepts)
    }

    pub(super) fn connects_to(&self) -> Option<u32> {
        match &self.role {
            Role::Connects(attempt, _) => Some(attempt.peer),
            Role::Accepts => None,
        }
    }

    /// Takes one step; the poller knows it by its place `at`.
    pub(super) fn go_on(&mut self, poller: &Poller, at: usize) -> Result<Next, Failure> {
        let broken = |error: Errno| Failure::of("its connection failed before it stood", error);
        if let Role::Connects(_, made @ false) = &mut self.role {
            let error = rustix::net::sockopt::socket_error(&self.stream).and_then(|error| error);
            error.map_err(|error| Failure::of("cannot connect", error))?;
            if rustix::net::getpeername(&self.stream).is_err() {
                return Ok(Next::Wait);
            }
            *made = true;
            let change = poller.change(&self.stream, Token::Half(at), For::Arrivals);
            change.map_err(|error| Failure::new(&format!("epoll: {error}")))?;
            let hello = std::mem::take(&mut self.hello);
            return self.say(&hello).map(|()| Next::Again).map_err(broken);
        }
        let room = self.talk.room();
        let count = match rustix::net::recv(&self.stream, room, RecvFlags::empty()) {
            Ok((_, 0)) => return Err(Failure::new("it closed the connection before it stood")),
            Ok((_, count)) => count,
            Err(Errno::WOULDBLOCK) => return Ok(Next::Wait),
            Err(Errno::INTR) => return Ok(Next::Again),
            Err(error) => return Err(broken(error)),
        };
        let step = self.talk.took(count);
        match step.map_err(|refusal| Failure::new(&format!("it failed to prove itself: {refusal:?}")))? {
            Step::More => Ok(Next::Again),
            Step::Say(bytes) => self.say(&bytes).map(|()| Next::Again).map_err(broken),
            Step::Proven => Ok(Next::Proven),
            Step::Decided(verdict) => Ok(Next::Decided(verdict)),
        }
    }

    /// Sends a message of the handshake: the socket of a new connection has room for it.
    fn say(&self, bytes: &[u8]) -> Result<(), Errno> {
        let sent = rustix::net::send(&self.stream, bytes, SendFlags::NOSIGNAL)?;
        if sent == bytes.len() { Ok(()) } else { Err(Errno::NOBUFS) }
    }
}

/// Returns random bytes that are used once.
pub(super) fn nonce() -> Option<Nonce> {
    let mut nonce: Nonce = [0; 32];
    let filled = rustix::rand::getrandom(&mut nonce, GetRandomFlags::empty()).ok()?;
    (filled == nonce.len()).then_some(nonce)
}
