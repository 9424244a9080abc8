//! Counters of unexpected messages that can be read without the lock of the queues.

use std::sync::atomic::{AtomicU64, Ordering};

/// A snapshot of the unexpected messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnexpectedCounts {
    /// The number of messages that ever arrived unexpected, modulo 2^32.
    pub arrived: u32,
    /// The number of these messages that are still queued.
    pub queued: u32,
    /// The tag of the queued messages, if all are known to have the same tag.
    pub common_tag: Option<i32>,
}

/// The bit of the tag's word that is set if all queued messages are known to have that tag.
const IS_COMMON: u64 = 1 << 32;

/// The shared form of [`UnexpectedCounts`]. The holder of the matching lock writes it, and any thread reads it. One of
/// the words that a reader sees might be older than the other.
#[derive(Debug, Default)]
pub(crate) struct UnexpectedCounters {
    /// `arrived` and `queued`.
    counts: AtomicU64,
    tag: AtomicU64,
}

impl UnexpectedCounters {
    /// Records the arrival of a message with this tag; `queued` messages are queued now.
    #[inline]
    pub(crate) fn note_arrival(&self, tag: i32, queued: usize) {
        let word = IS_COMMON | u64::from(tag.cast_unsigned());
        if queued <= 1 {
            self.tag.store(word, Ordering::Relaxed);
        } else if self.tag.load(Ordering::Relaxed) != word {
            self.tag.store(0, Ordering::Relaxed);
        }
        self.write(1, queued);
    }

    #[inline]
    pub(crate) fn note_len(&self, queued: usize) {
        self.write(0, queued);
    }

    #[inline]
    fn write(&self, arrived: u32, queued: usize) {
        let before = (self.counts.load(Ordering::Relaxed) >> 32) as u32;
        let word = u64::from(before.wrapping_add(arrived)) << 32 | queued as u64;
        self.counts.store(word, Ordering::Relaxed);
    }

    #[inline]
    pub(crate) fn read(&self) -> UnexpectedCounts {
        let (counts, tag) = (self.counts.load(Ordering::Relaxed), self.tag.load(Ordering::Relaxed));
        let tag = (tag & IS_COMMON != 0).then_some((tag as u32).cast_signed());
        UnexpectedCounts { arrived: (counts >> 32) as u32, queued: counts as u32, common_tag: tag }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_tag_is_known_while_all_messages_have_it() {
        let counters = UnexpectedCounters::default();
        for (tag, queued, common_tag) in [(7, 1, Some(7)), (7, 2, Some(7)), (-3, 3, None), (-3, 4, None)] {
            counters.note_arrival(tag, queued);
            assert_eq!((counters.read().common_tag, counters.read().queued as usize), (common_tag, queued));
        }
        counters.note_len(1);
        assert_eq!(counters.read(), UnexpectedCounts { arrived: 4, queued: 1, common_tag: None });
        counters.note_len(0);
        counters.note_arrival(-1, 1);
        assert_eq!(counters.read(), UnexpectedCounts { arrived: 5, queued: 1, common_tag: Some(-1) });
    }
}
