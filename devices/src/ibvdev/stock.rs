//! The receives that are posted for all peers.
//!
//! For each peer that is met, as many slots are posted as it may have frames on the way, and some for messages of the
//! device's own: so the queue that they share never runs dry, however slowly this rank looks.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::slots::Slots;
use super::ticket::WrId;
use super::verbs::{BATCH, Domain, Place, SharedReceives};

/// The shared receive queue, and the memory behind it.
#[derive(Debug)]
pub(super) struct RecvPool {
    // Destroyed before the memory that is posted there.
    queue: Arc<SharedReceives>,
    shelves: Mutex<Shelves>,
    domain: Arc<Domain>,
    slot: usize,
}

#[derive(Debug, Default)]
struct Shelves {
    all: Vec<Arc<Slots>>,
    /// Slots that are posted and no longer meant for a peer that there is.
    spare: usize,
}

impl RecvPool {
    /// Makes a queue with room for `room` slots of `slot` bytes, and posts the first `extra`.
    pub(super) fn new(domain: &Arc<Domain>, room: usize, slot: usize, extra: usize) -> io::Result<Arc<Self>> {
        let queue = SharedReceives::new(domain, room)?;
        let stock = RecvPool { queue, shelves: Mutex::default(), domain: Arc::clone(domain), slot };
        stock.add(extra)?;
        Ok(Arc::new(stock))
    }

    pub(super) fn queue(&self) -> &Arc<SharedReceives> {
        &self.queue
    }

    /// Posts `count` slots more, as far as peers that have ended have not left any.
    pub(super) fn add(&self, count: usize) -> io::Result<()> {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        let spared = shelves.spare.min(count);
        let lacking = count - spared;
        if lacking > 0 {
            let slots = Arc::new(Slots::new(&self.domain, lacking, self.slot)?);
            let shelf = shelves.all.len() as u32;
            shelves.all.push(Arc::clone(&slots));
            let places: Vec<Place> = (0..lacking)
                .map(|at| slots.place(at, WrId::Received { shelf, at: at as u32 }.id()))
                .collect();
            for places in places.chunks(BATCH) {
                // SAFETY: the slots are new, and kept until the queue is gone: by the shelves, which are dropped after it.
                // Nobody touches one before its completion has come.
                unsafe { self.queue.post(places) }?;
            }
        }
        shelves.spare -= spared;
        Ok(())
    }

    /// Takes note that so many slots are not meant for anybody any more.
    pub(super) fn spare(&self, count: usize) {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner).spare += count;
    }

    /// Returns the memory of a shelf.
    pub(super) fn shelf(&self, at: u32) -> Option<Arc<Slots>> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner).all.get(at as usize).cloned()
    }
}
