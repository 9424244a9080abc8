//! `ibvdev`: ranks that communicate over InfiniBand or RoCE, through libibverbs.
//!
//! A pair of ranks shares one connection, with a queue pair at each end. Frames travel in messages, which the device of
//! the receiver writes to registered slots. The receiver reads long bodies from the sender's memory. README.md in this
//! folder explains how connections are established and end, and which part owns which memory until when.
//!
//! # Protection, and its limits
//! * A process without the job's key cannot become a peer: a hello carries a proof, and is valid for one opening of
//!   the device.
//! * The receiver validates all data from a peer. Invalid data ends the connection to that peer only.
//! * Messages carry no proof of their own and are not encrypted. A host that can send forged packets on the network can
//!   take over a connection. A peer can read memory by its key until the memory is deregistered; with the key of a pool
//!   block it can read the whole region.
//!
//! | file | contents |
//! |---|---|
//! | `verbs` | all calls of libibverbs, which is loaded at run time |
//! | `port` `card` | the device, port and address of this rank; the card that its peers receive |
//! | `hello` `conn_manager` | datagrams with proofs, by which queue pairs are established |
//! | `field_reader` | reads the fields of cards, hellos and keys |
//! | `connection` `frame` | one end of a queue pair, and the format of its messages |
//! | `slots` `recv_pool` `wr_id` | registered memory; receives for all peers; ids of work requests |
//! | `keys` `memlock` | user memory: registrations and keys, and the limit on locked memory |
//! | `endpoint` `inlet` `shared` | sending to one peer; receiving from all peers; the state that both share |

mod card;
#[allow(unsafe_code, reason = "hellos are in registered memory")]
mod conn_manager;
#[allow(unsafe_code, reason = "posted messages are in registered memory")]
mod connection;
#[allow(unsafe_code, reason = "the device writes the memory of a read")]
mod endpoint;
mod field_reader;
mod frame;
mod hello;
#[allow(unsafe_code, reason = "messages are read where the device has written them")]
mod inlet;
#[allow(unsafe_code, reason = "user memory is registered during its operation")]
mod keys;
mod memlock;
mod port;
#[allow(unsafe_code, reason = "posted receives are in registered memory")]
mod recv_pool;
mod shared;
#[allow(unsafe_code, reason = "slots are registered memory that is not zeroed")]
mod slots;
#[cfg(all(test, target_os = "linux", not(mpj_portable)))]
#[allow(unsafe_code, reason = "memory is registered, and read into")]
mod tests;
#[allow(unsafe_code, reason = "calls of libibverbs")]
mod verbs;
mod wr_id;

use std::sync::Arc;

use mpj_pool::{Access, Region, RegisterError};

use crate::config::{Choice, Config, Number, Text};
use crate::device::{
    Address, Affinity, Caps, Device, Driver, Endpoint, KEY_MAX, MemoryDesc, OpToken, OpenError, Opened,
    PeerId, QuiesceStatus, Registration, RemoteKey, SizeRange,
};
use crate::header::MAX_INLINE_BODY;
use crate::site::{JobKey, Lane, Site};
use crate::sys::BorrowedFd;
use card::IbvCard;
use endpoint::IbvEndpoint;
use inlet::IbvInlet;
use keys::{RdmaKey, Registrar};
use memlock::MemlockBudget;
use port::AUTO;
use shared::IbvShared;

const NAME: &str = "ibvdev";

/// Selects the device.
pub const IBV_DEVICE: Text = Text {
    name: "IBV_DEVICE",
    default: AUTO,
    form: "the name of a device, such as mlx5_0, or auto",
    accepts: |text| !text.is_empty(),
    help: "adapter; auto: the first one that has a port with a link",
};

/// Selects the port of the device.
pub const IBV_PORT: Number = Number {
    name: "IBV_PORT",
    default: 0,
    range: (0, 254),
    help: "port of the adapter; 0: the first one that has a link",
};

/// Selects the address of the port.
pub const IBV_GID_INDEX: Text = Text {
    name: "IBV_GID_INDEX",
    default: AUTO,
    form: "an index into the port's GID table, 0 to 255, or auto",
    accepts: port::is_gid_index,
    help: "index into the port's GID table, or auto (RoCE v2 of an IPv4 address; none on InfiniBand)",
};

/// Limits the length of a packet, in bytes.
pub const IBV_MTU: Choice<u8> = Choice {
    name: "IBV_MTU",
    values: &[("auto", 0), ("256", 1), ("512", 2), ("1024", 3), ("2048", 4), ("4096", 5)],
    help: "maximum bytes of a packet; auto: the smaller MTU of the two ports",
};

/// Selects the partition.
pub const IBV_PKEY_INDEX: Number = Number {
    name: "IBV_PKEY_INDEX",
    default: 0,
    range: (0, 0xffff),
    help: "index into the port's partition key table",
};

/// Sets the service level of packets.
pub const IBV_SL: Number =
    Number { name: "IBV_SL", default: 0, range: (0, 15), help: "the service level of packets" };

/// The eager limit of `ibvdev` in bytes.
pub const IBV_EAGER_LIMIT: Number = Number {
    name: "IBV_EAGER_LIMIT",
    default: 8 << 10,
    range: (MAX_INLINE_BODY as u64, 64 << 10),
    help: "bytes up to which ibvdev sends eagerly; also the piece size (at least 4096) of longer messages that are not read by RDMA; same on all ranks",
};

/// The size in bytes from which the receiver reads the body of a rendezvous message.
pub const IBV_RDMA_READ_MIN: Number = Number {
    name: "IBV_RDMA_READ_MIN",
    default: 32 << 10,
    range: (1, 1 << 40),
    help: "bytes from which the receiver reads the message by RDMA",
};

/// The size in bytes from which user memory is registered for one message.
pub const IBV_REGISTER_MIN: Number = Number {
    name: "IBV_REGISTER_MIN",
    default: 256 << 10,
    range: (1, 1 << 40),
    help: "bytes from which memory outside of pools is registered for one message; shorter messages use a bounce buffer",
};

/// The maximum number of messages in transit to one peer. A batch of short frames is one message.
pub const IBV_SEND_WINDOW: Number = Number {
    name: "IBV_SEND_WINDOW",
    default: 32,
    range: (4, 1024),
    help: "frames that a rank may have outstanding to one peer; fewer if the adapter's queues are too short for all peers",
};

/// The maximum fragment length in bytes if the eager limit is lower than this.
const MIN_FRAGMENT: usize = 4 << 10;

// A key must fit in the body of one frame.
const _: () = assert!(KEY_MAX <= MIN_FRAGMENT);

/// Returns the maximum length of a frame's body in bytes.
fn fragment(config: &Config) -> usize {
    config.size(&IBV_EAGER_LIMIT).max(MIN_FRAGMENT)
}

/// The maximum number of reads from one peer that are in progress at once.
const MAX_READS: usize = 16;

/// The number of receives per peer that are reserved for `Credit` messages. A peer sends one when it owes half a window
/// of credit, and can send two before this rank has processed either.
const CONTROL_RECEIVES: usize = 2;

/// The sizes of the queues and slots of a rank.
#[derive(Clone, Copy, Debug)]
struct QueueSizes {
    /// The number of receives for the frames of each peer, and of send slots for each peer.
    window: u16,
    /// The capacity of the send queue of one queue pair, in work requests.
    sends: usize,
    /// The maximum length of a message in bytes.
    max_message: usize,
    /// A message requests a completion if the `signal - 1` work requests before it have requested none.
    signal: u64,
    /// Used receives are posted again when there are at least this number of them.
    repost_batch: usize,
}

/// The driver of `ibvdev`.
#[derive(Debug)]
pub struct IbvDriver {
    key: Arc<JobKey>,
}

impl IbvDriver {
    /// The name of the device.
    pub const NAME: &str = NAME;

    /// Creates the driver for the ranks of the job that `key` belongs to.
    pub fn new(key: Arc<JobKey>) -> Self {
        IbvDriver { key }
    }
}

// SAFETY: `open` creates the device and the inlet together, with one shared state.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Driver for IbvDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn open(&self, site: &Site, config: &Config) -> Result<Opened, OpenError> {
        let refuse = |why: String| OpenError { device: NAME, why };
        if site.lane.index != Lane::ONLY.index {
            return Err(refuse("only lane 0 is supported".into()));
        }
        let (device, inlet) = open(Arc::clone(&self.key), site, config).map_err(refuse)?;
        Ok(Opened { device: Box::new(device), inlet: Box::new(inlet) })
    }
}

/// Returns the capabilities of the device, whose adapter reads up to `longest_read` bytes at once.
pub(crate) fn caps(config: &Config, longest_read: usize) -> Caps {
    Caps {
        get: Some(SizeRange { min: config.size(&IBV_RDMA_READ_MIN), max: longest_read }),
        register_min: Some(config.size(&IBV_REGISTER_MIN)),
        ..Caps::frames(config.size(&IBV_EAGER_LIMIT), fragment(config))
    }
}

fn open(key: Arc<JobKey>, site: &Site, config: &Config) -> Result<(IbvDevice, IbvInlet), String> {
    let (shared, conn_manager) = shared::open(key, site, config)?;
    let caps = caps(config, shared.longest_read());
    let budget = MemlockBudget::with_slots_reserved(shared.slot_bytes(), crate::sys::memlock_limit());
    let registrar = Registrar::new(Arc::clone(&shared.domain), budget);
    let inlet = IbvInlet::new(Arc::clone(&shared), conn_manager);
    Ok((IbvDevice { shared, registrar, caps }, inlet))
}

#[derive(Debug)]
struct IbvDevice {
    shared: Arc<IbvShared>,
    registrar: Registrar,
    caps: Caps,
}

// SAFETY: a read writes its target until the completion of its work request, the failure of the device, or the
// destruction of its queue pair, which happens with the last of endpoint, inlet and device. Memory is quiesced when the
// peer has confirmed the revocation, which it does after its last read by that key; or if the connection was never
// established, so that the peer has no key; or when the connection is broken, after which this end serves no read.
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
        IbvCard::of(peer).filter(|card| self.shared.reaches(card)).map(|_| Affinity(20))
    }

    fn connect(&self, peer: PeerId, at: &Address) -> Result<Box<dyn Endpoint>, OpenError> {
        let refuse = |why: String| OpenError { device: NAME, why };
        let card = IbvCard::of(at).ok_or_else(|| refuse(format!("invalid address {at:?}")))?;
        let connection = self.shared.get_or_create(peer, &card).map_err(refuse)?;
        self.shared.queue_connect(&connection);
        Ok(Box::new(IbvEndpoint::new(connection, Arc::clone(&self.shared))))
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
        RdmaKey::of(memory, at, len)?.pack()
    }

    fn quiesce(&self, peer: PeerId, memory: &Registration, op: OpToken) -> QuiesceStatus {
        let is_pending = keys::key_number(memory)
            .zip(self.shared.get(peer))
            .is_some_and(|(key, connection)| connection.revoke(key, op));
        if is_pending { QuiesceStatus::InProgress } else { QuiesceStatus::Done }
    }

    fn arm(&self) -> Option<BorrowedFd<'_>> {
        self.shared.poll_device_events();
        self.shared.completions.arm();
        self.shared.completions.descriptor()
    }
}
