//! The attempts to connect to one peer, repeated until a connection is established or is proven to be impossible.
//!
//! A delay proves nothing: either rank may compute for minutes between two polls. So transient failures have no limit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::address;
use super::connection::TcpConnection;
use crate::sys::{self, Errno};

/// Number of consecutive attempts per address that find no listener after which the peer is lost.
const MAX_NO_LISTENER: u32 = 6;

/// Number of attempts per address that lack a resource after which the peer is lost. Transient failures between them
/// neither count nor reset the count, because a peer without descriptors also drops connections before it knows their
/// rank.
const MAX_NO_RESOURCES: u32 = 16;

/// Number of consecutive attempts per address that find no route to the host after which the peer is lost. Routes and
/// links of a network come and go: an attempt proves nothing, and the kernel takes up to 3 s to give one up.
const MAX_UNREACHABLE: u32 = 64;

/// If the peer has other addresses, an attempt that has not reached the host after this time, or whose hello was not
/// answered after [`ANSWER_LIMIT`], gives way to the next address. Both times double with each round, up to
/// [`MAX_LIMIT_DOUBLINGS`] times, because a peer can compute for minutes.
const CONNECT_LIMIT: Duration = Duration::from_secs(3);
const ANSWER_LIMIT: Duration = Duration::from_secs(10);
const MAX_LIMIT_DOUBLINGS: u32 = 5;

/// The pause after the n-th round of failures is this, doubled n times, but at most [`MAX_DOUBLINGS`] times: 10 to
/// 320 ms, of which up to a quarter is subtracted at random, so that the ranks of a job do not retry in step. The verdict
/// `Duplicate` resets n.
const BASE_PAUSE: Duration = Duration::from_millis(5);
const MAX_DOUBLINGS: u32 = 6;

/// The pause after the verdict `Duplicate`: another connection of the pair is probably about to be established.
const DUPLICATE_PAUSE: Duration = Duration::from_millis(200);

/// The reason why an attempt failed.
#[derive(Debug)]
pub(super) enum ConnectFailure {
    /// Any other reason, such as a connection that broke in the handshake, or another process at the peer's address.
    Transient,
    /// This process, or the peer according to its verdict after a valid proof, lacks a resource for a connection.
    NoResources(String),
    /// No process listens at the peer's address.
    NoListener(String),
    /// The network has no route to the peer's host.
    Unreachable(String),
}

impl ConnectFailure {
    /// Classifies the error of an attempt to connect to an address.
    pub(super) fn to_connect(error: Errno, at: &SocketAddr) -> Self {
        let why = address::explain(&format!("cannot connect to {at}"), error);
        match error {
            Errno::HOSTUNREACH | Errno::NETUNREACH | Errno::NETDOWN if !at.ip().is_loopback() => {
                ConnectFailure::Unreachable(why)
            }
            error if address::is_local_error(error) => ConnectFailure::NoResources(why),
            Errno::CONNREFUSED | Errno::HOSTUNREACH => ConnectFailure::NoListener(why),
            _ => ConnectFailure::Transient,
        }
    }
}

#[derive(Debug)]
pub(super) struct Connector {
    pub(super) connection: Arc<TcpConnection>,
    /// The addresses of the peer, in the order in which to try them; at least one.
    addresses: Vec<SocketAddr>,
    /// The index of the address of this attempt, or of the next one after a failure.
    current: usize,
    /// The number of failed rounds. A round tries each address once.
    failed: u32,
    /// The numbers of consecutive attempts that found no listener, that lacked a resource (with transient failures between
    /// them), and that found no route.
    no_listener: u32,
    no_resources: u32,
    unreachable: u32,
}

impl Connector {
    pub(super) fn new(connection: Arc<TcpConnection>, addresses: Vec<SocketAddr>) -> Self {
        let (failed, no_listener, no_resources, unreachable) = (0, 0, 0, 0);
        Connector { connection, addresses, current: 0, failed, no_listener, no_resources, unreachable }
    }

    /// Returns the address to connect to.
    pub(super) fn at(&self) -> &SocketAddr {
        &self.addresses[self.current]
    }

    /// Returns how long the attempt may take, if the peer has other addresses.
    pub(super) fn attempt_limit(&self, hello_sent: bool) -> Option<Duration> {
        let limit = if hello_sent { ANSWER_LIMIT } else { CONNECT_LIMIT };
        (self.addresses.len() > 1).then(|| limit * (1 << self.failed.min(MAX_LIMIT_DOUBLINGS)))
    }

    /// Records a failure; returns the time of the next attempt, or the reason why the peer is lost.
    pub(super) fn failed(&mut self, now: Instant, failure: ConnectFailure) -> Result<Instant, String> {
        let count = self.addresses.len() as u32;
        let (no_listener, no_resources) = (self.no_listener + 1, self.no_resources + 1);
        let unreachable = self.unreachable + 1;
        let lacked = self.no_resources;
        (self.no_listener, self.no_resources, self.unreachable) = (0, 0, 0);
        match failure {
            ConnectFailure::Transient => self.no_resources = lacked,
            ConnectFailure::NoListener(why) if no_listener >= MAX_NO_LISTENER * count => return Err(why),
            ConnectFailure::NoResources(why) if no_resources >= MAX_NO_RESOURCES * count => return Err(why),
            ConnectFailure::Unreachable(why) if unreachable >= MAX_UNREACHABLE * count => return Err(why),
            ConnectFailure::NoListener(_) => self.no_listener = no_listener,
            ConnectFailure::NoResources(_) => self.no_resources = no_resources,
            ConnectFailure::Unreachable(_) => self.unreachable = unreachable,
        }
        self.current = (self.current + 1) % self.addresses.len();
        if self.current != 0 {
            return Ok(now);
        }
        let pause = BASE_PAUSE * (2 << self.failed.min(MAX_DOUBLINGS - 1));
        self.failed = self.failed.saturating_add(1);
        Ok(now + jittered(pause))
    }

    /// Returns the time of the next attempt after the verdict `Duplicate`, and forgets the failures.
    pub(super) fn on_duplicate(&mut self, now: Instant) -> Instant {
        (self.failed, self.no_listener, self.no_resources, self.unreachable) = (0, 0, 0, 0);
        now + DUPLICATE_PAUSE
    }
}

/// Subtracts up to a quarter of a pause, at random.
fn jittered(pause: Duration) -> Duration {
    let mut byte = [0];
    // Without random numbers, the pause is not shortened.
    sys::random(&mut byte);
    pause - pause * u32::from(byte[0]) / 1024
}
