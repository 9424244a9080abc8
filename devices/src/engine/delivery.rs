//! Delivery: parses the head of each arriving frame, checks it, and handles the frame.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mpj_datatypes::Signature;

use super::channel::Channel;
use super::channels::Lookup;
use super::credit::CreditKind;
use super::device_ops::StreamedSend;
use super::failure::Blamed;
use super::flush::credit_cost;
use super::inbox::{Binding, Inbox};
use super::incoming_body::receive_data;
use super::ops::Op;
use super::peer::{BodyStream, PeerTable, Wireup};
use super::rendezvous::MatchedRts;
use super::traffic::AtomicCount;
use super::{Engine, lock};
use crate::device::{Landing, OpToken, PeerId, RemoteKey, Sink};
use crate::fault::Fault;
use crate::header::{FrameKind, Head};
use crate::kill_points::{KillPoint, kill_point};
use crate::liveness::Exit;
use crate::matching::{InlineBody, Posted, Unexpected, UnexpectedBody};
use crate::message::Envelope;

pub(super) struct Delivery<'a> {
    pub(super) engine: &'a Engine,
    pub(super) inboxes: &'a mut PeerTable<Inbox>,
    pub(super) copied: &'a AtomicCount,
}

pub(super) enum Destination {
    /// A channel, and the rank that the sender claims there, which must be checked under the matching lock unless
    /// `checked`.
    Channel { channel: Arc<Channel>, rank: u32, checked: bool },
    /// No receiver: this rank has freed the context.
    Freed { context: u64 },
}

impl Delivery<'_> {
    pub(super) fn inbox(&mut self, from: PeerId) -> Option<&mut Inbox> {
        if self.inboxes.get_mut(from).is_none() {
            self.inboxes.get_or_init(from, Inbox::default)?;
        }
        self.inboxes.get_mut(from)
    }

    pub(super) fn binding(&mut self, from: PeerId, head: &Head) -> Option<&Binding> {
        self.inboxes.get_mut(from)?.binding(self.engine, from, head)
    }

    /// Returns the channel of a frame about an operation: `None` if the frame is invalid, `Some(None)` if this rank has
    /// no such channel, and so no such operation.
    pub(super) fn channel(&mut self, from: PeerId, head: &Head) -> Option<Option<Arc<Channel>>> {
        Some(match self.binding(from, head)? {
            Binding::Resolved { channel, .. } => Some(Arc::clone(channel)),
            Binding::Unresolved { context, .. } => {
                let context = *context;
                self.engine.lookup(context)
            }
        })
    }

    pub(super) fn destination(&mut self, from: PeerId, head: &Head) -> Option<Destination> {
        match self.binding(from, head)? {
            Binding::Resolved { channel, rank } => {
                Some(Destination::Channel { channel: Arc::clone(channel), rank: *rank, checked: true })
            }
            Binding::Unresolved { context, rank } => {
                let (context, rank) = (*context, *rank);
                Some(match self.engine.lookup_or_create(context) {
                    Lookup::Channel(channel) => Destination::Channel { channel, rank, checked: false },
                    Lookup::Freed => Destination::Freed { context },
                })
            }
        }
    }

    #[inline]
    pub(super) fn on_frame(&mut self, from: PeerId, head: &[u8], body: &[u8]) {
        let done = Head::parse(head).and_then(|(kind, head)| match kind {
            FrameKind::Eager | FrameKind::EagerSync => self.on_eager(from, kind, &head, body),
            FrameKind::Data => self.on_data(from, &head, body),
            FrameKind::Rts => self.on_rts(from, &head, body),
            FrameKind::Cts => self.on_cts(from, &head),
            FrameKind::Fin => self.on_fin(from, &head),
            FrameKind::Credit => self.on_credit(from, &head),
            FrameKind::Nack => self.on_nack(from, &head),
            FrameKind::Bind => self.on_bind(from, &head),
        });
        if done.is_none() {
            self.engine.report_malformed(from);
        }
    }

    fn on_bind(&mut self, from: PeerId, head: &Head) -> Option<()> {
        self.inbox(from)?.bind(head.channel(), head.hash.get(), head.tag().cast_unsigned());
        Some(())
    }

    #[inline]
    fn on_eager(&mut self, from: PeerId, kind: FrameKind, head: &Head, body: &[u8]) -> Option<()> {
        let engine = self.engine;
        let inbox = self.inboxes.get_mut(from)?;
        if let Err(why) = inbox.admit(engine, from, kind, body.len()) {
            engine.report_protocol_error(from, &why);
            return Some(());
        }
        let Binding::Resolved { channel, rank } = inbox.binding(engine, from, head)? else {
            return self.on_unjoined(from, kind, head, body);
        };
        self.copied.add(body.len());
        let message = envelope(head, *rank, body.len());
        let notify = (kind == FrameKind::EagerSync).then(|| head.op.get());
        if engine.deliver_eager(channel, from, message, notify, body) {
            inbox.free_credit(engine, from, credit_cost(message.bytes));
        } else {
            engine.notify_parked();
        }
        Some(())
    }

    /// Handles an eager message to a context that this rank has not joined, or has freed.
    #[cold]
    fn on_unjoined(&mut self, from: PeerId, kind: FrameKind, head: &Head, body: &[u8]) -> Option<()> {
        let engine = self.engine;
        self.copied.add(body.len());
        let buffered = || {
            engine.buffer_body(body.len(), |room| {
                room.write_copy_of_slice(body);
            })
        };
        let held = InlineBody::of(body).map_or_else(buffered, UnexpectedBody::Inline);
        let notify = (kind == FrameKind::EagerSync).then(|| head.op.get());
        let to = self.destination(from, head)?;
        engine.deliver_buffered(to, from, |rank| envelope(head, rank, body.len()), notify, held)
    }

    pub(super) fn on_rts(&mut self, from: PeerId, head: &Head, key: &[u8]) -> Option<()> {
        if let Err(why) = self.inboxes.get_mut(from)?.admit(self.engine, from, FrameKind::Rts, 0) {
            self.engine.report_protocol_error(from, &why);
            return Some(());
        }
        kill_point(KillPoint::RtsReceived, self.engine.site.rank);
        let (bytes, op) = (usize::try_from(head.extra.get()).ok()?, head.op.get());
        let key = if key.is_empty() { None } else { Some(RemoteKey::new(key)?) };
        let (channel, rank, checked) = match self.destination(from, head)? {
            Destination::Channel { channel, rank, checked } => (channel, rank, checked),
            Destination::Freed { context } => {
                self.engine.nack_message(from, context, op);
                return Some(());
            }
        };
        let message = envelope(head, rank, bytes);
        let mut matching = channel.matching();
        if !checked && !channel.accepts_sender(from, rank) {
            return None;
        }
        let Some((mut target, completer)) = matching.take_posted(&message).map(Posted::into_parts) else {
            let body = UnexpectedBody::Rendezvous { op, key: key.map(Box::new) };
            let back = matching.push_unexpected(Unexpected { message, from, body, sync_op: None });
            drop(matching);
            match back {
                None => self.engine.notify_parked(),
                Some(unexpected) => self.engine.nack_unexpected(channel.context, unexpected),
            }
            return Some(());
        };
        channel.set_matching_rts(true);
        drop(matching);
        match target.accepts(&message) {
            Ok(()) => {
                let channel = &channel;
                let rts = MatchedRts { channel, from, message, op, key: key.as_ref() };
                self.engine.receive_rendezvous(&rts, target, completer);
            }
            Err(fault) => {
                drop(target);
                self.engine.trace_refused(from, channel.context, op);
                self.engine.send_reply(from, &channel, FrameKind::Fin, op, 0);
                completer.complete(Err(fault));
            }
        }
        channel.set_matching_rts(false);
        Some(())
    }

    fn note_reply_received(&self, from: PeerId) {
        if let Some(peer) = self.engine.peers.get(from) {
            // Only the holder of the progress lock writes the counter.
            let received = peer.replies_received.load(Ordering::Relaxed);
            peer.replies_received.store(received.saturating_add(1), Ordering::Relaxed);
        }
    }

    fn on_cts(&mut self, from: PeerId, head: &Head) -> Option<()> {
        let channel = self.channel(from, head)?;
        self.note_reply_received(from);
        let engine = self.engine;
        let number = head.extra.get();
        let Some(channel) = channel else {
            let Binding::Unresolved { context, .. } = self.binding(from, head)? else { return Some(()) };
            let context = *context;
            engine.nack_cts(from, context, number);
            return Some(());
        };
        let mut ops = channel.ops();
        match ops.get(head.op.get(), from) {
            // After a death, the peer's receive fails with the channel. Otherwise the send was cancelled or has failed,
            // and without a NACK the peer would wait for the body for ever.
            None => {
                drop(ops);
                if !matches!(channel.broken(), Some(Fault::Dead { .. })) {
                    engine.nack_cts(from, channel.context, number);
                }
                return Some(());
            }
            Some(Op::Rendezvous { .. }) => (),
            // The peer violates the protocol. The operation stays, and fails with the peer.
            Some(_) => return None,
        }
        let op = ops.take(head.op.get(), from);
        drop(ops);
        let Some(Op::Rendezvous { source, message, registration, completer, .. }) = op else { return None };
        // The body is sent in frames from now on, so the key is no longer needed.
        drop(registration);
        let peer = engine.peer(from).ok()?;
        let zcopy = engine.prepare_zcopy(peer, &source);
        let sending = StreamedSend::new(source, zcopy, message, completer);
        let mut out = peer.outbox();
        // Check under the lock: another thread might have failed the channel, and have searched this outbox.
        if let Some(fault @ Fault::Dead { .. }) = channel.broken() {
            drop(out);
            sending.fail(fault);
            return Some(());
        }
        let idle = out.is_idle();
        let stream = BodyStream { channel: Arc::clone(&channel), op: number, sending, sent: 0 };
        out.streams.push_back(stream);
        engine.note_busy(idle, &mut out);
        drop(out);
        engine.recheck_exits(&channel, Some(from));
        Some(())
    }

    fn on_fin(&mut self, from: PeerId, head: &Head) -> Option<()> {
        let channel = self.channel(from, head)?;
        self.note_reply_received(from);
        let Some(channel) = channel else { return Some(()) };
        self.complete_send(&channel, from, head.op.get())
    }

    fn complete_send(&self, channel: &Channel, from: PeerId, number: u64) -> Option<()> {
        if !self.is_pending(channel, from, number, true)? {
            return Some(());
        }
        // The lock is released before the operation completes, because the drop of the user's buffer may send.
        let taken = channel.ops().take(number, from);
        // `None` if it was cancelled or has failed meanwhile.
        if let Some(op) = taken {
            let message = op.message();
            op.complete(Ok(message));
        }
        Some(())
    }

    /// Returns whether an operation waits for the reply that ends it; `None` if the reply violates the protocol.
    fn is_pending(&self, channel: &Channel, from: PeerId, number: u64, is_send: bool) -> Option<bool> {
        let seq = match (channel.ops().get(number, from), is_send) {
            (None, _) => return Some(false),
            (Some(Op::EagerSync { seq, .. }), true) => Some(*seq),
            (Some(Op::Rendezvous { .. }), true) | (Some(Op::RecvOp(_)), false) => None,
            _ => return None,
        };
        // If the message's frame is still queued, the peer cannot have seen it and violates the protocol. The operation
        // stays and fails with the peer, because its frame holds the user's memory.
        let waits = |seq| self.engine.peers.get(from).is_some_and(|p| p.outbox().is_queued(seq));
        (!seq.is_some_and(waits)).then_some(true)
    }

    fn on_nack(&mut self, from: PeerId, head: &Head) -> Option<()> {
        let (engine, number) = (self.engine, head.op.get());
        let (is_send, fault) = match head.extra.get() {
            0 => (false, Fault::SendCancelled { rank: from.0 }),
            1 => (true, Fault::Refused { rank: from.0 }),
            _ => return None,
        };
        if is_send {
            self.note_reply_received(from);
        }
        let Some(channel) = engine.lookup(head.hash.get()) else { return Some(()) };
        if !self.is_pending(&channel, from, number, is_send)? {
            return Some(());
        }
        let first = head.count.get().checked_sub(1).map(u32::try_from).transpose().ok()?;
        let Some(fault) = engine.blame(&channel, from, fault.clone(), first) else {
            let is_noted = |b: &Blamed| b.number == number && b.channel.context == channel.context;
            let mut blamed = lock(&engine.blamed);
            if !blamed.iter().any(is_noted) {
                blamed.push(Blamed { channel, peer: from, number, fault, first: first? });
            }
            return Some(());
        };
        // `None` if it was cancelled or has failed meanwhile.
        let Some(op) = channel.ops().take(number, from) else { return Some(()) };
        if let Fault::Refused { rank } = fault {
            // The receiver might be about to report its own failure, which is then the cause of this one.
            engine.roster.report_cause(engine.site.rank, rank);
        }
        op.complete(Err(fault));
        Some(())
    }

    fn on_data(&mut self, from: PeerId, head: &Head, body: &[u8]) -> Option<()> {
        let at = usize::try_from(head.extra.get()).ok()?;
        let Some(channel) = self.channel(from, head)? else { return Some(()) };
        self.copied.add(body.len());
        receive_data(self.engine, &channel, from, head.op.get(), at, body)
    }

    fn on_credit(&mut self, from: PeerId, head: &Head) -> Option<()> {
        let (engine, bytes) = (self.engine, head.extra.get());
        let kind = CreditKind::from_word(head.op.get())?;
        // This rank has neither sent to the peer nor recalled credit from it, so the peer cannot return credit.
        let Some(peer) = engine.peers.get(from) else { return (kind != CreditKind::Return).then_some(()) };
        match kind {
            CreditKind::Grant => {
                let mut out = peer.outbox();
                if out.wireup == Wireup::Connected && !out.is_closed {
                    out.send_credit = out.send_credit.saturating_add(bytes).min(engine.credit.max);
                }
            }
            CreditKind::Recall => engine.return_credit(peer, bytes)?,
            CreditKind::Return => {
                self.inboxes.get_mut(from)?.credit_returned(engine, from, bytes)?;
                engine.credit_returned(peer, bytes)?;
            }
        }
        Some(())
    }
}

// SAFETY: until the body has landed or was discarded, the inbox of its peer keeps the posted receive or the block that
// it lands in, or invariant 1 of `Ops` keeps the receive of a piece. Nobody else uses that memory meanwhile.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Sink for Delivery<'_> {
    #[inline]
    fn frame(&mut self, from: PeerId, head: &[u8], body: &[u8]) {
        match self.engine.trace() {
            None => self.on_frame(from, head, body),
            Some(trace) => self.frame_traced(trace, from, head, body),
        }
    }

    fn begin(&mut self, from: PeerId, head: &[u8], len: usize) -> Landing {
        self.begin_body(from, head, len)
    }

    fn piece(&mut self, from: PeerId, bytes: &[u8]) {
        self.on_body_bytes(from, bytes);
    }

    fn landed(&mut self, from: PeerId) {
        match self.engine.trace() {
            None => self.finish_body(from),
            Some(trace) => self.landed_traced(trace, from),
        }
    }

    fn peer_lost(&mut self, from: PeerId, why: &str) {
        self.discard_body(from, why);
        // If the rank is closing in all contexts or has left, the end of its connection is not a failure.
        if matches!(self.engine.exit_of(from.0), None | Some(Exit::ClosingExcept(_))) {
            self.engine.roster.report(from.0, Exit::Died(why.into()));
        }
    }

    fn completed(&mut self, op: OpToken, outcome: Result<(), String>) {
        self.engine.device_op_done(op, outcome);
    }

    fn quiesced(&mut self, op: OpToken) {
        self.engine.quiesce_done(op);
    }
}

impl Engine {
    /// Reports a peer that violates the protocol as dead.
    #[cold]
    pub(super) fn report_protocol_error(&self, from: PeerId, why: &str) {
        self.roster.report(from.0, Exit::Died(why.into()));
    }

    #[cold]
    pub(super) fn report_malformed(&self, from: PeerId) {
        self.report_protocol_error(from, "it sent a malformed frame");
    }
}

#[inline]
pub(super) fn envelope(head: &Head, source: u32, bytes: usize) -> Envelope {
    let code = head.short.code();
    let signature = if code == 0 {
        Signature { hash: head.hash.get(), count: head.count.get() }
    } else {
        Signature::EMPTY
    };
    Envelope { source, tag: head.tag(), immediate: head.immediate(), code, signature, bytes }
}
