//! Batches: several short frames in one message.

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;

use super::super::frame::{BatchEntry, ENTRY, HEADER, IbvFrameKind};
use super::{ConnState, QpConnection, SendState};
use crate::device::{HEAD_MAX, PostError};

/// The value of [`SendState::used`] for the slot of an unsent batch, greater than the number of any work request.
const OPEN: u64 = u64::MAX;

/// An unsent batch: its slot, and its present length in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Batch {
    pub(super) slot: usize,
    pub(super) len: usize,
}

impl QpConnection {
    /// Appends a frame to the batch, or to a new batch in a free slot. If there is a batch, the caller has checked that
    /// the frame fits in it.
    pub(super) fn add_to_batch(
        &self,
        sending: &mut SendState,
        entry: BatchEntry,
        head: &[u8],
        write: impl FnOnce(&mut [MaybeUninit<u8>]),
    ) -> Result<(), PostError> {
        if head.len() > HEAD_MAX || HEADER + entry.len() > self.sizes.max_message {
            return Err(PostError::Unsupported);
        }
        let batch = match &mut sending.batch {
            Some(batch) => batch,
            None if sending.used[sending.next_slot] > self.completed_to.load(Ordering::Acquire) => {
                return Err(PostError::Again);
            }
            none => {
                let slot = sending.next_slot;
                sending.used[slot] = OPEN;
                sending.next_slot = (slot + 1) % sending.used.len();
                self.has_batch.store(true, Ordering::Relaxed);
                none.insert(Batch { slot, len: HEADER })
            }
        };
        // SAFETY: the work request that used the slot before has completed. The batch owns the slot until it is sent,
        // and the lock is held.
        let room = unsafe { sending.slots.bytes_mut(batch.slot) };
        let room = &mut room[batch.len..batch.len + entry.len()];
        let (front, rest) = room.split_at_mut(ENTRY);
        let (to_head, to_body) = rest.split_at_mut(head.len());
        front.write_copy_of_slice(&entry.to_bytes());
        to_head.write_copy_of_slice(head);
        write(to_body);
        batch.len += entry.len();
        Ok(())
    }

    /// Sends the batch, if there is one. Returns whether no batch remains.
    pub(super) fn send_batch(&self, sending: &mut SendState) -> Result<bool, PostError> {
        let Some(Batch { slot, len }) = sending.batch else { return Ok(true) };
        if !self.has_room(sending)? {
            return Ok(false);
        }
        let (header, reposted) = self.header(IbvFrameKind::Batch, 0);
        // SAFETY: the batch owns the slot until it is sent, and the lock is held.
        let room = unsafe { sending.slots.bytes_mut(slot) };
        room[..HEADER].write_copy_of_slice(&header);
        let piece = sending.slots.send_sge(slot, len);
        // SAFETY: the slot is not used again before the work request has completed, and its memory is freed after the
        // queue pair.
        unsafe { self.post_send(sending, piece) }?;
        sending.used[slot] = sending.posted;
        sending.batch = None;
        self.has_batch.store(false, Ordering::Relaxed);
        self.charge(sending, IbvFrameKind::Batch, reposted);
        Ok(true)
    }

    #[inline]
    pub(in crate::ibvdev) fn has_batch(&self) -> bool {
        self.has_batch.load(Ordering::Relaxed)
    }

    /// Sends the batch, if there is one. Returns whether it remains because no credit or work request is available.
    pub(in crate::ibvdev) fn flush(&self) -> Result<bool, PostError> {
        if !self.has_batch() || self.state() != ConnState::Established {
            return Ok(false);
        }
        self.send_batch(&mut self.sending()).map(|sent| !sent)
    }
}
