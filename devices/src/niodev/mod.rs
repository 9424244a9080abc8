//! `niodev`: ranks that reach each other by TCP.
//!
//! README.md in this folder describes the handshake, failed attempts, and which frames are coalesced.
//!
//! # What is protected, and what is not
//! * A process without the job's key cannot become a peer: before the first frame of each connection, both ends prove
//!   that they have the key. Unknown connections use a bounded number of descriptors.
//! * The inlet checks each frame header before it uses it. An invalid header ends only the connection to its sender.
//! * Frames carry no proof of their own and are not encrypted. An attacker on the path between two hosts can read them,
//!   and can take over an established connection even without the key. On the loopback of one host only privileged
//!   processes have this access.
//! * Therefore a rank listens at a public address only with `MPJ_NIO_SECURITY=none`. Private (RFC 1918), unique local,
//!   link-local and shared (100.64/10) addresses and the loopback are not public.
//! * Only TCP's checksum protects the bytes against accidental corruption.
//! * If the other end of a connection vanishes without notice, as after a power failure or a cut cable, an idle
//!   connection stays open, and one with unacknowledged data stays open for minutes. niodev sends no keep-alives.
//!
//! | file | contents |
//! |---|---|
//! | `frame` `handshake` | wire formats: frames; the handshake with its proofs of the job's key |
//! | `network` | the selection of addresses and ports, and the order in which a peer's addresses are tried |
//! | `address` `connector` | the listeners and the card; the attempts to connect to one peer |
//! | `half_open` `half_open_table` `conn_manager` | from a socket to an established connection |
//! | `connection` | the established connection of a pair, and its orderly end |
//! | `endpoint` `send_buffer` `flusher` | sending; frames that wait; the thread that writes them while the rank computes |
//! | `reader` `recv_buffer` `inlet` | receiving from one peer and from all |
//! | `poller` | epoll |

mod address;
mod conn_manager;
mod connection;
mod connector;
mod endpoint;
mod flusher;
mod frame;
#[cfg(feature = "conformance")]
pub mod fuzzing;
mod half_open;
mod half_open_table;
#[doc(hidden)]
pub mod handshake;
mod inlet;
mod network;
mod poller;
#[allow(unsafe_code, reason = "bodies are read directly into their destination")]
mod reader;
mod recv_buffer;
#[allow(unsafe_code, reason = "bodies are packed into memory that is not zeroed first")]
mod send_buffer;
#[cfg(all(test, target_os = "linux", not(mpj_portable)))]
mod tests;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::byte_order;
use crate::config::{Choice, Config, Number, Text};
use crate::device::{Address, Affinity, Caps, Device, Driver, Endpoint, OpenError, Opened, PeerId};
use crate::doorbell::Doorbell;
use crate::header::MAX_INLINE_BODY;
use crate::site::{JobKey, Site};
use crate::sys::{self, BorrowedFd};
use address::NioCard;
pub use address::{Listener, connect_order, listen, listen_at_addresses, listen_on_network};
use connection::TcpConnection;
use connector::{ConnectFailure, Connector};
use flusher::Flusher;
use frame::BODY_MAX;
use half_open::HalfOpen;
use handshake::Identity;
use inlet::NioInlet;
use poller::Poller;

const NAME: &str = "niodev";

/// The eager limit of niodev in bytes. Over the loopback, an eager message of 128 KiB takes a third less time than by
/// rendezvous, one of 256 KiB a fifth less; a limit of 512 KiB gains nothing more (`mpj-perf pingpong`, with the
/// default and with `MPJ_NIO_EAGER_LIMIT=65536`).
pub const NIO_EAGER_LIMIT: Number = Number {
    name: "NIO_EAGER_LIMIT",
    default: 256 << 10,
    range: (MAX_INLINE_BODY as u64, 4 << 20),
    help: "bytes up to which niodev sends eagerly; longer messages use rendezvous",
};

/// The longest piece of a rendezvous message on niodev in bytes. The larger of this and [`NIO_EAGER_LIMIT`] applies.
pub const NIO_MAX_SEND_SIZE: Number = Number {
    name: "NIO_MAX_SEND_SIZE",
    default: 256 << 10,
    range: (1 << 10, BODY_MAX as u64),
    help: "bytes per piece of a rendezvous message; the receiver's value also limits it",
};

const _: () = assert!(NIO_EAGER_LIMIT.range.1 <= BODY_MAX as u64);
const _: () = assert!(NIO_EAGER_LIMIT.default <= NIO_MAX_SEND_SIZE.default);

/// The address at which niodev listens. If it is set, [`NIO_INTERFACES`] has no effect.
pub const NIO_LISTEN_ADDRESS: Text = Text {
    name: "NIO_LISTEN_ADDRESS",
    default: "127.0.0.1",
    form: "an address, such as 10.0.0.1",
    accepts: address::is_address,
    help: "IP address of this host that niodev listens on",
};

/// The network interfaces at which niodev listens.
pub const NIO_INTERFACES: Text = Text {
    name: "NIO_INTERFACES",
    default: "auto",
    form: "auto, or names of interfaces, separated by commas, such as eth0,ib0",
    accepts: |text| !text.is_empty() && text.split(',').all(|name| !name.trim().is_empty()),
    help: "network interfaces that niodev listens on; by default the loopback if all ranks are on one machine, otherwise \
           all others that are up and have an address that is not public",
};

/// The ports at which niodev listens.
pub const NIO_PORTS: Text = Text {
    name: "NIO_PORTS",
    default: "any",
    form: "any, or a range of ports, such as 40000-40100",
    accepts: |text| text == "any" || network::PortRange::parse(text).is_some(),
    help: "ports that niodev listens on, for firewalls; each rank of a host needs one; without mpjrun, a job on \
           several hosts needs one more on each host, and yet one more on that of rank 0",
};

/// Whether niodev may use public addresses.
pub const NIO_SECURITY: Choice<bool> = Choice {
    name: "NIO_SECURITY",
    values: &[("auto", false), ("none", true)],
    help: "auto: niodev does not listen at public addresses, because its messages are not protected; none: it may",
};

/// The driver of `niodev`.
#[derive(Debug)]
pub struct NioDriver {
    key: Arc<JobKey>,
}

impl NioDriver {
    /// The name of the device.
    pub const NAME: &str = NAME;

    /// Creates the driver for the ranks of the job that `key` belongs to.
    pub fn new(key: Arc<JobKey>) -> Self {
        NioDriver { key }
    }
}

// SAFETY: `open` creates the device and the inlet together, and `niodev` starts no operations that an inlet completes.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Driver for NioDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn open(&self, site: &Site, config: &Config) -> Result<Opened, OpenError> {
        let (device, inlet) =
            open(Arc::clone(&self.key), site, config).map_err(|why| OpenError { device: NAME, why })?;
        Ok(Opened { device: Box::new(device), inlet: Box::new(inlet) })
    }
}

/// Returns the capabilities of the device.
pub(crate) fn caps(config: &Config) -> Caps {
    let eager = config.size(&NIO_EAGER_LIMIT);
    Caps::frames(eager, config.size(&NIO_MAX_SEND_SIZE).max(eager))
}

fn open(key: Arc<JobKey>, site: &Site, config: &Config) -> Result<(NioDevice, NioInlet), String> {
    // Each peer takes one or two descriptors, so a large job would exceed the usual limit of 1,024.
    sys::raise_descriptor_limit();
    let (listeners, at) = address::listen(config, site.spans_machines)?.into_iter().unzip();
    let shared = Arc::new(NioShared {
        id: Arc::new(Identity { key, rank: site.rank, size: site.size, purpose: handshake::NIODEV }),
        poller: Arc::new(Poller::new().map_err(|e| address::explain("epoll", e))?),
        bell: Arc::clone(&site.bell),
        connections: Mutex::default(),
        started: Mutex::default(),
        any_started: AtomicBool::new(false),
        rejected: AtomicU64::new(0),
        polls: AtomicU32::new(0),
        flusher: Flusher::default(),
    });
    let caps = caps(config);
    let inlet = NioInlet::new(Arc::clone(&shared), listeners).map_err(|e| address::explain("epoll", e))?;
    Ok((NioDevice { shared, at, caps }, inlet))
}

/// The state that the device, its endpoints and its inlet share.
#[derive(Debug)]
struct NioShared {
    id: Arc<Identity>,
    poller: Arc<Poller>,
    bell: Arc<Doorbell>,
    connections: Mutex<HashMap<u32, Arc<TcpConnection>>>,
    /// Connection attempts that the device has started, and those that failed at once, for the inlet.
    started: Mutex<Vec<Started>>,
    any_started: AtomicBool,
    rejected: AtomicU64,
    polls: AtomicU32,
    flusher: Flusher,
}

type Started = Result<HalfOpen, (Connector, ConnectFailure)>;

impl NioShared {
    /// Returns the connection to a peer. The first call creates it.
    fn connection(&self, peer: u32) -> Arc<TcpConnection> {
        let mut connections = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        let connection = || Arc::new(TcpConnection::new(PeerId(peer), Arc::clone(&self.poller)));
        Arc::clone(connections.entry(peer).or_insert_with(connection))
    }

    /// Returns the number of polls of the inlet. The load orders no other memory access.
    #[inline]
    fn polls(&self) -> u32 {
        self.polls.load(Ordering::Relaxed)
    }

    /// Counts a poll; returns the new number. Only the holder of the progress lock calls it.
    #[inline]
    fn note_poll(&self) -> u32 {
        let polls = self.polls().wrapping_add(1);
        self.polls.store(polls, Ordering::Relaxed);
        polls
    }

    #[inline]
    fn has_started(&self) -> bool {
        // SYNC nio-started (acquire)
        self.any_started.load(Ordering::Acquire)
    }

    fn take_started(&self) -> Vec<Started> {
        let mut started = self.started.lock().unwrap_or_else(PoisonError::into_inner);
        self.any_started.store(false, Ordering::Relaxed);
        std::mem::take(&mut started)
    }
}

#[derive(Debug)]
struct NioDevice {
    shared: Arc<NioShared>,
    at: Vec<SocketAddr>,
    caps: Caps,
}

// SAFETY: the device packs no keys and exports nothing. An endpoint accesses a body only within `post` or `post_more`.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Device for NioDevice {
    fn name(&self) -> &'static str {
        NAME
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        NioCard::new(self.at.clone(), self.caps.max_send_size).to_address()
    }

    fn affinity(&self, peer: &Address) -> Option<Affinity> {
        NioCard::of(peer).map(|_| Affinity(10))
    }

    fn connect(&self, peer: PeerId, at: &Address) -> Result<Box<dyn Endpoint>, OpenError> {
        let refuse = |why: String| OpenError { device: NAME, why };
        let mut card = NioCard::of(at).ok_or_else(|| refuse(format!("invalid address {at:?}")))?;
        byte_order::check(peer, card.is_big_endian).map_err(refuse)?;
        let connection = self.shared.connection(peer.0);
        if !connection.is_connected_or_closed() {
            address::connect_order(&mut card.at);
            let started =
                HalfOpen::connect(&self.shared.id, Connector::new(Arc::clone(&connection), card.at));
            if let Err((_, ConnectFailure::NoResources(why))) = started {
                return Err(refuse(why));
            }
            let mut waiting = self.shared.started.lock().unwrap_or_else(PoisonError::into_inner);
            waiting.push(started);
            // SYNC nio-started (release)
            self.shared.any_started.store(true, Ordering::Release);
            drop(waiting);
            self.shared.bell.ring();
        }
        Ok(Box::new(endpoint::NioEndpoint::new(Arc::clone(&self.shared), connection, card.max_body)))
    }

    fn arm(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.poller.descriptor())
    }
}
