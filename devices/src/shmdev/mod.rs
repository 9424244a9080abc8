//! `shmdev`: processes of one host, through one segment of shared memory.
//!
//! A short message is one cache line in the ring of the pair; longer ones go through fragments, with two copies. Blocks
//! of a pool can be read in place. `README.md` in this folder explains these paths, and how two ranks connect.
//!
//! Within the segment a rank is identified by its *index* among the ranks of its host; elsewhere by its world rank.

mod block_state;
mod control_block;
mod endpoint;
mod exports;
#[allow(unsafe_code, reason = "raw pointers into the segment")]
mod imports;
mod inlet;
mod local_rank;
#[cfg(all(test, loom))]
mod model;
mod notify;
mod pool_space;
mod ring_alloc;
mod segment;
mod segment_layout;
mod slot_ids;

use std::sync::Arc;

pub use segment::{Segment, SegmentError};

use crate::config::{Config, Number};
use crate::device::{
    Address, Affinity, Caps, Device, Driver, Endpoint, KeepAlive, MakeStorage, MemoryDesc, OpToken,
    OpenError, Opened, PeerId, QuiesceStatus, Registration, RemoteKey,
};
use crate::header::MAX_INLINE_BODY;
use crate::hosts::HostRanks;
use crate::ring::{EXPORT_MIN, ExitCheck, FRAGMENT_BYTES, FragmentPool, RingEndpoint};
use crate::site::Site;
use crate::sync::{Mutex, lock};
use crate::sys::BorrowedFd;
use endpoint::ShmEndpoint;
use exports::{BlockExports, ExportedBlock};
use imports::PeerBlocks;
use local_rank::LocalRank;
use notify::ShmNotifier;
use ring_alloc::RingAllocator;

const NAME: &str = "shmdev";

/// The eager limit of shmdev.
pub const SHM_EAGER_LIMIT: Number = Number {
    name: "SHM_EAGER_LIMIT",
    default: *FRAGMENT_BYTES.end() as u64,
    range: (MAX_INLINE_BODY as u64, *FRAGMENT_BYTES.end() as u64),
    help: "bytes up to which shmdev sends a message eagerly; longer ones use the rendezvous protocol; at most the bytes of a fragment",
};

/// The number of fragments of a rank of shmdev.
pub const SHM_FRAGMENTS: Number = Number {
    name: "SHM_FRAGMENTS",
    default: 64,
    range: (2, 1 << 16),
    help: "fragments per rank for messages in transit, 64 KiB each; fewer by default above 8 ranks, and shorter above 64; read by mpjrun",
};

/// The memory of a shmdev rank for its rings, in KiB.
pub const SHM_RING_KIB: Number = Number {
    name: "SHM_RING_KIB",
    default: 0,
    range: (0, 1 << 20),
    help: "KiB per rank for the rings to its peers; short rings always fit; 0: a default that depends on the ranks; read by mpjrun",
};

/// The address space of a shmdev rank for the blocks of its pool, in MiB.
pub const SHM_POOL_MIB: Number = Number {
    name: "SHM_POOL_MIB",
    default: 1024,
    range: (0, 1 << 20),
    help: "MiB of address space per rank for blocks of World::pool(); less by default above 64 ranks; read by mpjrun",
};

/// Returns the capabilities of the device, whose fragments have `fragment` bytes.
pub(crate) fn caps(config: &Config, fragment: usize, has_pool: bool) -> Caps {
    let eager = config.size(&SHM_EAGER_LIMIT).min(fragment);
    Caps { export_min: has_pool.then_some(EXPORT_MIN), shared_views: true, ..Caps::frames(eager, fragment) }
}

/// The driver of `shmdev`.
#[derive(Debug)]
pub struct ShmDriver {
    segment: Arc<Segment>,
    ranks: HostRanks,
}

impl ShmDriver {
    /// The name of the device.
    pub const NAME: &str = NAME;

    /// Makes the driver of `ranks`: all ranks of one host, which share `segment`.
    pub fn new(segment: Arc<Segment>, ranks: HostRanks) -> Self {
        ShmDriver { segment, ranks }
    }
}

// SAFETY: the device and the inlet are made here, for each other.
unsafe impl Driver for ShmDriver {
    fn name(&self) -> &'static str {
        NAME
    }

    fn open(&self, site: &Site, config: &Config) -> Result<Opened, OpenError> {
        let refuse = |why: String| OpenError { device: NAME, why };
        let (segment, ranks) = (Arc::clone(&self.segment), self.ranks.clone());
        let Some(index) = ranks.index_of(site.rank).filter(|_| ranks.len() == segment.ranks()) else {
            return Err(refuse(format!(
                "the segment was made for {} ranks, which do not match the ranks on the host of world rank {}",
                segment.ranks(),
                site.rank
            )));
        };
        segment.reserve(index).map_err(|e| {
            refuse(format!("{e}; free some, or set MPJ_SHM_FRAGMENTS or MPJ_SHM_RING_KIB lower"))
        })?;
        let local_rank = segment.open_rank(index).map_err(|e| refuse(format!("rank {} {e}", site.rank)))?;
        let fragments = Arc::new(FragmentPool::new(Arc::new(segment.fragments(index)), &site.bias));
        let exports = BlockExports::new(&segment, index);
        let caps = caps(config, fragments.fragment_size(), exports.has_pool());
        let ring_allocator = Mutex::new(RingAllocator::new(segment.layout()));
        let context = ShmContext { segment, ranks, local_rank };
        let inlet = Box::new(inlet::ShmInlet::new(context.clone()));
        Ok(Opened {
            device: Box::new(ShmDevice { context, ring_allocator, fragments, exports, caps }),
            inlet,
        })
    }
}

/// The state that the device and the inlet share.
#[derive(Clone, Debug)]
struct ShmContext {
    segment: Arc<Segment>,
    ranks: HostRanks,
    local_rank: Arc<LocalRank>,
}

impl ShmContext {
    fn notifier(&self, index: u32) -> ShmNotifier {
        ShmNotifier::new(Arc::clone(&self.local_rank), self.segment.control_block(index))
    }
}

#[derive(Debug)]
struct ShmDevice {
    context: ShmContext,
    ring_allocator: Mutex<RingAllocator>,
    fragments: Arc<FragmentPool>,
    exports: Arc<BlockExports>,
    caps: Caps,
}

impl ShmDevice {
    /// Returns the bytes of the address, which is the same for all ranks of this host and segment.
    fn address_bytes(&self) -> [u8; 12] {
        let ShmContext { segment, ranks, .. } = &self.context;
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&ranks.host().0.to_le_bytes());
        bytes[4..].copy_from_slice(&segment.id().to_le_bytes());
        bytes
    }
}

impl Drop for ShmDevice {
    fn drop(&mut self) {
        self.exports.close();
    }
}

// SAFETY: `PeerBlocks` acquires a block before it is read. A viewed block is kept until the receiver returns it or its
// process has exited.
unsafe impl Device for ShmDevice {
    fn name(&self) -> &'static str {
        NAME
    }

    fn caps(&self) -> &Caps {
        &self.caps
    }

    fn address(&self) -> Address {
        Address(self.address_bytes().to_vec())
    }

    fn affinity(&self, peer: &Address) -> Option<Affinity> {
        (peer.0 == self.address_bytes()).then_some(Affinity(50))
    }

    fn connect(&self, peer: PeerId, _at: &Address) -> Result<Box<dyn Endpoint>, OpenError> {
        let ShmContext { segment, ranks, local_rank } = &self.context;
        let refuse = |why: String| OpenError { device: NAME, why };
        let Some(to) = ranks.index_of(peer.0) else {
            return Err(refuse(format!("{peer:?} is not one of the {} ranks of this host", ranks.len())));
        };
        let location = lock(&self.ring_allocator)
            .alloc()
            .ok_or_else(|| refuse("already connected to every peer".into()))?;
        let ring = segment
            .publish_ring(local_rank.index, to, location)
            .ok_or_else(|| refuse(format!("already connected to {peer:?}")))?;
        let notifier = self.context.notifier(to);
        notifier.announce_ring();
        let exit_segment = Arc::clone(segment);
        let exit = ExitCheck::new(move || exit_segment.has_exited(to));
        let ring = RingEndpoint::new(ring, Arc::clone(&self.fragments), notifier, exit);
        let peer_blocks =
            PeerBlocks { segment: Arc::clone(segment), index: to, reader: Arc::clone(local_rank) };
        Ok(Box::new(ShmEndpoint { ring, peer_blocks, location }))
    }

    fn pack_key(&self, memory: &Registration, at: usize, len: usize) -> Option<RemoteKey> {
        memory.record::<ExportedBlock>()?.key(at, len)
    }

    fn quiesce(&self, peer: PeerId, memory: &Registration, _op: OpToken) -> QuiesceStatus {
        if let Some(exported) = memory.record::<ExportedBlock>() {
            exported.revoke(self.context.ranks.index_of(peer.0));
        }
        QuiesceStatus::Done
    }

    fn exportable_storage(&self) -> Option<MakeStorage> {
        let exports = Arc::clone(&self.exports);
        exports
            .has_pool()
            .then(|| -> MakeStorage { Box::new(move |len| Ok(Box::new(exports.storage(len)?))) })
    }

    fn can_export(&self, memory: &MemoryDesc) -> bool {
        self.exports.offset_of(memory).is_some()
    }

    #[expect(unsafe_code, reason = "the trait's contract is kept")]
    unsafe fn export(&self, memory: &MemoryDesc, keep: &KeepAlive) -> Option<Registration> {
        self.exports.export(memory, keep)
    }

    fn is_received(&self, exported: &Registration) -> bool {
        exported.record::<ExportedBlock>().is_some_and(ExportedBlock::is_received)
    }

    fn arm(&self) -> Option<BorrowedFd<'_>> {
        Some(self.context.local_rank.arm())
    }
}
