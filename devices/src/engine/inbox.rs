//! What the receiving side keeps of one peer: what its channel numbers stand for, and what it has taken of its room.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Engine;
use super::channel::Channel;
use super::landing::IncomingBody;
use super::outbox::{MAX_AWAITING_REPLY, credit_cost};
use crate::device::PeerId;
use crate::header::{FrameKind, Head};

/// One peer, as it is received from.
///
/// # Invariants
/// 1. An honest peer sends eager messages only within the credit it began with and what it was given back, and has at
///    most [`MAX_AWAITING_REPLY`] messages announced that were not answered. A frame that it sends for an answer of ours
///    comes after that answer was counted, so `credit_limit` and the counts of [`Peer`](super::peer::Peer) are never behind
///    what it may have sent.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    /// By the peer's channel number.
    bound: Vec<Option<Binding>>,
    /// Eager room freed by messages that met their receive.
    credit_freed: u64,
    /// Eager room that its messages took, in all.
    credit_used: u64,
    /// Eager room that it was granted, in all, when last looked at, less what it has returned.
    credit_limit: u64,
    /// Eager room that it has returned, in all.
    credit_returned_total: u64,
    /// Messages it has announced, in all.
    replies_owed: u64,
    pub(super) arriving: Option<IncomingBody>,
}

/// What a channel number of a peer stands for.
#[derive(Clone, Debug)]
pub(super) enum Binding {
    /// A channel that we had joined, in which the peer has this rank.
    Resolved { channel: Arc<Channel>, rank: u32 },
    /// A context that we had not, and what the peer says its rank is.
    Unresolved { context: u64, rank: u32 },
}

impl Inbox {
    /// Notes what a number stands for from now on. It may be a context that nobody ever joins: it costs nothing yet.
    pub(super) fn bind(&mut self, number: usize, context: u64, rank: u32) {
        if self.bound.len() <= number {
            self.bound.resize(number + 1, None);
        }
        self.bound[number] = Some(Binding::Unresolved { context, rank });
    }

    /// Returns what a frame's channel number stands for; `None` if it is not bound, or the peer has another rank there.
    #[inline]
    pub(super) fn binding(&mut self, engine: &Engine, from: PeerId, head: &Head) -> Option<&Binding> {
        let number = head.channel();
        if let Some(Binding::Unresolved { .. }) = self.bound.get(number)? {
            self.resolve(engine, from, number)?;
        }
        self.bound.get(number)?.as_ref()
    }

    /// Looks whether we have joined by now.
    #[cold]
    fn resolve(&mut self, engine: &Engine, from: PeerId, number: usize) -> Option<()> {
        let Some(Binding::Unresolved { context, rank }) = self.bound[number] else { return Some(()) };
        if let Some(channel) = engine.lookup(context).filter(|channel| channel.is_joined()) {
            if !channel.accepts_sender(from, rank) {
                return None;
            }
            self.bound[number] = Some(Binding::Resolved { channel, rank });
        }
        Some(())
    }

    /// Whether a body is on its way from the peer.
    pub(super) fn is_mid_body(&self) -> bool {
        self.arriving.is_some()
    }

    /// Takes a message off what the peer may have waiting here.
    ///
    /// # Errors
    /// What it was granted and what came: no honest peer sends more.
    #[inline]
    pub(super) fn admit(
        &mut self,
        engine: &Engine,
        from: PeerId,
        kind: FrameKind,
        bytes: usize,
    ) -> Result<(), String> {
        match kind {
            FrameKind::Eager => self.charge(engine, from, bytes),
            FrameKind::EagerSync => {
                self.charge(engine, from, bytes)?;
                self.note_reply_owed(engine, from)
            }
            _ => self.note_reply_owed(engine, from),
        }
    }

    /// Takes the room of an eager message.
    #[inline]
    fn charge(&mut self, engine: &Engine, from: PeerId, bytes: usize) -> Result<(), String> {
        self.credit_used = self.credit_used.saturating_add(credit_cost(bytes));
        if self.credit_used > self.credit_limit { self.check_limit(engine, from) } else { Ok(()) }
    }

    #[cold]
    fn check_limit(&mut self, engine: &Engine, from: PeerId) -> Result<(), String> {
        self.refresh(engine, from);
        if self.credit_used <= self.credit_limit {
            return Ok(());
        }
        Err(format!(
            "it has sent {} bytes of eager messages and was granted {} (of these {} to begin with: MPJ_CREDIT and \
             MPJ_BUDGET have to be the same for all ranks)",
            self.credit_used, self.credit_limit, engine.credit.initial
        ))
    }

    fn refresh(&mut self, engine: &Engine, from: PeerId) {
        let granted = engine.peers.get(from).map_or(0, |peer| peer.granted.load(Ordering::Acquire));
        self.credit_limit =
            engine.credit.initial.saturating_add(granted).saturating_sub(self.credit_returned_total);
    }

    /// Takes room off what the peer was granted, which it returns; `None` if it has not so much left.
    pub(super) fn take_returned(&mut self, engine: &Engine, from: PeerId, bytes: u64) -> Option<()> {
        self.refresh(engine, from);
        self.credit_limit =
            self.credit_limit.checked_sub(bytes).filter(|limit| *limit >= self.credit_used)?;
        self.credit_returned_total = self.credit_returned_total.saturating_add(bytes);
        Some(())
    }

    /// Counts a message that waits at its sender for an answer.
    fn note_reply_owed(&mut self, engine: &Engine, from: PeerId) -> Result<(), String> {
        self.replies_owed += 1;
        let answered = engine.peers.get(from).map_or(0, |peer| peer.replies_sent.load(Ordering::Acquire));
        if self.replies_owed.saturating_sub(answered) <= MAX_AWAITING_REPLY {
            return Ok(());
        }
        Err(format!(
            "it has announced {} messages, {answered} were answered and {MAX_AWAITING_REPLY} may wait",
            self.replies_owed
        ))
    }

    /// Gives eager room back to its sender, by the quarter of what it had from the start.
    #[inline]
    pub(super) fn free_credit(&mut self, engine: &Engine, from: PeerId, bytes: u64) {
        self.credit_freed += bytes;
        if self.credit_freed >= engine.credit.initial / 4 {
            engine.grant(from, std::mem::take(&mut self.credit_freed));
        }
    }
}
