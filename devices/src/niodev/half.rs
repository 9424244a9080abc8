//! A connection that does not stand yet: its socket and its handshake.

use std::sync::Arc;
use std::time::Instant;

use super::attempt::{ConnectFailure, Connector};
use super::handshake::{Handshake, Identity, Nonce, Step, Verdict};
use super::poller::{Poller, Token};
use crate::sys::Interest;
use crate::sys::{self, Errno, OwnedFd, socket};

#[derive(Debug)]
pub(super) enum Role {
    /// This rank connects; false until the kernel says that the connection is made.
    Connects(Connector, bool),
    Accepts,
}

/// A connection whose handshake is under way.
#[derive(Debug)]
pub(super) struct HalfOpen {
    pub(super) stream: OwnedFd,
    pub(super) handshake: Handshake,
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
    Continue,
    PeerProven,
    Decided(Verdict),
}

impl HalfOpen {
    /// Begins with a connection that was accepted.
    pub(super) fn accept(id: &Arc<Identity>, stream: OwnedFd) -> Option<Self> {
        socket::no_delay(&stream);
        let talk = Handshake::accept(Arc::clone(id), nonce()?);
        Some(HalfOpen { stream, handshake: talk, hello: Vec::new(), role: Role::Accepts, seen: None })
    }

    /// Begins to connect, and says hello at once if the connection is made: the peer then knows us by more than a
    /// silent socket, however long this rank computes before it looks again.
    pub(super) fn connect(
        id: &Arc<Identity>,
        attempt: Connector,
    ) -> Result<Self, (Connector, ConnectFailure)> {
        let begun = socket::connect(&attempt.at).map_err(ConnectFailure::to_connect).and_then(|stream| {
            socket::no_delay(&stream);
            let nonce = nonce()
                .ok_or_else(|| ConnectFailure::NoResources("the host has no random numbers".into()))?;
            let (talk, hello) = Handshake::connect(Arc::clone(id), attempt.pipe.peer.0, nonce);
            let made = send_hello(&stream, &hello)?;
            Ok((stream, talk, hello, made))
        });
        match begun {
            Ok((stream, talk, hello, made)) => Ok(HalfOpen {
                stream,
                handshake: talk,
                hello,
                role: Role::Connects(attempt, made),
                seen: None,
            }),
            Err(failure) => Err((attempt, failure)),
        }
    }

    /// Returns what to watch it for.
    pub(super) fn awaits(&self) -> Interest {
        if matches!(self.role, Role::Connects(_, false)) { Interest::Write } else { Interest::Read }
    }

    /// Returns the way to a peer that this connection is an attempt at.
    pub(super) fn attempt(&self) -> Option<&Connector> {
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
        matches!(self.role, Role::Accepts).then(|| self.handshake.claims()).flatten()
    }

    pub(super) fn is_stranger(&self) -> bool {
        matches!(self.role, Role::Accepts) && self.handshake.claims().is_none()
    }

    /// Takes one step; the poller knows it by its place `at`.
    pub(super) fn advance(&mut self, poller: &Poller, at: usize) -> Result<Next, ConnectFailure> {
        if let Role::Connects(_, made @ false) = &mut self.role {
            *made = send_hello(&self.stream, &self.hello)?;
            if !*made {
                return Ok(Next::Wait);
            }
            let change = poller.change(&self.stream, Token::Half(at), Interest::Read);
            return change
                .map(|()| Next::Continue)
                .map_err(|error| ConnectFailure::NoResources(format!("epoll: {error}")));
        }
        let room = self.handshake.room();
        let count = match socket::recv(&self.stream, room) {
            Ok(count @ 1..) => count,
            Err(Errno::WOULDBLOCK) => return Ok(Next::Wait),
            Err(Errno::INTR) => return Ok(Next::Continue),
            Ok(_) | Err(_) => return Err(ConnectFailure::Transient),
        };
        match self.handshake.took(count).map_err(|_| ConnectFailure::Transient)? {
            Step::ReadMore => Ok(Next::Continue),
            Step::Send(bytes) => send_all(&self.stream, &bytes).map(|()| Next::Continue),
            Step::PeerProven => Ok(Next::PeerProven),
            Step::Decided(verdict) => Ok(Next::Decided(verdict)),
        }
    }
}

/// Says hello if the connection is made; returns whether it is.
fn send_hello(stream: &OwnedFd, hello: &[u8]) -> Result<bool, ConnectFailure> {
    if !socket::is_connected(stream).map_err(ConnectFailure::to_connect)? {
        return Ok(false);
    }
    send_all(stream, hello).map(|()| true)
}

/// Sends a message of the handshake: the socket of a new connection has room for it.
fn send_all(stream: &OwnedFd, bytes: &[u8]) -> Result<(), ConnectFailure> {
    let sent = socket::send(stream, bytes);
    if sent == Ok(bytes.len()) { Ok(()) } else { Err(ConnectFailure::Transient) }
}

/// Returns random bytes that are used once.
pub(super) fn nonce() -> Option<Nonce> {
    let mut nonce: Nonce = [0; 32];
    sys::random(&mut nonce).then_some(nonce)
}
