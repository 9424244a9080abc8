//! Sends replies to the frames of a peer (CTS, FIN and NACK), and accounts for credit and replies.

use std::sync::atomic::Ordering;

use super::Engine;
use super::channel::Channel;
use super::credit::CreditKind;
use super::flush::MAX_AWAITING_REPLY;
use super::peer::{Outbox, Peer, Wireup};
use crate::device::PeerId;
use crate::fault::Fault;
use crate::header::{FrameKind, Head};
use crate::kill_points::{KillPoint, kill_point};

impl Engine {
    /// Sends [`FrameKind::Cts`] or [`FrameKind::Fin`] for a message of a peer.
    pub(crate) fn send_reply(&self, to: PeerId, channel: &Channel, kind: FrameKind, op: u64, extra: u64) {
        // This fails only if the rank does not exist. `process_card` reports a peer that cannot be reached.
        let Ok(peer) = self.peer(to) else { return };
        let mut out = peer.outbox();
        self.ensure_bound(&mut out, channel);
        let mut head = Head::new(kind, 0, channel.wire_id(), 0);
        head.op.set(op);
        head.extra.set(extra);
        note_reply_sent(peer);
        self.send_control(&mut out, head);
        match kind {
            FrameKind::Cts => kill_point(KillPoint::CtsSent, self.site.rank),
            FrameKind::Fin => kill_point(KillPoint::FinSent, self.site.rank),
            _ => (),
        }
    }

    pub(crate) fn nack_message(&self, to: PeerId, context: u64, op: u64) {
        self.trace_refused(to, context, op);
        self.send_nack(to, context, op, 1);
    }

    pub(crate) fn nack_cts(&self, to: PeerId, context: u64, op: u64) {
        self.send_nack(to, context, op, 0);
    }

    fn send_nack(&self, to: PeerId, context: u64, op: u64, extra: u64) {
        let Ok(peer) = self.peer(to) else { return };
        let mut head = Head::new(FrameKind::Nack, 0, 0, 0);
        head.hash.set(context);
        head.op.set(op);
        head.extra.set(extra);
        // A NACK may arrive before the report of the death that caused it, so it names the first dead rank.
        head.count.set(self.first_death().map_or(0, |(rank, _)| u64::from(rank) + 1));
        let mut out = peer.outbox();
        if extra != 0 {
            note_reply_sent(peer);
        }
        self.send_control(&mut out, head);
    }

    /// Grants a peer the eager credit that its received messages have freed, and more if the budget allows.
    pub(crate) fn grant_credit(&self, to: PeerId, bytes: u64) {
        let Ok(peer) = self.peer(to) else { return };
        let mut out = peer.outbox();
        if out.is_closed {
            return;
        }
        let growth = self.credit.grow(out.credit_given);
        let is_new = growth > 0 && out.credit_given == self.credit.initial && out.credit_recalled == 0;
        let is_short = growth == 0 && out.credit_given < self.credit.max;
        out.credit_given += growth;
        let bytes = bytes + growth;
        // Count it before the frame is sent: the peer may use the credit as soon as the frame arrives.
        peer.granted.fetch_add(bytes, Ordering::Release);
        self.send_control(&mut out, credit(CreditKind::Grant, bytes));
        drop(out);
        if is_new {
            self.credit.add_reclaimable(to);
        }
        if is_short {
            self.recall_credit(to);
        }
    }

    /// Recalls the credit above the initial one from a peer that was granted nothing for some time, if there is such a
    /// peer. When that peer has returned credit, the credit of `needy` can grow.
    #[cold]
    fn recall_credit(&self, needy: PeerId) {
        let granted = |id| self.peers.get(id).map_or(0, |peer| peer.granted.load(Ordering::Relaxed));
        let idle = self.credit.take_idle(needy, granted).and_then(|idle| self.peers.get(idle));
        let Some(mut out) = idle.map(Peer::outbox).filter(|out| !out.is_closed) else { return };
        out.credit_recalled = out.credit_given.saturating_sub(self.credit.initial);
        let bytes = out.credit_recalled;
        if bytes > 0 {
            self.send_control(&mut out, credit(CreditKind::Recall, bytes));
        }
    }

    /// Returns up to `asked` bytes of unused credit to a peer that has recalled it. The result is `None` if the frame
    /// of an earlier return is still queued: the peer has not waited for it, and unsent frames could accumulate.
    pub(super) fn return_credit(&self, to: &Peer, asked: u64) -> Option<()> {
        let mut out = to.outbox();
        if out.wireup == Wireup::Connected && !out.is_closed {
            let is_return = |head: &Head| {
                head.short.kind() == FrameKind::Credit as u8 && head.op.get() == CreditKind::Return as u64
            };
            if out.queued_frames.iter().any(|frame| is_return(&frame.head)) {
                return None;
            }
            let bytes = asked.min(out.send_credit);
            out.send_credit -= bytes;
            self.send_control(&mut out, credit(CreditKind::Return, bytes));
        }
        Some(())
    }

    /// Takes the credit that a peer returns; `None` if it exceeds the recall, or if none is outstanding.
    pub(super) fn credit_returned(&self, from: &Peer, bytes: u64) -> Option<()> {
        let mut out = from.outbox();
        if out.is_closed {
            return Some(());
        }
        if out.credit_recalled == 0 || bytes > out.credit_recalled {
            return None;
        }
        out.credit_recalled = 0;
        self.credit.reclaim(self.credit.initial + bytes);
        out.credit_given -= bytes;
        let has_grown = out.credit_given > self.credit.initial;
        drop(out);
        if has_grown {
            self.credit.add_reclaimable(from.id);
        }
        Some(())
    }

    /// Frees the credit of an unexpected message, as `Inbox::free_credit` does for one that matched on arrival.
    pub(crate) fn free_credit(&self, from: PeerId, bytes: u64) {
        let Some(peer) = self.peers.get(from) else {
            return self.grant_credit(from, bytes);
        };
        let mut out = peer.outbox();
        out.credit_freed += bytes;
        if out.credit_freed >= self.credit.initial / 4 {
            let all = std::mem::take(&mut out.credit_freed);
            drop(out);
            self.grant_credit(from, all);
        }
    }
}

fn credit(kind: CreditKind, bytes: u64) -> Head {
    let mut head = Head::new(FrameKind::Credit, 0, 0, 0);
    head.op.set(kind as u64);
    head.extra.set(bytes);
    head
}

/// Counts a message to which the peer must reply; fails if [`MAX_AWAITING_REPLY`] messages wait for a reply already.
pub(crate) fn expect_reply(peer: &Peer, out: &mut Outbox) -> Result<(), Fault> {
    if out.replies_expected.saturating_sub(peer.replies_received.load(Ordering::Relaxed))
        >= MAX_AWAITING_REPLY
    {
        return Err(Fault::TooManyMessages { rank: peer.id.0, limit: MAX_AWAITING_REPLY });
    }
    out.replies_expected += 1;
    Ok(())
}

/// Counts a reply to the peer, before the peer can receive it; its outbox is locked.
fn note_reply_sent(peer: &Peer) {
    let answered = peer.replies_sent.load(Ordering::Relaxed);
    peer.replies_sent.store(answered + 1, Ordering::Release);
}
