//! The receives that are posted for all peers.
//!
//! For each connected peer, the pool posts one slot per frame that the peer can have in transit, and a few for control
//! messages. So the shared queue never runs dry, however rarely this rank makes progress.

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use super::slots::Slots;
use super::verbs::{BATCH, ProtectionDomain, RecvSge, SharedReceiveQueue};
use super::wr_id::WrId;

#[derive(Debug)]
pub(super) struct RecvPool {
    // Destroyed before the memory that is posted there.
    queue: Arc<SharedReceiveQueue>,
    chunks: Mutex<RecvChunks>,
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
    /// Creates a queue for `room` slots of `slot` bytes, and posts the first `extra`.
    pub(super) fn new(
        domain: &Arc<ProtectionDomain>,
        room: usize,
        slot: usize,
        extra: usize,
    ) -> io::Result<Arc<Self>> {
        let queue = SharedReceiveQueue::new(domain, room)?;
        let recv_pool = RecvPool { queue, chunks: Mutex::default(), domain: Arc::clone(domain), slot };
        recv_pool.add(extra)?;
        Ok(Arc::new(recv_pool))
    }

    pub(super) fn queue(&self) -> &Arc<SharedReceiveQueue> {
        &self.queue
    }

    /// Posts `count` further slots, fewer if closed connections have left some.
    pub(super) fn add(&self, count: usize) -> io::Result<()> {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let spared = chunks.spare.min(count);
        let lacking = count - spared;
        if lacking > 0 {
            let slots = Arc::new(Slots::new(&self.domain, lacking, self.slot)?);
            let chunk = chunks.all.len() as u32;
            chunks.all.push(Arc::clone(&slots));
            let places: Vec<RecvSge> = (0..lacking)
                .map(|at| slots.place(at, WrId::Received { chunk, at: at as u32 }.id()))
                .collect();
            for places in places.chunks(BATCH) {
                // SAFETY: the slots are new. The chunks own them and are dropped after the queue, so they live longer
                // than it. No code accesses a slot before its completion has come.
                unsafe { self.queue.post(places) }?;
            }
        }
        chunks.spare -= spared;
        Ok(())
    }

    /// Records that a closed connection does not need `count` slots any more.
    pub(super) fn release(&self, count: usize) {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner).spare += count;
    }

    pub(super) fn chunk(&self, at: u32) -> Option<Arc<Slots>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner).all.get(at as usize).cloned()
    }
}
