//! The owner's side of exported blocks: blocks of its pool that other ranks read in place.
//!
//! For each exported block there is a word in the owner's pool, which holds the number of the export and the state of
//! the block (`block_state`). The owner does not reuse the block until its receiver has returned it, even if the
//! operation has failed or the device is closed ([`ORPHANS`]). A receiver that has left, or was reported dead, might
//! still read the block. It keeps its wake-up socket open while it reads any block, so the block also comes back when
//! that socket is closed. If a receiver finds another number in the word, it cannot acquire the block.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use mpj_pool::StorageError;

use super::block_state::BlockState;
use super::pool_space::{PoolSpace, PoolStorage};
use super::segment::Segment;
use super::slot_ids::{SlotIds, slot_of};
use crate::deferred_drop::drop_deferred;
use crate::device::{MemoryDesc, Registration, RemoteKey};
use crate::message::KeepAlive;
use crate::ring::MemoryKey;

#[derive(Debug)]
pub(super) struct BlockExports {
    segment: Arc<Segment>,
    index: u32,
    space: Option<Arc<PoolSpace>>,
    numbers: SlotIds,
    is_closed: AtomicBool,
}

/// The record of an exported block in its registration.
#[derive(Debug)]
pub(super) struct ExportedBlock {
    exports: Arc<BlockExports>,
    number: u64,
    offset: usize,
    len: usize,
    /// Keeps the memory alive until the block is returned.
    keep: Option<KeepAlive>,
    /// The receiver, set when the block is revoked.
    receiver: OnceLock<u32>,
}

/// A block whose operation has ended, but whose receiver has not returned it.
#[derive(Debug)]
struct OrphanedBlock {
    exports: Arc<BlockExports>,
    number: u64,
    receiver: Option<u32>,
    _keep: KeepAlive,
}

/// Blocks that are still read although their operations have ended. A rank that exports a block removes from here those
/// that were returned: its own, and those of ranks of this process whose device is closed.
static ORPHANS: std::sync::Mutex<Vec<OrphanedBlock>> = std::sync::Mutex::new(Vec::new());
static ORPHAN_COUNT: AtomicUsize = AtomicUsize::new(0);

impl BlockExports {
    pub(super) fn new(segment: &Arc<Segment>, index: u32) -> Arc<Self> {
        let (space, segment) = (PoolSpace::new(segment, index), Arc::clone(segment));
        Arc::new(BlockExports {
            segment,
            index,
            space,
            numbers: SlotIds::new(0),
            is_closed: AtomicBool::new(false),
        })
    }

    pub(super) fn has_pool(&self) -> bool {
        self.space.is_some()
    }

    pub(super) fn storage(&self, len: usize) -> Result<PoolStorage, StorageError> {
        let none = StorageError::Size { asked: len, most: 0 };
        self.space.as_ref().ok_or(none)?.make(len)
    }

    /// Exports memory. Returns `None` if it is not contiguous memory of the pool, or if all slots are in use.
    pub(super) fn export(self: &Arc<Self>, memory: &MemoryDesc, keep: &KeepAlive) -> Option<Registration> {
        let (offset, len) = (self.offset_of(memory)?, memory.bytes());
        if ORPHAN_COUNT.load(Ordering::Relaxed) > 0 {
            // Their drop may run code of their users, and the exporting thread holds locks.
            drop_deferred(self.reclaim_orphans());
        }
        let number = self.numbers.alloc()?;
        self.block_state(number)?.export();
        let (exports, keep) = (Arc::clone(self), Some(Arc::clone(keep)));
        let receiver = OnceLock::new();
        Some(Registration::new(ExportedBlock { exports, number, offset, len, keep, receiver }, 0))
    }

    /// Returns the offset of memory in the pool; `None` if it is not contiguous memory of the pool.
    pub(super) fn offset_of(&self, memory: &MemoryDesc) -> Option<usize> {
        self.space.as_ref()?;
        let pool = self.segment.in_pool(self.index, 0, 0)?;
        let offset = memory.contiguous()?.addr().checked_sub(pool.addr().get())?;
        self.segment.in_pool(self.index, offset, memory.bytes()).map(|_| offset)
    }

    fn block_state(&self, number: u64) -> Option<BlockState<'_>> {
        Some(BlockState::new(self.segment.block_states(self.index).get(slot_of(number))?, number))
    }

    fn try_revoke(&self, number: u64) -> bool {
        self.block_state(number).is_none_or(|block_state| block_state.try_revoke())
    }

    /// Revokes a block; returns whether no rank reads it any more, or its receiver is gone.
    fn is_returned(&self, number: u64, receiver: Option<u32>, is_gone: impl FnOnce(u32) -> bool) -> bool {
        self.try_revoke(number) || receiver.is_some_and(is_gone)
    }

    /// Lets every rank of this process remove this rank's returned blocks from [`ORPHANS`].
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Removes from [`ORPHANS`] the blocks that were returned, of this rank and of ranks that are closed.
    #[cold]
    fn reclaim_orphans(self: &Arc<Self>) -> Vec<OrphanedBlock> {
        let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
        // Check each receiver only once, because the check is a system call.
        let mut gone = HashMap::new();
        let is_returned = |one: &mut OrphanedBlock| {
            let segment = &one.exports.segment;
            let is_gone =
                |index| *gone.entry((segment.id(), index)).or_insert_with(|| !segment.is_alive(index));
            let is_ours = Arc::ptr_eq(&one.exports, self) || one.exports.is_closed.load(Ordering::Relaxed);
            is_ours && one.exports.is_returned(one.number, one.receiver, is_gone)
        };
        let returned: Vec<_> = orphans.extract_if(.., is_returned).collect();
        ORPHAN_COUNT.store(orphans.len(), Ordering::Relaxed);
        drop(orphans);
        returned.iter().for_each(|one| one.exports.free_slot(one.number));
        returned
    }

    fn free_slot(&self, number: u64) {
        if let Some(block_state) = self.block_state(number) {
            block_state.clear();
        }
        self.numbers.free(number);
    }
}

impl ExportedBlock {
    /// Revokes the block from `receiver`, the index of a rank of this host. If the receiver views the block, it has
    /// received the message ([`is_received`](Self::is_received) returns true), and the block is kept until the receiver
    /// returns it or is gone.
    pub(super) fn revoke(&self, receiver: Option<u32>) {
        let _is_returned = self.exports.try_revoke(self.number);
        if let Some(receiver) = receiver {
            let _ = self.receiver.set(receiver);
        }
    }

    /// Returns whether the receiver views the block, or has viewed it.
    pub(super) fn is_received(&self) -> bool {
        self.exports.block_state(self.number).is_some_and(|block_state| block_state.is_viewed())
    }

    pub(super) fn key(&self, at: usize, len: usize) -> Option<RemoteKey> {
        at.checked_add(len).filter(|end| *end <= self.len)?;
        MemoryKey { number: self.number, offset: (self.offset + at) as u64 }.pack()
    }
}

impl Drop for ExportedBlock {
    fn drop(&mut self) {
        let ExportedBlock { exports, number, keep, receiver, .. } = self;
        let receiver = receiver.take();
        let is_returned = exports.is_returned(*number, receiver, |index| !exports.segment.is_alive(index));
        if let Some(keep) = keep.take()
            && !is_returned
        {
            let mut orphans = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
            orphans.push(OrphanedBlock {
                exports: Arc::clone(exports),
                number: *number,
                receiver,
                _keep: keep,
            });
            ORPHAN_COUNT.store(orphans.len(), Ordering::Relaxed);
            return;
        }
        exports.free_slot(*number);
    }
}

#[cfg(all(test, target_os = "linux", not(mpj_portable), not(miri), not(loom)))]
mod tests;
