//! Reads of the peer's memory, and keys that either end takes back.

use std::sync::atomic::Ordering;

use super::super::READS;
use super::super::frame::Kind;
use super::super::keys::Key;
use super::super::ticket::WrId;
use super::{ConnState, QpConnection};
use crate::device::{OpToken, PostError};

/// Keys that a peer may have revoked: of a peer that keeps the protocol there are as many as messages that were announced
/// and taken back.
const REVOKED: usize = 1 << 20;

impl QpConnection {
    /// Posts a read of `len` bytes of the memory that a key names, from its byte `at` on.
    ///
    /// # Safety
    /// The memory at `base` stays, and nobody else uses it, until the read has been told to have ended, or the pair is gone.
    pub(in crate::ibvdev) unsafe fn read(
        &self,
        key: &Key,
        at: u64,
        (base, len, lkey): (*mut u8, usize, u32),
        op: OpToken,
    ) -> Result<(), PostError> {
        let broken = |why: &str| PostError::Broken(why.into());
        let end = at.checked_add(len as u64).ok_or_else(|| broken("a place beyond all memory"))?;
        if end > key.len || key.addr.checked_add(key.len).is_none() {
            return Err(broken("its key names less memory than it has announced"));
        }
        let len = u32::try_from(len).map_err(|_| PostError::Unsupported)?;
        if self.state() != ConnState::Established {
            return Err(PostError::Again);
        }
        let mut sending = self.sending();
        if sending.revoked.contains(&key.number) {
            return Err(PostError::Revoked);
        }
        let posted = sending.posted - self.done.load(Ordering::Acquire);
        if sending.reads.len() >= READS || posted + 1 >= self.plan.sends as u64 {
            return Err(PostError::Again);
        }
        let number = sending.posted + 1;
        // SAFETY: the caller's promise.
        let read =
            unsafe { self.qp.read(WrId::Sent(number).id(), (base, len, lkey), (key.addr + at, key.rkey)) };
        read.map_err(|e| PostError::Broken(format!("ibv_post_send of a read: {e}")))?;
        sending.posted = number;
        sending.signalled = number;
        sending.reads.push_back((number, op));
        self.reading.store(true, Ordering::Release);
        Ok(())
    }

    /// Has the peer told that a key of this rank's memory is revoked; returns whether an answer will come, under `op`.
    pub(in crate::ibvdev) fn revoke(&self, key: u64, op: OpToken) -> bool {
        let mut sending = self.sending();
        // Before it stands nobody was sent a key.
        if self.state() != ConnState::Established {
            return false;
        }
        sending.revoking.push((key, op));
        sending.own.push_back((Kind::Revoke, key));
        self.waiting.store(true, Ordering::Relaxed);
        // If the pair is broken, its completions tell.
        let _ = self.tend_under(&mut sending);
        true
    }

    /// Takes note that the peer will not get by a key any more; returns the operation that waits for that.
    pub(in crate::ibvdev) fn quieted(&self, key: u64) -> Option<OpToken> {
        let revoking = &mut self.sending().revoking;
        let at = revoking.iter().position(|(revoked, _)| *revoked == key)?;
        Some(revoking.swap_remove(at).1)
    }

    /// Takes note that the peer has revoked a key, which is answered when the reads under way have ended.
    pub(in crate::ibvdev) fn revoked(&self, key: u64) -> Result<(), PostError> {
        let mut sending = self.sending();
        if sending.revoked.len() >= REVOKED {
            return Err(PostError::Broken("it has revoked more keys than a rank can have".into()));
        }
        sending.revoked.insert(key);
        match sending.reads.back().copied() {
            Some((last, _)) => sending.answers.push((key, last)),
            None => sending.own.push_back((Kind::Quiet, key)),
        }
        self.tend_under(&mut sending)
    }
}
