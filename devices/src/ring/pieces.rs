//! The pieces of a long copy, which two ranks take from both ends: the one that receives from the front, and the one that
//! sends, if it looks meanwhile, from the end.
//!
//! ```text
//!   who receives               pieces                     who sends
//!   opens them             0 1 2 3 4 5 6 7
//!   takes the first left  ■ ■ ■ ■ . . ■ ■   takes the last left, and counts it when it is copied
//!   waits for what the other has taken when none is left
//! ```
//! Nobody waits for one that does not come: it has taken nothing.

use std::ops::Range;

use crate::sync::atomic::{AtomicU64, Ordering};

/// The pieces of the copies that one rank makes out of the memory of another, one copy after the other. It fits beside the
/// word of a line.
///
/// # Invariants
/// Where both ends keep to it:
/// 1. `words` do not change while a piece that was taken has yet to be copied.
/// 2. Each piece is taken once.
#[derive(Debug, Default)]
#[repr(C)]
pub(crate) struct SharedCopy {
    /// The pieces nobody has taken: from the first (low half) to before the last.
    left: AtomicU64,
    /// How many pieces the sender has dealt with (low half), and how often it could not copy some.
    helped: AtomicU64,
    /// What is copied.
    words: [AtomicU64; 5],
}

/// Which end of the pieces that are left somebody takes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Side {
    Front,
    Back,
}

impl SharedCopy {
    /// Begins a copy of so many pieces; who calls makes one at a time.
    pub(crate) fn open(&self, pieces: u32, words: [u64; 5]) {
        for (word, new) in self.words.iter().zip(words) {
            word.store(new, Ordering::Relaxed);
        }
        self.helped.store(0, Ordering::Relaxed);
        // SYNC pieces-open (release)
        self.left.store(u64::from(pieces) << 32, Ordering::Release);
    }

    /// Lets nobody take a piece any more.
    pub(crate) fn close(&self) {
        self.left.store(0, Ordering::Relaxed);
    }

    /// Returns what is copied; it stays so while a piece is taken and not dealt with.
    pub(crate) fn words(&self) -> [u64; 5] {
        std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed))
    }

    /// Whether there was a piece that nobody had taken.
    #[inline]
    pub(crate) fn are_left(&self) -> bool {
        let left = self.left.load(Ordering::Relaxed);
        left as u32 != (left >> 32) as u32
    }

    /// Takes pieces that nobody has taken, as many as `share` says of how many are left, and one at least.
    pub(crate) fn take(&self, end: Side, share: impl Fn(u32) -> u32) -> Option<Range<u32>> {
        // SYNC pieces-open (acquire)
        let mut left = self.left.load(Ordering::Acquire);
        loop {
            let (first, last) = (left as u32, (left >> 32) as u32);
            if first >= last {
                return None;
            }
            let count = share(last - first).clamp(1, last - first);
            let (taken, rest) = match end {
                Side::Front => (first..first + count, left + u64::from(count)),
                Side::Back => (last - count..last, left - (u64::from(count) << 32)),
            };
            // SYNC pieces-open (acquire): a copy that was opened since may look the same, and is another one.
            match self.left.compare_exchange_weak(left, rest, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(taken),
                Err(now) => left = now,
            }
        }
    }

    /// Counts pieces that were taken from the end as dealt with.
    pub(crate) fn count(&self, pieces: &Range<u32>, are_copied: bool) {
        let failed = u64::from(!are_copied) << 32;
        // SYNC pieces-helped (release)
        self.helped.fetch_add(u64::from(pieces.end - pieces.start) + failed, Ordering::Release);
    }

    /// Once `pieces` that were taken from the end have been dealt with: whether all of them were copied.
    pub(crate) fn are_copied(&self, pieces: u32) -> Option<bool> {
        // SYNC pieces-helped (acquire)
        let helped = self.helped.load(Ordering::Acquire);
        (helped as u32 >= pieces).then_some(helped >> 32 == 0)
    }
}
