//! A connection that is not established yet: its socket and its handshake.

use std::sync::Arc;
use std::time::Instant;

use super::connector::{ConnectFailure, Connector};
use super::handshake::{Handshake, HandshakeAction, Identity, Nonce, Verdict};
use super::poller::{Poller, Token};
use crate::sys::Interest;
use crate::sys::{self, Errno, OwnedFd, socket};

#[derive(Debug)]
pub(super) enum Role {
    /// This rank connects. The flag is false until the kernel reports that the socket is connected.
    Connects(Connector, bool),
    Accepts,
}

/// A connection during its handshake.
#[derive(Debug)]
pub(super) struct HalfOpen {
    pub(super) stream: OwnedFd,
    pub(super) handshake: Handshake,
    /// The first message of the handshake.
    hello: Vec<u8>,
    pub(super) role: Role,
    /// The poll and the time at which it was first put into the table.
    pub(super) seen: Option<(u64, Instant)>,
}

/// The next step of a handshake.
#[derive(Debug)]
pub(super) enum HandshakeStatus {
    Wait,
    Continue,
    PeerProven,
    Decided(Verdict),
}

impl HalfOpen {
    /// Starts the handshake of an accepted connection.
    pub(super) fn accept(id: &Arc<Identity>, stream: OwnedFd) -> Option<Self> {
        socket::no_delay(&stream);
        let talk = Handshake::accept(Arc::clone(id), nonce()?);
        Some(HalfOpen { stream, handshake: talk, hello: Vec::new(), role: Role::Accepts, seen: None })
    }

    /// Starts to connect, and sends the hello at once if the socket is already connected. The peer then knows the rank
    /// of this connection, even if this rank computes for a long time before its next poll.
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

    /// Returns the readiness to poll for.
    pub(super) fn interest(&self) -> Interest {
        if matches!(self.role, Role::Connects(_, false)) { Interest::Write } else { Interest::Read }
    }

    /// Returns the connector to whose peer this connection is an attempt.
    pub(super) fn attempt(&self) -> Option<&Connector> {
        match &self.role {
            Role::Connects(attempt, _) => Some(attempt),
            Role::Accepts => None,
        }
    }

    pub(super) fn target(&self) -> Option<u32> {
        self.attempt().map(|attempt| attempt.pipe.peer.0)
    }

    /// Returns the rank that an accepted connection claims, if its hello named this job.
    pub(super) fn claimed_rank(&self) -> Option<u32> {
        matches!(self.role, Role::Accepts).then(|| self.handshake.claims()).flatten()
    }

    pub(super) fn is_stranger(&self) -> bool {
        matches!(self.role, Role::Accepts) && self.handshake.claims().is_none()
    }

    /// Performs one step of the handshake; `at` is its index in the poller's tokens.
    pub(super) fn advance(&mut self, poller: &Poller, at: usize) -> Result<HandshakeStatus, ConnectFailure> {
        if let Role::Connects(_, made @ false) = &mut self.role {
            *made = send_hello(&self.stream, &self.hello)?;
            if !*made {
                return Ok(HandshakeStatus::Wait);
            }
            let change = poller.change(&self.stream, Token::Half(at), Interest::Read);
            return change
                .map(|()| HandshakeStatus::Continue)
                .map_err(|error| ConnectFailure::NoResources(format!("epoll: {error}")));
        }
        let room = self.handshake.room();
        let count = match socket::recv(&self.stream, room) {
            Ok(count @ 1..) => count,
            Err(Errno::WOULDBLOCK) => return Ok(HandshakeStatus::Wait),
            Err(Errno::INTR) => return Ok(HandshakeStatus::Continue),
            Ok(_) | Err(_) => return Err(ConnectFailure::Transient),
        };
        match self.handshake.received(count).map_err(|_| ConnectFailure::Transient)? {
            HandshakeAction::ReadMore => Ok(HandshakeStatus::Continue),
            HandshakeAction::Send(bytes) => {
                send_all(&self.stream, &bytes).map(|()| HandshakeStatus::Continue)
            }
            HandshakeAction::PeerProven => Ok(HandshakeStatus::PeerProven),
            HandshakeAction::Decided(verdict) => Ok(HandshakeStatus::Decided(verdict)),
        }
    }
}

/// Sends the hello if the socket is connected; returns whether it is.
fn send_hello(stream: &OwnedFd, hello: &[u8]) -> Result<bool, ConnectFailure> {
    if !socket::is_connected(stream).map_err(ConnectFailure::to_connect)? {
        return Ok(false);
    }
    send_all(stream, hello).map(|()| true)
}

/// Sends a message of the handshake: the socket of a new connection has space for it.
fn send_all(stream: &OwnedFd, bytes: &[u8]) -> Result<(), ConnectFailure> {
    let sent = socket::send(stream, bytes);
    if sent == Ok(bytes.len()) { Ok(()) } else { Err(ConnectFailure::Transient) }
}

/// Returns random bytes for one use.
pub(super) fn nonce() -> Option<Nonce> {
    let mut nonce: Nonce = [0; 32];
    sys::random(&mut nonce).then_some(nonce)
}
