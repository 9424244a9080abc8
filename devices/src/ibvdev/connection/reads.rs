//! RDMA reads of the peer's memory, and the revocation of keys.

use std::sync::atomic::Ordering;

use super::super::MAX_READS;
use super::super::frame::IbvFrameKind;
use super::super::keys::RdmaKey;
use super::super::wr_id::WrId;
use super::{ConnState, QpConnection};
use crate::device::{OpToken, PostError};

/// The maximum number of revoked keys that this rank has not used since. The engine revokes a key only if it reclaims
/// memory without a FIN, for example to cancel a rendezvous message.
const MAX_REVOKED: usize = 1 << 20;

impl QpConnection {
    /// Posts a read of `len` bytes to `base`, from byte `at` on of the memory that `key` names.
    ///
    /// # Safety
    /// The memory at `base` stays valid, and nothing else accesses it, until the completion of the read is reported or
    /// the queue pair is destroyed.
    pub(in crate::ibvdev) unsafe fn read(
        &self,
        key: &RdmaKey,
        at: u64,
        (base, len, lkey): (*mut u8, usize, u32),
        op: OpToken,
    ) -> Result<(), PostError> {
        let broken = |why: &str| PostError::Broken(why.into());
        let end = at.checked_add(len as u64).ok_or_else(|| broken("an offset in its key overflows"))?;
        if end > key.len || key.addr.checked_add(key.len).is_none() {
            return Err(broken("its key covers less memory than its RTS announces"));
        }
        let len = u32::try_from(len).map_err(|_| PostError::Unsupported)?;
        if self.state() != ConnState::Established {
            return Err(PostError::Again);
        }
        let mut sending = self.sending();
        // The engine does not use a key again after this error, so this rank forgets the key.
        if sending.revoked.remove(&key.number) {
            return Err(PostError::Revoked);
        }
        let posted = sending.posted - self.completed_to.load(Ordering::Acquire);
        if sending.reads.len() >= MAX_READS || posted + 1 >= self.sizes.sends as u64 {
            return Err(PostError::Again);
        }
        let number = sending.posted + 1;
        // Set before the post: the thread that polls the completion must not overlook this read.
        self.reading.store(true, Ordering::Release);
        // SAFETY: the caller's promise.
        let read =
            unsafe { self.qp.read(WrId::Sent(number).id(), (base, len, lkey), (key.addr + at, key.rkey)) };
        if let Err(error) = read {
            self.reading.store(!sending.reads.is_empty(), Ordering::Release);
            return Err(PostError::Broken(format!("ibv_post_send of a read: {error}")));
        }
        sending.posted = number;
        sending.signalled = number;
        sending.reads.push_back((number, op));
        Ok(())
    }

    /// Revokes a key of this rank's memory. Returns whether the peer must confirm that; the confirmation ends `op`.
    pub(in crate::ibvdev) fn revoke(&self, key: u64, op: OpToken) -> bool {
        let mut sending = self.sending();
        // Before the connection is established, the peer has no key. After it is closed, this end serves no read.
        if self.state() != ConnState::Established {
            return false;
        }
        sending.revoking.push((key, op));
        sending.control.push_back((IbvFrameKind::Revoke, key));
        self.has_control.store(true, Ordering::Relaxed);
        // If this fails, the message stays queued, and the inlet repeats the call and reports the error.
        let _ = self.send_control_locked(&mut sending);
        true
    }

    /// Records that the peer has confirmed a revocation. Returns the operation that waits for that.
    pub(in crate::ibvdev) fn revoke_acked(&self, key: u64) -> Option<OpToken> {
        let revoking = &mut self.sending().revoking;
        let at = revoking.iter().position(|(revoked, _)| *revoked == key)?;
        Some(revoking.swap_remove(at).1)
    }

    /// Records that the peer has revoked a key. The confirmation is sent after the reads in progress have completed.
    pub(in crate::ibvdev) fn on_revoke(&self, key: u64) -> Result<(), PostError> {
        let mut sending = self.sending();
        if sending.revoked.len() >= MAX_REVOKED {
            return Err(PostError::Broken("it revoked 2^20 keys that were not used since".into()));
        }
        sending.revoked.insert(key);
        match sending.reads.back().copied() {
            Some((last, _)) => sending.pending_acks.push((key, last)),
            None => sending.control.push_back((IbvFrameKind::RevokeAck, key)),
        }
        self.send_control_locked(&mut sending)
    }
}
