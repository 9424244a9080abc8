//! What arrives: every head is read once, checked, and acted on.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use mpj_datatypes::Signature;

use super::channel::Channel;
use super::channels::Place;
use super::credit::Say;
use super::failure::Blamed;
use super::fetch::Announced;
use super::inbox::{Bound, Inbox};
use super::landing::land_piece;
use super::moves::Sending;
use super::ops::Op;
use super::outbox::cost;
use super::peer::{Contact, Stream, Table};
use super::traffic::Tally;
use super::{Engine, lock};
use crate::device::{Landing, PeerId, RemoteKey, Sink, Token};
use crate::fault::Fault;
use crate::header::{Head, Kind};
use crate::layout::Envelope;
use crate::liveness::End;
use crate::matching::{Held, Posted, Short, Unexpected};
use crate::steps::{Step, reach};

/// The sink of one turn.
pub(super) struct Delivery<'a> {
    pub(super) engine: &'a Engine,
    pub(super) inboxes: &'a mut Table<Inbox>,
    /// What was copied out of the device.
    pub(super) copied: &'a Tally,
}

/// Whom a message that has not met its receive is for.
pub(super) enum Addressee {
    /// This channel's members; the sender has this rank, to be checked if we may have joined just now.
    Channel { channel: Arc<Channel>, rank: u32, checked: bool },
    /// Nobody: we have left the context.
    Nobody { context: u64 },
}

impl Delivery<'_> {
    pub(super) fn inbox(&mut self, from: PeerId) -> Option<&mut Inbox> {
        if self.inboxes.get_mut(from).is_none() {
            self.inboxes.get_or_init(from, Inbox::default)?;
        }
        self.inboxes.get_mut(from)
    }

    pub(super) fn bound(&mut self, from: PeerId, head: &Head) -> Option<&Bound> {
        self.inboxes.get_mut(from)?.bound(self.engine, from, head)
    }

    /// Returns the channel that a frame about an operation names; `None` inside if we have none, and so no operation.
    pub(super) fn channel(&mut self, from: PeerId, head: &Head) -> Option<Option<Arc<Channel>>> {
        Some(match self.bound(from, head)? {
            Bound::Joined { channel, .. } => Some(Arc::clone(channel)),
            Bound::Named { context, .. } => {
                let context = *context;
                self.engine.known(context)
            }
        })
    }

    /// Returns whom a message is for.
    pub(super) fn addressee(&mut self, from: PeerId, head: &Head) -> Option<Addressee> {
        match self.bound(from, head)? {
            Bound::Joined { channel, rank } => {
                Some(Addressee::Channel { channel: Arc::clone(channel), rank: *rank, checked: true })
            }
            Bound::Named { context, rank } => {
                let (context, rank) = (*context, *rank);
                Some(match self.engine.place(context) {
                    Place::Channel(channel) => Addressee::Channel { channel, rank, checked: false },
                    Place::Nowhere => Addressee::Nobody { context },
                })
            }
        }
    }

    /// Takes a frame in.
    #[inline]
    pub(super) fn take_frame(&mut self, from: PeerId, head: &[u8], body: &[u8]) {
        let done = Head::parse(head).and_then(|(kind, head)| match kind {
            Kind::Eager | Kind::EagerSync => self.on_eager(from, kind, &head, body),
            Kind::Data => self.on_data(from, &head, body),
            Kind::Ready => self.on_ready(from, &head, body),
            Kind::Clear => self.on_clear(from, &head),
            Kind::Done => self.on_done(from, &head),
            Kind::Credit => self.on_credit(from, &head),
            Kind::Gone => self.on_gone(from, &head),
            Kind::Bind => self.on_bind(from, &head),
        });
        if done.is_none() {
            self.engine.accuse_malformed(from);
        }
    }

    fn on_bind(&mut self, from: PeerId, head: &Head) -> Option<()> {
        self.inbox(from)?.bind(head.channel(), head.hash.get(), head.tag().cast_unsigned());
        Some(())
    }

    #[inline]
    fn on_eager(&mut self, from: PeerId, kind: Kind, head: &Head, body: &[u8]) -> Option<()> {
        let engine = self.engine;
        let inbox = self.inboxes.get_mut(from)?;
        if let Err(why) = inbox.admit(engine, from, kind, body.len()) {
            engine.accuse(from, &why);
            return Some(());
        }
        let Bound::Joined { channel, rank } = inbox.bound(engine, from, head)? else {
            return self.on_unjoined(from, kind, head, body);
        };
        self.copied.add(body.len());
        let message = envelope(head, *rank, body.len());
        let notify = (kind == Kind::EagerSync).then(|| head.op.get());
        if engine.arrive(channel, from, message, notify, body) {
            inbox.free(engine, from, cost(message.bytes));
        } else {
            engine.stir();
        }
        Some(())
    }

    /// Takes in an eager message to a context that we have not joined, or have left.
    #[cold]
    fn on_unjoined(&mut self, from: PeerId, kind: Kind, head: &Head, body: &[u8]) -> Option<()> {
        let engine = self.engine;
        self.copied.add(body.len());
        let hold = || {
            engine.hold(body.len(), |room| {
                room.write_copy_of_slice(body);
            })
        };
        let held = Short::of(body).map_or_else(hold, Held::Here);
        let notify = (kind == Kind::EagerSync).then(|| head.op.get());
        let addressee = self.addressee(from, head)?;
        engine.arrive_held(addressee, from, |rank| envelope(head, rank, body.len()), notify, held)
    }

    pub(super) fn on_ready(&mut self, from: PeerId, head: &Head, key: &[u8]) -> Option<()> {
        if let Err(why) = self.inboxes.get_mut(from)?.admit(self.engine, from, Kind::Ready, 0) {
            self.engine.accuse(from, &why);
            return Some(());
        }
        reach(Step::AnnouncementSeen, self.engine.site.rank);
        let (bytes, op) = (usize::try_from(head.extra.get()).ok()?, head.op.get());
        let key = if key.is_empty() { None } else { Some(RemoteKey::new(key)?) };
        let (channel, rank, checked) = match self.addressee(from, head)? {
            Addressee::Channel { channel, rank, checked } => (channel, rank, checked),
            Addressee::Nobody { context } => {
                self.engine.refuse(from, context, op);
                return Some(());
            }
        };
        let message = envelope(head, rank, bytes);
        let mut matching = channel.matching();
        if !checked && !channel.admits(from, rank) {
            return None;
        }
        let Some((mut target, ender)) = matching.take_posted(&message).map(Posted::into_parts) else {
            let body = Held::Remote { op, key: key.map(Box::new) };
            let back = matching.keep(Unexpected { message, from, body, notify: None });
            drop(matching);
            match back {
                None => self.engine.stir(),
                Some(early) => self.engine.refuse_early(channel.context, early),
            }
            return Some(());
        };
        channel.set_meeting(true);
        drop(matching);
        match target.accepts(&message) {
            Ok(()) => {
                let channel = &channel;
                let announced = Announced { channel, from, message, op, key: key.as_ref() };
                self.engine.fetch(&announced, target, ender);
            }
            Err(fault) => {
                drop(target);
                self.engine.trace_refused(from, channel.context, op);
                self.engine.answer(from, &channel, Kind::Done, op, 0);
                ender.end(Err(fault));
            }
        }
        channel.set_meeting(false);
        Some(())
    }

    /// Counts an answer of a peer to a message that was announced to it.
    fn hear(&self, from: PeerId) {
        if let Some(peer) = self.engine.peers.get(from) {
            // Only the holder of the turn writes it.
            let heard = peer.heard.load(Ordering::Relaxed);
            peer.heard.store(heard.saturating_add(1), Ordering::Relaxed);
        }
    }

    fn on_clear(&mut self, from: PeerId, head: &Head) -> Option<()> {
        let channel = self.channel(from, head)?;
        self.hear(from);
        let engine = self.engine;
        let number = head.extra.get();
        let Some(channel) = channel else {
            let Bound::Named { context, .. } = self.bound(from, head)? else { return Some(()) };
            let context = *context;
            engine.tell_gone(from, context, number);
            return Some(());
        };
        let mut ops = channel.ops();
        match ops.get(head.op.get(), from) {
            // No such send. After a death the channel has failed on both sides, and the peer's receive with it. Otherwise
            // the send was taken back, as when the peer is closing, and the peer still waits for the body: without `Gone`
            // both would wait for ever.
            None => {
                drop(ops);
                if !matches!(channel.broken(), Some(Fault::Dead { .. })) {
                    engine.tell_gone(from, channel.context, number);
                }
                return Some(());
            }
            Some(Op::Send { .. }) => (),
            // The peer breaks the protocol. The operation stays, and ends with the peer.
            Some(_) => return None,
        }
        let op = ops.take(head.op.get(), from);
        drop(ops);
        let Some(Op::Send { source, message, registration, ender, .. }) = op else { return None };
        // The body goes in frames now, and the key is of no use any more.
        drop(registration);
        let peer = engine.peer(from).ok()?;
        let lent = engine.lend(peer, &source);
        let sending = Sending::new(source, lent, message, ender);
        engine.recheck(&channel, Some(from));
        let mut out = peer.outbox();
        let idle = out.is_idle();
        out.streams.push_back(Stream { channel, op: number, sending, sent: 0 });
        engine.note_busy(idle, &mut out);
        Some(())
    }

    fn on_done(&mut self, from: PeerId, head: &Head) -> Option<()> {
        let channel = self.channel(from, head)?;
        self.hear(from);
        let Some(channel) = channel else { return Some(()) };
        self.end_send(&channel, from, head.op.get())
    }

    /// Ends a message that its receiver is done with, if it has not ended yet.
    fn end_send(&self, channel: &Channel, from: PeerId, number: u64) -> Option<()> {
        if !self.is_open(channel, from, number, true)? {
            return Some(());
        }
        // A statement of its own: the lock is released before the operation ends, because the drop of the user's buffer may send.
        let taken = channel.ops().take(number, from);
        // It may have been withdrawn by now.
        if let Some(op) = taken {
            let message = op.message();
            op.end(Ok(message));
        }
        Some(())
    }

    /// Whether an operation waits for an answer of its peer that ends it, a send or a receive; `None` if the peer breaks the
    /// protocol by such an answer.
    fn is_open(&self, channel: &Channel, from: PeerId, number: u64, is_send: bool) -> Option<bool> {
        let place = match (channel.ops().get(number, from), is_send) {
            (None, _) => return Some(false),
            (Some(Op::Sync { place, .. }), true) => Some(*place),
            (Some(Op::Send { .. }), true) | (Some(Op::Recv(_)), false) => None,
            _ => return None,
        };
        // The frame of the message still waits for room, so the peer cannot have seen it: it breaks the protocol. The
        // operation stays, and ends with the peer, because its frame holds the user's memory.
        let waits = |place| self.engine.peers.get(from).is_some_and(|p| p.outbox().has_waiting(place));
        (!place.is_some_and(waits)).then_some(true)
    }

    fn on_gone(&mut self, from: PeerId, head: &Head) -> Option<()> {
        let (engine, number) = (self.engine, head.op.get());
        let (is_send, fault) = match head.extra.get() {
            0 => (false, Fault::Withdrawn { rank: from.0 }),
            1 => (true, Fault::Refused { rank: from.0 }),
            _ => return None,
        };
        if is_send {
            self.hear(from);
        }
        let Some(channel) = engine.known(head.hash.get()) else { return Some(()) };
        if !self.is_open(&channel, from, number, is_send)? {
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
        // It may have been withdrawn by now.
        let Some(op) = channel.ops().take(number, from) else { return Some(()) };
        if let Fault::Refused { rank } = fault {
            // The receiver may be on its way to fail, and say so later than this rank.
            engine.roster.told(engine.site.rank, rank);
        }
        op.end(Err(fault));
        Some(())
    }

    fn on_data(&mut self, from: PeerId, head: &Head, body: &[u8]) -> Option<()> {
        let at = usize::try_from(head.extra.get()).ok()?;
        let Some(channel) = self.channel(from, head)? else { return Some(()) };
        self.copied.add(body.len());
        land_piece(self.engine, &channel, from, head.op.get(), at, body)
    }

    fn on_credit(&mut self, from: PeerId, head: &Head) -> Option<()> {
        let (engine, bytes) = (self.engine, head.extra.get());
        let say = Say::from_word(head.op.get())?;
        // A peer that was sent nothing has nothing to give back, and was asked for nothing.
        let Some(peer) = engine.peers.get(from) else { return (say != Say::Return).then_some(()) };
        match say {
            Say::Grant => {
                let mut out = peer.outbox();
                if out.contact == Contact::Met && !out.gone {
                    out.credit = out.credit.saturating_add(bytes).min(engine.credit.most);
                }
            }
            Say::Recall => engine.give_back(peer, bytes)?,
            // What it has used it cannot return.
            Say::Return => {
                self.inboxes.get_mut(from)?.take_returned(engine, from, bytes)?;
                engine.take_returned(peer, bytes)?;
            }
        }
        Some(())
    }
}

// SAFETY: what a body lands in is kept in the inbox of its peer, untouched, until the body has landed or is lost.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Sink for Delivery<'_> {
    #[inline]
    fn frame(&mut self, from: PeerId, head: &[u8], body: &[u8]) {
        match self.engine.trace() {
            None => self.take_frame(from, head, body),
            Some(trace) => self.frame_traced(trace, from, head, body),
        }
    }

    fn begin(&mut self, from: PeerId, head: &[u8], len: usize) -> Landing {
        self.begin_body(from, head, len)
    }

    fn piece(&mut self, from: PeerId, bytes: &[u8]) {
        self.land_bytes(from, bytes);
    }

    fn landed(&mut self, from: PeerId) {
        match self.engine.trace() {
            None => self.end_body(from),
            Some(trace) => self.landed_traced(trace, from),
        }
    }

    fn lost(&mut self, from: PeerId, why: &str) {
        self.lose_body(from, why);
        // Of a rank that is leaving, the end of its connection says nothing new.
        if matches!(self.engine.end_of(from.0), None | Some(End::Finishing(_))) {
            self.engine.roster.report(from.0, End::Died(why.into()));
        }
    }

    fn moved(&mut self, op: Token, outcome: Result<(), String>) {
        self.engine.end_move(op, outcome);
    }

    fn quiet(&mut self, op: Token) {
        self.engine.end_quiet(op);
    }
}

impl Engine {
    /// A peer that breaks the protocol is as good as dead; the rest of the job goes on.
    #[cold]
    pub(super) fn accuse(&self, from: PeerId, why: &str) {
        self.roster.report(from.0, End::Died(why.into()));
    }

    #[cold]
    pub(super) fn accuse_malformed(&self, from: PeerId) {
        self.accuse(from, "it sent a malformed frame");
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
    Envelope { source, tag: head.tag(), code, signature, bytes }
}
