//! `niodev`: ranks that reach each other by TCP.
//!
//! ```text
//!   Link ── frames, one or many in a call ─►┐        ┌──► Reader ─► Sink
//!   SendBuffer: what is held back, and what   │  TcpConnection  │    RecvBuffer, one for all: heads and small frames of one read
//!   the socket did not take; the Flusher    └─ TCP ──┘    long bodies: read straight to their place
//!   writes it while the rank computes
//!   connect ─► ConnManager: handshake, tie-break ──► stands
//! ```
//! Sockets do not block, and whoever holds the turn polls; the one thread writes out what waits while its rank computes. A
//! pair of ranks has one connection, made when either first sends, and used in both directions. How it comes to stand, what
//! strangers can cost, who decides that a peer is gone, and which frames leave together is told in README.md beside this
//! file.
//!
//! # What is protected, and what is not
//! * Nobody without the job's key becomes a peer: both ends prove that they hold it, for this one connection, before the
//!   first frame. Strangers cost a bounded number of descriptors and looks, and no rank its place.
//! * What comes from a peer is checked before it is used; nonsense ends that one connection.
//! * Frames carry no proof of their own and are not encrypted. Whoever sits on the path between two hosts can read
//!   them, and can take a connection over once it stands, also without the key. Ranks of one host that speak by its
//!   loopback have nobody on the path but that host's root.
//! * The bytes are protected against accidents by TCP's checksum alone.
//! * A connection whose other end vanishes without a word, as by a power cut or a cable, stays open: nothing is sent to
//!   find out. What was under way on it ends only if the connection does. On one host the kernel always says so.
//!
//! | file | what it is about |
//! |---|---|
//! | `frame` `handshake` | bytes: frames, and proofs of the job's key |
//! | `connect` `attempt` | sockets, and how often a peer is tried |
//! | `half` `seats` `lobby` | from a socket to a connection that stands |
//! | `pipe` | the connection of a pair, and its good end |
//! | `link` `outgoing` `flusher` | sending, many frames in one call, and what waits while the rank computes |
//! | `reader` `stage` `inlet` | receiving from one and from all |
//! | `poller` | epoll |

mod attempt;
mod connect;
mod flusher;
mod frame;
mod half;
mod handshake;
mod inlet;
mod link;
mod lobby;
#[allow(unsafe_code, reason = "bodies are packed into memory that is not zeroed first")]
mod outgoing;
mod pipe;
mod poller;
#[allow(unsafe_code, reason = "bodies are read straight to their place")]
mod reader;
mod seats;
mod stage;
#[cfg(feature = "conformance")]
pub mod strangers;
#[cfg(all(test, target_os = "linux", not(mpj_portable)))]
mod tests;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use crate::config::{Config, Number, Text};
use crate::device::{Address, Affinity, Caps, Device, Driver, Endpoint, OpenError, Opened, PeerId};
use crate::doorbell::Doorbell;
use crate::header::MAX_INLINE_BODY;
use crate::order;
use crate::site::{JobKey, Site};
use crate::sys::{self, BorrowedFd};
use attempt::{ConnectFailure, Connector};
use connect::Card;
use flusher::Flusher;
use frame::BODY_MAX;
use half::HalfOpen;
use handshake::Identity;
use inlet::NioInlet;
use pipe::TcpConnection;
use poller::Poller;

const NAME: &str = "niodev";

/// The eager limit of niodev. Between the loopback ends of one host messages of 128 and 256 KiB take a third and a fifth less
/// time without an announcement (`mpj-perf pingpong`, also with `MPJ_NIO_EAGER=65536`); twice as much gains no more.
pub const NIO_EAGER: Number = Number {
    name: "NIO_EAGER",
    default: 256 << 10,
    range: (MAX_INLINE_BODY as u64, 4 << 20),
    help: "bytes up to which niodev sends a message at once; longer ones are announced first; less to ranks that take less",
};

/// The longest piece of an announced message on niodev.
pub const NIO_FRAGMENT: Number = Number {
    name: "NIO_FRAGMENT",
    default: 256 << 10,
    range: (1 << 10, BODY_MAX as u64),
    help: "bytes of the pieces of announced messages, and the longest that is taken; at least NIO_EAGER",
};

// A frame takes what is sent at once, and a piece that is no shorter.
const _: () = assert!(NIO_EAGER.range.1 <= BODY_MAX as u64);
const _: () = assert!(NIO_EAGER.default <= NIO_FRAGMENT.default);

/// Where niodev listens.
pub const NIO_HOST: Text = Text {
    name: "NIO_HOST",
    default: "127.0.0.1",
    form: "an address, such as 10.0.0.1",
    accepts: connect::is_address,
    help: "address of this host that niodev listens on",
};

/// The driver of `niodev`.
#[derive(Debug)]
pub struct NioDriver {
    key: Arc<JobKey>,
}

impl NioDriver {
    /// The name of the device.
    pub const NAME: &str = NAME;

    /// Makes the driver of the ranks of the job that `key` belongs to.
    pub fn new(key: Arc<JobKey>) -> Self {
        NioDriver { key }
    }
}

// SAFETY: both are made here.
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

fn open(key: Arc<JobKey>, site: &Site, config: &Config) -> Result<(NioDevice, NioInlet), String> {
    // Each peer takes one or two: a job would fail in its middle at the usual 1,024.
    sys::raise_descriptors();
    let host = connect::host(config.is_set(&NIO_HOST).then(|| config.text(&NIO_HOST)))?;
    let (listener, at) = connect::listen(host).map_err(|e| connect::explain("cannot listen", e))?;
    let shared = Arc::new(Shared {
        id: Arc::new(Identity { key, rank: site.rank, size: site.size }),
        poller: Arc::new(Poller::new().map_err(|e| connect::explain("epoll", e))?),
        bell: Arc::clone(&site.bell),
        pipes: Mutex::default(),
        started: Mutex::default(),
        any_started: AtomicBool::new(false),
        strangers: AtomicU64::new(0),
        looks: AtomicU32::new(0),
        flusher: Flusher::default(),
    });
    let eager = config.size(&NIO_EAGER);
    let caps = Caps::frames(eager, config.size(&NIO_FRAGMENT).max(eager));
    let inlet = NioInlet::new(Arc::clone(&shared), listener).map_err(|e| connect::explain("epoll", e))?;
    Ok((NioDevice { shared, at, caps }, inlet))
}

/// What the device and its inlet share.
#[derive(Debug)]
struct Shared {
    id: Arc<Identity>,
    poller: Arc<Poller>,
    bell: Arc<Doorbell>,
    pipes: Mutex<HashMap<u32, Arc<TcpConnection>>>,
    /// Connections begun by the device, for the inlet to go on with.
    started: Mutex<Vec<Started>>,
    any_started: AtomicBool,
    /// How many connections were turned away.
    strangers: AtomicU64,
    /// How often this rank has looked for news.
    looks: AtomicU32,
    flusher: Flusher,
}

type Started = Result<HalfOpen, (Connector, ConnectFailure)>;

impl Shared {
    /// Returns the pipe to a peer, made at first use.
    fn pipe(&self, peer: u32) -> Arc<TcpConnection> {
        let mut pipes = self.pipes.lock().unwrap_or_else(PoisonError::into_inner);
        let pipe = || Arc::new(TcpConnection::new(PeerId(peer), Arc::clone(&self.poller)));
        Arc::clone(pipes.entry(peer).or_insert_with(pipe))
    }

    /// Returns how often this rank has looked for news. Which of two threads was first does not matter here.
    #[inline]
    fn looks(&self) -> u32 {
        self.looks.load(Ordering::Relaxed)
    }

    /// Takes note of a look; returns how many there were.
    #[inline]
    fn note_look(&self) -> u32 {
        // The holder of the turn alone counts.
        let looks = self.looks().wrapping_add(1);
        self.looks.store(looks, Ordering::Relaxed);
        looks
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

/// `niodev` of one rank.
#[derive(Debug)]
struct NioDevice {
    shared: Arc<Shared>,
    at: SocketAddr,
    caps: Caps,
}

// SAFETY: it moves no memory.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Device for NioDevice {
    fn name(&self) -> &'static str {
        NAME
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        Card::new(self.at, self.caps.max_send_size).to_address()
    }

    fn affinity(&self, peer: &Address) -> Option<Affinity> {
        Card::of(peer).map(|_| Affinity(10))
    }

    fn connect(&self, peer: PeerId, at: &Address) -> Result<Box<dyn Endpoint>, OpenError> {
        let refuse = |why: String| OpenError { device: NAME, why };
        let card = Card::of(at).ok_or_else(|| refuse(format!("{at:?} is no address")))?;
        // The peer does the same before it connects, so such a pair never has a connection.
        order::check(peer, card.is_big_endian).map_err(refuse)?;
        let pipe = self.shared.pipe(peer.0);
        if !pipe.needs_no_connect() {
            let started = HalfOpen::connect(&self.shared.id, Connector::new(Arc::clone(&pipe), card.at));
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
        Ok(Box::new(link::TcpLink::new(Arc::clone(&self.shared), pipe, card.takes)))
    }

    fn arm(&self) -> Option<BorrowedFd<'_>> {
        Some(self.shared.poller.descriptor())
    }
}
