//! The shared state of a long copy that two ranks make together: the receiver claims pieces from the front, and the
//! sender, if it polls meanwhile, from the back.
//!
//! ```text
//!   receiver                   pieces                     sender
//!   opens the copy         0 1 2 3 4 5 6 7
//!   claims the first       ■ ■ ■ ■ . . ■ ■   claims the last, and counts it when it is copied
//!   when all are claimed, waits for the pieces that the sender has claimed
//! ```
//! The receiver waits only for claimed pieces, so never for a sender that does not poll during the copy.

use std::ops::Range;

use crate::sync::atomic::{AtomicU64, Ordering};

/// The copies that one rank makes out of the memory of another, one after the other. It fits into a cache line of a
/// ring, after the line's word.
///
/// # Invariants
/// As long as both sides are correct:
/// 1. `words` do not change while a claimed piece has yet to be copied.
/// 2. Each piece is claimed once.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct SharedCopy {
    /// The unclaimed pieces: the first (low half), and the one after the last (high half).
    unclaimed: AtomicU64,
    /// Number of pieces that the sender has finished, copied or not (low half), and how often it failed to copy its
    /// pieces (high half).
    helped: AtomicU64,
    /// Describes the copy; the user of this type defines the words.
    words: [AtomicU64; 5],
}

/// The end from which pieces are claimed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Front,
    Back,
}

impl SharedCopy {
    /// Opens a copy of `pieces` pieces. The caller makes one copy at a time.
    pub(crate) fn open(&self, pieces: u32, words: [u64; 5]) {
        for (word, new) in self.words.iter().zip(words) {
            word.store(new, Ordering::Relaxed);
        }
        self.helped.store(0, Ordering::Relaxed);
        // SYNC copy-pieces-open (release)
        self.unclaimed.store(u64::from(pieces) << 32, Ordering::Release);
    }

    /// Withdraws all unclaimed pieces.
    pub(crate) fn close(&self) {
        self.unclaimed.store(0, Ordering::Relaxed);
    }

    pub(crate) fn words(&self) -> [u64; 5] {
        std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed))
    }

    #[inline]
    pub(crate) fn has_unclaimed(&self) -> bool {
        let unclaimed = self.unclaimed.load(Ordering::Relaxed);
        unclaimed as u32 != (unclaimed >> 32) as u32
    }

    /// Claims `share(n)` of the `n` unclaimed pieces, at least one and at most all of them. Returns `None` if `n` is 0.
    pub(crate) fn claim(&self, side: Side, share: impl Fn(u32) -> u32) -> Option<Range<u32>> {
        // SYNC copy-pieces-open (acquire)
        let mut unclaimed = self.unclaimed.load(Ordering::Acquire);
        loop {
            let (first, last) = (unclaimed as u32, (unclaimed >> 32) as u32);
            if first >= last {
                return None;
            }
            let count = share(last - first).clamp(1, last - first);
            let (taken, rest) = match side {
                Side::Front => (first..first + count, unclaimed + u64::from(count)),
                Side::Back => (last - count..last, unclaimed - (u64::from(count) << 32)),
            };
            // SYNC copy-pieces-open (acquire): the value can be that of another copy, which was opened meanwhile.
            match self.unclaimed.compare_exchange_weak(unclaimed, rest, Ordering::Acquire, Ordering::Acquire)
            {
                Ok(_) => return Some(taken),
                Err(now) => unclaimed = now,
            }
        }
    }

    /// Counts pieces that were claimed from the back as finished.
    pub(crate) fn count_finished(&self, pieces: &Range<u32>, are_copied: bool) {
        let failed = u64::from(!are_copied) << 32;
        // SYNC copy-pieces-helped (release)
        self.helped.fetch_add(u64::from(pieces.end - pieces.start) + failed, Ordering::Release);
    }

    /// Returns whether all of `pieces` pieces from the back were copied, or `None` while some are unfinished.
    pub(crate) fn all_copied(&self, pieces: u32) -> Option<bool> {
        // SYNC copy-pieces-helped (acquire)
        let helped = self.helped.load(Ordering::Acquire);
        (helped as u32 >= pieces).then_some(helped >> 32 == 0)
    }
}
