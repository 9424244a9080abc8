//! The receiver's side of exported blocks; `exports` is the owner's side.
//!
//! A key names a block by the number of its export and its offset in the pool of its owner. Both come from a peer.
//! Before any byte is read, the receiver checks that the bytes are in that pool, and that the state word of the number
//! says `EXPORTED`.

use std::sync::Arc;

use super::block_state::BlockState;
use super::local_rank::LocalRank;
use super::segment::Segment;
use super::segment_layout::STATE_BYTES;
use super::slot_ids::slot_of;
use crate::device::{PostError, RemoteKey, View};
use crate::ring::MemoryKey;

#[derive(Debug)]
pub(super) struct PeerBlocks {
    pub(super) segment: Arc<Segment>,
    /// The rank that exports the blocks.
    pub(super) index: u32,
    /// The rank that reads the blocks.
    pub(super) reader: Arc<LocalRank>,
}

/// A guard whose drop returns a viewed block to its owner.
#[derive(Debug)]
struct BlockGuard {
    segment: Arc<Segment>,
    /// Keeps open the socket of this rank, by which the owner sees that the rank might still read.
    _holder: Arc<LocalRank>,
    index: u32,
    number: u64,
}

impl Drop for BlockGuard {
    fn drop(&mut self) {
        if let Some(at) = self.segment.block_states(self.index).get(slot_of(self.number)) {
            BlockState::new(at, self.number).give_back();
        }
    }
}

impl PeerBlocks {
    /// Acquires the block of a key, and views `len` bytes from the key's offset on.
    ///
    /// # Safety
    /// As for [`Endpoint::view`](crate::device::Endpoint::view): the peer has sent the key for `len` bytes.
    pub(super) unsafe fn view(&self, key: &RemoteKey, len: usize) -> Result<View, PostError> {
        let garbage = || PostError::Broken(format!("it sent an invalid block key: {key:?}"));
        let MemoryKey { number, offset } =
            MemoryKey::unpack(key).filter(|key| key.number != 0).ok_or_else(garbage)?;
        // The words before the blocks are not block memory: receivers write them.
        let offset = usize::try_from(offset).ok().filter(|offset| *offset >= STATE_BYTES);
        let base =
            offset.and_then(|offset| self.segment.in_pool(self.index, offset, len)).ok_or_else(garbage)?;
        let word = self.segment.block_states(self.index).get(slot_of(number)).ok_or_else(garbage)?;
        if !BlockState::new(word, number).acquire() {
            return Err(PostError::Revoked);
        }
        let (segment, holder) = (Arc::clone(&self.segment), Arc::clone(&self.reader));
        let guard = BlockGuard { segment, _holder: holder, index: self.index, number };
        // SAFETY: by the caller's promise they are the bytes of an exported block. The owner has written them, and does
        // not change them while the state word says `VIEWED`: until the guard is dropped.
        Ok(unsafe { View::new(base, len, guard) })
    }
}
