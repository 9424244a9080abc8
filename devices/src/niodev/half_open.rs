//! A connection that is not established yet: its socket and its handshake.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use super::connector::{ConnectFailure, Connector};
use super::handshake::{Handshake, HandshakeAction, Identity, Nonce, Verdict};
use super::poller::{Poller, Token};
use crate::sys::Interest;
use crate::sys::{self, Errno, OwnedFd, socket};

#[derive(Debug)]
pub(super) enum Role {
    /// This rank connects. The flag tells whether the socket is connected and the hello was sent.
    Connects(Connector, bool),
    Accepts,
}

#[derive(Debug)]
pub(super) struct HalfOpen {
    pub(super) stream: OwnedFd,
    pub(super) handshake: Handshake,
    hello: Vec<u8>,
    pub(super) role: Role,
    /// When the connection was first added to the table after the latest message that this rank has sent on it.
    pub(super) since: Option<Instant>,
}

#[derive(Debug)]
pub(super) enum HandshakeStatus {
    Wait,
    Continue,
    PeerProven,
    Decided(Verdict),
}

impl HalfOpen {
    pub(super) fn accept(id: &Arc<Identity>, stream: OwnedFd) -> Option<Self> {
        socket::no_delay(&stream);
        let handshake = Handshake::accept(Arc::clone(id), nonce()?);
        Some(HalfOpen { stream, handshake, hello: Vec::new(), role: Role::Accepts, since: None })
    }

    /// Starts to connect. If the socket is connected at once, this also sends the hello, so that the peer does not
    /// treat the connection as a stranger's while this rank computes.
    pub(super) fn connect(
        id: &Arc<Identity>,
        connector: Connector,
    ) -> Result<Self, (Connector, ConnectFailure)> {
        let at = *connector.at();
        let explain = |error| ConnectFailure::from_connect_error(error, &at);
        let begun = socket::connect(&at).map_err(explain).and_then(|stream| {
            socket::no_delay(&stream);
            let nonce = nonce()
                .ok_or_else(|| ConnectFailure::NoResources("the host has no random numbers".into()))?;
            let (handshake, hello) = Handshake::connect(Arc::clone(id), connector.connection.peer.0, nonce);
            let hello_sent = send_hello(&stream, &hello, &at)?;
            Ok((stream, handshake, hello, hello_sent))
        });
        match begun {
            Ok((stream, handshake, hello, hello_sent)) => {
                let role = Role::Connects(connector, hello_sent);
                Ok(HalfOpen { stream, handshake, hello, role, since: None })
            }
            Err(failure) => Err((connector, failure)),
        }
    }

    pub(super) fn interest(&self) -> Interest {
        if matches!(self.role, Role::Connects(_, false)) { Interest::Write } else { Interest::Read }
    }

    pub(super) fn connector(&self) -> Option<&Connector> {
        match &self.role {
            Role::Connects(connector, _) => Some(connector),
            Role::Accepts => None,
        }
    }

    /// Returns whether this rank should try another address of the peer now. An attempt that awaits the verdict is
    /// never late: it has reached the peer, which may compute for any time before it reads the proof.
    pub(super) fn is_late(&self, now: Instant) -> bool {
        let Role::Connects(connector, hello_sent) = &self.role else { return false };
        if self.handshake.awaits_verdict() {
            return false;
        }
        let limit = connector.attempt_limit(*hello_sent);
        let age = self.since.map(|since| now.saturating_duration_since(since));
        limit.zip(age).is_some_and(|(limit, age)| age > limit)
    }

    pub(super) fn target(&self) -> Option<u32> {
        self.connector().map(|connector| connector.connection.peer.0)
    }

    /// Returns the rank that an accepted connection claims, if its hello was valid.
    pub(super) fn claimed_rank(&self) -> Option<u32> {
        matches!(self.role, Role::Accepts).then(|| self.handshake.claimed_rank()).flatten()
    }

    /// Returns whether this rank has accepted the connection and has not received a valid hello on it.
    pub(super) fn is_stranger(&self) -> bool {
        matches!(self.role, Role::Accepts) && self.handshake.claimed_rank().is_none()
    }

    /// Returns whether the connecting rank still waits for the verdict, after its proof. It sends nothing meanwhile: a
    /// byte, the end of the stream or an error means that it no longer waits.
    pub(super) fn peer_still_waits(&self) -> bool {
        matches!(socket::recv(&self.stream, &mut [0]), Err(Errno::WOULDBLOCK | Errno::INTR))
    }

    /// Performs one step of the handshake; `at` is the index in the connection's poller token.
    pub(super) fn advance(&mut self, poller: &Poller, at: usize) -> Result<HandshakeStatus, ConnectFailure> {
        if let Role::Connects(connector, hello_sent @ false) = &mut self.role {
            *hello_sent = send_hello(&self.stream, &self.hello, connector.at())?;
            if !*hello_sent {
                return Ok(HandshakeStatus::Wait);
            }
            self.since = None;
            let change = poller.change(&self.stream, Token::Handshaking(at), Interest::Read);
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
                self.since = None;
                send_all(&self.stream, &bytes).map(|()| HandshakeStatus::Continue)
            }
            HandshakeAction::PeerProven => Ok(HandshakeStatus::PeerProven),
            HandshakeAction::Decided(verdict) => Ok(HandshakeStatus::Decided(verdict)),
        }
    }
}

/// Sends the hello if the socket is connected; returns whether it was sent.
fn send_hello(stream: &OwnedFd, hello: &[u8], at: &SocketAddr) -> Result<bool, ConnectFailure> {
    if !socket::is_connected(stream).map_err(|error| ConnectFailure::from_connect_error(error, at))? {
        return Ok(false);
    }
    send_all(stream, hello).map(|()| true)
}

/// Sends a message of the handshake in one call: the socket of a new connection has space for it.
fn send_all(stream: &OwnedFd, bytes: &[u8]) -> Result<(), ConnectFailure> {
    let sent = socket::send(stream, bytes);
    if sent == Ok(bytes.len()) { Ok(()) } else { Err(ConnectFailure::Transient) }
}

pub(super) fn nonce() -> Option<Nonce> {
    let mut nonce: Nonce = [0; 32];
    sys::random(&mut nonce).then_some(nonce)
}
