//! The word that says where a lent block is.
//!
//! It holds the number of a lending and a state:
//!
//! ```text
//!  owner                                     receiver
//!  offers:     0 ──► OFFERED           ···►  views it:    OFFERED ──► VIEWED ──► HOME
//!                                            copies it:   OFFERED ──► COPIED ──► OFFERED
//!  takes back: OFFERED ──► 0
//!              COPIED ──► WITHDRAWN    ···►  stops:       WITHDRAWN ──► 0
//! ```
//! Each transition but the first is one compare and exchange. So only one side moves a word on from `OFFERED` or `COPIED`: the
//! owner that withdraws a block knows whether its receiver still reads it, and a receiver whose block was withdrawn during the
//! copy knows that it has received nothing. `model.rs` has loom check the transitions.

use super::numbers::END;
use crate::sync::atomic::{AtomicU64, Ordering};

const COPIED: u64 = 0;
const OFFERED: u64 = 1;
const VIEWED: u64 = 2;
const HOME: u64 = 3;
const WITHDRAWN: u64 = 4;
/// Bits of a word that say where the block is.
const STATE_BITS: u32 = 3;

const _: () = assert!(END <= 1 << (u64::BITS - STATE_BITS));

/// The word of one lending.
#[derive(Clone, Copy, Debug)]
pub(super) struct BlockState<'a> {
    at: &'a AtomicU64,
    number: u64,
}

/// What a receiver does with a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Use {
    /// It looks at it, for once.
    View,
    /// It copies of it, and may do so again.
    Copy,
}

impl<'a> BlockState<'a> {
    pub(super) fn new(at: &'a AtomicU64, number: u64) -> Self {
        BlockState { at, number }
    }

    fn word(&self, state: u64) -> u64 {
        self.number << STATE_BITS | state
    }

    /// Offers the block, which was written before.
    pub(super) fn offer(&self) {
        // SYNC shmdev-loan (release)
        self.at.store(self.word(OFFERED), Ordering::Release);
    }

    /// Withdraws the block: no receiver takes it from now on, and one that copies it receives nothing. Returns whether the
    /// memory is the owner's again, because no receiver reads it.
    pub(super) fn take_back(&self) -> bool {
        let mut found = self.at.load(Ordering::Acquire);
        loop {
            let next = match () {
                () if found == self.word(OFFERED) => 0,
                () if found == self.word(COPIED) => self.word(WITHDRAWN),
                () => return found != self.word(VIEWED) && found != self.word(WITHDRAWN),
            };
            // SYNC shmdev-loan (acquire): the receiver has read the block before its owner writes it again.
            match self.at.compare_exchange_weak(found, next, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return next == 0,
                Err(now) => found = now,
            }
        }
    }

    /// Uses the word for nothing, whoever has the block.
    pub(super) fn end(&self) {
        self.at.store(0, Ordering::Relaxed);
    }

    /// Whether the receiver views the block, or has viewed it: it has received the message. After
    /// [`take_back`](Self::take_back) the answer does not change.
    pub(super) fn is_received(&self) -> bool {
        let found = self.at.load(Ordering::Relaxed);
        found == self.word(VIEWED) || found == self.word(HOME)
    }

    /// Takes an offered block; returns whether it was. Until [`give`](Self::give) its owner does not write to it.
    pub(super) fn take(&self, to: Use) -> bool {
        let taken = self.word(if to == Use::View { VIEWED } else { COPIED });
        // SYNC shmdev-loan (acquire)
        self.at.compare_exchange(self.word(OFFERED), taken, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Gives back a block that was taken; returns whether its owner had left it to the receiver until now. If not, what was
    /// read of it is no message: the owner has withdrawn it, or has given this rank up and uses the word again.
    pub(super) fn give(&self, from: Use) -> bool {
        let (now, then) = if from == Use::View { (VIEWED, HOME) } else { (COPIED, OFFERED) };
        let exchange = |now, then| {
            // SYNC shmdev-loan (release)
            self.at.compare_exchange(now, then, Ordering::Release, Ordering::Relaxed).is_ok()
        };
        let is_ours = exchange(self.word(now), self.word(then));
        if !is_ours {
            exchange(self.word(WITHDRAWN), 0);
        }
        is_ours
    }
}
