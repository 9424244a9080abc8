//! What arrives: every head is read once, checked, and acted on.

use std::sync::{Arc, MutexGuard};

use mpj_datatypes::Signature;
use mpj_pool::{DefaultBlock, Pool, RawBuffer};

use super::Engine;
use super::channel::Channel;
use super::ops::{Op, Ops};
use super::outbox::cost;
use super::peer::{Contact, Stream, Table};
use crate::device::{Landing, PeerId, RemoteKey, Sink};
use crate::fault::Fault;
use crate::header::{Head, Kind};
use crate::layout::Envelope;
use crate::liveness::End;
use crate::matching::{Held, Posted, Unexpected};
use crate::steps::{Step, reach};

/// What the receiving side keeps of one peer.
#[derive(Debug, Default)]
pub(crate) struct Inbox {
    /// By the peer's channel number: our channel, and the peer's rank there.
    bound: Vec<Option<Bound>>,
    /// Eager room freed by messages that met their receive.
    freed: u64,
    arriving: Option<Arriving>,
}

#[derive(Clone, Debug)]
struct Bound {
    channel: Arc<Channel>,
    rank: u32,
    /// Whether the peer was checked to have that rank; it may bind before we have joined.
    checked: bool,
}

/// A body that comes in pieces from a device that streams.
#[derive(Debug)]
enum Arriving {
    /// An eager message that has met its receive.
    Posted { channel: Arc<Channel>, posted: Posted, message: Envelope, notify: Option<u64>, at: usize },
    /// An eager message without one.
    Early { head: Head, kind: Kind, block: Option<DefaultBlock>, len: usize },
    /// A piece of an announced message; the operation is lent to the device if it lands by itself.
    Data { channel: Arc<Channel>, number: u64, at: usize, lent: Option<usize> },
    /// A body nobody wants.
    Void,
}

impl Inbox {
    /// Returns what a frame's channel number stands for.
    #[inline]
    fn bound(&mut self, from: PeerId, head: &Head) -> Option<&Bound> {
        let bound = self.bound.get_mut(head.channel())?.as_mut()?;
        if !bound.checked && bound.channel.is_joined() {
            if bound.channel.peer(bound.rank) != Some(from) {
                return None;
            }
            bound.checked = true;
        }
        Some(bound)
    }

    /// Returns eager room to its sender, by the quarter.
    #[inline]
    fn free(&mut self, engine: &Engine, from: PeerId, bytes: u64) {
        self.freed += bytes;
        if self.freed >= engine.credit / 4 {
            engine.grant(from, std::mem::take(&mut self.freed));
        }
    }
}

/// The sink of one turn.
pub(crate) struct Delivery<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) inboxes: &'a mut Table<Inbox>,
}

impl Delivery<'_> {
    fn inbox(&mut self, from: PeerId) -> Option<&mut Inbox> {
        if self.inboxes.get_mut(from).is_none() {
            self.inboxes.get_or_init(from, Inbox::default)?;
        }
        self.inboxes.get_mut(from)
    }

    /// Returns the channel a frame names, and the sender's rank in it.
    fn bound(&mut self, from: PeerId, head: &Head) -> Option<(Arc<Channel>, u32)> {
        let bound = self.inboxes.get_mut(from)?.bound(from, head)?;
        Some((Arc::clone(&bound.channel), bound.rank))
    }

    fn on_bind(&mut self, from: PeerId, head: &Head) -> Option<()> {
        let channel = self.engine.channel(head.hash.get()).ok()?;
        let rank = head.tag().cast_unsigned();
        let number = head.channel();
        let inbox = self.inbox(from)?;
        if inbox.bound.len() <= number {
            inbox.bound.resize(number + 1, None);
        }
        inbox.bound[number] = Some(Bound { channel, rank, checked: false });
        Some(())
    }

    #[inline]
    fn on_eager(&mut self, from: PeerId, kind: Kind, head: &Head, body: &[u8]) -> Option<()> {
        let engine = self.engine;
        let inbox = self.inboxes.get_mut(from)?;
        let bound = inbox.bound(from, head)?;
        let message = envelope(head, bound.rank, body.len());
        let notify = (kind == Kind::EagerSync).then(|| head.op.get());
        if engine.arrive(&bound.channel, from, message, notify, body) {
            inbox.free(engine, from, cost(message.bytes));
        } else {
            engine.stir();
        }
        Some(())
    }

    fn on_ready(&mut self, from: PeerId, head: &Head) -> Option<()> {
        let (channel, rank) = self.bound(from, head)?;
        reach(Step::AnnouncementSeen, self.engine.site.rank);
        let message = envelope(head, rank, usize::try_from(head.extra.get()).ok()?);
        let op = head.op.get();
        let key = Some(head.key.get()).filter(|key| *key != 0).map(RemoteKey);
        let mut matching = channel.matching();
        let Some(Posted { target, ender, .. }) = matching.take_posted(&message) else {
            let body = Held::Remote { op, key };
            matching.keep(Unexpected { message, from, body, notify: None });
            drop(matching);
            self.engine.stir();
            return Some(());
        };
        drop(matching);
        match target.accepts(&message) {
            Ok(()) => self.engine.fetch(&channel, from, message, op, key, target, ender),
            Err(fault) => {
                drop(target);
                self.engine.answer(from, &channel, Kind::Done, op, 0);
                ender.end(Err(fault));
            }
        }
        Some(())
    }

    fn on_clear(&mut self, from: PeerId, head: &Head) -> Option<()> {
        let (channel, _) = self.bound(from, head)?;
        let mut ops = channel.ops();
        match ops.get(head.op.get(), from) {
            // An operation that has failed with its channel is gone on both sides. One that was taken back because its
            // peer is closing is waited for there, and by a rank that may be closing, too: neither would ever leave.
            None => {
                drop(ops);
                if channel.broken().is_none() {
                    self.engine.answer(from, &channel, Kind::Gone, head.extra.get(), 0);
                }
                return Some(());
            }
            Some(Op::Send { .. }) => (),
            // It stays where it is, to end with its peer.
            Some(_) => return None,
        }
        let op = ops.take(head.op.get(), from);
        drop(ops);
        let Some(Op::Send { source, message, key, ender, .. }) = op else { return None };
        let peer = self.engine.peer(from).ok()?;
        if let (Some(key), Some(device)) = (key, self.engine.device_of(peer)) {
            device.revoke(key);
        }
        let mut out = peer.outbox();
        let idle = out.is_idle();
        let channel = channel.number;
        out.streams.push_back(Stream { channel, op: head.extra.get(), source, message, sent: 0, ender });
        self.engine.note_busy(idle, &out);
        Some(())
    }

    fn on_done(&mut self, from: PeerId, head: &Head) -> Option<()> {
        let (channel, _) = self.bound(from, head)?;
        let mut ops = channel.ops();
        let message = match ops.get(head.op.get(), from) {
            None => return Some(()),
            Some(Op::Send { message, .. } | Op::Sync { message, .. }) => *message,
            Some(Op::Recv { .. }) => return None,
        };
        let op = ops.take(head.op.get(), from)?;
        drop(ops);
        self.engine.revoke(&op);
        op.end(Ok(message));
        Some(())
    }

    fn on_gone(&mut self, from: PeerId, head: &Head) -> Option<()> {
        let (channel, _) = self.bound(from, head)?;
        let mut ops = channel.ops();
        match ops.get(head.op.get(), from) {
            None => return Some(()),
            Some(Op::Recv { .. }) => (),
            Some(_) => return None,
        }
        let op = ops.take(head.op.get(), from)?;
        drop(ops);
        let fault = match self.engine.end_of(from.0) {
            Some(End::Closing | End::Left) => Fault::Left { rank: Some(from.0) },
            _ => Fault::Withdrawn { rank: from.0 },
        };
        op.end(Err(fault));
        Some(())
    }

    fn on_data(&mut self, from: PeerId, head: &Head, body: &[u8]) -> Option<()> {
        let (channel, _) = self.bound(from, head)?;
        land_piece(&channel, from, head.op.get(), usize::try_from(head.extra.get()).ok()?, body)
    }

    fn on_credit(&mut self, from: PeerId, head: &Head) -> Option<()> {
        // A peer that was sent nothing has nothing to give back.
        let Some(peer) = self.engine.peers.get(from) else { return Some(()) };
        let mut out = peer.outbox();
        if out.contact == Contact::Met {
            out.credit = out.credit.saturating_add(head.extra.get()).min(self.engine.credit);
        }
        Some(())
    }

    /// A peer that breaks the protocol is as good as dead; the rest of the job goes on.
    #[cold]
    fn accuse(&self, from: PeerId) {
        self.engine.roster.report(from.0, End::Died("it sent a malformed frame".into()));
    }

    fn start(&mut self, from: PeerId, head: &[u8], len: usize) -> Option<(Arriving, Option<*mut u8>)> {
        let (kind, head) = Head::parse(head)?;
        // Nobody sends frames of more than a device takes; no memory for those who say so.
        if len > self.engine.devices.iter().map(|device| device.caps().fragment).max()? {
            return None;
        }
        match kind {
            Kind::Eager | Kind::EagerSync => {
                let (channel, rank) = self.bound(from, &head)?;
                let message = envelope(&head, rank, len);
                let notify = (kind == Kind::EagerSync).then(|| head.op.get());
                let posted = channel.matching().take_posted(&message);
                if let Some(mut posted) = posted {
                    let to =
                        posted.target.accepts(&message).is_ok().then(|| posted.target.run(0, len)).flatten();
                    return Some((Arriving::Posted { channel, posted, message, notify, at: 0 }, to));
                }
                let mut block = mpj_pool::global().alloc(len).ok();
                let to = block.as_mut().map(|b| b.as_ptr().as_ptr());
                Some((Arriving::Early { head, kind, block, len }, to))
            }
            Kind::Data => {
                let (channel, _) = self.bound(from, &head)?;
                let (number, at) = (head.op.get(), usize::try_from(head.extra.get()).ok()?);
                // A body that would end beyond every offset is none.
                at.checked_add(len)?;
                // What is not the next piece, or has no run of memory, comes by `piece`, which judges it.
                let to = channel.ops().lend(number, from, at, len);
                let lent = to.map(|_| len);
                Some((Arriving::Data { channel, number, at, lent }, to))
            }
            // No other frame has a body.
            _ => None,
        }
    }
}

impl Sink for Delivery<'_> {
    #[inline]
    fn frame(&mut self, from: PeerId, head: &[u8], body: &[u8]) {
        let done = Head::parse(head).and_then(|(kind, head)| match kind {
            Kind::Eager | Kind::EagerSync => self.on_eager(from, kind, &head, body),
            Kind::Data => self.on_data(from, &head, body),
            Kind::Ready => self.on_ready(from, &head),
            Kind::Clear => self.on_clear(from, &head),
            Kind::Done => self.on_done(from, &head),
            Kind::Credit => self.on_credit(from, &head),
            Kind::Gone => self.on_gone(from, &head),
            Kind::Bind => self.on_bind(from, &head),
        });
        if done.is_none() {
            self.accuse(from);
        }
    }

    fn begin(&mut self, from: PeerId, head: &[u8], len: usize) -> Landing {
        let (arriving, to) = self.start(from, head, len).unwrap_or((Arriving::Void, None));
        if matches!(arriving, Arriving::Void) {
            self.accuse(from);
        }
        if let Some(inbox) = self.inbox(from) {
            inbox.arriving = Some(arriving);
        }
        to.map_or(Landing::Pieces, Landing::Into)
    }

    fn piece(&mut self, from: PeerId, bytes: &[u8]) {
        let Some(arriving) = self.inbox(from).and_then(|inbox| inbox.arriving.as_mut()) else { return };
        let broken = match arriving {
            Arriving::Posted { posted, message, at, .. } => {
                if posted.target.accepts(message).is_ok() {
                    posted.target.land(*at, bytes);
                }
                *at += bytes.len();
                false
            }
            Arriving::Data { channel, number, at, .. } => {
                let landed = land_piece(channel, from, *number, *at, bytes);
                *at += bytes.len();
                landed.is_none()
            }
            // Without memory the message is known, its body lost.
            Arriving::Early { .. } | Arriving::Void => false,
        };
        if broken {
            self.accuse(from);
        }
    }

    fn landed(&mut self, from: PeerId) {
        let Some(arriving) = self.inbox(from).and_then(|inbox| inbox.arriving.take()) else { return };
        match arriving {
            Arriving::Posted { channel, posted, message, notify, .. } => {
                posted.receive(&message, |_| ());
                self.engine.confirm(from, &channel, notify);
                if let Some(inbox) = self.inboxes.get_mut(from) {
                    inbox.free(self.engine, from, cost(message.bytes));
                }
            }
            Arriving::Early { head, kind, block, len } => {
                let Some((channel, rank)) = self.bound(from, &head) else { return };
                let message = envelope(&head, rank, len);
                let notify = (kind == Kind::EagerSync).then(|| head.op.get());
                self.engine.arrive_held(&channel, from, message, notify, block);
            }
            Arriving::Data { channel, number, lent: Some(len), .. } => {
                reach(Step::PieceLanded, channel.rank());
                take_back(&channel, from, number, len)
            }
            Arriving::Data { .. } | Arriving::Void => (),
        }
    }

    fn lost(&mut self, from: PeerId, why: &str) {
        match self.inbox(from).and_then(|inbox| inbox.arriving.take()) {
            Some(Arriving::Posted { posted, .. }) => {
                posted.fail(Fault::Unreachable { rank: from.0, why: why.into() });
            }
            Some(Arriving::Data { channel, number, lent: Some(_), .. }) => {
                take_back(&channel, from, number, 0)
            }
            _ => (),
        }
        // Of a rank that is leaving, the end of its connection says nothing new.
        if self.engine.end_of(from.0).is_none() {
            self.engine.roster.report(from.0, End::Died(why.into()));
        }
    }
}

impl Engine {
    /// Lands an early message of a streaming device: a receive may have been posted while its body came.
    fn arrive_held(
        &self,
        channel: &Arc<Channel>,
        from: PeerId,
        message: Envelope,
        notify: Option<u64>,
        block: Option<DefaultBlock>,
    ) {
        let mut matching = channel.matching();
        let body = match block {
            _ if message.bytes == 0 => Held::Empty,
            Some(block) => Held::Block(block),
            None => Held::Lost,
        };
        let early = Unexpected { message, from, body, notify };
        match matching.take_posted(&message) {
            None => {
                let kept = matching.keep(early);
                drop(matching);
                if !kept {
                    self.release(from, cost(message.bytes));
                }
                self.stir();
            }
            Some(Posted { target, ender, .. }) => {
                drop(matching);
                let outcome = self.consume(channel, early, target);
                ender.end(outcome.map(|_| message));
            }
        }
    }
}

/// Lands the next bytes of a receive that is under way; `None` if they are not the next.
fn land_piece(channel: &Channel, from: PeerId, number: u64, at: usize, bytes: &[u8]) -> Option<()> {
    let mut ops = channel.ops();
    // An operation that has failed meanwhile is gone: its pieces fall on the floor.
    let Some(op) = ops.get(number, from) else { return Some(()) };
    let Op::Recv { target, message, received, .. } = op else { return None };
    if at != *received || bytes.len() > message.bytes - *received {
        return None;
    }
    target.land(at, bytes);
    *received += bytes.len();
    reach(Step::PieceLanded, channel.rank());
    end_if_whole(ops, number, from);
    Some(())
}

/// Takes a receive back from the device, which has written its next `len` bytes.
fn take_back(channel: &Channel, from: PeerId, number: u64, len: usize) {
    let mut ops = channel.ops();
    match ops.take_back(number, from, len) {
        Some((op, fault)) => {
            drop(ops);
            op.end(Err(fault));
        }
        None => end_if_whole(ops, number, from),
    }
}

fn end_if_whole(mut ops: MutexGuard<'_, Ops>, number: u64, from: PeerId) {
    let whole = |op: &mut Op| matches!(op, Op::Recv { message, received, .. } if *received == message.bytes);
    if ops.get(number, from).is_some_and(whole)
        && let Some(Op::Recv { target, message, ender, .. }) = ops.take(number, from)
    {
        drop(ops);
        ender.end(target.finish(&message).map(|()| message));
    }
}

#[inline]
fn envelope(head: &Head, source: u32, bytes: usize) -> Envelope {
    let code = head.short.code;
    let signature = if code == 0 {
        Signature { hash: head.hash.get(), count: head.count.get() }
    } else {
        Signature::EMPTY
    };
    Envelope { source, tag: head.tag(), code, signature, bytes }
}
