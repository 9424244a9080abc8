//! Bodies that come in pieces, from a device that streams, or as data for an announced message.

use std::sync::Arc;

use mpj_pool::{DefaultBlock, Pool, RawBuffer};

use super::Engine;
use super::channel::Channel;
use super::delivery::{Addressee, Delivery, envelope};
use super::ops::{Back, Op, Ops, Recv};
use super::outbox::cost;
use crate::biased::MutexGuard;
use crate::device::{KEY_MAX, Landing, PeerId};
use crate::fault::Fault;
use crate::header::{Head, Kind};
use crate::layout::Envelope;
use crate::matching::{Held, Posted, Unexpected};
use crate::steps::{Step, reach};

/// A body on its way from a device that streams.
#[derive(Debug)]
pub(super) enum Arriving {
    /// An eager message that has met its receive.
    Posted { channel: Arc<Channel>, posted: Posted, message: Envelope, notify: Option<u64>, at: usize },
    /// An eager message without one.
    Early { head: Head, kind: Kind, block: Option<DefaultBlock>, len: usize },
    /// A piece of an announced message; the operation is lent to the device if it lands by itself.
    Data { channel: Arc<Channel>, number: u64, at: usize, lent: Option<usize> },
    /// The key of an announced message.
    Key { head: Head, bytes: Vec<u8> },
    /// A body nobody wants.
    Void,
}

/// What a body that a device streams is of.
pub(super) enum Streamed {
    /// An eager message that has met its receive.
    Message { context: u64, tag: i32, bytes: usize },
    /// A frame.
    Frame { kind: Kind, head: Head, bytes: usize },
    /// A piece of a body that has landed by itself.
    Piece { context: u64, bytes: usize },
    /// Nothing, or what was told when it landed.
    Nothing,
}

impl Arriving {
    /// Tells what it is of.
    pub(super) fn is_of(&self) -> Streamed {
        match self {
            Arriving::Posted { channel, message, .. } => {
                Streamed::Message { context: channel.context, tag: message.tag, bytes: message.bytes }
            }
            Arriving::Early { head, kind, len, .. } => {
                Streamed::Frame { kind: *kind, head: *head, bytes: *len }
            }
            Arriving::Key { head, bytes } => {
                Streamed::Frame { kind: Kind::Ready, head: *head, bytes: bytes.len() }
            }
            Arriving::Data { channel, lent: Some(len), .. } => {
                Streamed::Piece { context: channel.context, bytes: *len }
            }
            Arriving::Data { lent: None, .. } | Arriving::Void => Streamed::Nothing,
        }
    }
}

impl Delivery<'_> {
    pub(super) fn begin_body(&mut self, from: PeerId, head: &[u8], len: usize) -> Landing {
        let (arriving, to) = self.start(from, head, len).unwrap_or_else(|| {
            self.engine.accuse_malformed(from);
            (Arriving::Void, None)
        });
        if let Some(inbox) = self.inbox(from) {
            inbox.arriving = Some(arriving);
        }
        to.map_or(Landing::Pieces, Landing::Into)
    }

    fn start(&mut self, from: PeerId, head: &[u8], len: usize) -> Option<(Arriving, Option<*mut u8>)> {
        let (kind, head) = Head::parse(head)?;
        // No device sends a longer frame: a peer that announces one gets no memory for it.
        if len > self.engine.devices.iter().map(|device| device.caps().fragment).max()? {
            return None;
        }
        match kind {
            Kind::Eager | Kind::EagerSync => {
                if let Err(why) = self.inboxes.get_mut(from)?.admit(self.engine, from, kind, len) {
                    self.engine.accuse(from, &why);
                    return Some((Arriving::Void, None));
                }
                if let Addressee::Channel { channel, rank, checked: true } = self.addressee(from, &head)? {
                    let message = envelope(&head, rank, len);
                    let notify = (kind == Kind::EagerSync).then(|| head.op.get());
                    let posted = channel.matching().take_posted(&message);
                    if let Some(mut posted) = posted {
                        let fits = posted.target().accepts(&message).is_ok();
                        let to = fits.then(|| posted.target().run(0, len)).flatten();
                        return Some((Arriving::Posted { channel, posted, message, notify, at: 0 }, to));
                    }
                }
                let mut block = mpj_pool::global().alloc(len).ok();
                let to = block.as_mut().map(|b| b.as_ptr().as_ptr());
                Some((Arriving::Early { head, kind, block, len }, to))
            }
            Kind::Data => {
                let (number, at) = (head.op.get(), usize::try_from(head.extra.get()).ok()?);
                // A body that would end beyond every offset is none.
                at.checked_add(len)?;
                let Some(channel) = self.channel(from, &head)? else { return Some((Arriving::Void, None)) };
                // What is not the next piece, or has no run of memory, comes by `piece`, which judges it.
                let to = channel.ops().lend(number, from, at, len);
                let lent = to.map(|_| len);
                Some((Arriving::Data { channel, number, at, lent }, to))
            }
            Kind::Ready if len <= KEY_MAX => Some((Arriving::Key { head, bytes: Vec::new() }, None)),
            // No other frame has a body.
            _ => None,
        }
    }

    pub(super) fn land_bytes(&mut self, from: PeerId, bytes: &[u8]) {
        let (engine, copied) = (self.engine, self.copied);
        let Some(arriving) = self.inbox(from).and_then(|inbox| inbox.arriving.as_mut()) else { return };
        let broken = match arriving {
            Arriving::Posted { posted, message, at, .. } => {
                if posted.target().accepts(message).is_ok() {
                    copied.add(bytes.len());
                    posted.target().land(*at, bytes);
                }
                *at += bytes.len();
                false
            }
            Arriving::Data { channel, number, at, .. } => {
                copied.add(bytes.len());
                let landed = land_piece(engine, channel, from, *number, *at, bytes);
                *at += bytes.len();
                landed.is_none()
            }
            Arriving::Key { bytes: key, .. } => {
                key.extend_from_slice(bytes);
                false
            }
            // Without memory for the body the message is kept all the same, and its receive fails.
            Arriving::Early { .. } | Arriving::Void => false,
        };
        if broken {
            self.engine.accuse_malformed(from);
        }
    }

    pub(super) fn end_body(&mut self, from: PeerId) {
        let Some(arriving) = self.inbox(from).and_then(|inbox| inbox.arriving.take()) else { return };
        match arriving {
            Arriving::Posted { channel, posted, message, notify, at } => {
                // What did not come in pieces the device has written to its place.
                self.copied.add(message.bytes.saturating_sub(at));
                posted.receive(&message, |_| ());
                self.engine.confirm(from, &channel, notify);
                if let Some(inbox) = self.inboxes.get_mut(from) {
                    inbox.free(self.engine, from, cost(message.bytes));
                }
            }
            Arriving::Early { head, kind, block, len } => {
                let notify = (kind == Kind::EagerSync).then(|| head.op.get());
                self.copied.add(if block.is_some() { len } else { 0 });
                let body = match block {
                    _ if len == 0 => Held::Empty,
                    Some(block) => Held::Block(block),
                    None => Held::Lost,
                };
                let message = |rank| envelope(&head, rank, len);
                let arrived = self
                    .addressee(from, &head)
                    .and_then(|to| self.engine.arrive_held(to, from, message, notify, body));
                if arrived.is_none() {
                    self.engine.accuse_malformed(from);
                }
            }
            Arriving::Data { channel, number, lent: Some(len), .. } => {
                reach(Step::PieceLanded, channel.rank());
                self.copied.add(len);
                take_back(self.engine, &channel, from, number, len)
            }
            Arriving::Key { head, bytes } => {
                if self.on_ready(from, &head, &bytes).is_none() {
                    self.engine.accuse_malformed(from);
                }
            }
            Arriving::Data { .. } | Arriving::Void => (),
        }
    }

    pub(super) fn lose_body(&mut self, from: PeerId, why: &str) {
        match self.inbox(from).and_then(|inbox| inbox.arriving.take()) {
            Some(Arriving::Posted { channel, posted, .. }) => {
                let unreachable = || Fault::Unreachable { rank: from.0, why: why.into() };
                posted.fail(self.engine.first_death_in(&channel).unwrap_or_else(unreachable));
            }
            Some(Arriving::Data { channel, number, lent: Some(_), .. }) => {
                take_back(self.engine, &channel, from, number, 0)
            }
            _ => (),
        }
    }
}

impl Engine {
    /// Lands an eager message that is held already: a receive may have been posted, or its channel joined or left, since
    /// it began to come. `None` if its sender has another rank there.
    pub(super) fn arrive_held(
        &self,
        to: Addressee,
        from: PeerId,
        message: impl FnOnce(u32) -> Envelope,
        notify: Option<u64>,
        body: Held,
    ) -> Option<()> {
        let (channel, rank, checked) = match to {
            Addressee::Channel { channel, rank, checked } => (channel, rank, checked),
            Addressee::Nobody { context } => {
                self.refuse_early(context, Unexpected { message: message(0), from, body, notify });
                return Some(());
            }
        };
        let message = message(rank);
        let early = Unexpected { message, from, body, notify };
        let mut matching = channel.matching();
        // Under the lock: who joins looks through what has come before, under it as well.
        if !checked && !channel.admits(from, rank) {
            return None;
        }
        match matching.take_posted(&message) {
            None => {
                let back = matching.keep(early);
                drop(matching);
                if let Some(early) = back {
                    self.refuse_early(channel.context, early);
                }
                self.stir();
            }
            Some(posted) => {
                drop(matching);
                self.consume(&channel, early, posted.into_receiving());
            }
        }
        Some(())
    }
}

/// Lands the next bytes of a receive that is under way; `None` if they are not the next.
pub(super) fn land_piece(
    engine: &Engine,
    channel: &Channel,
    from: PeerId,
    number: u64,
    at: usize,
    bytes: &[u8],
) -> Option<()> {
    let mut ops = channel.ops();
    // The operation has failed meanwhile and is gone: its pieces are dropped.
    let Some(op) = ops.get(number, from) else { return Some(()) };
    let Op::Recv(Recv { target, message, received, .. }) = op else { return None };
    if at != *received || bytes.len() > message.bytes - *received {
        return None;
    }
    target.land(at, bytes);
    *received += bytes.len();
    reach(Step::PieceLanded, channel.rank());
    end_if_whole(engine, channel, ops, number, from);
    Some(())
}

/// Takes a receive back from the device, which has written its next `len` bytes.
fn take_back(engine: &Engine, channel: &Channel, from: PeerId, number: u64, len: usize) {
    let back = channel.ops().take_back(number, from, Some(len));
    match back {
        Back::Whole(recv) => end_whole(engine, channel, recv),
        Back::Failed(op, fault) => op.end(Err(fault)),
        Back::Open | Back::Void { .. } => (),
    }
}

fn end_if_whole(engine: &Engine, channel: &Channel, mut ops: MutexGuard<'_, Ops>, number: u64, from: PeerId) {
    let whole = |op: &mut Op| matches!(op, Op::Recv(recv) if recv.received == recv.message.bytes);
    if ops.get(number, from).is_some_and(whole)
        && let Some(Op::Recv(recv)) = ops.take(number, from)
    {
        drop(ops);
        end_whole(engine, channel, recv);
    }
}

fn end_whole(engine: &Engine, channel: &Channel, recv: Recv) {
    let Recv { mut target, message, ender, registration, peer, theirs, .. } = recv;
    engine.trace_received(channel, peer, theirs, &message, "body received in pieces");
    drop(registration);
    let valid = target.finish(&message);
    target.release();
    ender.end(valid.map(|()| message));
}
