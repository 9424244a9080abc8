//! The connection point of the ranks that are threads: their mailboxes, and the rings that were made for them.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use crate::device::{OpToken, PeerId};
use crate::doorbell::Doorbell;
use crate::ring::RingReceiver;
use crate::smdev::coop_copy::CoopCopy;
use crate::smdev::exposed::ExposedTable;
use crate::smdev::notify::SmNotifier;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};

/// The connection point of the ranks of one job that are threads of this process.
#[derive(Debug)]
pub struct Hub {
    id: u64,
    ports: HashMap<u32, Arc<Mailbox>>,
    offers: ExposedTable,
}

/// Where other ranks leave rings and notices for one rank.
#[derive(Debug)]
pub(super) struct Mailbox {
    bell: OnceLock<Arc<Doorbell>>,
    /// Number of deliveries and notifications so far. It is read without the lock, to see whether there are new ones.
    delivered: AtomicUsize,
    /// The deliveries that were not collected; `None` once the rank has left.
    new: Mutex<Option<InletQueue>>,
}

/// Items that come to a rank by another way than a ring.
#[derive(Debug, Default)]
pub(super) struct InletQueue {
    /// Rings of peers that have connected.
    pub(super) rings: Vec<RingReceiver<SmNotifier>>,
    /// The state of the copies that these peers make out of this rank's memory.
    pub(super) copies: Vec<Arc<CoopCopy>>,
    /// Operations whose memory no peer accesses any more.
    pub(super) quiet: Vec<OpToken>,
}

impl Hub {
    /// Makes the hub of the ranks `ranks`.
    pub fn new(ranks: impl IntoIterator<Item = u32>) -> Arc<Self> {
        // The id is random, so that no two hubs are taken for the same one, even on two hosts.
        let id = RandomState::new().hash_one(std::process::id());
        let ports = ranks.into_iter().map(|rank| (rank, Arc::new(Mailbox::new()))).collect();
        Arc::new(Hub { id, ports, offers: ExposedTable::default() })
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Returns the number of ranks of this hub.
    pub(super) fn ranks(&self) -> u32 {
        self.ports.len() as u32
    }

    pub(super) fn offers(&self) -> &ExposedTable {
        &self.offers
    }

    fn port(&self, rank: u32) -> Result<&Arc<Mailbox>, String> {
        self.ports.get(&rank).ok_or_else(|| format!("rank {rank} is no thread of this process"))
    }

    /// Registers the doorbell of `rank`; returns the rank's mailbox.
    pub(super) fn register(&self, rank: u32, bell: Arc<Doorbell>) -> Result<Arc<Mailbox>, String> {
        let port = self.port(rank)?;
        port.bell.set(bell).map_err(|_| format!("rank {rank} has opened smdev already"))?;
        Ok(Arc::clone(port))
    }

    /// Gives `to` the receiving end of a ring, and the state of the copies out of its memory that it may help with. If
    /// `to` has left, both are dropped. Returns its mailbox.
    pub(super) fn deliver(
        &self,
        to: PeerId,
        ring: RingReceiver<SmNotifier>,
        copies: Arc<CoopCopy>,
    ) -> Result<Arc<Mailbox>, String> {
        let port = self.port(to.0)?;
        port.deliver(|news| {
            news.rings.push(ring);
            news.copies.push(copies);
        });
        Ok(Arc::clone(port))
    }

    /// Returns the doorbell of a rank; `None` if the rank has not opened the device, and so cannot sleep in it.
    pub(super) fn bell(&self, rank: PeerId) -> Option<Arc<Doorbell>> {
        self.ports.get(&rank.0)?.bell.get().cloned()
    }
}

impl Mailbox {
    fn new() -> Self {
        Mailbox {
            bell: OnceLock::new(),
            delivered: AtomicUsize::new(0),
            new: Mutex::new(Some(InletQueue::default())),
        }
    }

    fn deliver(&self, put: impl FnOnce(&mut InletQueue)) {
        if let Some(news) = &mut *lock(&self.new) {
            put(news);
            // SYNC hub-delivered (release)
            self.delivered.fetch_add(1, Ordering::Release);
        }
    }

    /// Notifies the rank that the memory of `op` is quiesced: no peer accesses it any more.
    pub(super) fn push_quiesced(&self, op: OpToken) {
        self.deliver(|news| news.quiet.push(op));
    }

    /// Notifies the rank that a copy out of its memory has begun. It sees this when it polls; it is not woken.
    pub(super) fn notify(&self) {
        // SYNC hub-delivered (release)
        self.delivered.fetch_add(1, Ordering::Release);
    }

    /// Returns the number of deliveries and notifications so far.
    #[inline]
    pub(super) fn delivered(&self) -> usize {
        // SYNC hub-delivered (acquire)
        self.delivered.load(Ordering::Acquire)
    }

    /// Takes the items that were delivered and not collected.
    pub(super) fn drain(&self) -> InletQueue {
        lock(&self.new).as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Drops the items that were not collected, and accepts no more: the rank has left.
    pub(super) fn close(&self) {
        *lock(&self.new) = None;
    }
}
