//! The blocks that another rank lends, as those see them who receive them; `lending` is the other side.
//!
//! A key names a block by its number and its place in the pool of its owner. Both come from a peer: nothing is looked at before
//! the place is found to lie in that pool, and the word of the number to say that the block is offered.

use std::ptr::NonNull;
use std::sync::Arc;

use super::loan::{BlockState, Use};
use super::numbers::{END, place};
use super::occupant::LocalRank;
use super::plan::WORDS;
use super::segment::Segment;
use crate::device::{OpStatus, PostError, RemoteKey, View};

/// Marks the number in a key: in those of `single` it is less than `END`.
const MARK: u64 = 1 << (u64::BITS - 1);
const _: () = assert!(END <= MARK);

/// What names a lent block. As short as it is, it shares the cell of its announcement.
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

    /// Reads a key; `None` if it is none of a lent block.
    fn unpack(key: &RemoteKey) -> Option<Self> {
        let (number, offset) = key.as_bytes().split_first_chunk::<8>()?;
        let offset = u64::from_le_bytes(offset.try_into().ok()?);
        let number = u64::from_le_bytes(*number);
        (number & MARK != 0).then_some(Key { number: number ^ MARK, offset })
    }
}

/// What another rank lends, as its receivers see it.
#[derive(Debug)]
pub(super) struct PeerBlocks {
    pub(super) segment: Arc<Segment>,
    /// Whose.
    pub(super) index: u32,
    /// Who looks at it.
    pub(super) holder: Arc<LocalRank>,
}

/// A block while it is out.
#[derive(Debug)]
struct BlockGuard {
    segment: Arc<Segment>,
    /// Its socket says that there is somebody.
    _looker: Arc<LocalRank>,
    index: u32,
    number: u64,
    to: Use,
    is_given: bool,
}

impl BlockGuard {
    /// Gives the block back; returns whether it was this rank's until now.
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
    /// Whether a key names a lent block.
    pub(super) fn knows(key: &RemoteKey) -> bool {
        Key::unpack(key).is_some()
    }

    /// Takes a block for its bytes `at..at + len`.
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
        // The words in front of the blocks are written by whoever takes one.
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

    /// Looks at all of a block.
    pub(super) fn view(&self, key: &RemoteKey, len: usize) -> Result<View, PostError> {
        let (base, taken) = self.take(key, 0, len, Use::View)?;
        // SAFETY: its owner has written the bytes, and leaves them as they are while the word says that they are out.
        Ok(unsafe { View::new(base, len, taken) })
    }

    /// Copies bytes of a block, beginning with byte `at` of what the key names.
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
        // SAFETY: the caller's promise for `to`, which lies in no block that is lent; `take` vouches for `base`.
        unsafe { to.copy_from_nonoverlapping(base.as_ptr(), len) };
        if taken.give() { Ok(OpStatus::Done) } else { Err(PostError::Revoked) }
    }
}
