//! Moving what waits for one peer: frames in order, then bodies in pieces; eager room.

use std::mem::MaybeUninit;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mpj_pool::{Pool, RawBuffer};

use super::Engine;
use super::channel::Channel;
use super::peer::{Contact, Outbox, Peer, Waiting};
use crate::device::{Body, PeerId, PostError};
use crate::header::{Head, Kind};
use crate::layout::Source;
use crate::matching::Held;
use crate::steps::{Step, reach};

/// Pieces of bodies sent to one peer before other work has its turn.
const PIECES: usize = 16;

/// What an eager message takes of its receiver's room: its body and what it costs to keep.
#[inline]
pub(crate) fn cost(bytes: usize) -> u64 {
    bytes as u64 + 64
}

impl Engine {
    /// Makes sure that the peer knows the channel before the first frame that names it.
    #[inline]
    pub(crate) fn bind(&self, peer: &Peer, out: &mut Outbox, channel: &Channel) {
        if out.bound.get(usize::from(channel.number)) != Some(&channel.context) {
            self.introduce(peer, out, channel);
        }
    }

    #[cold]
    fn introduce(&self, _peer: &Peer, out: &mut Outbox, channel: &Channel) {
        if out.gone {
            return;
        }
        let number = usize::from(channel.number);
        if out.bound.len() <= number {
            // No context is u64::MAX.
            out.bound.resize(number + 1, u64::MAX);
        }
        out.bound[number] = channel.context;
        let mut head = Head::new(Kind::Bind, 0, channel.number, channel.rank().cast_signed());
        head.hash.set(channel.context);
        self.push(out, head, None);
    }

    /// Sends a frame, now or when there is room.
    pub(crate) fn push(&self, out: &mut Outbox, head: Head, body: Option<Source>) {
        if out.gone {
            return;
        }
        if !out.waiting.is_empty() || out.post(&head, body.as_ref()).is_err() {
            // A link that is broken says so again when the outbox is flushed.
            self.queue(out, Waiting { head, body, ends: None });
            if out.contact != Contact::Met {
                self.look_for_answers();
            }
        } else {
            self.note_staged(out);
        }
    }

    /// Has the link flushed by whoever waits if it has kept something back of a frame it took.
    #[inline]
    pub(crate) fn note_staged(&self, out: &mut Outbox) {
        if out.link.is_staged() {
            let idle = out.is_idle();
            out.unflushed = true;
            self.note_busy(idle, out);
        }
    }

    pub(crate) fn queue(&self, out: &mut Outbox, waiting: Waiting) {
        let idle = out.is_idle();
        out.waiting.push_back(waiting);
        self.note_busy(idle, out);
    }

    /// Keeps the count of busy outboxes, after a change of one that was idle or not before.
    pub(crate) fn note_busy(&self, was_idle: bool, out: &Outbox) {
        match (was_idle, out.is_idle()) {
            (true, false) => self.busy.fetch_add(1, Ordering::AcqRel),
            (false, true) => self.busy.fetch_sub(1, Ordering::AcqRel),
            _ => return,
        };
    }

    /// Answers a peer's operation on a channel.
    pub(crate) fn answer(&self, to: PeerId, channel: &Channel, kind: Kind, op: u64, extra: u64) {
        // A peer that cannot be reached will be reported by its device.
        let Ok(peer) = self.peer(to) else { return };
        let mut out = peer.outbox();
        self.bind(peer, &mut out, channel);
        let mut head = Head::new(kind, 0, channel.number, 0);
        head.op.set(op);
        head.extra.set(extra);
        self.push(&mut out, head, None);
        match kind {
            Kind::Clear => reach(Step::Cleared, self.site.rank),
            Kind::Done => reach(Step::Confirmed, self.site.rank),
            _ => (),
        }
    }

    /// Gives a peer eager room back.
    pub(crate) fn grant(&self, to: PeerId, bytes: u64) {
        let Ok(peer) = self.peer(to) else { return };
        let mut head = Head::new(Kind::Credit, 0, 0, 0);
        head.extra.set(bytes);
        self.push(&mut peer.outbox(), head, None);
    }

    /// Notes eager room freed by a receive of an early message, and returns it to the sender by the quarter.
    pub(crate) fn release(&self, from: PeerId, bytes: u64) {
        let Some(peer) = self.peers.get(from) else {
            return self.grant(from, bytes);
        };
        let freed = peer.freed.fetch_add(bytes, Ordering::Relaxed) + bytes;
        if freed >= self.credit / 4 {
            let all = peer.freed.swap(0, Ordering::Relaxed);
            self.grant(from, all);
        }
    }

    /// Waits until nothing waits in an outbox any more, but no longer than `patience`: a rank that has told the others
    /// something may not look at its messages for long.
    pub fn flush_for(&self, patience: Duration) {
        let end = Instant::now() + patience;
        let is_out = || self.busy.load(Ordering::Acquire) == 0 || Instant::now() >= end;
        self.wait_until(|| is_out().then_some(()));
    }

    /// Moves what waits in every busy outbox; returns how many frames went out.
    pub(crate) fn flush_all(&self) -> usize {
        self.take_answers() + self.peers.iter().map(|peer| self.flush(peer)).sum::<usize>()
    }

    pub(super) fn flush(&self, peer: &Peer) -> usize {
        let mut out = peer.outbox();
        if out.is_idle() {
            return 0;
        }
        let mut moved = 0;
        let result = self
            .move_frames(&mut out, &mut moved)
            .and_then(|()| move_pieces(&mut out, &mut moved, self.site.rank));
        let flushed = out.link.flush();
        match (result, flushed) {
            (Err(PostError::Broken(why)), _) | (_, Err(PostError::Broken(why))) => {
                drop(out);
                self.broken_link(peer, PostError::Broken(why));
                return moved;
            }
            (_, left) => out.unflushed = left.unwrap_or(false),
        }
        self.note_busy(false, &out);
        moved
    }

    fn move_frames(&self, out: &mut Outbox, moved: &mut usize) -> Result<(), PostError> {
        while let Some(Waiting { head, body, ends }) = out.waiting.pop_front() {
            if let Err(error) = out.post(&head, body.as_ref()) {
                out.waiting.push_front(Waiting { head, body, ends });
                return Err(error);
            }
            drop(body);
            if let Some((ender, message)) = ends {
                ender.end(Ok(message));
            }
            *moved += 1;
        }
        Ok(())
    }

    /// Keeps the body of an early message.
    pub(crate) fn hold(&self, bytes: usize, fill: impl FnOnce(&mut [MaybeUninit<u8>])) -> Held {
        if bytes == 0 {
            return Held::Empty;
        }
        match mpj_pool::global().alloc(bytes) {
            Ok(mut block) => {
                fill(&mut block.as_uninit_mut()[..bytes]);
                Held::Block(block)
            }
            Err(_) => Held::Lost,
        }
    }
}

fn move_pieces(out: &mut Outbox, moved: &mut usize, rank: u32) -> Result<(), PostError> {
    for _ in 0..PIECES {
        let Outbox { link, caps, streams, .. } = &mut *out;
        let Some(stream) = streams.front_mut() else { return Ok(()) };
        let len = caps.fragment.min(stream.message.bytes - stream.sent);
        let mut head = Head::new(Kind::Data, 0, stream.channel, 0);
        head.op.set(stream.op);
        head.extra.set(stream.sent as u64);
        let source = &stream.source;
        let sent = stream.sent;
        match source.contiguous() {
            Some(bytes) => link.post(head.bytes(), Body::Bytes(&bytes[sent..sent + len]))?,
            None => link.post(
                head.bytes(),
                Body::Fill(len, &mut |room| {
                    source.pack(sent, room);
                }),
            )?,
        }
        stream.sent += len;
        reach(Step::PieceSent, rank);
        *moved += 1;
        if stream.sent == stream.message.bytes {
            if let Some(stream) = streams.pop_front() {
                drop(stream.source);
                stream.ender.end(Ok(stream.message));
            }
        } else {
            // One piece of each body in turn.
            streams.rotate_left(1);
        }
    }
    Ok(())
}
