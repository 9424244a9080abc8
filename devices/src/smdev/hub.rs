use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use crate::device::{OpToken, PeerId};
use crate::doorbell::Doorbell;
use crate::ring::RingReceiver;
use crate::smdev::exposed::SmExposedTable;
use crate::smdev::notify::SmNotifier;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};

/// The rendezvous point of the ranks of one job that are threads of this process: their mailboxes and exposed memory.
#[derive(Debug)]
pub struct Hub {
    id: u64,
    mailboxes: HashMap<u32, Arc<Mailbox>>,
    exposed: SmExposedTable,
}

/// Deliveries of other ranks to one rank: new rings, and operations whose memory is no longer in use.
#[derive(Debug)]
pub(super) struct Mailbox {
    bell: OnceLock<Arc<Doorbell>>,
    /// Number of deliveries so far. It is read without the lock.
    delivered: AtomicUsize,
    /// The ranks that have connected, each only once: a second ring could begin a body during a body of the first.
    connected: Mutex<BTreeSet<u32>>,
    /// `None` after [`close`](Self::close).
    queued: Mutex<Option<SmInletQueue>>,
}

/// The items that reach a rank outside of its rings.
#[derive(Debug, Default)]
pub(super) struct SmInletQueue {
    pub(super) rings: Vec<RingReceiver<SmNotifier>>,
    /// Operations whose memory no peer accesses any more.
    pub(super) quiesced: Vec<OpToken>,
}

impl Hub {
    /// Makes the hub of the world ranks `ranks`.
    pub fn new(ranks: impl IntoIterator<Item = u32>) -> Arc<Self> {
        // The id is random, so that it identifies the hub among all hosts.
        let id = RandomState::new().hash_one(std::process::id());
        let mailboxes = ranks.into_iter().map(|rank| (rank, Arc::new(Mailbox::new()))).collect();
        Arc::new(Hub { id, mailboxes, exposed: SmExposedTable::default() })
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn ranks(&self) -> u32 {
        self.mailboxes.len() as u32
    }

    pub(super) fn exposed(&self) -> &SmExposedTable {
        &self.exposed
    }

    fn mailbox(&self, rank: u32) -> Result<&Arc<Mailbox>, String> {
        self.mailboxes.get(&rank).ok_or_else(|| format!("rank {rank} is not a thread of this process"))
    }

    /// Registers the doorbell of `rank`; returns the rank's mailbox.
    pub(super) fn register(&self, rank: u32, bell: Arc<Doorbell>) -> Result<Arc<Mailbox>, String> {
        let mailbox = self.mailbox(rank)?;
        mailbox.bell.set(bell).map_err(|_| format!("rank {rank} has opened smdev already"))?;
        Ok(Arc::clone(mailbox))
    }

    /// Delivers to `to` the receiving side of a ring of `from`. If `to` has closed its mailbox, drops the receiving side.
    ///
    /// # Errors
    /// The hub does not have the rank `to`, or `from` has connected to it before.
    pub(super) fn deliver(
        &self,
        from: PeerId,
        to: PeerId,
        ring: RingReceiver<SmNotifier>,
    ) -> Result<(), String> {
        let mailbox = self.mailbox(to.0)?;
        if !lock(&mailbox.connected).insert(from.0) {
            return Err(format!("rank {} is already connected to rank {}", from.0, to.0));
        }
        mailbox.deliver(|queue| queue.rings.push(ring));
        Ok(())
    }

    /// Returns the doorbell of a rank; `None` if the rank has not opened the device, and so cannot be asleep.
    pub(super) fn bell(&self, rank: PeerId) -> Option<Arc<Doorbell>> {
        self.mailboxes.get(&rank.0)?.bell.get().cloned()
    }
}

impl Mailbox {
    fn new() -> Self {
        Mailbox {
            bell: OnceLock::new(),
            delivered: AtomicUsize::new(0),
            connected: Mutex::default(),
            queued: Mutex::new(Some(SmInletQueue::default())),
        }
    }

    fn deliver(&self, put: impl FnOnce(&mut SmInletQueue)) {
        if let Some(queue) = &mut *lock(&self.queued) {
            put(queue);
            // SYNC hub-delivered (release)
            self.delivered.fetch_add(1, Ordering::Release);
        }
    }

    /// Notifies the rank that no peer accesses the memory of `op` any more.
    pub(super) fn push_quiesced(&self, op: OpToken) {
        self.deliver(|queue| queue.quiesced.push(op));
    }

    #[inline]
    pub(super) fn delivered(&self) -> usize {
        // SYNC hub-delivered (acquire)
        self.delivered.load(Ordering::Acquire)
    }

    pub(super) fn drain(&self) -> SmInletQueue {
        lock(&self.queued).as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Drops the queue and accepts no more items.
    pub(super) fn close(&self) {
        *lock(&self.queued) = None;
    }
}
