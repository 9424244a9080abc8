//! The channel for the partitioned messages of a communicator.
//!
//! ```text
//!   message     tag                          contents
//!   handshake   the user's                   number of the first part, number of parts, bytes of a part
//!   part        negative: i32::MIN + n       the items of the part
//! ```
//! Each partitioned send reserves one tag of this rank for each of its parts. The sender sends one handshake when the
//! request is created, and the receiver posts its receive then, so both match in the order of creation.
//!
//! A round that is active when the communicator is freed completes, and no other round starts. So the channel refuses
//! messages as soon as the communicator was freed and no round is active.

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

use crate::error::{Error, ErrorClass, Result};

/// The maximum number of parts of a message.
pub(super) const MAX_PARTS: usize = 1 << 16;

/// The number of tags for parts, which end below `ANY_TAG`.
const TAG_COUNT: u32 = (1 << 31) - 2;

/// The number of words of a handshake.
pub(super) const HANDSHAKE_WORDS: usize = 3;

/// The number of tags that this rank has used for parts of a communicator.
#[derive(Debug, Default)]
pub(super) struct PartTags(AtomicU32);

impl PartTags {
    /// Reserves the tags of `parts` parts, and returns the number of the first.
    pub(super) fn reserve(&self, call: &'static str, parts: usize) -> Result<u32> {
        let next = |used: u32| part_range(used.into(), parts as u64).map(|end| end as u32);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).map_err(|used| {
            let why =
                format!("this rank has used {used} of {TAG_COUNT} parts of the communicator: duplicate it");
            Error::new(ErrorClass::Other, call, why)
        })
    }
}

/// The number of active rounds of this rank's partitioned messages, plus 1 until the communicator is freed.
#[derive(Debug)]
pub(super) struct PartRounds(AtomicUsize);

impl Default for PartRounds {
    fn default() -> Self {
        PartRounds(AtomicUsize::new(1))
    }
}

impl PartRounds {
    /// Returns false if the communicator was freed and no round is active.
    pub(super) fn begin(&self) -> bool {
        let next = |active: usize| (active > 0).then_some(active + 1);
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
    }

    /// Ends a round, or notes that the communicator was freed. Returns whether no later call of `begin` returns true.
    pub(super) fn end(&self) -> bool {
        self.0.fetch_sub(1, Ordering::AcqRel) == 1
    }
}

/// Returns the end of a range of part numbers, or `None` if it exceeds the tags.
pub(super) fn part_range(first: u64, parts: u64) -> Option<u64> {
    first.checked_add(parts).filter(|end| *end <= u64::from(TAG_COUNT))
}

/// Returns the tag of a part.
pub(super) fn part_tag(number: u32) -> i32 {
    i32::MIN.wrapping_add_unsigned(number)
}

/// Returns the number of items of each part.
pub(super) fn items_per_part(call: &'static str, items: usize, parts: usize) -> Result<usize> {
    if !(1..=MAX_PARTS).contains(&parts) {
        let why = format!("{parts} parts: expected 1 to {MAX_PARTS}");
        return Err(Error::new(ErrorClass::Arg, call, why));
    }
    if !items.is_multiple_of(parts) {
        let why = format!("{items} items cannot be divided into {parts} parts of the same length");
        return Err(Error::new(ErrorClass::Count, call, why));
    }
    Ok(items / parts)
}

#[cold]
pub(super) fn no_such_part(call: &'static str, part: usize, parts: usize) -> Error {
    Error::new(ErrorClass::Arg, call, format!("part {part} is out of range: the message has {parts} parts"))
}
