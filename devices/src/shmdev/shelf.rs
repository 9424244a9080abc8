//! The receiver's side of exported blocks; `lending` is the owner's side.
//!
//! A key names a block by the number of its export and its offset in the pool of its owner. Both come from a peer.
//! Before any byte is read, the offset is checked to be in that pool, and the state word of the number to say that the
//! block is exported.

use std::ptr::NonNull;
use std::sync::Arc;

use super::loan::{BlockState, Use};
use super::numbers::{END, place};
use super::occupant::LocalRank;
use super::plan::WORDS;
use super::segment::Segment;
use crate::device::{OpStatus, PostError, RemoteKey, View};

/// Marks the number in a key of a block. In the keys of `single` the number is less than `END`.
const MARK: u64 = 1 << (u64::BITS - 1);
const _: () = assert!(END <= MARK);

/// The remote key of an exported block. It is short enough to share the cell of the RTS.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) number: u64,
    pub(super) offset: u64,
}

impl Key {
    pub(super) fn pack(self) -> Option<RemoteKey> {
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&(self.number | MARK).to_le_bytes());
        bytes[8..].copy_from_slice(&self.offset.to_le_bytes());
        RemoteKey::new(&bytes)
    }

    /// Unpacks a key; returns `None` if it does not name an exported block.
    fn unpack(key: &RemoteKey) -> Option<Self> {
        let (number, offset) = key.as_bytes().split_first_chunk::<8>()?;
        let offset = u64::from_le_bytes(offset.try_into().ok()?);
        let number = u64::from_le_bytes(*number);
        (number & MARK != 0).then_some(Key { number: number ^ MARK, offset })
    }
}

/// The exported blocks of another rank, as its receivers see them.
#[derive(Debug)]
pub(super) struct PeerBlocks {
    pub(super) segment: Arc<Segment>,
    /// The rank that exports them.
    pub(super) index: u32,
    /// The rank that reads them.
    pub(super) holder: Arc<LocalRank>,
}

/// A block in use; it is returned when this is dropped.
#[derive(Debug)]
struct BlockGuard {
    segment: Arc<Segment>,
    /// Its socket tells the owner that this rank still reads.
    _looker: Arc<LocalRank>,
    index: u32,
    number: u64,
    to: Use,
    is_given: bool,
}

impl BlockGuard {
    /// Returns the block; the result is whether it belonged to this rank until now.
    fn give(&mut self) -> bool {
        let at = self.segment.lent(self.index).get(place(self.number));
        !std::mem::replace(&mut self.is_given, true)
            && at.is_some_and(|at| BlockState::new(at, self.number).give(self.to))
    }
}

impl Drop for BlockGuard {
    fn drop(&mut self) {
        self.give();
    }
}

impl PeerBlocks {
    /// Returns whether a key names an exported block.
    pub(super) fn knows(key: &RemoteKey) -> bool {
        Key::unpack(key).is_some()
    }

    /// Takes a block to read its bytes `at..at + len`.
    fn take(
        &self,
        key: &RemoteKey,
        at: u64,
        len: usize,
        to: Use,
    ) -> Result<(NonNull<u8>, BlockGuard), PostError> {
        let garbage = || PostError::Broken(format!("it sent a key that is none of its pool: {key:?}"));
        let Key { number, offset } = Key::unpack(key).ok_or_else(garbage)?;
        let offset = offset.checked_add(at).and_then(|offset| usize::try_from(offset).ok());
        // The words before the blocks are not block memory: receivers write them.
        let offset = offset.filter(|offset| *offset >= WORDS);
        let base =
            offset.and_then(|offset| self.segment.in_pool(self.index, offset, len)).ok_or_else(garbage)?;
        let word = self.segment.lent(self.index).get(place(number)).ok_or_else(garbage)?;
        if !BlockState::new(word, number).take(to) {
            return Err(PostError::Revoked);
        }
        let (segment, looker) = (Arc::clone(&self.segment), Arc::clone(&self.holder));
        Ok((base, BlockGuard { segment, _looker: looker, index: self.index, number, to, is_given: false }))
    }

    /// Views all of a block.
    pub(super) fn view(&self, key: &RemoteKey, len: usize) -> Result<View, PostError> {
        let (base, taken) = self.take(key, 0, len, Use::View)?;
        // SAFETY: the owner has written the bytes, and does not change them while the state word says that the block is
        // in use.
        Ok(unsafe { View::new(base, len, taken) })
    }

    /// Copies bytes of a block, from byte `at` of the key's range on.
    ///
    /// # Safety
    /// `to` is `len` writable bytes, and nobody else uses them.
    pub(super) unsafe fn copy(
        &self,
        key: &RemoteKey,
        at: u64,
        to: *mut u8,
        len: usize,
    ) -> Result<OpStatus, PostError> {
        let (base, mut taken) = self.take(key, at, len, Use::Copy)?;
        // SAFETY: the caller's promise for `to`, which is in no exported block; `take` vouches for `base`.
        unsafe { to.copy_from_nonoverlapping(base.as_ptr(), len) };
        if taken.give() { Ok(OpStatus::Done) } else { Err(PostError::Revoked) }
    }
}
