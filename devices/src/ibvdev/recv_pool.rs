//! The receives that are posted for all peers.
//!
//! For each connected peer, the pool posts as many slots as the peer can have frames in transit, and a few for
//! control messages. So the shared queue never runs dry, however rarely this rank makes progress.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::slots::Slots;
use super::verbs::{BATCH, ProtectionDomain, RecvSge, SharedReceiveQueue};
use super::wr_id::WrId;

/// The shared receive queue and its memory.
#[derive(Debug)]
pub(super) struct RecvPool {
    // Destroyed before the memory that is posted there.
    queue: Arc<SharedReceiveQueue>,
    shelves: Mutex<RecvChunks>,
    domain: Arc<ProtectionDomain>,
    slot: usize,
}

#[derive(Debug, Default)]
struct RecvChunks {
    all: Vec<Arc<Slots>>,
    /// The number of slots that are posted for peers whose queue pairs are closed.
    spare: usize,
}

impl RecvPool {
    /// Creates a queue with room for `room` slots of `slot` bytes, and posts the first `extra`.
    pub(super) fn new(
        domain: &Arc<ProtectionDomain>,
        room: usize,
        slot: usize,
        extra: usize,
    ) -> io::Result<Arc<Self>> {
        let queue = SharedReceiveQueue::new(domain, room)?;
        let stock = RecvPool { queue, shelves: Mutex::default(), domain: Arc::clone(domain), slot };
        stock.add(extra)?;
        Ok(Arc::new(stock))
    }

    pub(super) fn queue(&self) -> &Arc<SharedReceiveQueue> {
        &self.queue
    }

    /// Posts `count` further slots, after it has reused those that closed queue pairs have left.
    pub(super) fn add(&self, count: usize) -> io::Result<()> {
        let mut shelves = self.shelves.lock().unwrap_or_else(PoisonError::into_inner);
        let spared = shelves.spare.min(count);
        let lacking = count - spared;
        if lacking > 0 {
            let slots = Arc::new(Slots::new(&self.domain, lacking, self.slot)?);
            let shelf = shelves.all.len() as u32;
            shelves.all.push(Arc::clone(&slots));
            let places: Vec<RecvSge> = (0..lacking)
                .map(|at| slots.place(at, WrId::Received { shelf, at: at as u32 }.id()))
                .collect();
            for places in places.chunks(BATCH) {
                // SAFETY: the slots are new. The shelves own them and are dropped after the queue, so they live
                // longer than it. No code accesses a slot before its completion has come.
                unsafe { self.queue.post(places) }?;
            }
        }
        shelves.spare -= spared;
        Ok(())
    }

    /// Records that `count` slots are not needed by their peer any more.
    pub(super) fn release(&self, count: usize) {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner).spare += count;
    }

    /// Returns the slots of shelf number `at`.
    pub(super) fn chunk(&self, at: u32) -> Option<Arc<Slots>> {
        self.shelves.lock().unwrap_or_else(PoisonError::into_inner).all.get(at as usize).cloned()
    }
}
