//! The parsing of untrusted input without a device, for fuzzing.

use std::fmt;
use std::sync::Arc;

use super::handshake::{Handshake, Identity, Step, Verdict};
use super::pipe::TcpConnection;
use super::poller::Poller;
use super::reader::{End, Reader};
use super::stage::RecvBuffer;
use crate::device::{PeerId, Sink};
use crate::site::JobKey;
use crate::sys::OwnedFd;

/// The receiving end of an established connection.
#[derive(Debug)]
pub struct Connection {
    reader: Reader,
    stage: RecvBuffer,
}

impl Connection {
    /// Creates a connection from a non-blocking socket whose other end is `peer`.
    pub fn new(stream: OwnedFd, peer: u32) -> std::io::Result<Self> {
        let pipe = TcpConnection::new(PeerId(peer), Arc::new(Poller::new()?));
        pipe.establish(stream);
        Ok(Connection { reader: Reader::new(Arc::new(pipe)), stage: RecvBuffer::new() })
    }

    /// Reads once and passes on the frames. `Ok` is the number of frames or events; `Err` is the end, and true if it
    /// was orderly.
    pub fn read(&mut self, sink: &mut dyn Sink) -> Result<usize, bool> {
        self.reader.read(&mut self.stage, sink).map_err(|end| end == End::Goodbye)
    }
}

/// One side of a handshake between rank 1 and rank 2 of a job of four.
pub struct Talk(Handshake);

/// The consequence of received bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// More bytes must be read.
    More,
    /// These bytes must be sent.
    Say(Vec<u8>),
    /// The other side has proved its identity, or has accepted the connection.
    Trusted,
    /// The other side has declined the connection.
    Declined,
    /// The other side is rejected.
    Refused,
}

impl Talk {
    /// Starts as rank 1, which connects to rank 2; returns the bytes to send first.
    pub fn connect(secret: [u8; 32], nonce: [u8; 32]) -> (Self, Vec<u8>) {
        let (talk, hello) = Handshake::connect(identity(1, secret), 2, nonce);
        (Talk(talk), hello)
    }

    /// Starts as rank 2, which accepts any peer.
    pub fn accept(secret: [u8; 32], nonce: [u8; 32]) -> Self {
        Talk(Handshake::accept(identity(2, secret), nonce))
    }

    /// Consumes a prefix of `bytes`; returns its length, and the consequence.
    pub fn take(&mut self, bytes: &[u8]) -> (usize, Answer) {
        let room = self.0.room();
        let count = room.len().min(bytes.len());
        room[..count].copy_from_slice(&bytes[..count]);
        let answer = match self.0.took(count) {
            Ok(Step::ReadMore) => Answer::More,
            Ok(Step::Send(bytes)) => Answer::Say(bytes),
            Ok(Step::PeerProven | Step::Decided(Verdict::Go)) => Answer::Trusted,
            Ok(Step::Decided(Verdict::Taken | Verdict::Full)) => Answer::Declined,
            Err(_) => Answer::Refused,
        };
        (count, answer)
    }
}

impl fmt::Debug for Talk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

fn identity(rank: u32, secret: [u8; 32]) -> Arc<Identity> {
    Arc::new(Identity { key: Arc::new(JobKey { job: 77, secret }), rank, size: 4 })
}
