//! `ibvdev`: ranks that reach each other by InfiniBand or RoCE, through libibverbs.
//!
//! ```text
//!   Link ── frames ──► Pair: send queue ══ queue pair ══► shared receive queue: RecvPool ─► Inlet ─► Sink
//!        ── reads ───►   (slots, credits)                 (one for all peers)    completions
//!   connect ─► ConnManager: hellos by datagrams ──► the pair stands
//! ```
//! A pair of ranks has one connected queue pair, made when either first sends. Frames are messages from registered slots to
//! registered slots, and bodies of announced messages are read by the receiver out of the sender's memory. How a queue
//! pair comes to stand, who owns which memory until when, and what ends what, is told in README.md beside this file.
//!
//! # What is protected, and what is not
//! * Nobody without the job's key becomes a peer: a hello carries a proof, and is good for one opening of the device.
//! * What comes from a peer is checked before it is used; nonsense ends that one connection.
//! * Messages carry no proof of their own and are not encrypted: whoever may send packets with any number on the network can
//!   take a connection over. A peer may read what it was sent a key of until that is taken back, and of a pool's block
//!   the whole region.
//!
//! | file | what it is about |
//! |---|---|
//! | `verbs` | libibverbs, bound at run time: all that is unsafe but for the memory that is posted |
//! | `port` `card` | which device, port and address this rank uses; what its peers are told of that |
//! | `hello` `lobby` | datagrams with proofs, until a queue pair stands |
//! | `pair` `frame` | one end of a queue pair, and what goes through it |
//! | `slots` `stock` `ticket` | registered memory; receives for all peers; what a completion is about |
//! | `keys` `locked` | the program's memory: registrations and keys, and how much of it is locked |
//! | `link` `inlet` | sending to one, receiving from all |

mod card;
mod frame;
mod hello;
#[allow(unsafe_code, reason = "messages are read where the device has written them")]
mod inlet;
#[allow(unsafe_code, reason = "memory of the program's, registered for as long as its operation")]
mod keys;
#[allow(unsafe_code, reason = "the memory of a read is named to the device")]
mod link;
#[allow(unsafe_code, reason = "hellos lie in registered memory")]
mod lobby;
mod locked;
#[allow(unsafe_code, reason = "what is posted lies in registered memory")]
mod pair;
mod port;
mod shared;
#[allow(unsafe_code, reason = "registered memory in pieces that are not zeroed first")]
mod slots;
#[allow(unsafe_code, reason = "what is posted lies in registered memory")]
mod stock;
#[cfg(all(test, target_os = "linux", not(mpj_portable)))]
#[allow(unsafe_code, reason = "memory is registered, and read into")]
mod tests;
mod ticket;
#[allow(unsafe_code, reason = "calls of libibverbs")]
mod verbs;

use std::sync::Arc;

use mpj_pool::{Access, Region, RegisterError};

use crate::config::{Choice, Config, Number, Text};
use crate::device::{
    Address, Affinity, Caps, Device, Driver, Endpoint, KEY_MAX, MemoryDesc, OpToken, OpenError, Opened,
    PeerId, QuiesceStatus, Reach, Registration, RemoteKey,
};
use crate::header::MAX_INLINE_BODY;
use crate::site::{JobKey, Lane, Site};
use crate::sys::BorrowedFd;
use card::Card;
use inlet::IbvInlet;
use keys::{Key, Registrar};
use link::IbvLink;
use locked::Allowance;
use port::AUTO;
use shared::Shared;

const NAME: &str = "ibvdev";

/// Which device.
pub const IBV_DEVICE: Text = Text {
    name: "IBV_DEVICE",
    default: AUTO,
    form: "the name of a device, such as mlx5_0, or auto",
    accepts: |text| !text.is_empty(),
    help: "the adapter; auto for the first one that has a port with a link",
};

/// Which port of it.
pub const IBV_PORT: Number = Number {
    name: "IBV_PORT",
    default: 0,
    range: (0, 254),
    help: "the port of the adapter; 0 for the first one that has a link",
};

/// Which address of the port.
pub const IBV_GID: Text = Text {
    name: "IBV_GID",
    default: AUTO,
    form: "a place in the port's table of GIDs, 0 to 255, or auto",
    accepts: port::is_gid,
    help: "the GID; auto for that of RoCE v2 with IPv4 on Ethernet, and none on InfiniBand",
};

/// How long packets are.
pub const IBV_MTU: Choice<u8> = Choice {
    name: "IBV_MTU",
    values: &[("auto", 0), ("256", 1), ("512", 2), ("1024", 3), ("2048", 4), ("4096", 5)],
    help: "bytes of a packet, at most; auto for what the ports of both ranks have",
};

/// In which partition.
pub const IBV_PKEY: Number = Number {
    name: "IBV_PKEY",
    default: 0,
    range: (0, 0xffff),
    help: "index of the partition in the port's table of partition keys",
};

/// How packets are served.
pub const IBV_SL: Number =
    Number { name: "IBV_SL", default: 0, range: (0, 15), help: "the service level of packets" };

/// The eager limit of ibvdev.
pub const IBV_EAGER: Number = Number {
    name: "IBV_EAGER",
    default: 8 << 10,
    range: (MAX_INLINE_BODY as u64, 64 << 10),
    help: "bytes up to which ibvdev sends a message at once",
};

/// From where on bodies are read.
pub const IBV_READ: Number = Number {
    name: "IBV_READ",
    default: 32 << 10,
    range: (1, 1 << 40),
    help: "bytes from which the receiver reads an announced message out of the sender's memory",
};

/// From where on the program's memory is registered.
pub const IBV_REGISTER: Number = Number {
    name: "IBV_REGISTER",
    default: 256 << 10,
    range: (1, 1 << 40),
    help: "bytes from which memory outside of a pool is registered for one message",
};

/// The frames on the way to one peer.
pub const IBV_DEPTH: Number = Number {
    name: "IBV_DEPTH",
    default: 32,
    range: (4, 1024),
    help: "frames that a rank may have under way to one peer; fewer where the adapter has no room",
};

/// The least bytes of the pieces of a longer message, however few go at once.
const PIECE: usize = 4 << 10;

// A key is the body of one frame.
const _: () = assert!(KEY_MAX <= PIECE);

/// Returns the longest body of a frame.
fn fragment(config: &Config) -> usize {
    config.size(&IBV_EAGER).max(PIECE)
}

/// Reads that are under way from one peer at once.
const READS: usize = 16;

/// Receives for each peer's messages that take none of those for frames: it says that half of them are posted anew, and can
/// say that twice before this rank has read either.
const RESERVED: usize = 2;

/// How much room a rank has, and takes.
#[derive(Clone, Copy, Debug)]
struct QueueSizes {
    /// Frames on the way to one peer.
    window: u16,
    /// Work requests of one queue pair.
    sends: usize,
    /// The bytes of the longest message.
    slot: usize,
    /// Of so many work requests one tells its completion.
    signal: u64,
    /// So many receives are posted anew in one go.
    watermark: usize,
}

/// The driver of `ibvdev`.
#[derive(Debug)]
pub struct IbvDriver {
    key: Arc<JobKey>,
}

impl IbvDriver {
    /// The name of the device.
    pub const NAME: &str = NAME;

    /// Makes the driver of the ranks of the job that `key` belongs to.
    pub fn new(key: Arc<JobKey>) -> Self {
        IbvDriver { key }
    }
}

// SAFETY: both are made here.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Driver for IbvDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn open(&self, site: &Site, config: &Config) -> Result<Opened, OpenError> {
        let refuse = |why: String| OpenError { device: NAME, why };
        if site.lane.index != Lane::ONLY.index {
            return Err(refuse("it has one lane".into()));
        }
        let (device, inlet) = open(Arc::clone(&self.key), site, config).map_err(refuse)?;
        Ok(Opened { device: Box::new(device), inlet: Box::new(inlet) })
    }
}

fn open(key: Arc<JobKey>, site: &Site, config: &Config) -> Result<(IbvDevice, IbvInlet), String> {
    let (shared, lobby) = shared::open(key, site, config)?;
    let eager = config.size(&IBV_EAGER);
    let from = config.size(&IBV_READ);
    let get = Reach { min: from, max: shared.longest_read() };
    let caps = Caps {
        get: Some(get),
        register_from: Some(config.size(&IBV_REGISTER)),
        ..Caps::frames(eager, fragment(config))
    };
    let allowance = Allowance::beside(shared.slots(), crate::sys::lockable());
    let registrar = Registrar::new(Arc::clone(&shared.domain), allowance);
    let inlet = IbvInlet::new(Arc::clone(&shared), lobby);
    Ok((IbvDevice { shared, registrar, caps }, inlet))
}

/// `ibvdev` of one rank.
#[derive(Debug)]
struct IbvDevice {
    shared: Arc<Shared>,
    registrar: Registrar,
    caps: Caps,
}

// SAFETY: a read writes its bytes until the completion of its work request, or until its queue pair is destroyed, which is
// with the last of link, inlet and device. Memory is quiet when its peer has answered, after its last read by that key; or
// when the connection to the peer is broken, after which this end answers no read.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Device for IbvDevice {
    fn name(&self) -> &'static str {
        NAME
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        Address(self.shared.card.to_bytes().to_vec())
    }

    fn affinity(&self, peer: &Address) -> Option<Affinity> {
        Card::of(peer).filter(|card| self.shared.reaches(card)).map(|_| Affinity(20))
    }

    fn connect(&self, peer: PeerId, at: &Address) -> Result<Box<dyn Endpoint>, OpenError> {
        let refuse = |why: String| OpenError { device: NAME, why };
        let card = Card::of(at).ok_or_else(|| refuse(format!("{at:?} is no address")))?;
        let pair = self.shared.pair(peer, &card).map_err(refuse)?;
        self.shared.ask(&pair);
        Ok(Box::new(IbvLink::new(pair, Arc::clone(&self.shared))))
    }

    unsafe fn register(
        &self,
        memory: &MemoryDesc,
        region: Option<&Region>,
        access: Access,
    ) -> Result<Registration, RegisterError> {
        // SAFETY: the caller's promise.
        unsafe { self.registrar.register(memory, region, access) }
    }

    fn pack_key(&self, memory: &Registration, at: usize, len: usize) -> Option<RemoteKey> {
        Key::of(memory, at, len)?.pack()
    }

    fn quiesce(&self, peer: PeerId, memory: &Registration, op: OpToken) -> QuiesceStatus {
        let asked =
            keys::number(memory).zip(self.shared.known(peer)).is_some_and(|(key, pair)| pair.revoke(key, op));
        if asked { QuiesceStatus::InProgress } else { QuiesceStatus::Done }
    }

    fn arm(&self) -> Option<BorrowedFd<'_>> {
        self.shared.look_at_device();
        self.shared.completions.arm();
        self.shared.completions.descriptor()
    }
}
