//! Bodies that arrive after their heads, and the pieces of rendezvous messages.

use std::sync::Arc;

use mpj_pool::{DefaultBlock, Pool, RawBuffer};

use super::Engine;
use super::channel::Channel;
use super::delivery::{Delivery, Destination, envelope};
use super::flush::credit_cost;
use super::ops::{Op, Ops, RecvOp, WriteDone};
use crate::biased::MutexGuard;
use crate::device::{KEY_MAX, Landing, PeerId};
use crate::fault::Fault;
use crate::header::{FrameKind, Head};
use crate::kill_points::{KillPoint, kill_point};
use crate::matching::{Posted, Unexpected, UnexpectedBody};
use crate::message::Envelope;

#[derive(Debug)]
pub(super) enum IncomingBody {
    /// An eager message that has matched a receive. `at` is the number of bytes that came in pieces.
    Matched {
        channel: Arc<Channel>,
        posted: Posted,
        message: Envelope,
        notify: Option<u64>,
        at: usize,
        /// Why the receive refuses the message. A second check could succeed, because memory might be free again.
        refused: Option<Fault>,
    },
    /// An eager message that has not matched. If `block` is `None`, its allocation has failed.
    Unexpected {
        head: Head,
        kind: FrameKind,
        block: Option<DefaultBlock>,
        len: usize,
    },
    /// A piece of a rendezvous message. `direct` is its length if the device writes it to the receive buffer.
    Data {
        channel: Arc<Channel>,
        number: u64,
        at: usize,
        direct: Option<usize>,
    },
    Key {
        head: Head,
        bytes: Vec<u8>,
    },
    Discard,
}

pub(super) enum BodyTraceInfo {
    Message {
        context: u64,
        tag: i32,
        bytes: usize,
    },
    Frame {
        kind: FrameKind,
        head: Head,
        bytes: usize,
    },
    Piece {
        context: u64,
        bytes: usize,
    },
    /// There is nothing to record.
    Nothing,
}

impl IncomingBody {
    pub(super) fn trace_info(&self) -> BodyTraceInfo {
        match self {
            IncomingBody::Matched { channel, message, .. } => {
                BodyTraceInfo::Message { context: channel.context, tag: message.tag, bytes: message.bytes }
            }
            IncomingBody::Unexpected { head, kind, len, .. } => {
                BodyTraceInfo::Frame { kind: *kind, head: *head, bytes: *len }
            }
            IncomingBody::Key { head, bytes } => {
                BodyTraceInfo::Frame { kind: FrameKind::Rts, head: *head, bytes: bytes.len() }
            }
            IncomingBody::Data { channel, direct: Some(len), .. } => {
                BodyTraceInfo::Piece { context: channel.context, bytes: *len }
            }
            IncomingBody::Data { direct: None, .. } | IncomingBody::Discard => BodyTraceInfo::Nothing,
        }
    }
}

impl Delivery<'_> {
    pub(super) fn begin_body(&mut self, from: PeerId, head: &[u8], len: usize) -> Landing {
        let (arriving, to) = self.classify(from, head, len).unwrap_or_else(|| {
            self.engine.report_malformed(from);
            (IncomingBody::Discard, None)
        });
        if let Some(inbox) = self.inbox(from) {
            inbox.incoming = Some(arriving);
        }
        to.map_or(Landing::Pieces, Landing::Into)
    }

    fn classify(&mut self, from: PeerId, head: &[u8], len: usize) -> Option<(IncomingBody, Option<*mut u8>)> {
        let (kind, head) = Head::parse(head)?;
        // No device sends a longer frame, so allocate no memory for a peer that announces one.
        if len > self.engine.devices.iter().map(|device| device.caps().max_send_size).max()? {
            return None;
        }
        match kind {
            FrameKind::Eager | FrameKind::EagerSync => {
                if let Err(why) = self.inboxes.get_mut(from)?.admit(self.engine, from, kind, len) {
                    self.engine.report_protocol_error(from, &why);
                    return Some((IncomingBody::Discard, None));
                }
                if let Destination::Channel { channel, rank, checked: true } =
                    self.destination(from, &head)?
                {
                    let message = envelope(&head, rank, len);
                    let notify = (kind == FrameKind::EagerSync).then(|| head.op.get());
                    let posted = channel.matching().take_posted(&message);
                    if let Some(mut posted) = posted {
                        let refused = posted.target().accepts(&message).err();
                        let to = match &refused {
                            None => posted.target().contiguous_mut(0, len),
                            Some(_) => None,
                        };
                        let body = IncomingBody::Matched { channel, posted, message, notify, at: 0, refused };
                        return Some((body, to));
                    }
                }
                let mut block = mpj_pool::global().alloc(len).ok();
                let to = block.as_mut().map(|b| b.as_ptr().as_ptr());
                Some((IncomingBody::Unexpected { head, kind, block, len }, to))
            }
            FrameKind::Data => {
                let (number, at) = (head.op.get(), usize::try_from(head.extra.get()).ok()?);
                at.checked_add(len)?;
                let Some(channel) = self.channel(from, &head)? else {
                    return Some((IncomingBody::Discard, None));
                };
                // Without an address, the device passes the body to `Sink::piece`, which checks it.
                let to = channel.ops().begin_device_write(number, from, at, len);
                let direct = to.map(|_| len);
                Some((IncomingBody::Data { channel, number, at, direct }, to))
            }
            FrameKind::Rts if len <= KEY_MAX => Some((IncomingBody::Key { head, bytes: Vec::new() }, None)),
            // Other frames have no body.
            _ => None,
        }
    }

    pub(super) fn on_body_bytes(&mut self, from: PeerId, bytes: &[u8]) {
        let (engine, copied) = (self.engine, self.copied);
        let Some(arriving) = self.inbox(from).and_then(|inbox| inbox.incoming.as_mut()) else { return };
        let broken = match arriving {
            IncomingBody::Matched { posted, refused, at, .. } => {
                if refused.is_none() {
                    copied.add(bytes.len());
                    posted.target().write(*at, bytes);
                }
                *at += bytes.len();
                false
            }
            IncomingBody::Data { channel, number, at, .. } => {
                copied.add(bytes.len());
                let landed = receive_data(engine, channel, from, *number, *at, bytes);
                *at += bytes.len();
                landed.is_none()
            }
            IncomingBody::Key { bytes: key, .. } => {
                key.extend_from_slice(bytes);
                false
            }
            // Without memory for the body, the message is still queued, and its receive fails.
            IncomingBody::Unexpected { .. } | IncomingBody::Discard => false,
        };
        if broken {
            self.engine.report_malformed(from);
        }
    }

    pub(super) fn finish_body(&mut self, from: PeerId) {
        let Some(arriving) = self.inbox(from).and_then(|inbox| inbox.incoming.take()) else { return };
        match arriving {
            IncomingBody::Matched { channel, posted, message, notify, at, refused } => {
                // The bytes that did not come in pieces were written by the device directly.
                self.copied.add(message.bytes.saturating_sub(at));
                match refused {
                    None => posted.complete_with(&message, |_| ()),
                    Some(fault) => posted.fail(fault),
                }
                self.engine.send_fin_if_sync(from, &channel, notify);
                if let Some(inbox) = self.inboxes.get_mut(from) {
                    inbox.free_credit(self.engine, from, credit_cost(message.bytes));
                }
            }
            IncomingBody::Unexpected { head, kind, block, len } => {
                let notify = (kind == FrameKind::EagerSync).then(|| head.op.get());
                self.copied.add(if block.is_some() { len } else { 0 });
                let body = match block {
                    _ if len == 0 => UnexpectedBody::Empty,
                    Some(block) => UnexpectedBody::Block(block),
                    None => UnexpectedBody::NoMemory,
                };
                let message = |rank| envelope(&head, rank, len);
                let arrived = self
                    .destination(from, &head)
                    .and_then(|to| self.engine.deliver_buffered(to, from, message, notify, body));
                if arrived.is_none() {
                    self.engine.report_malformed(from);
                }
            }
            IncomingBody::Data { channel, number, direct: Some(len), .. } => {
                kill_point(KillPoint::PieceLanded, self.engine.site.rank);
                self.copied.add(len);
                device_write_done(self.engine, &channel, from, number, len)
            }
            IncomingBody::Key { head, bytes } => {
                if self.on_rts(from, &head, &bytes).is_none() {
                    self.engine.report_malformed(from);
                }
            }
            IncomingBody::Data { .. } | IncomingBody::Discard => (),
        }
    }

    pub(super) fn discard_body(&mut self, from: PeerId, why: &str) {
        match self.inbox(from).and_then(|inbox| inbox.incoming.take()) {
            Some(IncomingBody::Matched { channel, posted, .. }) => {
                let unreachable = || Fault::Unreachable { rank: from.0, why: why.into() };
                posted.fail(self.engine.first_death_fault(&channel).unwrap_or_else(unreachable));
            }
            Some(IncomingBody::Data { channel, number, direct: Some(_), .. }) => {
                device_write_done(self.engine, &channel, from, number, 0)
            }
            _ => (),
        }
    }
}

impl Engine {
    /// Delivers an eager message that was buffered. Since it began to arrive, a receive might have been posted, or its
    /// channel joined or freed. Returns `None` if the sender has another rank in the channel.
    pub(super) fn deliver_buffered(
        &self,
        to: Destination,
        from: PeerId,
        message: impl FnOnce(u32) -> Envelope,
        notify: Option<u64>,
        body: UnexpectedBody,
    ) -> Option<()> {
        let (channel, rank, checked) = match to {
            Destination::Channel { channel, rank, checked } => (channel, rank, checked),
            Destination::Freed { context } => {
                self.nack_unexpected(
                    context,
                    Unexpected { message: message(0), from, body, sync_op: notify },
                );
                return Some(());
            }
        };
        let message = message(rank);
        let unexpected = Unexpected { message, from, body, sync_op: notify };
        let mut matching = channel.matching();
        // Check under the lock: the joiner checks the unexpected messages under the same lock.
        if !checked && !channel.accepts_sender(from, rank) {
            return None;
        }
        match matching.take_posted(&message) {
            None => {
                let back = matching.push_unexpected(unexpected);
                drop(matching);
                if let Some(unexpected) = back {
                    self.nack_unexpected(channel.context, unexpected);
                }
                self.notify_parked();
            }
            Some(posted) => {
                matching.local.note_unexpected(&unexpected);
                drop(matching);
                self.deliver_unexpected(&channel, unexpected, posted.into_receiving());
            }
        }
        Some(())
    }
}

/// Writes the next bytes of a receive. Returns `None` for bytes that are not the next ones or too many, or for a send.
pub(super) fn receive_data(
    engine: &Engine,
    channel: &Channel,
    from: PeerId,
    number: u64,
    at: usize,
    bytes: &[u8],
) -> Option<()> {
    let mut ops = channel.ops();
    // The operation has failed and was removed, or a device still owns it: drop the bytes.
    let Some(op) = ops.get(number, from) else { return Some(()) };
    let Op::RecvOp(RecvOp { target, message, received, .. }) = op else { return None };
    if at != *received || bytes.len() > message.bytes - *received {
        return None;
    }
    target.write(at, bytes);
    *received += bytes.len();
    kill_point(KillPoint::PieceLanded, engine.site.rank);
    complete_if_whole(engine, channel, ops, number, from);
    Some(())
}

fn device_write_done(engine: &Engine, channel: &Channel, from: PeerId, number: u64, len: usize) {
    let back = channel.ops().end_device_write(number, from, Some(len));
    match back {
        WriteDone::Complete(recv) => complete_receive(engine, channel, recv),
        WriteDone::Failed(op, fault) => op.complete(Err(fault)),
        WriteDone::Pending | WriteDone::Refetch { .. } => (),
    }
}

fn complete_if_whole(
    engine: &Engine,
    channel: &Channel,
    mut ops: MutexGuard<'_, Ops>,
    number: u64,
    from: PeerId,
) {
    let whole = |op: &mut Op| matches!(op, Op::RecvOp(recv) if recv.received == recv.message.bytes);
    if ops.get(number, from).is_some_and(whole)
        && let Some(Op::RecvOp(recv)) = ops.take(number, from)
    {
        drop(ops);
        complete_receive(engine, channel, recv);
    }
}

fn complete_receive(engine: &Engine, channel: &Channel, recv: RecvOp) {
    let RecvOp { mut target, message, completer, registration, peer, sender_op, .. } = recv;
    engine.trace_received(channel, peer, sender_op, &message, "body received in pieces");
    drop(registration);
    let valid = target.finish(&message);
    target.drop_fast();
    completer.complete(valid.map(|()| message));
}
