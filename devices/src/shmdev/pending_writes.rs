//! The copies whose receiver waits for the sender ([`coop_copy`](super::coop_copy)): the sender has claimed pieces and
//! not finished them, or the words of the copy were overwritten. The receive buffer stays exposed until the copy ends.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering, fence};

use super::cma::{PeerMemory, ShmExposure};
use super::coop_copy::PeerCopies;
use crate::device::{OpStatus, OpToken, PostError, Sink};
use crate::sync::{Mutex, lock, pause};
use crate::sys;

#[derive(Debug, Default)]
pub(super) struct PendingWrites {
    state: Mutex<PendingState>,
    /// The length of `PendingState::copies`.
    count: AtomicUsize,
}

#[derive(Debug, Default)]
struct PendingState {
    copies: Vec<PendingWrite>,
    /// The indices of the peers that have left or died. A copy that waits for one of them fails as soon as the peer
    /// does not write.
    gone: Vec<u32>,
    /// Whether the copies of all peers fail in this way, because this rank closes.
    is_closed: bool,
}

#[derive(Debug)]
pub(super) struct PendingWrite {
    pub(super) copies: Arc<PeerCopies>,
    /// Number of pieces that the sender has claimed.
    pub(super) pieces: u32,
    pub(super) op: OpToken,
    /// The outcome of the receiver's own pieces.
    pub(super) outcome: Result<(), String>,
    /// Whether the copy fails in any case, as soon as the sender does not write any more.
    pub(super) must_fail: bool,
    /// Whether the copy was already pending at the last call of [`age`](PendingWrites::age).
    pub(super) is_old: bool,
    pub(super) peer_memory: PeerMemory,
    pub(super) exposure: ShmExposure,
    pub(super) process: Option<sys::Process>,
}

impl PendingWrite {
    /// Revokes the destination. Returns true if the sender is not writing to it now; then it never will.
    fn try_give_up(&self) -> bool {
        self.exposure.revoke();
        !self.peer_memory.has_hazard(self.exposure.number(), self.process.as_ref())
    }
}

impl PendingWrites {
    /// Stores a copy to be completed later, unless the copy has ended by now.
    #[cold]
    pub(super) fn defer(&self, new: PendingWrite) -> Result<OpStatus, PostError> {
        new.copies.has_pending.store(true, Ordering::Relaxed);
        new.copies.help_failed.fetch_or(new.must_fail, Ordering::Relaxed);
        let op = new.op;
        let mut state = lock(&self.state);
        state.copies.push(new);
        self.count.store(state.copies.len(), Ordering::Release);
        // If the check below misses the sender's count, the sender notifies this rank afterwards, and the thread that
        // it wakes sees the entry.
        fence(Ordering::SeqCst);
        let ended = self.take_ended(&mut state, |it| it == op).pop();
        match ended {
            None => Ok(OpStatus::InProgress),
            Some((_, Ok(()))) => Ok(OpStatus::Done),
            Some((_, Err(_))) => Err(PostError::Unsupported),
        }
    }

    /// Completes the copies that have ended; returns their number.
    #[inline]
    pub(super) fn reap(&self, sink: &mut dyn Sink) -> usize {
        match self.count.load(Ordering::Acquire) {
            0 => 0,
            _ => self.reap_slow(sink),
        }
    }

    #[cold]
    fn reap_slow(&self, sink: &mut dyn Sink) -> usize {
        let ended = self.take_ended(&mut lock(&self.state), |_| true);
        let count = ended.len();
        for (op, outcome) in ended {
            sink.completed(op, outcome);
        }
        count
    }

    /// Removes the copies that have ended and for which `is_meant` returns true. Returns their outcomes.
    fn take_ended(
        &self,
        state: &mut PendingState,
        is_meant: impl Fn(OpToken) -> bool,
    ) -> Vec<(OpToken, Result<(), String>)> {
        let mut ended = Vec::new();
        let PendingState { copies, gone, is_closed } = state;
        copies.retain(|it| {
            if !is_meant(it.op) {
                return true;
            }
            let pieces = it.copies.ring.shared_copy();
            let are_copied = if it.must_fail { None } else { pieces.all_copied(it.pieces) };
            let give_up = it.must_fail || *is_closed || gone.contains(&it.copies.index);
            let outcome = match are_copied {
                Some(true) => it.outcome.clone(),
                Some(false) => Err("the sender could not write its pieces of the copy".into()),
                None if give_up && it.try_give_up() => {
                    Err("the sender ended before it had written its pieces".into())
                }
                None => return true,
            };
            ended.push((it.op, outcome));
            it.copies.has_pending.store(false, Ordering::Release);
            false
        });
        self.count.store(copies.len(), Ordering::Release);
        ended
    }

    pub(super) fn peer_gone(&self, index: u32) {
        let gone = &mut lock(&self.state).gone;
        if !gone.contains(&index) {
            gone.push(index);
        }
    }

    /// Gives up the copies that were already pending at the last call: the words that say which pieces the sender has
    /// claimed may have been overwritten. The engine then requests the message in frames, and no further copy is made
    /// together with that peer.
    pub(super) fn age(&self) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        for pending in &mut lock(&self.state).copies {
            pending.must_fail |= pending.is_old;
            pending.copies.help_failed.fetch_or(pending.must_fail, Ordering::Relaxed);
            pending.is_old = true;
        }
    }

    /// Prevents all peers from writing to this rank's memory. Waits for writes that are in progress.
    pub(super) fn close(&self) {
        lock(&self.state).is_closed = true;
        let mut round = 0;
        while self.count.load(Ordering::Acquire) > 0 {
            self.take_ended(&mut lock(&self.state), |_| true);
            pause(round);
            round = round.saturating_add(1);
        }
    }
}
