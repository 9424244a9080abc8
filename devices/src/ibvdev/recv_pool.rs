//! The receives that are posted for all peers.
//!
//! For each peer that has a queue pair, the pool posts one slot per message that the peer can have in transit, and two
//! for `Credit` messages. A few more cover used slots that are not posted again yet. So an arriving message always
//! finds a slot, however rarely this rank makes progress.

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
    slot_len: usize,
}

#[derive(Debug, Default)]
struct RecvChunks {
    all: Vec<Arc<Slots>>,
    /// The number of posted slots that were [released](RecvPool::release).
    spare: usize,
}

impl RecvPool {
    /// Creates a queue for `room` slots of `slot_len` bytes, and posts the first `extra`.
    pub(super) fn new(
        domain: &Arc<ProtectionDomain>,
        room: usize,
        slot_len: usize,
        extra: usize,
    ) -> io::Result<Arc<Self>> {
        let queue = SharedReceiveQueue::new(domain, room)?;
        let recv_pool = RecvPool { queue, chunks: Mutex::default(), domain: Arc::clone(domain), slot_len };
        recv_pool.add(extra)?;
        Ok(Arc::new(recv_pool))
    }

    pub(super) fn queue(&self) -> &Arc<SharedReceiveQueue> {
        &self.queue
    }

    /// Makes `count` further slots available: first those that closed connections have released, then new ones.
    pub(super) fn add(&self, count: usize) -> io::Result<()> {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let reused = chunks.spare.min(count);
        let lacking = count - reused;
        if lacking > 0 {
            let slots = Arc::new(Slots::new(&self.domain, lacking, self.slot_len)?);
            let chunk = chunks.all.len() as u32;
            chunks.all.push(Arc::clone(&slots));
            let places: Vec<RecvSge> = (0..lacking)
                .map(|at| slots.recv_sge(at, WrId::Received { chunk, at: at as u32 }.id()))
                .collect();
            for places in places.chunks(BATCH) {
                // SAFETY: the slots are new. The pool drops them after its queue, and every connection that shares the
                // queue holds the pool until its queue pair is destroyed. Only completed slots are accessed.
                unsafe { self.queue.post(places) }?;
            }
        }
        chunks.spare -= reused;
        Ok(())
    }

    /// Records that `count` posted slots are available again because their connection was closed.
    pub(super) fn release(&self, count: usize) {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner).spare += count;
    }

    pub(super) fn chunk(&self, at: u32) -> Option<Arc<Slots>> {
        self.chunks.lock().unwrap_or_else(PoisonError::into_inner).all.get(at as usize).cloned()
    }
}
