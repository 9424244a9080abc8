//! Sending: eager and rendezvous messages.

use std::sync::Arc;

use mpj_pool::Access;
use zerocopy::IntoBytes;

use super::Engine;
use super::channel::Channel;
use super::flush::credit_cost;
use super::ops::Op;
use super::path_select::{self, Bounce, LocalBody, SendPath};
use super::peer::{DeferredSend, Outbox, Peer, QueuedFrame, Wireup};
use super::replies::expect_reply;
use crate::completion::{Completer, Completion, Started, pair};
use crate::data_path::DataPath;
use crate::deferred_drop;
use crate::device::{Caps, PeerId, PostError, Registration, RemoteKey};
use crate::fault::Fault;
use crate::header::{FrameKind, Head, MediumHead, ShortHead};
use crate::kill_points::{KillPoint, kill_point};
use crate::liveness::Exit;
use crate::message::{BounceBuffer, Envelope, MessageTag, Source};

/// The condition under which a send is complete.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Mode {
    /// The buffer can be used again.
    Standard,
    /// The buffer can be used again, and the message has been matched.
    Synchronous,
}

/// When the frame of a send leaves this rank, if the endpoint has space.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Coalesce {
    /// Before the call returns, because the caller waits for the send.
    No,
    /// Soon: the caller might start more sends, and the device may delay the frame to coalesce it with theirs. At the
    /// latest, the delay ends when a thread of the rank makes progress, at [`Engine::flush_coalesced`], or after
    /// [`MAX_COALESCE_DELAY`](crate::device::MAX_COALESCE_DELAY).
    Allowed,
}

/// The state of a send that did not fail.
#[derive(Debug)]
pub enum Sent {
    /// The send is complete, and needs no flush.
    Posted,
    /// The send is complete, but the device might send its message [later](Coalesce::Allowed).
    Coalesced,
    /// The send is pending.
    Pending(Completion),
}

impl Engine {
    /// Starts a message to member `dest` of a channel, as [`send`](Self::send) does, but takes the source only if the
    /// message needs the slow path. A send that is pending on return has taken it.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    #[inline(never)]
    pub fn send_from(
        &self,
        channel: &Arc<Channel>,
        dest: u32,
        tag: MessageTag,
        source: &mut Source,
        mode: Mode,
        coalesce: Coalesce,
    ) -> Result<Sent, Box<Fault>> {
        if mode == Mode::Standard
            && let Some(sent) = self.try_send(channel, dest, tag, source, coalesce)
        {
            return sent;
        }
        match self.send(channel, dest, tag, source.take(), mode, coalesce) {
            Ok(Started::Done(_)) if coalesce == Coalesce::Allowed && self.is_busy() => Ok(Sent::Coalesced),
            Ok(Started::Done(_)) => Ok(Sent::Posted),
            Ok(Started::Pending(completion)) => Ok(Sent::Pending(completion)),
            Err(fault) => Err(Box::new(fault)),
        }
    }

    /// Sends a standard message that is complete when this call returns: an eager message, or a message to this rank.
    /// Returns `None`, and sends nothing, if the message needs the slow path. It does not take the source.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    #[inline]
    pub fn try_send(
        &self,
        channel: &Channel,
        dest: u32,
        tag: MessageTag,
        source: &mut Source,
        coalesce: Coalesce,
    ) -> Option<Result<Sent, Box<Fault>>> {
        if !self.owns(channel) {
            return Some(Err(Box::new(Fault::ForeignChannel)));
        }
        let id = channel.peer(dest)?;
        if id.0 == self.site.rank {
            return Some(self.send_standard_to_self(channel, tag, source));
        }
        if !self.has_fast_path {
            return None;
        }
        self.try_send_eager(channel, id, tag, source, coalesce).map(Ok)
    }

    /// Sends an eager message of one primitive type on the fast path. Returns `None` if it needs the slow path.
    #[inline]
    fn try_send_eager(
        &self,
        channel: &Channel,
        id: PeerId,
        tag: MessageTag,
        source: &Source,
        coalesce: Coalesce,
    ) -> Option<Sent> {
        let (code, peer) = (source.code()?, self.peers.get(id)?);
        let mut out = peer.outbox();
        // An unconnected peer has no credit. A block that might be exported takes the slow path: it queries the device.
        let body = local_body(source, DataPath::Auto);
        let is_eager = body.path == DataPath::Auto
            && path_select::is_eager(&out.caps, body, out.send_credit, || true)
            && out.queued_frames.is_empty()
            && out.is_bound(channel);
        if !is_eager || channel.has_exits() || channel.broken().is_some() {
            return None;
        }
        let short = ShortHead::new(FrameKind::Eager, code, channel.wire_id(), tag.tag);
        if tag.immediate == 0 {
            out.post_body(short.as_bytes(), source.whole(), coalesce).ok()?;
        } else {
            let medium = MediumHead::new(short, tag.immediate);
            out.post_body(medium.as_bytes(), source.whole(), coalesce).ok()?;
        }
        out.send_credit -= credit_cost(body.bytes);
        out.note_eager(body.bytes);
        let is_unflushed = self.note_unflushed(&mut out);
        kill_point(KillPoint::EagerSent, self.site.rank);
        Some(if is_unflushed { Sent::Coalesced } else { Sent::Posted })
    }

    /// Starts a message to member `dest` of a channel.
    ///
    /// # Errors
    /// [`Fault::Dead`], [`Fault::Left`], [`Fault::Abandoned`], [`Fault::Unreachable`], [`Fault::Freed`],
    /// [`Fault::NoMemory`], [`Fault::TooManyMessages`], [`Fault::ForeignChannel`].
    #[inline]
    pub fn send(
        &self,
        channel: &Arc<Channel>,
        dest: u32,
        tag: impl Into<MessageTag>,
        source: Source,
        mode: Mode,
        coalesce: Coalesce,
    ) -> Result<Started, Fault> {
        let tag = tag.into();
        if source.keep_alive().is_none() {
            return self.send_locked(channel, dest, tag, source, mode, coalesce);
        }
        // The send can complete under the lock of the outbox, and the drop of its `KeepAlive` can start other sends.
        let hold = deferred_drop::DeferDrops::begin();
        let started = self.send_locked(channel, dest, tag, source, mode, coalesce);
        drop(hold);
        deferred_drop::run_deferred_drops();
        started
    }

    #[inline]
    fn send_locked(
        &self,
        channel: &Arc<Channel>,
        dest: u32,
        tag: MessageTag,
        mut source: Source,
        mode: Mode,
        coalesce: Coalesce,
    ) -> Result<Started, Fault> {
        if !self.owns(channel) {
            return Err(Fault::ForeignChannel);
        }
        if let Some(fault) = channel.broken() {
            return Err(fault.clone());
        }
        let id = channel.peer(dest).ok_or_else(|| no_such_rank(dest))?;
        let message = source.envelope(channel.rank(), tag);
        if id.0 == self.site.rank {
            return self.send_self(channel, message, &mut source, mode);
        }
        let peer = self.peer(id)?;
        if channel.has_exits() {
            self.check_peer(channel, id)?;
        }
        let source = self.apply_path(peer, source)?;
        let mut out = peer.outbox();
        // Check again under the lock: a freed channel is removed once no outbox holds a deferred send of it.
        if let Some(fault) = channel.broken() {
            return Err(fault.clone());
        }
        let path = self.send_path(peer, &out, &source, mode);
        if matches!(path, SendPath::Rendezvous { .. }) && out.wireup != Wireup::Connected {
            return self.defer_send(channel, peer, out, message, source, mode);
        }
        if path != SendPath::Eager {
            expect_reply(peer, &mut out)?;
        }
        self.ensure_bound(&mut out, channel);
        let started = if path == SendPath::Eager {
            out.send_credit -= credit_cost(message.bytes);
            self.send_eager(channel, peer, &mut out, message, source, coalesce)?
        } else {
            let (completer, completion) = pair();
            self.send_with_reply(channel, peer, &mut out, (message, source, completer), path, coalesce);
            Started::Pending(completion)
        };
        drop(out);
        if let Started::Pending(_) = started {
            self.recheck_exits(channel, Some(id));
        }
        Ok(started)
    }

    #[inline]
    fn send_eager(
        &self,
        channel: &Channel,
        peer: &Peer,
        out: &mut Outbox,
        message: Envelope,
        source: Source,
        coalesce: Coalesce,
    ) -> Result<Started, Fault> {
        let head = head(FrameKind::Eager, channel, &message);
        if out.queued_frames.is_empty() {
            match self.post_traced(out, &head, message.bytes, |out| out.post(&head, Some(&source), coalesce))
            {
                Ok(()) => {
                    source.drop_fast();
                    self.note_unflushed(out);
                    kill_point(KillPoint::EagerSent, self.site.rank);
                    return Ok(Started::Done(message));
                }
                Err(PostError::Again) => (),
                Err(error) => return Err(self.endpoint_broken(peer, error)),
            }
        }
        let (completer, completion) = pair();
        self.queue(out, channel.context, head, Some(source), Some((completer, message)));
        Ok(Started::Pending(completion))
    }

    /// Sends an eager synchronous message or an RTS.
    fn send_with_reply(
        &self,
        channel: &Channel,
        peer: &Peer,
        out: &mut Outbox,
        (message, source, completer): (Envelope, Source, Completer),
        path: SendPath,
        coalesce: Coalesce,
    ) {
        if let SendPath::Rendezvous { .. } = path {
            return self.send_rts(channel, peer, out, (message, source, completer), path, coalesce);
        }
        out.send_credit -= credit_cost(message.bytes);
        let seq = out.next_seq;
        let op = Op::EagerSync { peer: peer.id, message, seq, completer };
        let mut head = head(FrameKind::EagerSync, channel, &message);
        head.op.set(channel.ops().insert(op));
        self.push_frame(out, channel.context, head, Some(source), coalesce);
        // Reserve the sequence number, even if the frame was posted and not queued.
        out.next_seq = seq + 1;
    }

    fn send_rts(
        &self,
        channel: &Channel,
        peer: &Peer,
        out: &mut Outbox,
        (message, source, completer): (Envelope, Source, Completer),
        path: SendPath,
        coalesce: Coalesce,
    ) {
        let (registration, key) = self.expose(peer, &source, path).unzip();
        self.note_registered(out, registration.as_ref().map_or(0, Registration::bytes));
        let op = Op::Rendezvous { peer: peer.id, source, message, registration, completer };
        let mut head = head(FrameKind::Rts, channel, &message);
        head.op.set(channel.ops().insert(op));
        head.extra.set(message.bytes as u64);
        out.sent.rendezvous.add(message.bytes);
        let key = key.map(Box::new);
        self.post_or_queue(
            out,
            QueuedFrame { context: channel.context, head, body: None, key, completes: None, seq: 0 },
            coalesce,
        );
        kill_point(KillPoint::RtsSent, self.site.rank);
    }

    /// Packs a message into a bounce buffer if [`send_bounce`](path_select::send_bounce) selects one.
    #[inline]
    fn apply_path(&self, peer: &Peer, source: Source) -> Result<Source, Fault> {
        let bytes = source.bytes();
        let caps = if self.registers { self.caps_of(peer) } else { &Caps::NONE };
        let block = match path_select::send_bounce(caps, local_body(&source, self.path)) {
            Bounce::No => None,
            Bounce::IfAvailable => self.bounce_buffers.try_alloc(bytes),
            Bounce::Always => Some(BounceBuffer::alloc(bytes).ok_or(Fault::NoMemory { bytes })?),
        };
        Ok(match block {
            Some(block) => source.pack_into_bounce(block),
            None => source,
        })
    }

    #[inline]
    fn send_path(&self, peer: &Peer, out: &Outbox, source: &Source, mode: Mode) -> SendPath {
        let can_export = || {
            self.device_of(peer)
                .zip(source.memory())
                .is_some_and(|(device, memory)| device.can_export(&memory))
        };
        path_select::send_path(&out.caps, local_body(source, self.path), out.send_credit, mode, can_export)
    }

    /// Exports or registers a body, as its path allows. Returns the registration, and the key for the RTS.
    fn expose(&self, peer: &Peer, source: &Source, path: SendPath) -> Option<(Registration, RemoteKey)> {
        let SendPath::Rendezvous { export, register } = path else { return None };
        if !export && !register {
            return None;
        }
        let (device, memory) = self.device_of(peer).zip(source.memory())?;
        if let Some(keep) = source.keep_alive().filter(|_| export) {
            // SAFETY: the message is initialised, and nobody writes to it while a clone of `keep` exists.
            #[expect(unsafe_code, reason = "see above")]
            let exported = unsafe { device.export(&memory, keep) };
            if let Some(exported) = exported {
                let key = device.pack_key(&exported, 0, memory.bytes());
                return key.map(|key| (exported, key));
            }
        }
        if !register {
            return None;
        }
        // SAFETY: the bytes are those of `source`, which lives in the operation as long as the registration does: until
        // the receiver has replied that it needs no key, the device has reported that the receiver cannot access them,
        // or the devices were dropped.
        #[expect(unsafe_code, reason = "see above")]
        let registration = unsafe { device.register(&memory, source.region(), Access::READ) }.ok()?;
        let key = device.pack_key(&registration, 0, memory.bytes())?;
        Some((registration, key))
    }

    pub(super) fn send_deferred(&self, peer: &Peer, out: &mut Outbox, unsent: DeferredSend) {
        let DeferredSend { channel, message, source, mode, completer } = unsent;
        self.ensure_bound(out, &channel);
        let path = self.send_path(peer, out, &source, mode);
        if path == SendPath::Eager {
            out.send_credit -= credit_cost(message.bytes);
            let head = head(FrameKind::Eager, &channel, &message);
            return self.queue(out, channel.context, head, Some(source), Some((completer, message)));
        }
        match expect_reply(peer, out) {
            Ok(()) => {
                let parts = (message, source, completer);
                self.send_with_reply(&channel, peer, out, parts, path, Coalesce::Allowed);
            }
            Err(fault) => {
                drop(source);
                completer.complete(Err(fault));
            }
        }
    }

    fn check_peer(&self, channel: &Channel, id: PeerId) -> Result<(), Fault> {
        match self.exit_of(id.0) {
            Some(Exit::Died(cause)) => {
                Err(self.first_death_fault(channel).unwrap_or(Fault::Dead { rank: id.0, cause }))
            }
            Some(end) if end.is_closing_in(channel.context) => Err(self.left_fault(channel, Some(id.0))),
            _ => Ok(()),
        }
    }

    /// Reports a peer whose endpoint is broken as dead, because it cannot be reached any more.
    pub(crate) fn endpoint_broken(&self, peer: &Peer, error: PostError) -> Fault {
        let why: Arc<str> = match error {
            PostError::Broken(why) => why.into(),
            PostError::Again | PostError::Unsupported | PostError::Revoked => {
                "the device rejected a frame".into()
            }
        };
        self.roster.report(peer.id.0, Exit::Died(Arc::clone(&why)));
        Fault::Unreachable { rank: peer.id.0, why }
    }
}

pub(crate) fn no_such_rank(rank: u32) -> Fault {
    Fault::Unreachable { rank, why: "no such rank in the communicator".into() }
}

fn head(kind: FrameKind, channel: &Channel, message: &Envelope) -> Head {
    let head = Head::new(kind, message.code, channel.wire_id(), message.tag);
    let mut head = head.with_immediate(message.immediate);
    if message.code == 0 {
        head.hash.set(message.signature.hash);
        head.count.set(message.signature.count);
    }
    head
}

/// Describes a body to send. `path` applies if the source does not choose a path.
#[inline]
pub(super) fn local_body(source: &Source, path: DataPath) -> LocalBody {
    LocalBody {
        path: source.path().unwrap_or(path),
        bytes: source.bytes(),
        is_contiguous: source.contiguous().is_some(),
        in_region: source.region().is_some(),
        is_owned: source.is_lendable(),
    }
}
