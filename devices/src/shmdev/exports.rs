//! The owner's side of exported blocks: blocks of its pool that other ranks read in place.
//!
//! For each exported block there is a word in the owner's pool, which holds the number of the export and the state of
//! the block (`loan`). The owner does not reuse the block until its receiver has returned it, even if the operation has
//! ended otherwise or the device is closed ([`ORPHANS`]). A receiver whose process has exited holds no block. A
//! receiver that has left, or was reported dead, may still read the block, and so may other ranks of its process. The
//! owner finds out by the receiver's socket, which the receiver keeps open while it reads any block. A receiver that
//! finds another number in the word is too late.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, PoisonError};

use mpj_pool::StorageError;

use super::block_state::BlockState;
use super::imports::BlockKey;
use super::pool_space::{PoolSpace, PoolStorage};
use super::segment::Segment;
use super::slot_ids::{SlotIds, slot_of};
use crate::device::{MemoryDesc, Registration, RemoteKey};
use crate::message::KeepAlive;

/// The blocks that one rank exports.
#[derive(Debug)]
pub(super) struct BlockExports {
    segment: Arc<Segment>,
    index: u32,
    blocks: Option<Arc<PoolSpace>>,
    numbers: SlotIds,
    /// Whether the device of the rank is gone.
    is_closed: AtomicBool,
}

/// The record of an exported block in the operation whose message it is.
#[derive(Debug)]
pub(super) struct ExportedBlock {
    lending: Arc<BlockExports>,
    number: u64,
    /// The offset of the block in the pool.
    offset: usize,
    len: usize,
    /// Keeps the memory alive until the block is returned.
    keep: Option<KeepAlive>,
    /// The receiver, set when the block is revoked.
    receiver: OnceLock<u32>,
    /// Blocks that had been returned when this one was exported. Dropping them may run code of their users, so they are
    /// dropped with this record and not under the locks of the exporting thread.
    _home: Vec<OrphanedBlock>,
}

/// A block whose operation has ended before its receiver has returned it.
#[derive(Debug)]
struct OrphanedBlock {
    lending: Arc<BlockExports>,
    number: u64,
    receiver: Option<u32>,
    _keep: KeepAlive,
}

/// Blocks that are still read although their operations have ended. A rank searches its own blocks here when it exports
/// another one, and also those of ranks of this process whose device is gone.
static ORPHANS: std::sync::Mutex<Vec<OrphanedBlock>> = std::sync::Mutex::new(Vec::new());
/// The length of `ORPHANS`.
static HOW_MANY: AtomicUsize = AtomicUsize::new(0);

impl BlockExports {
    pub(super) fn new(segment: &Arc<Segment>, index: u32) -> Arc<Self> {
        let (blocks, segment) = (PoolSpace::new(segment, index), Arc::clone(segment));
        Arc::new(BlockExports {
            segment,
            index,
            blocks,
            numbers: SlotIds::new(0),
            is_closed: AtomicBool::new(false),
        })
    }

    /// Returns whether the rank has a pool, whose blocks can be exported.
    pub(super) fn has_pool(&self) -> bool {
        self.blocks.is_some()
    }

    /// Makes a storage whose blocks can be exported.
    pub(super) fn storage(&self, len: usize) -> Result<PoolStorage, StorageError> {
        let none = StorageError::Size { asked: len, most: 0 };
        self.blocks.as_ref().ok_or(none)?.make(len)
    }

    /// Exports contiguous memory of the pool. Returns `None` if the memory is not of this kind, or all slots are in
    /// use.
    pub(super) fn export(self: &Arc<Self>, memory: &MemoryDesc, keep: &KeepAlive) -> Option<Registration> {
        self.blocks.as_ref()?;
        let (run, len) = (memory.contiguous()?, memory.bytes());
        let offset = run.addr().checked_sub(self.segment.in_pool(self.index, 0, 0)?.addr().get())?;
        self.segment.in_pool(self.index, offset, len)?;
        let home = if HOW_MANY.load(Ordering::Relaxed) > 0 { self.reclaim_orphans() } else { Vec::new() };
        let number = self.numbers.alloc()?;
        self.loan(number)?.export();
        let (lending, keep) = (Arc::clone(self), Some(Arc::clone(keep)));
        Some(Registration::new(
            ExportedBlock { lending, number, offset, len, keep, receiver: OnceLock::new(), _home: home },
            0,
        ))
    }

    fn loan(&self, number: u64) -> Option<BlockState<'_>> {
        Some(BlockState::new(self.segment.block_states(self.index).get(slot_of(number))?, number))
    }

    /// Revokes a block; returns whether its memory is this rank's again.
    fn try_revoke(&self, number: u64) -> bool {
        self.loan(number).is_none_or(|loan| loan.take_back())
    }

    /// Revokes a block; returns whether no rank reads it any more, because it was returned or its receiver is gone.
    fn is_returned(&self, number: u64, receiver: Option<u32>, is_gone: impl FnOnce(u32) -> bool) -> bool {
        self.try_revoke(number) || receiver.is_some_and(is_gone)
    }

    /// Closes the exports: any rank of this process that finds one of its orphaned blocks returned may drop it.
    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
    }

    /// Removes from [`ORPHANS`] the blocks that were returned, of this rank and of ranks that are closed.
    #[cold]
    fn reclaim_orphans(self: &Arc<Self>) -> Vec<OrphanedBlock> {
        let mut kept = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
        // Check each receiver only once, because that is a system call.
        let mut gone = HashMap::new();
        let is_home = |one: &mut OrphanedBlock| {
            let segment = &one.lending.segment;
            let is_gone =
                |index| *gone.entry((segment.id(), index)).or_insert_with(|| !segment.is_alive(index));
            let is_ours = Arc::ptr_eq(&one.lending, self) || one.lending.is_closed.load(Ordering::Relaxed);
            is_ours && one.lending.is_returned(one.number, one.receiver, is_gone)
        };
        let home: Vec<_> = kept.extract_if(.., is_home).collect();
        HOW_MANY.store(kept.len(), Ordering::Relaxed);
        drop(kept);
        home.iter().for_each(|one| one.lending.end(one.number));
        home
    }

    /// Makes the word and its number available for another export.
    fn end(&self, number: u64) {
        if let Some(loan) = self.loan(number) {
            loan.clear();
        }
        self.numbers.give(number);
    }
}

impl ExportedBlock {
    /// Revokes the block from its receiver, a rank of this host. If the receiver views the block, it has received the
    /// message and goes on ([`is_received`](Self::is_received) says so). If it copies the block, the copy fails when it
    /// ends. In both cases the block is kept until the receiver returns it.
    pub(super) fn revoke(&self, receiver: Option<u32>) {
        let _is_home = self.lending.try_revoke(self.number);
        if let Some(receiver) = receiver {
            let _ = self.receiver.set(receiver);
        }
    }

    /// Returns whether the receiver views the block, or has viewed it.
    pub(super) fn is_received(&self) -> bool {
        self.lending.loan(self.number).is_some_and(|loan| loan.is_viewed())
    }

    pub(super) fn key(&self, at: usize, len: usize) -> Option<RemoteKey> {
        at.checked_add(len).filter(|end| *end <= self.len)?;
        BlockKey { number: self.number, offset: (self.offset + at) as u64 }.pack()
    }
}

impl Drop for ExportedBlock {
    fn drop(&mut self) {
        let ExportedBlock { lending, number, keep, receiver, .. } = self;
        let receiver = receiver.take();
        let is_home = lending.is_returned(*number, receiver, |index| !lending.segment.is_alive(index));
        if let Some(keep) = keep.take()
            && !is_home
        {
            let mut kept = ORPHANS.lock().unwrap_or_else(PoisonError::into_inner);
            kept.push(OrphanedBlock { lending: Arc::clone(lending), number: *number, receiver, _keep: keep });
            HOW_MANY.store(kept.len(), Ordering::Relaxed);
            return;
        }
        lending.end(*number);
    }
}

#[cfg(all(test, target_os = "linux", not(mpj_portable), not(miri), not(loom)))]
mod tests {
    use mpj_datatypes::Primitive;
    use mpj_pool::Storage;

    use super::super::block_state::BlockUse;
    use super::super::imports::PeerBlocks;
    use super::super::slot_ids::{END, PLACES};
    use super::*;
    use crate::config::Config;
    use crate::device::{OpStatus, PostError};

    /// Makes the exports of rank 0, and the view of them that rank 1 has.
    fn pair() -> (Arc<BlockExports>, PeerBlocks) {
        let segment = Arc::new(Segment::create(2, &Config::default()).unwrap());
        let holder = segment.open_rank(1).unwrap();
        (BlockExports::new(&segment, 0), PeerBlocks { segment, index: 0, holder })
    }

    struct Block {
        memory: MemoryDesc,
        keep: KeepAlive,
    }

    fn block(lending: &BlockExports, bytes: &[u8]) -> Block {
        let part = lending.storage(bytes.len()).unwrap();
        // SAFETY: the part is ours, and long enough.
        unsafe { part.base().as_ptr().copy_from(bytes.as_ptr(), bytes.len()) };
        let memory = MemoryDesc::new(part.base().as_ptr(), bytes.len(), Primitive::Byte.into()).unwrap();
        Block { memory, keep: Arc::new(part) }
    }

    fn key(lent: &Registration, at: usize, len: usize) -> RemoteKey {
        lent.record::<ExportedBlock>().unwrap().key(at, len).unwrap()
    }

    fn holders(block: &Block) -> usize {
        Arc::strong_count(&block.keep)
    }

    fn copy(shelf: &PeerBlocks, key: &RemoteKey, at: u64, to: &mut [u8]) -> Result<OpStatus, PostError> {
        // SAFETY: it is all of `to`, which is borrowed.
        unsafe { shelf.copy(key, at, to.as_mut_ptr(), to.len()) }
    }

    #[test]
    fn a_block_is_copied_of_in_parts_and_looked_at_once() {
        let (lending, shelf) = pair();
        let bytes: Vec<u8> = (0..200).collect();
        let block = block(&lending, &bytes);
        let lent = lending.export(&block.memory, &block.keep).unwrap();
        let (whole, half) = (key(&lent, 0, 200), key(&lent, 100, 100));
        assert!(lent.record::<ExportedBlock>().unwrap().key(100, 101).is_none());
        let mut to = [0; 50];
        for at in [0, 50] {
            assert_eq!(copy(&shelf, &half, at, &mut to), Ok(OpStatus::Done));
            assert_eq!(to[..], bytes[100 + at as usize..][..50]);
        }
        assert!(!lent.record::<ExportedBlock>().unwrap().is_received());
        let view = shelf.view(&whole, 200).unwrap();
        assert_eq!(view.bytes(), bytes);
        assert!(lent.record::<ExportedBlock>().unwrap().is_received());
        assert_eq!(shelf.view(&whole, 200).unwrap_err(), PostError::Revoked, "twice");
        assert_eq!(copy(&shelf, &whole, 0, &mut to), Err(PostError::Revoked));
        drop(view);
        assert!(lent.record::<ExportedBlock>().unwrap().is_received());
        assert_eq!(shelf.view(&whole, 200).unwrap_err(), PostError::Revoked, "it is home");
        drop(lent);
        assert_eq!(holders(&block), 1);
    }

    #[test]
    fn a_block_that_is_looked_at_is_kept_until_it_is_home() {
        let (lending, shelf) = pair();
        let block = block(&lending, &[7; 100]);
        let lent = lending.export(&block.memory, &block.keep).unwrap();
        let view = shelf.view(&key(&lent, 0, 100), 100).unwrap();
        lent.record::<ExportedBlock>().unwrap().revoke(Some(1));
        drop(lent);
        let again = |_| lending.export(&block.memory, &block.keep).unwrap();
        drop((0..3).map(again).collect::<Vec<_>>());
        assert_eq!(holders(&block), 2, "it is looked at");
        assert_eq!(view.bytes(), [7; 100]);
        drop(view);
        // The next export finds the block returned.
        drop(again(3));
        assert_eq!(holders(&block), 1);
    }

    #[test]
    fn a_copy_of_a_block_that_is_withdrawn_meanwhile_is_no_message() {
        let (lending, shelf) = pair();
        let block = block(&lending, &[7; 100]);
        let lent = lending.export(&block.memory, &block.keep).unwrap();
        let key = key(&lent, 0, 100);
        let mut to = [0; 100];
        // The receiver is in the middle of its copy.
        let number = lent.record::<ExportedBlock>().unwrap().number;
        let loan = BlockState::new(shelf.segment.block_states(0).get(slot_of(number)).unwrap(), number);
        assert!(loan.acquire(BlockUse::Copy));
        lent.record::<ExportedBlock>().unwrap().revoke(Some(1));
        assert!(!lent.record::<ExportedBlock>().unwrap().is_received());
        drop(lent);
        drop(lending.export(&block.memory, &block.keep).unwrap());
        assert_eq!(holders(&block), 2, "the receiver reads it");
        assert!(!loan.give_back(BlockUse::Copy), "it has received nothing");
        drop(lending.export(&block.memory, &block.keep).unwrap());
        assert_eq!(holders(&block), 1);
        assert_eq!(copy(&shelf, &key, 0, &mut to), Err(PostError::Revoked));
    }

    #[test]
    fn a_block_that_is_viewed_when_it_is_withdrawn_has_been_received() {
        let (lending, shelf) = pair();
        let block = block(&lending, &[7; 100]);
        let lent = lending.export(&block.memory, &block.keep).unwrap();
        let view = shelf.view(&key(&lent, 0, 100), 100).unwrap();
        let record = lent.record::<ExportedBlock>().unwrap();
        record.revoke(Some(1));
        assert!(record.is_received());
        drop(view);
        assert!(record.is_received());
    }

    #[test]
    fn who_is_gone_looks_at_nothing() {
        let (lending, shelf) = pair();
        let block = block(&lending, &[7; 100]);
        let lent = lending.export(&block.memory, &block.keep).unwrap();
        let view = shelf.view(&key(&lent, 0, 100), 100).unwrap();
        // No process has ever opened rank 0.
        lent.record::<ExportedBlock>().unwrap().revoke(Some(0));
        drop(lent);
        assert_eq!(holders(&block), 1);
        // Another block has its word by now, and keeps it.
        let other = lending.export(&block.memory, &block.keep).unwrap();
        drop(view);
        assert!(shelf.view(&key(&other, 0, 100), 100).is_ok());
    }

    #[test]
    fn who_was_called_dead_and_goes_on_looks_at_what_it_did() {
        let (lending, shelf) = pair();
        let block = block(&lending, &[7; 100]);
        let lent = lending.export(&block.memory, &block.keep).unwrap();
        let view = shelf.view(&key(&lent, 0, 100), 100).unwrap();
        // Drop all other state of the receiver.
        drop(shelf);
        lent.record::<ExportedBlock>().unwrap().revoke(Some(1));
        drop(lent);
        drop(lending.export(&block.memory, &block.keep).unwrap());
        assert_eq!(holders(&block), 2, "it is looked at");
        drop(view);
        drop(lending.export(&block.memory, &block.keep).unwrap());
        assert_eq!(holders(&block), 1);
    }

    #[test]
    fn one_that_leaves_or_dies_looks_at_what_it_has_until_its_process_is_gone() {
        let (lending, shelf) = pair();
        let blocks = [(); 3].map(|()| block(&lending, &[7; 100]));
        let lent = blocks.each_ref().map(|block| lending.export(&block.memory, &block.keep).unwrap());
        let views = lent.each_ref().map(|lent| shelf.view(&key(lent, 0, 100), 100).unwrap());
        let process = shelf.segment.open_rank(0).unwrap();
        lent.iter().for_each(|lent| lent.record::<ExportedBlock>().unwrap().revoke(Some(0)));
        drop(lent);
        let again = || drop(lending.export(&blocks[0].memory, &blocks[0].keep).unwrap());
        again();
        assert_eq!(blocks.each_ref().map(holders), [2; 3], "they may be looked at");
        drop(process);
        again();
        assert_eq!(blocks.each_ref().map(holders), [1; 3], "its process is gone");
        drop(views);
    }

    #[test]
    fn what_was_taken_back_or_was_never_lent_is_refused() {
        let (lending, shelf) = pair();
        let block = block(&lending, &[7; 100]);
        let lent = lending.export(&block.memory, &block.keep).unwrap();
        let good = key(&lent, 0, 100);
        let number = lent.record::<ExportedBlock>().unwrap().number;
        let pool = shelf.segment.layout().pool(0).len() as u64;
        for offset in [0, 8191, pool, pool - 99, u64::MAX, u64::MAX - 99] {
            let key = BlockKey { number, offset }.pack().unwrap();
            assert!(matches!(shelf.view(&key, 100), Err(PostError::Broken(_))), "{offset}");
            assert!(matches!(copy(&shelf, &key, 0, &mut [0; 100]), Err(PostError::Broken(_))), "{offset}");
        }
        assert!(matches!(copy(&shelf, &good, u64::MAX, &mut [0; 1]), Err(PostError::Broken(_))));
        assert!(matches!(shelf.view(&good, usize::MAX), Err(PostError::Broken(_))));
        for number in [0, number + 1, number + PLACES as u64, END - 1] {
            let key = BlockKey { number, offset: 8192 }.pack().unwrap();
            assert_eq!(shelf.view(&key, 100).unwrap_err(), PostError::Revoked, "{number}");
        }
        for garbage in [&[0xff; 15][..], &[0xff; 17], &[0; 16]] {
            assert!(!PeerBlocks::is_block_key(&RemoteKey::new(garbage).unwrap()), "{garbage:?}");
        }
        let none =
            PeerBlocks { segment: Arc::clone(&shelf.segment), index: 2, holder: Arc::clone(&shelf.holder) };
        assert!(matches!(none.view(&good, 100), Err(PostError::Broken(_))), "there is no such rank");
        lent.record::<ExportedBlock>().unwrap().revoke(Some(1));
        assert_eq!(shelf.view(&good, 100).unwrap_err(), PostError::Revoked);
    }

    #[test]
    fn memory_elsewhere_and_more_than_there_are_words_is_not_lent() {
        let (lending, _shelf) = pair();
        let block = block(&lending, &[7; 100]);
        let mut byte = [0u8; 8];
        let elsewhere = MemoryDesc::new(byte.as_mut_ptr(), 8, Primitive::Byte.into()).unwrap();
        assert!(lending.export(&elsewhere, &block.keep).is_none());
        let all: Vec<_> = (0..PLACES).map(|_| lending.export(&block.memory, &block.keep).unwrap()).collect();
        assert!(lending.export(&block.memory, &block.keep).is_none());
        drop(all);
        assert!(lending.export(&block.memory, &block.keep).is_some());
        assert_eq!(holders(&block), 1);
    }
}
