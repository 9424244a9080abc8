//! The word that says where a lent block is.
//!
//! It holds the number of a lending and a state:
//!
//! ```text
//!  owner                                    receiver
//!  offers:      0 ──► OFFERED           ···► looks at it:  OFFERED ──► VIEWED ──► HOME
//!                                            copies of it: OFFERED ──► COPIED ──► OFFERED
//!  takes back:  OFFERED ──► 0
//! ```
//! Each of these but the first is one compare and exchange, so only one of the two moves a word on from `OFFERED`, and the owner
//! knows of a block that it wants back whether it is out. `model.rs` has loom go through them.

use super::numbers::END;
use crate::sync::atomic::{AtomicU64, Ordering};

const COPIED: u64 = 0;
const OFFERED: u64 = 1;
const VIEWED: u64 = 2;
const HOME: u64 = 3;
/// Bits of a word that say where the block is.
const STATE_BITS: u32 = 2;

const _: () = assert!(END <= 1 << (u64::BITS - STATE_BITS));

/// The word of one lending.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loan<'a> {
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

impl<'a> Loan<'a> {
    pub(super) fn new(at: &'a AtomicU64, number: u64) -> Self {
        Loan { at, number }
    }

    fn word(&self, state: u64) -> u64 {
        self.number << STATE_BITS | state
    }

    /// Offers the block, which was written before.
    pub(super) fn offer(&self) {
        // SYNC shmdev-loan (release)
        self.at.store(self.word(OFFERED), Ordering::Release);
    }

    /// Takes the block back if nobody has it, for good; returns whether it is the owner's again, as it is when it has come home.
    pub(super) fn take_back(&self) -> bool {
        loop {
            // SYNC shmdev-loan (acquire): what the receiver has read it has read before the block is written again.
            let found = self.at.compare_exchange(self.word(OFFERED), 0, Ordering::AcqRel, Ordering::Acquire);
            match found {
                Ok(_) => return true,
                Err(found) if found == self.word(VIEWED) || found == self.word(COPIED) => return false,
                // It was copied of, and is no longer.
                Err(found) if found == self.word(OFFERED) => (),
                Err(_) => return true,
            }
        }
    }

    /// Uses the word for nothing, whoever has the block.
    pub(super) fn end(&self) {
        self.at.store(0, Ordering::Relaxed);
    }

    /// Whether the receiver looks at the block, or has done.
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

    /// Gives back a block that was taken.
    pub(super) fn give(&self, from: Use) {
        let (now, then) = if from == Use::View { (VIEWED, HOME) } else { (COPIED, OFFERED) };
        // SYNC shmdev-loan (release). Its owner may have called us dead, and used the word again.
        let _ =
            self.at.compare_exchange(self.word(now), self.word(then), Ordering::Release, Ordering::Relaxed);
    }
}
