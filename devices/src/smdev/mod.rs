//! `smdev`: ranks that are threads of one process.
//!
//! A short message is one cache line in the [ring](crate::ring) from its sender to its receiver; longer ones go through
//! fragments, with two copies. If both ends choose [`DataPath::ZeroCopy`](crate::DataPath), the receiver copies the
//! bytes once, from the sender's buffer to its own, for any two layouts ([`get`](crate::device::Endpoint::get)). If a
//! send owns its contiguous buffer, the message is exported, and its receiver can view it without a copy
//! ([`view`](crate::device::Endpoint::view)): from [`EXPORT_MIN`] bytes if the buffer is in a pool block, otherwise if
//! the message is not eager.

mod endpoint;
mod exposed;
mod hub;
mod inlet;
mod notify;

use std::ops::RangeInclusive;
use std::sync::Arc;

use mpj_pool::{Access, Region, RegisterError};

pub use hub::Hub;

use crate::config::{Config, Number};
use crate::device::{
    Address, Affinity, Caps, Device, Driver, Endpoint, KeepAlive, MemoryDesc, OpToken, OpenError, Opened,
    PeerId, QuiesceStatus, Registration, RemoteKey, SizeRange,
};
use crate::doorbell::Doorbell;
use crate::header::MAX_INLINE_BODY;
use crate::ring::{
    Consumer, EXPORT_MIN, ExitCheck, FRAGMENT_BYTES, FragmentMemory, FragmentPool, FragmentSizes, MemoryKey,
    Ring, RingEndpoint, RingReceiver,
};
use crate::site::Site;
use endpoint::SmEndpoint;
use hub::Mailbox;
use notify::SmNotifier;

const NAME: &str = "smdev";

/// Minimum and maximum number of cells of a ring.
const RING_CELLS: RangeInclusive<usize> = 4..=256;

/// Maximum bytes of the cells of all rings of a hub, unless the rings have the minimum length.
const TOTAL_RING_BYTES: usize = 16 << 20;

const CELL_BYTES: usize = 64;

/// Maximum bytes of the fragments of all ranks by default, unless [`FRAGMENT_BYTES_PER_RANK`] requires more.
const TOTAL_FRAGMENT_BYTES: u32 = 16 << 20;
const FRAGMENT_BYTES_PER_RANK: RangeInclusive<u32> = 64 << 10..=2 << 20;

/// The eager limit of smdev.
pub const SM_EAGER_LIMIT: Number = Number {
    name: "SM_EAGER_LIMIT",
    default: *FRAGMENT_BYTES.end() as u64,
    range: (MAX_INLINE_BODY as u64, *FRAGMENT_BYTES.end() as u64),
    help: "bytes up to which smdev sends a message eagerly; longer ones use the rendezvous protocol; at most the bytes of a fragment",
};

/// The number of fragments of a rank of smdev.
pub const SM_FRAGMENTS: Number = Number {
    name: "SM_FRAGMENTS",
    default: 32,
    range: (2, 1 << 16),
    help: "fragments per rank for messages in transit, 64 KiB each; fewer by default above 8 ranks, and shorter above 32",
};

/// Returns the number of cells of each ring among `ranks` ranks, a power of two. It is smaller with many ranks, because
/// each pair of ranks has two rings.
fn cells(ranks: u32) -> u32 {
    let rings = ranks as usize * (ranks as usize).saturating_sub(1);
    let cells = TOTAL_RING_BYTES / rings.max(1) / CELL_BYTES;
    1 << cells.clamp(*RING_CELLS.start(), *RING_CELLS.end()).ilog2()
}

fn fragments(ranks: u32, config: &Config) -> FragmentSizes {
    let sizes = FragmentSizes::divide(TOTAL_FRAGMENT_BYTES, ranks, FRAGMENT_BYTES_PER_RANK);
    match config.number(&SM_FRAGMENTS) as u32 {
        count if config.is_set(&SM_FRAGMENTS) => FragmentSizes { count, ..sizes },
        _ => sizes,
    }
}

/// Maximum bytes of one [`get`](Endpoint::get). The engine holds the lock of the peer's outbox while they are copied.
const MAX_GET: usize = 1 << 20;

/// Returns the capabilities of the device, whose fragments have `fragment` bytes.
pub(crate) fn caps(config: &Config, fragment: usize) -> Caps {
    // For most messages, copies through fragments are faster: see `ring/README.md`.
    let get = Some(SizeRange { min: usize::MAX, max: MAX_GET });
    let frames = Caps::frames(config.size(&SM_EAGER_LIMIT).min(fragment), fragment);
    Caps { get, noncontiguous: true, export_min: Some(EXPORT_MIN), ..frames }
}

/// The driver of `smdev`.
#[derive(Debug)]
pub struct SmDriver {
    hub: Arc<Hub>,
}

impl SmDriver {
    /// The name of the device.
    pub const NAME: &str = NAME;

    /// Makes the driver of the ranks of `hub`.
    pub fn new(hub: Arc<Hub>) -> Self {
        SmDriver { hub }
    }
}

// SAFETY: the device and the inlet are made here, for each other.
unsafe impl Driver for SmDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn open(&self, site: &Site, config: &Config) -> Result<Opened, OpenError> {
        let refuse = |why: String| OpenError { device: NAME, why };
        let hub = Arc::clone(&self.hub);
        let FragmentSizes { count, bytes } = fragments(hub.ranks(), config);
        let memory = FragmentMemory::new(count, bytes)
            .map_err(|e| refuse(format!("cannot allocate the fragments: {e}")))?;
        let fragments = Arc::new(FragmentPool::new(Arc::new(memory), &site.bias));
        let mailbox = hub.register(site.rank, Arc::clone(&site.bell)).map_err(refuse)?;
        let caps = caps(config, bytes as usize);
        let inlet = Box::new(inlet::SmInlet::new(Arc::clone(&mailbox)));
        let (rank, bell) = (site.rank, Arc::clone(&site.bell));
        Ok(Opened { device: Box::new(SmDevice { hub, rank, bell, mailbox, fragments, caps }), inlet })
    }
}

#[derive(Debug)]
struct SmDevice {
    hub: Arc<Hub>,
    rank: u32,
    bell: Arc<Doorbell>,
    mailbox: Arc<Mailbox>,
    fragments: Arc<FragmentPool>,
    caps: Caps,
}

// SAFETY: `SmExposedTable` copies all bytes or returns an error, counts readers, and keeps viewed memory alive.
unsafe impl Device for SmDevice {
    fn name(&self) -> &'static str {
        NAME
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        Address(self.hub.id().to_le_bytes().to_vec())
    }

    fn affinity(&self, peer: &Address) -> Option<Affinity> {
        (*peer == self.address()).then_some(Affinity(100))
    }

    fn connect(&self, peer: PeerId, _at: &Address) -> Result<Box<dyn Endpoint>, OpenError> {
        // The receiver goes into a mailbox of the hub, and must not keep the hub alive.
        let (hub, from) = (Arc::downgrade(&self.hub), PeerId(self.rank));
        let bell = SmNotifier::new(move || hub.upgrade()?.bell(from));
        let ring = Arc::new(Ring::new(cells(self.hub.ranks())));
        let consumer = Consumer::new(Arc::clone(&ring), Arc::clone(self.fragments.memory()));
        let receiver = RingReceiver::new(from, consumer, bell);
        self.hub.deliver(from, peer, receiver).map_err(|why| OpenError { device: NAME, why })?;
        let hub = Arc::clone(&self.hub);
        let bell_hub = Arc::clone(&hub);
        let bell = SmNotifier::new(move || bell_hub.bell(peer));
        let ring = RingEndpoint::new(ring, Arc::clone(&self.fragments), bell, ExitCheck::never());
        Ok(Box::new(SmEndpoint { ring, hub }))
    }

    #[expect(unsafe_code, reason = "the trait's contract is passed on")]
    unsafe fn register(
        &self,
        memory: &MemoryDesc,
        _region: Option<&Region>,
        _access: Access,
    ) -> Result<Registration, RegisterError> {
        // SAFETY: the caller's promise; when the last clone of the registration is dropped, `SmExposure` revokes the
        // entry.
        let number = unsafe { self.hub.exposed().expose(memory.clone(), None) };
        let bytes = memory.bytes();
        Ok(Registration::new(SmExposure { hub: Arc::clone(&self.hub), number, bytes }, bytes))
    }

    fn pack_key(&self, memory: &Registration, at: usize, len: usize) -> Option<RemoteKey> {
        let SmExposure { number, bytes, .. } = memory.record::<SmExposure>()?;
        at.checked_add(len).filter(|end| end <= bytes)?;
        MemoryKey { number: *number, offset: at as u64 }.pack()
    }

    fn quiesce(&self, _peer: PeerId, memory: &Registration, op: OpToken) -> QuiesceStatus {
        let Some(SmExposure { number, .. }) = memory.record::<SmExposure>() else {
            return QuiesceStatus::Done;
        };
        let (mailbox, bell) = (Arc::clone(&self.mailbox), Arc::clone(&self.bell));
        self.hub.exposed().quiesce(*number, move || {
            mailbox.push_quiesced(op);
            bell.ring();
        })
    }

    fn can_export(&self, memory: &MemoryDesc) -> bool {
        memory.contiguous().is_some()
    }

    #[expect(unsafe_code, reason = "the trait's contract is passed on")]
    unsafe fn export(&self, memory: &MemoryDesc, keep: &KeepAlive) -> Option<Registration> {
        // SAFETY: the caller's promise.
        let number = unsafe { self.hub.exposed().expose(memory.clone(), Some(Arc::clone(keep))) };
        let bytes = memory.bytes();
        Some(Registration::new(SmExposure { hub: Arc::clone(&self.hub), number, bytes }, bytes))
    }

    fn is_received(&self, exported: &Registration) -> bool {
        exported
            .record::<SmExposure>()
            .is_some_and(|exported| exported.hub.exposed().is_received(exported.number))
    }
}

/// The record of exposed memory in the registration; revokes the entry when it is dropped.
#[derive(Debug)]
struct SmExposure {
    hub: Arc<Hub>,
    number: u64,
    bytes: usize,
}

impl Drop for SmExposure {
    fn drop(&mut self) {
        self.hub.exposed().revoke(self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_all_rings_and_fragments_is_bounded() {
        for ranks in [1, 2, 8, 32] {
            assert_eq!(cells(ranks), 256, "{ranks} ranks");
        }
        for ranks in [33_u32, 64, 128, 500, 2000] {
            let (cells, FragmentSizes { count, bytes }) =
                (cells(ranks), fragments(ranks, &Config::default()));
            assert!(cells.is_power_of_two() && (4..=256).contains(&cells));
            let cell_bytes = cells as usize * CELL_BYTES * ranks as usize * (ranks as usize - 1);
            assert!(cell_bytes <= TOTAL_RING_BYTES || cells == 4, "{ranks} ranks");
            let least = *FRAGMENT_BYTES_PER_RANK.start();
            assert!(ranks * count * bytes <= TOTAL_FRAGMENT_BYTES || count * bytes == least, "{ranks} ranks");
        }
    }

    #[test]
    fn set_number_of_fragments_is_used() {
        let mut config = Config::default();
        config.set(&SM_FRAGMENTS, 100).unwrap();
        assert_eq!(fragments(1000, &config), FragmentSizes { count: 100, bytes: 16 << 10 });
    }
}
