//! The attempts to connect to one peer, repeated until a connection is established or is proven to be impossible.
//!
//! A delay proves nothing: either rank may compute for minutes between two polls. So transient failures have no limit.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::address;
use super::connection::TcpConnection;
use crate::sys::{self, Errno};

/// The peer is lost after this number of attempts, multiplied by the number of its addresses, that find no listener.
/// Attempts that find no route, for example at another address, neither count nor reset the count. Other failures reset
/// it.
const MAX_NO_LISTENER: u32 = 6;

/// Number of attempts per address that lack a resource after which the peer is lost. Transient failures between them
/// neither count nor reset the count, because a peer without descriptors also drops connections before it knows their
/// rank.
const MAX_NO_RESOURCES: u32 = 16;

/// As [`MAX_NO_LISTENER`], with the two failures exchanged: the limit of attempts that find no route to the host. A route or a link can be down for a short time,
/// so one failed attempt proves nothing. The kernel can take 3 s to report a failure.
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
    pub(super) fn from_connect_error(error: Errno, at: &SocketAddr) -> Self {
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
    failed_rounds: u32,
    /// The numbers of attempts that found no listener, lacked a resource, and found no route. The documentation of the
    /// limits says which other failures reset them.
    no_listener: u32,
    no_resources: u32,
    unreachable: u32,
}

impl Connector {
    pub(super) fn new(connection: Arc<TcpConnection>, addresses: Vec<SocketAddr>) -> Self {
        let (failed_rounds, no_listener, no_resources, unreachable) = (0, 0, 0, 0);
        Connector { connection, addresses, current: 0, failed_rounds, no_listener, no_resources, unreachable }
    }

    /// Returns the address to connect to.
    pub(super) fn at(&self) -> &SocketAddr {
        &self.addresses[self.current]
    }

    /// Returns how long the attempt may take, if the peer has other addresses.
    pub(super) fn attempt_limit(&self, hello_sent: bool) -> Option<Duration> {
        let limit = if hello_sent { ANSWER_LIMIT } else { CONNECT_LIMIT };
        (self.addresses.len() > 1).then(|| limit * (1 << self.failed_rounds.min(MAX_LIMIT_DOUBLINGS)))
    }

    /// Records a failure; returns the time of the next attempt, or the reason why the peer is lost.
    pub(super) fn failed(&mut self, now: Instant, failure: ConnectFailure) -> Result<Instant, String> {
        let count = self.addresses.len() as u32;
        let Connector { no_listener, no_resources, unreachable, .. } = *self;
        (self.no_listener, self.no_resources, self.unreachable) = match failure {
            ConnectFailure::Transient => (0, no_resources, 0),
            ConnectFailure::NoListener(why) if no_listener + 1 >= MAX_NO_LISTENER * count => return Err(why),
            ConnectFailure::NoResources(why) if no_resources + 1 >= MAX_NO_RESOURCES * count => {
                return Err(why);
            }
            ConnectFailure::Unreachable(why) if unreachable + 1 >= MAX_UNREACHABLE * count => {
                return Err(why);
            }
            ConnectFailure::NoListener(_) => (no_listener + 1, 0, unreachable),
            ConnectFailure::NoResources(_) => (0, no_resources + 1, 0),
            ConnectFailure::Unreachable(_) => (no_listener, 0, unreachable + 1),
        };
        self.current = (self.current + 1) % self.addresses.len();
        if self.current != 0 {
            return Ok(now);
        }
        let pause = BASE_PAUSE * (2 << self.failed_rounds.min(MAX_DOUBLINGS - 1));
        self.failed_rounds = self.failed_rounds.saturating_add(1);
        Ok(now + jittered(pause))
    }

    /// Returns the time of the next attempt after the verdict `Duplicate`, and forgets the failures.
    pub(super) fn on_duplicate(&mut self, now: Instant) -> Instant {
        (self.failed_rounds, self.no_listener, self.no_resources, self.unreachable) = (0, 0, 0, 0);
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

#[cfg(test)]
mod tests {
    use super::super::poller::Poller;
    use super::*;
    use crate::PeerId;

    #[test]
    fn dead_peer_is_lost_although_one_of_its_addresses_has_no_route() {
        let connection = TcpConnection::new(PeerId(1), Arc::new(Poller::new().unwrap()));
        let addresses = ["10.0.0.1:1", "10.0.0.2:1"].map(|address| address.parse().unwrap());
        let mut connector = Connector::new(Arc::new(connection), addresses.into());
        let rounds = (1..100).find(|_| {
            let now = Instant::now();
            connector.failed(now, ConnectFailure::Unreachable("no route".into())).unwrap();
            connector.failed(now, ConnectFailure::NoListener("refused".into())).is_err()
        });
        assert_eq!(rounds, Some(2 * MAX_NO_LISTENER));
    }
}
