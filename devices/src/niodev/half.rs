//! A connection that does not stand yet: its socket and its handshake.

use std::sync::Arc;
use std::time::Instant;

use super::attempt::{Attempt, Failure};
use super::handshake::{Handshake, Identity, Nonce, Step, Verdict};
use super::poller::{For, Poller, Token};
use crate::sys::{self, Errno, OwnedFd, socket};

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
    hello: Vec<u8>,
    pub(super) role: Role,
    /// When it was first given a place: at which look, and at what time.
    pub(super) seen: Option<(u64, Instant)>,
}

/// How a handshake goes on.
#[derive(Debug)]
pub(super) enum Next {
    Wait,
    Again,
    Proven,
    Decided(Verdict),
}

impl Half {
    /// Begins with a connection that was accepted.
    pub(super) fn accept(id: &Arc<Identity>, stream: OwnedFd) -> Option<Self> {
        socket::no_delay(&stream);
        let talk = Handshake::accept(Arc::clone(id), nonce()?);
        Some(Half { stream, talk, hello: Vec::new(), role: Role::Accepts, seen: None })
    }

    /// Begins to connect, and says hello at once if the connection is made: the peer then knows us by more than a
    /// silent socket, however long this rank computes before it looks again.
    pub(super) fn connect(id: &Arc<Identity>, attempt: Attempt) -> Result<Self, (Attempt, Failure)> {
        let begun = socket::connect(&attempt.at).map_err(Failure::to_connect).and_then(|stream| {
            socket::no_delay(&stream);
            let nonce = nonce().ok_or_else(|| Failure::Lacking("the host has no random numbers".into()))?;
            let (talk, hello) = Handshake::connect(Arc::clone(id), attempt.pipe.peer.0, nonce);
            let made = greet(&stream, &hello)?;
            Ok((stream, talk, hello, made))
        });
        match begun {
            Ok((stream, talk, hello, made)) => {
                Ok(Half { stream, talk, hello, role: Role::Connects(attempt, made), seen: None })
            }
            Err(failure) => Err((attempt, failure)),
        }
    }

    /// Returns what to watch it for.
    pub(super) fn awaits(&self) -> For {
        if matches!(self.role, Role::Connects(_, false)) { For::Room } else { For::Arrivals }
    }

    /// Returns the way to a peer that this connection is an attempt at.
    pub(super) fn attempt(&self) -> Option<&Attempt> {
        match &self.role {
            Role::Connects(attempt, _) => Some(attempt),
            Role::Accepts => None,
        }
    }

    pub(super) fn connects_to(&self) -> Option<u32> {
        self.attempt().map(|attempt| attempt.pipe.peer.0)
    }

    /// Returns the rank that an accepted connection says it comes from, if it knows the job.
    pub(super) fn claims(&self) -> Option<u32> {
        matches!(self.role, Role::Accepts).then(|| self.talk.claims()).flatten()
    }

    pub(super) fn is_stranger(&self) -> bool {
        matches!(self.role, Role::Accepts) && self.talk.claims().is_none()
    }

    /// Takes one step; the poller knows it by its place `at`.
    pub(super) fn go_on(&mut self, poller: &Poller, at: usize) -> Result<Next, Failure> {
        if let Role::Connects(_, made @ false) = &mut self.role {
            *made = greet(&self.stream, &self.hello)?;
            if !*made {
                return Ok(Next::Wait);
            }
            let change = poller.change(&self.stream, Token::Half(at), For::Arrivals);
            return change.map(|()| Next::Again).map_err(|error| Failure::Lacking(format!("epoll: {error}")));
        }
        let room = self.talk.room();
        let count = match socket::recv(&self.stream, room) {
            Ok(count @ 1..) => count,
            Err(Errno::WOULDBLOCK) => return Ok(Next::Wait),
            Err(Errno::INTR) => return Ok(Next::Again),
            Ok(_) | Err(_) => return Err(Failure::Passing),
        };
        match self.talk.took(count).map_err(|_| Failure::Passing)? {
            Step::More => Ok(Next::Again),
            Step::Say(bytes) => say(&self.stream, &bytes).map(|()| Next::Again),
            Step::Proven => Ok(Next::Proven),
            Step::Decided(verdict) => Ok(Next::Decided(verdict)),
        }
    }
}

/// Says hello if the connection is made; returns whether it is.
fn greet(stream: &OwnedFd, hello: &[u8]) -> Result<bool, Failure> {
    if !socket::is_connected(stream).map_err(Failure::to_connect)? {
        return Ok(false);
    }
    say(stream, hello).map(|()| true)
}

/// Sends a message of the handshake: the socket of a new connection has room for it.
fn say(stream: &OwnedFd, bytes: &[u8]) -> Result<(), Failure> {
    let sent = socket::send(stream, bytes);
    if sent == Ok(bytes.len()) { Ok(()) } else { Err(Failure::Passing) }
}

/// Returns random bytes that are used once.
pub(super) fn nonce() -> Option<Nonce> {
    let mut nonce: Nonce = [0; 32];
    sys::random(&mut nonce).then_some(nonce)
}
