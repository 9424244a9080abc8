//! Where thread ranks meet: who is there, and the rings that were made for them.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, OnceLock};

use crate::device::PeerId;
use crate::doorbell::Doorbell;
use crate::ring::Incoming;
use crate::smdev::offer::Offers;
use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, lock};

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
    /// Those that were not collected; nothing any more when the rank has left.
    new: Mutex<News>,
}

#[derive(Debug)]
enum News {
    Open(Vec<Incoming>),
    Closed,
}

impl Default for News {
    fn default() -> Self {
        News::Open(Vec::new())
    }
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

    /// Gives `to` the receiving end of a ring; a rank that has left takes none.
    pub(super) fn deliver(&self, to: PeerId, ring: Incoming) -> Result<(), String> {
        let port = self.port(to.0)?;
        if let News::Open(rings) = &mut *lock(&port.new) {
            rings.push(ring);
            // SYNC hub-delivered (release)
            port.delivered.fetch_add(1, Ordering::Release);
        }
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
        if delivered != seen
            && let News::Open(rings) = &mut *lock(&self.new)
        {
            into.append(rings);
        }
        delivered
    }

    /// Lets go of what was not collected, and takes nothing more: the rank is gone.
    pub(super) fn close(&self) {
        *lock(&self.new) = News::Closed;
    }
}
