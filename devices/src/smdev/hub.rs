//! Where thread ranks meet: who is there, and the rings that were made for them.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use crate::device::{OpToken, PeerId};
use crate::doorbell::Doorbell;
use crate::ring::RingReceiver;
use crate::smdev::bell::LateBell;
use crate::smdev::offer::ExposedTable;
use crate::smdev::together::CoopCopy;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};

/// The meeting point of the ranks of one job that are threads of this process.
#[derive(Debug)]
pub struct Hub {
    id: u64,
    ports: HashMap<u32, Arc<Mailbox>>,
    offers: ExposedTable,
}

/// What a rank finds when it looks for news.
#[derive(Debug)]
pub(super) struct Mailbox {
    bell: OnceLock<Arc<Doorbell>>,
    /// How much was ever delivered, or called for; read without the lock to see whether there is something new.
    delivered: AtomicUsize,
    /// What was not collected; nothing any more when the rank has left.
    new: Mutex<Option<InletQueue>>,
}

/// What comes to a rank by another way than a ring.
#[derive(Debug, Default)]
pub(super) struct InletQueue {
    /// Rings of peers that have connected.
    pub(super) rings: Vec<RingReceiver<LateBell>>,
    /// The copies that these make out of this rank's memory.
    pub(super) copies: Vec<Arc<CoopCopy>>,
    /// What peers do not reach any more.
    pub(super) quiet: Vec<OpToken>,
}

impl Hub {
    /// Makes the meeting point of the ranks `ranks`.
    pub fn new(ranks: impl IntoIterator<Item = u32>) -> Arc<Self> {
        // Random, so that no two hubs take each other for one, also on two hosts.
        let id = RandomState::new().hash_one(std::process::id());
        let ports = ranks.into_iter().map(|rank| (rank, Arc::new(Mailbox::new()))).collect();
        Arc::new(Hub { id, ports, offers: ExposedTable::default() })
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    /// Returns how many ranks meet here.
    pub(super) fn ranks(&self) -> u32 {
        self.ports.len() as u32
    }

    pub(super) fn offers(&self) -> &ExposedTable {
        &self.offers
    }

    fn port(&self, rank: u32) -> Result<&Arc<Mailbox>, String> {
        self.ports.get(&rank).ok_or_else(|| format!("rank {rank} is no thread of this process"))
    }

    /// Takes the place of `rank`; returns where its news comes.
    pub(super) fn arrive(&self, rank: u32, bell: Arc<Doorbell>) -> Result<Arc<Mailbox>, String> {
        let port = self.port(rank)?;
        port.bell.set(bell).map_err(|_| format!("rank {rank} has opened smdev already"))?;
        Ok(Arc::clone(port))
    }

    /// Gives `to` the receiving end of a ring, and what may be copied out of its memory with its help; a rank that has left
    /// takes none. Returns where it looks for news.
    pub(super) fn deliver(
        &self,
        to: PeerId,
        ring: RingReceiver<LateBell>,
        copies: Arc<CoopCopy>,
    ) -> Result<Arc<Mailbox>, String> {
        let port = self.port(to.0)?;
        port.deliver(|news| {
            news.rings.push(ring);
            news.copies.push(copies);
        });
        Ok(Arc::clone(port))
    }

    /// Returns the doorbell of a rank, if it has arrived: before that nobody has to be woken.
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

    /// Tells the rank that nobody reaches its memory any more which it has asked about.
    pub(super) fn tell_quiet(&self, op: OpToken) {
        self.deliver(|news| news.quiet.push(op));
    }

    /// Tells the rank, if it looks, that a copy out of its memory has begun.
    pub(super) fn notify(&self) {
        // SYNC hub-delivered (release)
        self.delivered.fetch_add(1, Ordering::Release);
    }

    /// Returns how much was ever delivered or called for.
    #[inline]
    pub(super) fn delivered(&self) -> usize {
        // SYNC hub-delivered (acquire)
        self.delivered.load(Ordering::Acquire)
    }

    /// Takes what was delivered and not collected.
    pub(super) fn collect(&self) -> InletQueue {
        lock(&self.new).as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Lets go of what was not collected, and takes nothing more: the rank is gone.
    pub(super) fn close(&self) {
        *lock(&self.new) = None;
    }
}
