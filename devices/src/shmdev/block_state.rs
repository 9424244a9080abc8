//! The state word of an exported block.
//!
//! It contains the number of an export and a state; README.md in this folder has the table of states. The owner revokes
//! a block, and the receiver acquires it, by a compare-and-exchange from the same value. So one of the two fails, and
//! an owner that revokes a block knows whether the receiver reads it.

use super::slot_ids::ID_END;
use crate::sync::atomic::{AtomicU64, Ordering};

const EXPORTED: u64 = 1;
const VIEWED: u64 = 2;
const RETURNED: u64 = 3;
const STATE_BITS: u32 = 3;

const _: () = assert!(ID_END <= 1 << (u64::BITS - STATE_BITS));

#[derive(Clone, Copy, Debug)]
pub(super) struct BlockState<'a> {
    at: &'a AtomicU64,
    number: u64,
}

impl<'a> BlockState<'a> {
    pub(super) fn new(at: &'a AtomicU64, number: u64) -> Self {
        BlockState { at, number }
    }

    fn word(&self, state: u64) -> u64 {
        self.number << STATE_BITS | state
    }

    /// Exports the block. The owner has written it before.
    pub(super) fn export(&self) {
        // SYNC block-state (release)
        self.at.store(self.word(EXPORTED), Ordering::Release);
    }

    /// Revokes the block: no receiver can acquire it from now on. Returns whether the memory is the owner's again,
    /// because no receiver reads it.
    pub(super) fn try_revoke(&self) -> bool {
        // SYNC block-state (acquire): the receiver has read the block before its owner writes it again.
        match self.at.compare_exchange(self.word(EXPORTED), 0, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => true,
            Err(found) => found != self.word(VIEWED),
        }
    }

    /// Resets the word, whatever state it holds, when the owner frees the slot.
    pub(super) fn clear(&self) {
        self.at.store(0, Ordering::Relaxed);
    }

    /// Returns whether the receiver views the block, or has viewed it: then it has received the message. Between
    /// [`try_revoke`](Self::try_revoke) and [`clear`](Self::clear) the answer does not change.
    pub(super) fn is_viewed(&self) -> bool {
        let found = self.at.load(Ordering::Relaxed);
        found == self.word(VIEWED) || found == self.word(RETURNED)
    }

    /// Acquires an exported block to view it; returns whether that succeeded. The owner does not write to the block
    /// until [`give_back`](Self::give_back).
    pub(super) fn acquire(&self) -> bool {
        let (now, then) = (self.word(EXPORTED), self.word(VIEWED));
        // SYNC block-state (acquire)
        self.at.compare_exchange(now, then, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Gives an acquired block back. Has no effect if the owner has meanwhile considered this rank exited and reused
    /// the word.
    pub(super) fn give_back(&self) {
        let (now, then) = (self.word(VIEWED), self.word(RETURNED));
        // SYNC block-state (release)
        let _ = self.at.compare_exchange(now, then, Ordering::Release, Ordering::Relaxed);
    }
}
