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
