//! What ranks tell each other about messages: that one may come, has been received or will not be, and how much room there is.

use std::sync::atomic::Ordering;

use super::Engine;
use super::channel::Channel;
use super::credit::CreditKind;
use super::outbox::MAX_AWAITING_REPLY;
use super::peer::{Outbox, Peer, Wireup};
use crate::device::PeerId;
use crate::fault::Fault;
use crate::header::{FrameKind, Head};
use crate::steps::{KillPoint, reach};

impl Engine {
    /// Answers a message that a peer has announced on a channel: [`Kind::Cts`] or [`Kind::Fin`].
    pub(crate) fn answer(&self, to: PeerId, channel: &Channel, kind: FrameKind, op: u64, extra: u64) {
        // Only of a rank that does not exist there is no peer. One that cannot be reached is reported (`take_answer`).
        let Ok(peer) = self.peer(to) else { return };
        let mut out = peer.outbox();
        self.bind(&mut out, channel);
        let mut head = Head::new(kind, 0, channel.wire_id(), 0);
        head.op.set(op);
        head.extra.set(extra);
        note_answer(peer);
        self.push(&mut out, head);
        match kind {
            FrameKind::Cts => reach(KillPoint::CtsSent, self.site.rank),
            FrameKind::Fin => reach(KillPoint::FinSent, self.site.rank),
            _ => (),
        }
    }

    /// Tells a peer that nobody will receive a message that it has announced.
    pub(crate) fn refuse(&self, to: PeerId, context: u64, op: u64) {
        self.trace_refused(to, context, op);
        self.end_there(to, context, op, 1);
    }

    /// Tells a peer that the body which its receive waits for was taken back.
    pub(crate) fn tell_gone(&self, to: PeerId, context: u64, op: u64) {
        self.end_there(to, context, op, 0);
    }

    fn end_there(&self, to: PeerId, context: u64, op: u64, announced: u64) {
        let Ok(peer) = self.peer(to) else { return };
        let mut head = Head::new(FrameKind::Nack, 0, 0, 0);
        head.hash.set(context);
        head.op.set(op);
        head.extra.set(announced);
        // A refusal may come before the death that it follows from: it names the rank.
        head.count.set(self.first_death().map_or(0, |(rank, _)| u64::from(rank) + 1));
        let mut out = peer.outbox();
        if announced != 0 {
            note_answer(peer);
        }
        self.push(&mut out, head);
    }

    /// Gives a peer eager room back, and more of it if there is.
    pub(crate) fn grant(&self, to: PeerId, bytes: u64) {
        let Ok(peer) = self.peer(to) else { return };
        let mut out = peer.outbox();
        if out.gone {
            return;
        }
        let grown = self.credit.grow(out.credit_given);
        let is_new = grown > 0 && out.credit_given == self.credit.initial && out.recalled == 0;
        let is_short = grown == 0 && out.credit_given < self.credit.max;
        out.credit_given += grown;
        let bytes = bytes + grown;
        // Counted before the frame goes: the peer may use the room as soon as it has it.
        peer.granted.fetch_add(bytes, Ordering::Release);
        self.push(&mut out, credit(CreditKind::Grant, bytes));
        drop(out);
        if is_new {
            self.credit.add_reclaimable(to);
        }
        if is_short {
            self.recall(to);
        }
    }

    /// Asks a peer that was granted nothing for some time to return what its room has grown by: another needs it, and grows when it
    /// has come.
    #[cold]
    fn recall(&self, needy: PeerId) {
        let granted = |id| self.peers.get(id).map_or(0, |peer| peer.granted.load(Ordering::Relaxed));
        let idle = self.credit.take_idle(needy, granted).and_then(|idle| self.peers.get(idle));
        let Some(mut out) = idle.map(Peer::outbox).filter(|out| !out.gone) else { return };
        out.recalled = out.credit_given.saturating_sub(self.credit.initial);
        let bytes = out.recalled;
        if bytes > 0 {
            self.push(&mut out, credit(CreditKind::Recall, bytes));
        }
    }

    /// Returns room to a peer that asks for it: as much of it as no message has taken. `None` if it asks again before the answer
    /// has left: it has not waited for that, and answers without end would pile up here.
    pub(super) fn give_back(&self, to: &Peer, asked: u64) -> Option<()> {
        let mut out = to.outbox();
        if out.contact == Wireup::Connected && !out.gone {
            let is_answer = |head: &Head| {
                head.short.kind() == FrameKind::Credit as u8 && head.op.get() == CreditKind::Return as u64
            };
            if out.waiting.iter().any(|frame| is_answer(&frame.head)) {
                return None;
            }
            let bytes = asked.min(out.credit);
            out.credit -= bytes;
            self.push(&mut out, credit(CreditKind::Return, bytes));
        }
        Some(())
    }

    /// Takes the room that a peer returns; `None` if it was not asked for so much. It has not used it.
    pub(super) fn take_returned(&self, from: &Peer, bytes: u64) -> Option<()> {
        let mut out = from.outbox();
        if out.gone {
            // All of its room has come back.
            return Some(());
        }
        if out.recalled == 0 || bytes > out.recalled {
            return None;
        }
        out.recalled = 0;
        self.credit.reclaim(self.credit.initial + bytes);
        out.credit_given -= bytes;
        let has_grown = out.credit_given > self.credit.initial;
        drop(out);
        if has_grown {
            self.credit.add_reclaimable(from.id);
        }
        Some(())
    }

    /// Notes eager room freed by a receive of an early message, and returns it to the sender as [`Inbox::free_credit`] does.
    ///
    /// [`Inbox::free_credit`]: super::inbox::Inbox::free
    pub(crate) fn release(&self, from: PeerId, bytes: u64) {
        let Some(peer) = self.peers.get(from) else {
            return self.grant(from, bytes);
        };
        let mut out = peer.outbox();
        out.freed += bytes;
        if out.freed >= self.credit.initial / 4 {
            let all = std::mem::take(&mut out.freed);
            drop(out);
            self.grant(from, all);
        }
    }
}

/// Returns the head of a frame of credit.
fn credit(say: CreditKind, bytes: u64) -> Head {
    let mut head = Head::new(FrameKind::Credit, 0, 0, 0);
    head.op.set(say as u64);
    head.extra.set(bytes);
    head
}

/// Counts a message that will be announced to a peer.
///
/// # Errors
/// As many as may wait for an answer do.
pub(crate) fn note_announced(peer: &Peer, out: &mut Outbox) -> Result<(), Fault> {
    if out.announced.saturating_sub(peer.replies_received.load(Ordering::Relaxed)) >= MAX_AWAITING_REPLY {
        return Err(Fault::TooManyMessages { rank: peer.id.0, limit: MAX_AWAITING_REPLY });
    }
    out.announced += 1;
    Ok(())
}

/// Counts an answer to a message that the peer had announced, before the peer can hear of it; its outbox is locked.
fn note_answer(peer: &Peer) {
    let answered = peer.replies_sent.load(Ordering::Relaxed);
    peer.replies_sent.store(answered + 1, Ordering::Release);
}
