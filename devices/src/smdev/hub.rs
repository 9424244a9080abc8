//! Where thread ranks meet: who is there, and the rings that were made for them.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::device::PeerId;
use crate::doorbell::Doorbell;
use crate::ring::Incoming;
use crate::smdev::offer::Offers;

/// The meeting point of the ranks of one job that are threads of this process.
#[derive(Debug)]
pub struct Hub {
    id: u64,
    ports: HashMap<u32, Arc<Port>>,
    offers: Offers,
}

/// What a rank finds when it looks for news.
#[derive(Debug, Default)]
pub(super) struct Port {
    bell: OnceLock<Arc<Doorbell>>,
    /// How many rings were ever delivered; read without the lock to see whether there are new ones.
    delivered: AtomicUsize,
    new: Mutex<Vec<Incoming>>,
}

impl Hub {
    /// Makes the meeting point of the ranks `ranks`.
    pub fn new(ranks: impl IntoIterator<Item = u32>) -> Arc<Self> {
        // Random, so that no two hubs take each other for one, also on two hosts.
        let id = RandomState::new().hash_one(std::process::id());
        let ports = ranks.into_iter().map(|rank| (rank, Arc::default())).collect();
        Arc::new(Hub { id, ports, offers: Offers::default() })
    }

    pub(super) fn id(&self) -> u64 {
        self.id
    }

    pub(super) fn offers(&self) -> &Offers {
        &self.offers
    }

    fn port(&self, rank: u32) -> Result<&Arc<Port>, String> {
        self.ports.get(&rank).ok_or_else(|| format!("rank {rank} is no thread of this process"))
    }

    /// Takes the place of `rank`; returns where its news comes.
    pub(super) fn arrive(&self, rank: u32, bell: Arc<Doorbell>) -> Result<Arc<Port>, String> {
        let port = self.port(rank)?;
        port.bell.set(bell).map_err(|_| format!("rank {rank} has opened smdev already"))?;
        Ok(Arc::clone(port))
    }

    /// Gives `to` the receiving end of a ring.
    pub(super) fn deliver(&self, to: PeerId, ring: Incoming) -> Result<(), String> {
        let port = self.port(to.0)?;
        lock(&port.new).push(ring);
        // SYNC hub-delivered (release)
        port.delivered.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// Returns the doorbell of a rank, if it has arrived: before that nobody has to be woken.
    pub(super) fn bell(&self, rank: PeerId) -> Option<Arc<Doorbell>> {
        self.ports.get(&rank.0)?.bell.get().cloned()
    }
}

impl Port {
    /// Moves the rings that are new since `seen` to `into`; returns the new count.
    #[inline]
    pub(super) fn collect(&self, seen: usize, into: &mut Vec<Incoming>) -> usize {
        // SYNC hub-delivered (acquire)
        let delivered = self.delivered.load(Ordering::Acquire);
        if delivered != seen {
            into.append(&mut lock(&self.new));
        }
        delivered
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
