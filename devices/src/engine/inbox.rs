//! The receiver's state of one peer: the meaning of its channel ids, its use of credit, and the body that is arriving.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::Engine;
use super::channel::Channel;
use super::flush::{MAX_AWAITING_REPLY, credit_cost};
use super::incoming_body::IncomingBody;
use crate::device::PeerId;
use crate::header::{FrameKind, Head};

/// The receiver's state of one peer.
///
/// # Invariants
/// 1. An honest peer sends eager messages only within its initial credit and the credit that it was granted, and has at
///    most [`MAX_AWAITING_REPLY`] messages without a reply. A grant or a reply is counted in
///    [`Peer`](super::peer::Peer) before the peer can receive it. So these counts cover everything that the peer may
///    have sent.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    bindings: Vec<Option<Binding>>,
    /// Credit freed by messages that were matched or refused on arrival, and not granted again yet.
    credit_freed: u64,
    /// Total credit that the peer's messages have used.
    credit_used: u64,
    /// The initial credit and all grants, minus the credit that the peer has returned, when last read; 0 at first.
    credit_limit: u64,
    credit_returned_total: u64,
    /// Total number of messages of the peer that need a reply.
    reply_requests: u64,
    pub(super) incoming: Option<IncomingBody>,
}

/// The meaning of a peer's channel id.
#[derive(Clone, Debug)]
pub(super) enum Binding {
    /// A channel that this rank has joined, and the peer's rank there.
    Resolved { channel: Arc<Channel>, rank: u32 },
    /// A context that this rank had not joined when last looked up, and the rank that the peer claims there.
    Unresolved { context: u64, rank: u32 },
}

impl Inbox {
    /// Binds an id to a context. Even if this rank never joins the context, this costs only space in the table.
    pub(super) fn bind(&mut self, number: usize, context: u64, rank: u32) {
        if self.bindings.len() <= number {
            self.bindings.resize(number + 1, None);
        }
        self.bindings[number] = Some(Binding::Unresolved { context, rank });
    }

    /// Returns the meaning of a frame's channel id; `None` if it is not bound, or if the peer has another rank there.
    #[inline]
    pub(super) fn binding(&mut self, engine: &Engine, from: PeerId, head: &Head) -> Option<&Binding> {
        let number = head.channel();
        if let Some(Binding::Unresolved { .. }) = self.bindings.get(number)? {
            self.resolve(engine, from, number)?;
        }
        self.bindings.get(number)?.as_ref()
    }

    #[cold]
    fn resolve(&mut self, engine: &Engine, from: PeerId, number: usize) -> Option<()> {
        let Some(Binding::Unresolved { context, rank }) = self.bindings[number] else { return Some(()) };
        if let Some(channel) = engine.lookup(context).filter(|channel| channel.is_joined()) {
            if !channel.accepts_sender(from, rank) {
                return None;
            }
            self.bindings[number] = Some(Binding::Resolved { channel, rank });
        }
        Some(())
    }

    pub(super) fn is_mid_body(&self) -> bool {
        self.incoming.is_some()
    }

    /// Charges a message to the peer's credit, to its limit of messages without a reply, or both. The error is a text
    /// with the limit and the peer's use of it.
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
            "it exceeded its eager credit: {} bytes sent, {} granted, {} of them initially; MPJ_EAGER_CREDIT and \
             MPJ_EAGER_CREDIT_TOTAL must be equal on all ranks",
            self.credit_used, self.credit_limit, engine.credit.initial
        ))
    }

    fn refresh(&mut self, engine: &Engine, from: PeerId) {
        let granted = engine.peers.get(from).map_or(0, |peer| peer.granted.load(Ordering::Acquire));
        self.credit_limit =
            engine.credit.initial.saturating_add(granted).saturating_sub(self.credit_returned_total);
    }

    /// Subtracts credit that the peer returns; `None` if the peer does not have that much left.
    pub(super) fn credit_returned(&mut self, engine: &Engine, from: PeerId, bytes: u64) -> Option<()> {
        self.refresh(engine, from);
        self.credit_limit =
            self.credit_limit.checked_sub(bytes).filter(|limit| *limit >= self.credit_used)?;
        self.credit_returned_total = self.credit_returned_total.saturating_add(bytes);
        Some(())
    }

    fn note_reply_owed(&mut self, engine: &Engine, from: PeerId) -> Result<(), String> {
        self.reply_requests += 1;
        let replied = engine.peers.get(from).map_or(0, |peer| peer.replies_sent.load(Ordering::Acquire));
        if self.reply_requests.saturating_sub(replied) <= MAX_AWAITING_REPLY {
            return Ok(());
        }
        Err(format!(
            "it has {} messages without a reply, the limit is {MAX_AWAITING_REPLY}",
            self.reply_requests - replied
        ))
    }

    /// Frees credit; grants it to the sender again when a quarter of the initial credit has accumulated.
    #[inline]
    pub(super) fn free_credit(&mut self, engine: &Engine, from: PeerId, bytes: u64) {
        self.credit_freed += bytes;
        if self.credit_freed >= engine.credit.initial / 4 {
            engine.grant_credit(from, std::mem::take(&mut self.credit_freed));
        }
    }
}
