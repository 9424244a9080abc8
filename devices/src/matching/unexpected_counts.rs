//! Counters of unexpected messages that can be read without the lock of the queues.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::message::MessageTag;

/// A snapshot of the unexpected messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UnexpectedCounts {
    /// The number of messages that ever arrived unexpected, modulo 2^32.
    pub arrived: u32,
    /// The number of these messages that are still queued.
    pub queued: u32,
    /// The tag and the immediate data of the queued messages, if all are known to have the same.
    pub common_tag: Option<MessageTag>,
}

/// The value of `tag` if the queued messages have different tags. Messages whose common tag is -1, with the immediate
/// data `u32::MAX`, have the same value: their tag is reported as unknown, too.
const MIXED: u64 = u64::MAX;

/// The shared form of [`UnexpectedCounts`]. The holder of the matching lock writes it, and any thread reads it. One of
/// the words that a reader sees might be older than the other.
#[derive(Debug)]
pub(crate) struct UnexpectedCounters {
    /// `arrived` and `queued`.
    counts: AtomicU64,
    /// The common tag in the upper half and the common immediate data in the lower half, or [`MIXED`].
    tag: AtomicU64,
}

impl Default for UnexpectedCounters {
    fn default() -> Self {
        UnexpectedCounters { counts: AtomicU64::new(0), tag: AtomicU64::new(MIXED) }
    }
}

impl UnexpectedCounters {
    /// Records the arrival of a message with this tag; `queued` messages are queued now.
    #[inline]
    pub(crate) fn note_arrival(&self, tag: MessageTag, queued: usize) {
        let word = u64::from(tag.tag.cast_unsigned()) << 32 | u64::from(tag.immediate);
        if queued <= 1 {
            self.tag.store(word, Ordering::Relaxed);
        } else if self.tag.load(Ordering::Relaxed) != word {
            self.tag.store(MIXED, Ordering::Relaxed);
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
        let common = MessageTag { tag: ((tag >> 32) as u32).cast_signed(), immediate: tag as u32 };
        UnexpectedCounts {
            arrived: (counts >> 32) as u32,
            queued: counts as u32,
            common_tag: (tag != MIXED).then_some(common),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn common_tag_is_known_while_all_messages_have_it() {
        let counters = UnexpectedCounters::default();
        let of = |tag, immediate| MessageTag { tag, immediate };
        let (seven, other) = (of(7, 1), of(7, 2));
        for (tag, queued, common_tag) in
            [(seven, 1, Some(seven)), (seven, 2, Some(seven)), (other, 3, None), (other, 4, None)]
        {
            counters.note_arrival(tag, queued);
            assert_eq!((counters.read().common_tag, counters.read().queued as usize), (common_tag, queued));
        }
        counters.note_len(1);
        assert_eq!(counters.read(), UnexpectedCounts { arrived: 4, queued: 1, common_tag: None });
        counters.note_len(0);
        counters.note_arrival(of(-1, 0), 1);
        assert_eq!(counters.read(), UnexpectedCounts { arrived: 5, queued: 1, common_tag: Some(of(-1, 0)) });
    }
}
