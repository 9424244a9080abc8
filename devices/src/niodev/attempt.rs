//! The way to one peer, tried until a connection stands or there is proof that none will.
//!
//! Time proves nothing: this rank may compute for minutes between two looks, the peer may, and a crowded host may turn
//! an honest connection away. So a failure that may pass is tried again for ever, until the roster says that the peer has
//! left or died.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::connect;
use super::pipe::TcpConnection;
use crate::sys::Errno;

/// Attempts in a row that find nobody before the peer is lost: it may only be about to say that it has left.
const GONE: u32 = 6;

/// Attempts in a row that find something lacking before the peer is lost: it may come back.
const LACKING: u32 = 16;

/// The pause between two attempts: this, doubled once after the first failure and once more after each further one, so many times
/// at most (10 ms to 320 ms).
const PAUSE: Duration = Duration::from_millis(5);
const DOUBLED: u32 = 6;

/// The pause after a peer said that another connection of the pair is about to stand.
const OUTDONE: Duration = Duration::from_millis(200);

/// What a failed attempt tells of the peer.
#[derive(Debug)]
pub(super) enum ConnectFailure {
    /// Nothing: the connection broke before it stood, or somebody else is at the peer's address.
    Transient,
    /// This process, or the peer's by its own proven word, lacks something that a connection needs.
    NoResources(String),
    /// Nobody listens at the peer's address, or its host cannot be reached.
    NoListener(String),
}

impl ConnectFailure {
    /// Returns what it tells that a socket could not connect.
    pub(super) fn to_connect(error: Errno) -> Self {
        let why = connect::explain("cannot connect", error);
        match error {
            error if connect::is_ours(error) => ConnectFailure::NoResources(why),
            Errno::CONNREFUSED | Errno::HOSTUNREACH => ConnectFailure::NoListener(why),
            _ => ConnectFailure::Transient,
        }
    }
}

/// The way to one peer.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) pipe: Arc<TcpConnection>,
    pub(super) at: SocketAddr,
    failed: u32,
    /// How many of the last attempts found nobody, and how many found something lacking.
    gone: u32,
    lacking: u32,
}

impl Connector {
    pub(super) fn new(pipe: Arc<TcpConnection>, at: SocketAddr) -> Self {
        Connector { pipe, at, failed: 0, gone: 0, lacking: 0 }
    }

    /// Takes note of a failure; returns when to try again, or why the peer is lost.
    pub(super) fn failed(&mut self, now: Instant, failure: ConnectFailure) -> Result<Instant, String> {
        let pause = PAUSE * (2 << self.failed.min(DOUBLED - 1));
        self.failed = self.failed.saturating_add(1);
        let (gone, lacking) = (self.gone + 1, self.lacking + 1);
        (self.gone, self.lacking) = (0, 0);
        match failure {
            ConnectFailure::Transient => (),
            ConnectFailure::NoListener(why) if gone >= GONE => return Err(why),
            ConnectFailure::NoResources(why) if lacking >= LACKING => return Err(why),
            ConnectFailure::NoListener(_) => self.gone = gone,
            ConnectFailure::NoResources(_) => self.lacking = lacking,
        }
        Ok(now + pause)
    }

    /// Returns when to try again after a peer said that another connection of the pair is about to stand.
    pub(super) fn outdone(&mut self, now: Instant) -> Instant {
        (self.failed, self.gone, self.lacking) = (0, 0, 0);
        now + OUTDONE
    }
}
