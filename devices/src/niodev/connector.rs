//! The connection attempts to one peer, repeated until a connection is established or a connection is proven to be
//! impossible.
//!
//! The passage of time proves nothing: this rank or the peer may compute for minutes between two polls, and an
//! oversubscribed host may refuse a valid connection. Transient failures are therefore retried without limit, until the
//! roster says that the peer has exited or died.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::address;
use super::connection::TcpConnection;
use crate::sys::Errno;

/// Number of consecutive attempts that find no listener before the peer is lost: it may be about to announce its exit.
const MAX_NO_LISTENER: u32 = 6;

/// Number of consecutive attempts that lack a resource before the peer is lost: the resource may become available.
const LACKING: u32 = 16;

/// The first pause between two attempts is twice this. It doubles after each further failure, up to `PAUSE` times 2 to
/// the power of [`DOUBLED`] (10 ms to 320 ms).
const BASE_PAUSE: Duration = Duration::from_millis(5);
const DOUBLED: u32 = 6;

/// The pause after the peer said that another connection of the pair is about to be established.
const OUTDONE: Duration = Duration::from_millis(200);

/// The result of a failed attempt.
#[derive(Debug)]
pub(super) enum ConnectFailure {
    /// Nothing is known: the connection broke before it was established, or another process is at the peer's address.
    Transient,
    /// This process, or the peer by its own proven statement, lacks a resource that a connection needs.
    NoResources(String),
    /// No process listens at the peer's address, or its host cannot be reached.
    NoListener(String),
}

impl ConnectFailure {
    /// Classifies an error of a socket that could not connect.
    pub(super) fn to_connect(error: Errno) -> Self {
        let why = address::explain("cannot connect", error);
        match error {
            error if address::is_local_error(error) => ConnectFailure::NoResources(why),
            Errno::CONNREFUSED | Errno::HOSTUNREACH => ConnectFailure::NoListener(why),
            _ => ConnectFailure::Transient,
        }
    }
}

/// The connection attempts to one peer.
#[derive(Debug)]
pub(super) struct Connector {
    pub(super) pipe: Arc<TcpConnection>,
    pub(super) at: SocketAddr,
    failed: u32,
    /// The number of most recent attempts that found no listener, and of those that lacked a resource.
    gone: u32,
    lacking: u32,
}

impl Connector {
    pub(super) fn new(pipe: Arc<TcpConnection>, at: SocketAddr) -> Self {
        Connector { pipe, at, failed: 0, gone: 0, lacking: 0 }
    }

    /// Records a failure; returns when to try again, or why the peer is lost.
    pub(super) fn failed(&mut self, now: Instant, failure: ConnectFailure) -> Result<Instant, String> {
        let pause = BASE_PAUSE * (2 << self.failed.min(DOUBLED - 1));
        self.failed = self.failed.saturating_add(1);
        let (gone, lacking) = (self.gone + 1, self.lacking + 1);
        (self.gone, self.lacking) = (0, 0);
        match failure {
            ConnectFailure::Transient => (),
            ConnectFailure::NoListener(why) if gone >= MAX_NO_LISTENER => return Err(why),
            ConnectFailure::NoResources(why) if lacking >= LACKING => return Err(why),
            ConnectFailure::NoListener(_) => self.gone = gone,
            ConnectFailure::NoResources(_) => self.lacking = lacking,
        }
        Ok(now + pause)
    }

    /// Returns when to try again after a peer said that another connection of the pair is about to be established.
    pub(super) fn lost_tie(&mut self, now: Instant) -> Instant {
        (self.failed, self.gone, self.lacking) = (0, 0, 0);
        now + OUTDONE
    }
}
