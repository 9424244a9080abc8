//! The channel for the partitioned messages of a communicator.
//!
//! ```text
//!   message     tag                          contents
//!   handshake   the user's                   first tag of the parts, number of parts, bytes of a part
//!   part        negative: PART_TAGS + n      the items of the part
//! ```
//! Each partitioned send reserves one tag of this rank for each of its parts. The sender sends one handshake when the
//! request is created, and the receiver posts its receive then, so both match in the order of creation.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use mpj_devices::{Channel, Engine, run_deferred_drops, with_deferred_drops};

use super::comm::Comm;
use crate::error::{Error, ErrorClass, Result};

/// The maximum number of parts of a message.
pub(super) const MAX_PARTS: usize = 1 << 20;

/// The number of tags for parts, which end below `ANY_TAG`.
const TAG_COUNT: u32 = (1 << 31) - 2;

/// Distinguishes the context of the channel from that of the communicator's messages.
const CONTEXT_BIT: u64 = 1 << 63;

/// The number of words of a handshake.
pub(super) const HANDSHAKE_WORDS: usize = 3;

/// The place of a communicator for its channel, which is joined when it is first needed.
#[derive(Debug, Default)]
pub(super) struct PartChannelSlot(Mutex<Option<Arc<PartChannel>>>);

#[derive(Debug)]
pub(super) struct PartChannel {
    engine: Arc<Engine>,
    channel: Arc<Channel>,
    used_tags: AtomicU32,
}

impl PartChannelSlot {
    pub(super) fn get_or_join(&self, comm: &Comm, call: &'static str) -> Result<Arc<PartChannel>> {
        // A join applies earlier deaths, which can drop buffers of users and wake tasks.
        let joined = with_deferred_drops(|| {
            let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(channel) = &*slot {
                return Ok(Arc::clone(channel));
            }
            let engine = Arc::clone(comm.engine());
            let channel = comm.join_for_messages(comm.p2p().context() | CONTEXT_BIT);
            let channel = channel.map_err(|fault| Error::from_fault(call, fault))?;
            if let Some(name) = comm.p2p().name() {
                engine.describe(&channel, name, None);
            }
            let channel = Arc::new(PartChannel { engine, channel, used_tags: AtomicU32::new(0) });
            Ok(Arc::clone(slot.insert(channel)))
        });
        run_deferred_drops();
        joined
    }

    /// Frees the channel, or refuses its messages if this rank has not joined it.
    pub(super) fn free(&mut self, engine: &Engine, context: u64) {
        if self.0.get_mut().unwrap_or_else(PoisonError::into_inner).take().is_none() {
            engine.refuse(context | CONTEXT_BIT);
        }
    }
}

impl PartChannel {
    pub(super) fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    /// Reserves the tags of `parts` parts, and returns the number of the first.
    pub(super) fn reserve_tags(&self, call: &'static str, parts: usize) -> Result<u32> {
        let next = |used: u32| part_range(used.into(), parts as u64).map(|end| end as u32);
        self.used_tags.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).map_err(|used| {
            let why =
                format!("this rank has used {used} of {TAG_COUNT} parts of the communicator: duplicate it");
            Error::new(ErrorClass::Other, call, why)
        })
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

impl Drop for PartChannel {
    fn drop(&mut self) {
        self.engine.free(&self.channel);
    }
}
