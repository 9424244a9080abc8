//! The parsing of untrusted input without a device, for fuzzing.

use std::fmt;
use std::sync::Arc;

use super::address::NioCard;
use super::connection::TcpConnection;
use super::handshake::{Handshake, HandshakeAction, Identity, NIODEV, Verdict};
use super::network::PortRange;
use super::poller::Poller;
use super::reader::{CloseReason, Reader};
use super::recv_buffer::RecvBuffer;
use crate::device::{Address, PeerId, Sink};
use crate::site::JobKey;
use crate::sys::OwnedFd;

/// The receiving end of an established connection.
#[derive(Debug)]
pub struct FuzzConnection {
    reader: Reader,
    recv_buffer: RecvBuffer,
}

impl FuzzConnection {
    /// Creates a connection from a non-blocking socket whose other end is `peer`.
    pub fn new(stream: OwnedFd, peer: u32) -> std::io::Result<Self> {
        let connection = TcpConnection::new(PeerId(peer), Arc::new(Poller::new()?));
        connection.establish(stream);
        Ok(FuzzConnection {
            reader: Reader::new(Arc::new(connection), false),
            recv_buffer: RecvBuffer::new(),
        })
    }

    /// Reads once or twice and passes the frames to `sink`. Returns 0 if nothing has arrived, otherwise at least 1. If
    /// the connection has ended, returns `Err`, with true if the end was orderly.
    pub fn read(&mut self, sink: &mut dyn Sink) -> Result<usize, bool> {
        self.reader.read(&mut self.recv_buffer, sink).map_err(|end| end == CloseReason::Goodbye)
    }
}

/// Parses the card of a rank. Returns the number of its addresses, and the card as bytes.
pub fn card(bytes: &[u8]) -> Option<(usize, Vec<u8>)> {
    let card = NioCard::of(&Address(bytes.to_vec()))?;
    Some((card.at.len(), card.to_address().0))
}

/// Parses a range of ports. Returns up to 100 of them, beginning at one that depends on `seed`, and its text.
pub fn port_range(text: &str, seed: u32) -> Option<(Vec<u16>, String)> {
    let range = PortRange::parse(text)?;
    Some((range.ports(seed).take(100).collect(), range.to_string()))
}

/// Rank 1 or rank 2 of a job of four ranks, in a handshake.
pub struct FuzzHandshake(Handshake);

/// The action that received bytes require.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// More bytes must be read.
    More,
    /// These bytes must be sent.
    Say(Vec<u8>),
    /// The other side has proved its identity, or has accepted the connection.
    Trusted,
    /// The other side has declined the connection with the verdict `TAKEN` or `FULL`.
    Declined,
    /// The bytes are invalid: the other side must be rejected.
    Refused,
}

impl FuzzHandshake {
    /// Starts as rank 1, which connects to rank 2; returns the bytes to send first.
    pub fn connect(secret: [u8; 32], nonce: [u8; 32]) -> (Self, Vec<u8>) {
        let (handshake, hello) = Handshake::connect(identity(1, secret), 2, nonce);
        (FuzzHandshake(handshake), hello)
    }

    /// Starts as rank 2, which accepts a connection from any other rank.
    pub fn accept(secret: [u8; 32], nonce: [u8; 32]) -> Self {
        FuzzHandshake(Handshake::accept(identity(2, secret), nonce))
    }

    /// Consumes a prefix of `bytes`; returns its length, and the required action.
    pub fn take(&mut self, bytes: &[u8]) -> (usize, Answer) {
        let room = self.0.room();
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        let answer = match self.0.received(count) {
            Ok(HandshakeAction::ReadMore) => Answer::More,
            Ok(HandshakeAction::Send(bytes)) => Answer::Say(bytes),
            Ok(HandshakeAction::PeerProven | HandshakeAction::Decided(Verdict::Accept)) => Answer::Trusted,
            Ok(HandshakeAction::Decided(Verdict::Duplicate | Verdict::Full)) => Answer::Declined,
            Err(_) => Answer::Refused,
        };
        (count, answer)
    }
}

impl fmt::Debug for FuzzHandshake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn identity(rank: u32, secret: [u8; 32]) -> Arc<Identity> {
    Arc::new(Identity { key: Arc::new(JobKey { job: 77, secret }), rank, size: 4, purpose: NIODEV })
}
