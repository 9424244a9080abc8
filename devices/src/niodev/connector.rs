//! The attempts to connect to one peer, repeated until a connection is established or is proven to be impossible.
//!
//! A delay proves nothing: either rank may compute for minutes between two polls. So transient failures have no limit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::address;
use super::connection::TcpConnection;
use crate::sys::Errno;

/// Number of consecutive attempts that find no listener after which the peer is lost.
const MAX_NO_LISTENER: u32 = 6;

/// Number of consecutive attempts that lack a resource after which the peer is lost.
const MAX_NO_RESOURCES: u32 = 16;

/// The pause after the n-th failure is this, doubled n times, but at most [`MAX_DOUBLINGS`] times: 10 to 320 ms. The
/// verdict `Duplicate` resets n.
const BASE_PAUSE: Duration = Duration::from_millis(5);
const MAX_DOUBLINGS: u32 = 6;

/// The pause after the verdict `Duplicate`: another connection of the pair is probably about to be established.
const DUPLICATE_PAUSE: Duration = Duration::from_millis(200);

/// Why an attempt failed.
#[derive(Debug)]
pub(super) enum ConnectFailure {
    /// Any other reason, such as a connection that broke in the handshake, or another process at the peer's address.
    Transient,
    /// This process, or the peer according to its verdict after a valid proof, lacks a resource for a connection.
    NoResources(String),
    /// No process listens at the peer's address, or its host cannot be reached.
    NoListener(String),
}

impl ConnectFailure {
    pub(super) fn to_connect(error: Errno) -> Self {
        let why = address::explain("cannot connect", error);
        match error {
            error if address::is_local_error(error) => ConnectFailure::NoResources(why),
            Errno::CONNREFUSED | Errno::HOSTUNREACH => ConnectFailure::NoListener(why),
            _ => ConnectFailure::Transient,
        }
    }
}

#[derive(Debug)]
pub(super) struct Connector {
    pub(super) connection: Arc<TcpConnection>,
    pub(super) at: SocketAddr,
    failed: u32,
    /// The numbers of consecutive attempts that found no listener, and of those that lacked a resource.
    no_listener: u32,
    no_resources: u32,
}

impl Connector {
    pub(super) fn new(connection: Arc<TcpConnection>, at: SocketAddr) -> Self {
        Connector { connection, at, failed: 0, no_listener: 0, no_resources: 0 }
    }

    /// Records a failure; returns the time of the next attempt, or the reason why the peer is lost.
    pub(super) fn failed(&mut self, now: Instant, failure: ConnectFailure) -> Result<Instant, String> {
        let pause = BASE_PAUSE * (2 << self.failed.min(MAX_DOUBLINGS - 1));
        self.failed = self.failed.saturating_add(1);
        let (no_listener, no_resources) = (self.no_listener + 1, self.no_resources + 1);
        (self.no_listener, self.no_resources) = (0, 0);
        match failure {
            ConnectFailure::Transient => (),
            ConnectFailure::NoListener(why) if no_listener >= MAX_NO_LISTENER => return Err(why),
            ConnectFailure::NoResources(why) if no_resources >= MAX_NO_RESOURCES => return Err(why),
            ConnectFailure::NoListener(_) => self.no_listener = no_listener,
            ConnectFailure::NoResources(_) => self.no_resources = no_resources,
        }
        Ok(now + pause)
    }

    /// Returns the time of the next attempt after the verdict `Duplicate`, and forgets the failures.
    pub(super) fn on_duplicate(&mut self, now: Instant) -> Instant {
        (self.failed, self.no_listener, self.no_resources) = (0, 0, 0);
        now + DUPLICATE_PAUSE
    }
}
