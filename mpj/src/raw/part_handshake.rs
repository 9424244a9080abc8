//! The handshake of a partitioned receive: the sender describes its parts once.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use mpj_devices::{Buf, Channel, Completion, Pattern, Receive};

use super::comm::Comm;
use super::part_channel::{HANDSHAKE_WORDS, MAX_PARTS, part_range};
use crate::error::{Error, ErrorClass, Result};

const INIT: &str = "precv_init";

#[derive(Debug)]
pub(super) struct Link {
    pub(super) channel: Arc<Channel>,
    /// The operation writes the words. They are read only after its completion.
    words: Arc<[AtomicU64; HANDSHAKE_WORDS]>,
    pub(super) handshake: Completion,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct SenderParts {
    pub(super) first: u32,
    pub(super) parts: usize,
    pub(super) bytes: usize,
}

impl Link {
    /// Posts the receive of the handshake.
    pub(super) fn open(comm: &Comm, source: i32, tag: i32) -> Result<Self> {
        let channel = comm.part_channel(INIT)?;
        let words: Arc<[AtomicU64; HANDSHAKE_WORDS]> = Arc::default();
        let (first, keep) = (words.as_ptr().cast_mut().cast(), Arc::clone(&words));
        let buf = Buf::new(first, HANDSHAKE_WORDS, mpj_datatypes::Primitive::U64);
        // SAFETY: the operation keeps the words, which nobody reads or writes until it has completed.
        let receive =
            unsafe { Receive::of(buf, Some(keep), None) }.map_err(|error| Error::buf(INIT, error))?;
        let handshake = comm.engine().post(&channel, Pattern { source, tag }, receive);
        let handshake = handshake.map_err(|fault| comm.fault(INIT, *fault))?;
        Ok(Link { channel, words, handshake })
    }

    /// Returns the parts of the sender if the handshake has arrived.
    pub(super) fn sender_parts(&self) -> Option<Result<SenderParts>> {
        let message = match self.handshake.outcome()? {
            Ok(message) => message,
            Err(fault) => return Some(Err(Error::from_fault(INIT, fault.clone()))),
        };
        let [first, parts, bytes] = self.words.each_ref().map(|word| word.load(Ordering::Relaxed));
        let is_valid = message.bytes == size_of_val(&*self.words)
            && (1..=MAX_PARTS as u64).contains(&parts)
            && part_range(first, parts).is_some()
            && bytes.checked_mul(parts).is_some_and(|all| all <= isize::MAX as u64);
        Some(if is_valid {
            Ok(SenderParts { first: first as u32, parts: parts as usize, bytes: bytes as usize })
        } else {
            let why = format!("invalid description of the parts from rank {}", message.source);
            Err(Error::new(ErrorClass::Intern, INIT, why))
        })
    }
}

impl SenderParts {
    /// Returns the parts of the sender that contain a range of the message.
    pub(super) fn overlap(&self, bytes: Range<usize>) -> Range<usize> {
        match bytes.start.checked_div(self.bytes) {
            Some(first) => first..bytes.end.div_ceil(self.bytes),
            None => 0..self.parts,
        }
    }
}
