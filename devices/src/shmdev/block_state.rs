//! The state word of an exported block.
//!
//! It holds the number of an export and a state; README.md in this folder has the table of states. Each transition,
//! except when the owner exports the block or clears the word, is one compare and exchange. So if both sides change a
//! word that is `EXPORTED` or `COPYING`, one of them fails. An owner that revokes a block knows whether its receiver
//! still reads it. A receiver whose block was revoked during the copy knows that it has received nothing.

use super::slot_ids::ID_END;
use crate::sync::atomic::{AtomicU64, Ordering};

const COPYING: u64 = 0;
const EXPORTED: u64 = 1;
const VIEWED: u64 = 2;
const RETURNED: u64 = 3;
const REVOKED: u64 = 4;
const STATE_BITS: u32 = 3;

const _: () = assert!(ID_END <= 1 << (u64::BITS - STATE_BITS));

#[derive(Clone, Copy, Debug)]
pub(super) struct BlockState<'a> {
    at: &'a AtomicU64,
    number: u64,
}

/// The use that a receiver makes of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum BlockUse {
    /// It reads the block in place, once.
    View,
    /// It copies bytes of the block, and may do so again.
    Copy,
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

    /// Revokes the block: no receiver can acquire it from now on, and a receiver that copies it receives nothing.
    /// Returns whether the memory is the owner's again, because no receiver reads it.
    pub(super) fn try_revoke(&self) -> bool {
        let mut found = self.at.load(Ordering::Acquire);
        loop {
            let next = match () {
                () if found == self.word(EXPORTED) => 0,
                () if found == self.word(COPYING) => self.word(REVOKED),
                () => return found != self.word(VIEWED) && found != self.word(REVOKED),
            };
            // SYNC block-state (acquire): the receiver has read the block before its owner writes it again.
            match self.at.compare_exchange_weak(found, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return next == 0,
                Err(now) => found = now,
            }
        }
    }

    /// Resets the word, whatever state it holds, when the owner frees the slot.
    pub(super) fn clear(&self) {
        self.at.store(0, Ordering::Relaxed);
    }

    /// Returns whether the receiver views the block, or has viewed it: then it has received the message. After
    /// [`try_revoke`](Self::try_revoke) the answer does not change.
    pub(super) fn is_viewed(&self) -> bool {
        let found = self.at.load(Ordering::Relaxed);
        found == self.word(VIEWED) || found == self.word(RETURNED)
    }

    /// Acquires an exported block; returns whether that succeeded. The owner does not write to the block until
    /// [`give_back`](Self::give_back).
    pub(super) fn acquire(&self, to: BlockUse) -> bool {
        let taken = self.word(if to == BlockUse::View { VIEWED } else { COPYING });
        // SYNC block-state (acquire)
        self.at.compare_exchange(self.word(EXPORTED), taken, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Gives an acquired block back; returns whether it was still acquired. If not, the bytes that were read are not a
    /// message: the owner has revoked the block, or took this rank for exited and reused the word.
    pub(super) fn give_back(&self, from: BlockUse) -> bool {
        let (now, then) = if from == BlockUse::View { (VIEWED, RETURNED) } else { (COPYING, EXPORTED) };
        let exchange = |now, then| {
            // SYNC block-state (release)
            self.at.compare_exchange(now, then, Ordering::Release, Ordering::Relaxed).is_ok()
        };
        let is_ours = exchange(self.word(now), self.word(then));
        if !is_ours {
            exchange(self.word(REVOKED), 0);
        }
        is_ours
    }
}
