//! The owner's side of exported blocks: blocks of its pool that other ranks read in place.
//!
//! For each exported block there is a word in the owner's pool, which holds the number of the export and the state of
//! the block (`block_state`). The owner does not reuse the block until its receiver has returned it, even if the
//! operation has failed or the device is closed ([`ORPHANS`]). A receiver that has left, or was reported dead, may
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
mod tests {
    use mpj_datatypes::Primitive;
    use mpj_pool::Storage;

    use super::super::imports::PeerBlocks;
    use super::super::slot_ids::{ID_END, SLOTS};
    use super::*;
    use crate::config::Config;
    use crate::deferred_drop::{DeferDrops, run_deferred_drops};
    use crate::device::{HEAD_MAX, PostError, View};
    use crate::ring::INLINE;

    /// Makes the exports of rank 0, and rank 1's access to them.
    fn pair() -> (Arc<BlockExports>, PeerBlocks) {
        let segment = Arc::new(Segment::create(2, &Config::default()).unwrap());
        let holder = segment.open_rank(1).unwrap();
        (BlockExports::new(&segment, 0), PeerBlocks { segment, index: 0, reader: holder })
    }

    struct Block {
        memory: MemoryDesc,
        keep: KeepAlive,
    }

    fn block(exports: &BlockExports, bytes: &[u8]) -> Block {
        let part = exports.storage(bytes.len()).unwrap();
        // SAFETY: the part is ours, and long enough.
        unsafe { part.base().as_ptr().copy_from(bytes.as_ptr(), bytes.len()) };
        let memory = MemoryDesc::new(part.base().as_ptr(), bytes.len(), Primitive::Byte.into()).unwrap();
        Block { memory, keep: Arc::new(part) }
    }

    fn key(exported: &Registration, at: usize, len: usize) -> RemoteKey {
        exported.record::<ExportedBlock>().unwrap().key(at, len).unwrap()
    }

    fn open_view(blocks: &PeerBlocks, key: &RemoteKey, len: usize) -> Result<View, PostError> {
        // SAFETY: the cases view blocks that are exported, and keys that are refused.
        #[expect(unsafe_code, reason = "see above")]
        unsafe {
            blocks.view(key, len)
        }
    }

    fn holders(block: &Block) -> usize {
        Arc::strong_count(&block.keep)
    }

    #[test]
    fn block_is_viewed_once() {
        let (exports, peer_blocks) = pair();
        let bytes: Vec<u8> = (0..200).collect();
        let block = block(&exports, &bytes);
        let exported = exports.export(&block.memory, &block.keep).unwrap();
        let record = exported.record::<ExportedBlock>().unwrap();
        let (whole, half) = (key(&exported, 0, 200), key(&exported, 100, 100));
        assert!(HEAD_MAX + whole.as_bytes().len() <= INLINE, "the RTS fits in one cell");
        assert!(record.key(100, 101).is_none() && !record.is_received());
        let view = open_view(&peer_blocks, &half, 100).unwrap();
        assert_eq!(view.bytes(), &bytes[100..]);
        assert!(record.is_received());
        assert_eq!(open_view(&peer_blocks, &whole, 200).unwrap_err(), PostError::Revoked, "twice");
        drop(view);
        assert!(record.is_received());
        assert_eq!(
            open_view(&peer_blocks, &whole, 200).unwrap_err(),
            PostError::Revoked,
            "the block was returned"
        );
        drop(exported);
        assert_eq!(holders(&block), 1);
    }

    #[test]
    fn viewed_block_is_kept_until_it_is_returned() {
        let (exports, peer_blocks) = pair();
        let block = block(&exports, &[7; 100]);
        let exported = exports.export(&block.memory, &block.keep).unwrap();
        let view = open_view(&peer_blocks, &key(&exported, 0, 100), 100).unwrap();
        exported.record::<ExportedBlock>().unwrap().revoke(Some(1));
        drop(exported);
        let again = |_| exports.export(&block.memory, &block.keep).unwrap();
        drop((0..3).map(again).collect::<Vec<_>>());
        assert_eq!(holders(&block), 2, "the block is viewed");
        assert_eq!(view.bytes(), [7; 100]);
        drop(view);
        // The next export finds the block returned.
        drop(again(3));
        assert_eq!(holders(&block), 1);
    }

    #[test]
    fn returned_block_is_dropped_after_the_locks_of_the_exporting_thread() {
        let (exports, peer_blocks) = pair();
        let block = block(&exports, &[7; 100]);
        let exported = exports.export(&block.memory, &block.keep).unwrap();
        let view = open_view(&peer_blocks, &key(&exported, 0, 100), 100).unwrap();
        exported.record::<ExportedBlock>().unwrap().revoke(Some(1));
        drop(exported);
        drop(view);
        let hold = DeferDrops::begin();
        drop(exports.export(&block.memory, &block.keep).unwrap());
        assert_eq!(holders(&block), 2);
        drop(hold);
        run_deferred_drops();
        assert_eq!(holders(&block), 1);
    }

    #[test]
    fn block_that_is_viewed_when_it_is_revoked_has_been_received() {
        let (exports, peer_blocks) = pair();
        let block = block(&exports, &[7; 100]);
        let exported = exports.export(&block.memory, &block.keep).unwrap();
        let view = open_view(&peer_blocks, &key(&exported, 0, 100), 100).unwrap();
        let record = exported.record::<ExportedBlock>().unwrap();
        record.revoke(Some(1));
        assert!(record.is_received());
        drop(view);
        assert!(record.is_received());
    }

    #[test]
    fn receiver_that_has_exited_holds_no_block() {
        let (exports, peer_blocks) = pair();
        let block = block(&exports, &[7; 100]);
        let exported = exports.export(&block.memory, &block.keep).unwrap();
        let view = open_view(&peer_blocks, &key(&exported, 0, 100), 100).unwrap();
        // No process has opened rank 0.
        exported.record::<ExportedBlock>().unwrap().revoke(Some(0));
        drop(exported);
        assert_eq!(holders(&block), 1);
        // The next export uses the same state word, which the drop of the old view does not change.
        let other = exports.export(&block.memory, &block.keep).unwrap();
        drop(view);
        assert!(open_view(&peer_blocks, &key(&other, 0, 100), 100).is_ok());
    }

    #[test]
    fn receiver_falsely_reported_dead_keeps_its_view() {
        let (exports, peer_blocks) = pair();
        let block = block(&exports, &[7; 100]);
        let exported = exports.export(&block.memory, &block.keep).unwrap();
        let view = open_view(&peer_blocks, &key(&exported, 0, 100), 100).unwrap();
        // Drop all other state of the receiver.
        drop(peer_blocks);
        exported.record::<ExportedBlock>().unwrap().revoke(Some(1));
        drop(exported);
        drop(exports.export(&block.memory, &block.keep).unwrap());
        assert_eq!(holders(&block), 2, "the block is viewed");
        drop(view);
        drop(exports.export(&block.memory, &block.keep).unwrap());
        assert_eq!(holders(&block), 1);
    }

    #[test]
    fn views_of_a_receiver_last_until_its_process_exits() {
        let (exports, peer_blocks) = pair();
        let blocks = [(); 3].map(|()| block(&exports, &[7; 100]));
        let exported = blocks.each_ref().map(|block| exports.export(&block.memory, &block.keep).unwrap());
        let views =
            exported.each_ref().map(|exported| open_view(&peer_blocks, &key(exported, 0, 100), 100).unwrap());
        let process = peer_blocks.segment.open_rank(0).unwrap();
        exported.iter().for_each(|exported| exported.record::<ExportedBlock>().unwrap().revoke(Some(0)));
        drop(exported);
        let again = || drop(exports.export(&blocks[0].memory, &blocks[0].keep).unwrap());
        again();
        assert_eq!(blocks.each_ref().map(holders), [2; 3], "they might still be viewed");
        drop(process);
        again();
        assert_eq!(blocks.each_ref().map(holders), [1; 3], "its process has exited");
        drop(views);
    }

    #[test]
    fn revoked_and_invalid_keys_are_refused() {
        let (exports, peer_blocks) = pair();
        let block = block(&exports, &[7; 100]);
        let exported = exports.export(&block.memory, &block.keep).unwrap();
        let good = key(&exported, 0, 100);
        let number = exported.record::<ExportedBlock>().unwrap().number;
        let pool = peer_blocks.segment.layout().pool(0).len() as u64;
        for offset in [0, 8191, pool, pool - 99, u64::MAX, u64::MAX - 99] {
            let key = MemoryKey { number, offset }.pack().unwrap();
            assert!(matches!(open_view(&peer_blocks, &key, 100), Err(PostError::Broken(_))), "{offset}");
        }
        assert!(matches!(open_view(&peer_blocks, &good, usize::MAX), Err(PostError::Broken(_))));
        for number in [number + 1, number + SLOTS as u64, ID_END - 1] {
            let key = MemoryKey { number, offset: 8192 }.pack().unwrap();
            assert_eq!(open_view(&peer_blocks, &key, 100).unwrap_err(), PostError::Revoked, "{number}");
        }
        for garbage in [&[0xff; 15][..], &[0xff; 17], &[0; 16]] {
            let key = RemoteKey::new(garbage).unwrap();
            assert!(matches!(open_view(&peer_blocks, &key, 100), Err(PostError::Broken(_))), "{garbage:?}");
        }
        let none = PeerBlocks {
            segment: Arc::clone(&peer_blocks.segment),
            index: 2,
            reader: Arc::clone(&peer_blocks.reader),
        };
        assert!(matches!(open_view(&none, &good, 100), Err(PostError::Broken(_))), "there is no such rank");
        exported.record::<ExportedBlock>().unwrap().revoke(Some(1));
        assert_eq!(open_view(&peer_blocks, &good, 100).unwrap_err(), PostError::Revoked);
    }

    #[test]
    fn memory_elsewhere_and_exports_beyond_the_limit_are_refused() {
        let (exports, _peer_blocks) = pair();
        let block = block(&exports, &[7; 100]);
        let mut byte = [0u8; 8];
        let elsewhere = MemoryDesc::new(byte.as_mut_ptr(), 8, Primitive::Byte.into()).unwrap();
        assert!(exports.export(&elsewhere, &block.keep).is_none());
        let all: Vec<_> = (0..SLOTS).map(|_| exports.export(&block.memory, &block.keep).unwrap()).collect();
        assert!(exports.export(&block.memory, &block.keep).is_none());
        drop(all);
        assert!(exports.export(&block.memory, &block.keep).is_some());
        assert_eq!(holders(&block), 1);
    }
}
