//! Getting the body of a message that was announced: moved by the device from the sender's memory to the receiver's, in
//! pieces if it moves no more at once; or asked for, and sent in frames.
//!
//! ```text
//!   sender                          receiver
//!   Ready (key) ──────────────────► matched: the receive is lent to the device
//!      ◄─ ─ ─ ─ ─ ─ ─ get ─ ─ ─ ─ ─ its pieces end in any order
//!   the message ends ◄──────── Done all have
//!   sends the body ◄───────── Clear one has failed, or there was no key: the memory is ours again
//! ```
//! If the operation fails meanwhile, it ends when the last piece has.

use std::sync::Arc;

use mpj_pool::{Access, Region};

use super::Engine;
use super::channel::Channel;
use super::moves::DeviceOp;
use super::ops::{BufferOwner, Op, RecvOp, WriteDone};
use super::outbox::{DeferredCompletion, PIECES};
use super::peer::{Outbox, Peer};
use crate::completion::Completer;
use crate::device::{
    Device, MemoryDesc, MemoryPart, OpStatus, PeerId, PostError, Reach, Registration, RemoteKey,
};
use crate::header::FrameKind;
use crate::later;
use crate::layout::{Envelope, Source, Target};
use crate::path::DataPath;
use crate::trace::Trace;

/// A message that was announced, and has met its receive.
#[derive(Debug)]
pub(crate) struct MatchedRts<'a> {
    pub(crate) channel: &'a Arc<Channel>,
    pub(crate) from: PeerId,
    pub(crate) message: Envelope,
    /// The sender's operation.
    pub(crate) op: u64,
    pub(crate) key: Option<&'a RemoteKey>,
}

/// A get that has pieces to post. The receive is lent for it, once more than for the pieces under way.
#[derive(Debug)]
pub(crate) struct PendingGet {
    channel: Arc<Channel>,
    op: u64,
    key: RemoteKey,
    bytes: usize,
    posted: usize,
}

/// How far a get came in one go.
enum Went {
    /// A piece is with the device, or has moved; so many bytes of it by now.
    On(usize),
    /// No piece will follow.
    Finished,
}

/// The bytes that gets of one peer move at once before other work has its turn, to the end of the piece that reaches it:
/// the peer's outbox is locked meanwhile.
const AT_ONCE: usize = 1 << 20;

impl Engine {
    /// Gets the body of an announced message that was accepted: by a move, or by asking for it.
    pub(crate) fn fetch(&self, announced: &MatchedRts<'_>, mut target: Target, ender: Completer) {
        let MatchedRts { channel, from, message, op: theirs, key } = *announced;
        let peer = self.peer(from).ok();
        // Of nothing there is no move.
        let get = key.filter(|_| message.bytes > 0).zip(peer).and_then(|(key, peer)| {
            let device = self.device_of(peer)?;
            let path = target.path().unwrap_or(self.path);
            if needs_bounce(device, &target.memory()?, message.bytes, target.region(), path)
                && let Some(block) = self.stages.try_alloc(message.bytes)
            {
                target.use_bounce(block);
            }
            Some((key, peer, prepare(device, &target, message.bytes)?))
        });
        // The operation has the only copy: it is dropped with it, before the memory goes back.
        let (get, registration) = match get {
            Some((key, peer, registration)) => (Some((key, peer)), registration),
            None => (None, None),
        };
        let hands = if get.is_some() { BufferOwner::LENT } else { BufferOwner::Engine };
        let registered = registration.as_ref().map_or(0, Registration::bytes);
        let recv = RecvOp {
            peer: from,
            sender_op: theirs,
            target,
            message,
            received: 0,
            ender,
            owner: hands,
            registration,
        };
        let op = channel.ops().insert(Op::RecvOp(recv));
        match get {
            Some((key, peer)) => {
                let channel = Arc::clone(channel);
                let fetch = PendingGet { channel, op, key: *key, bytes: message.bytes, posted: 0 };
                self.start_get(peer, fetch, registered);
            }
            None => self.answer(from, channel, FrameKind::Cts, theirs, op),
        }
        self.recheck_exits(channel, Some(from));
    }

    /// Starts a get, for whose target so many bytes were registered.
    fn start_get(&self, peer: &Peer, fetch: PendingGet, registered: usize) {
        let (mut moved, mut ended) = (0, Vec::new());
        let mut out = peer.outbox();
        self.note_registered(&mut out, registered);
        if out.gone {
            drop(out);
            return self.get_piece_done(&fetch.channel, peer.id, fetch.op, None);
        }
        let was_idle = out.is_idle();
        out.fetches.push_back(fetch);
        let result = self.move_gets(&mut out, &mut moved, &mut ended);
        self.note_busy(was_idle, &mut out);
        let is_left = !out.fetches.is_empty();
        drop(out);
        if is_left {
            // Who sleeps with the turn goes on with it. A device that has no room rings itself, once there is some.
            self.site.bell.ring();
        }
        let hold = later::DeferDrops::begin();
        ended.into_iter().for_each(|ended| ended.run(self));
        drop(hold);
        later::run_deferred_drops();
        if let Err(error @ PostError::Broken(_)) = result {
            self.broken_link(peer, error);
        }
    }

    /// Makes a body ready to be sent from where it lies, if the device can and it pays.
    pub(crate) fn prepare_zcopy(
        &self,
        peer: &Peer,
        source: &Source,
    ) -> Option<(MemoryDesc, Option<Registration>)> {
        let device = self.device_of(peer)?;
        device.caps().zcopy?;
        let memory = source.memory()?;
        if !can_move(device, device.caps().zcopy, &memory, source.path().unwrap_or(self.path)) {
            return None;
        }
        // SAFETY: the memory is the source's; the registration goes beside it, and is dropped before it.
        #[expect(unsafe_code, reason = "see above")]
        let registration = unsafe { register_local(device, &memory, source.region()) }?;
        if let Some(registration) = &registration {
            self.note_registered(&mut peer.outbox(), registration.bytes());
        }
        Some((memory, registration))
    }

    /// Posts pieces that wait in an outbox, as many as may go before other work has its turn, or until there is no room.
    pub(crate) fn move_gets(
        &self,
        out: &mut Outbox,
        moved: &mut usize,
        ended: &mut Vec<DeferredCompletion>,
    ) -> Result<(), PostError> {
        let mut at_once = 0;
        for _ in 0..PIECES {
            if out.fetches.is_empty() || at_once >= AT_ONCE {
                break;
            }
            let went = self.post_get(out, ended);
            let result = match went {
                Ok(Went::On(bytes)) => {
                    *moved += 1;
                    at_once += bytes;
                    if out.fetches.front().is_some_and(|fetch| fetch.posted < fetch.bytes) {
                        continue;
                    }
                    Ok(())
                }
                Err(PostError::Again) => return Err(PostError::Again),
                Ok(Went::Finished) => Ok(()),
                Err(error) => Err(error),
            };
            if let Some(PendingGet { channel, op, .. }) = out.fetches.pop_front() {
                ended.push(DeferredCompletion::Get {
                    channel,
                    peer: out.id,
                    op,
                    landed: result.is_ok().then_some(0),
                });
            }
            if let Err(PostError::Broken(why)) = result {
                return Err(PostError::Broken(why));
            }
        }
        Ok(())
    }

    /// Posts the next piece of the first get of an outbox.
    fn post_get(&self, out: &mut Outbox, ended: &mut Vec<DeferredCompletion>) -> Result<Went, PostError> {
        let Outbox { id, link, caps, fetches, streams, sent, .. } = out;
        let peer = *id;
        let Some(PendingGet { channel, op, key, bytes, posted }) = fetches.front_mut() else {
            return Ok(Went::Finished);
        };
        let most = caps.get.map_or(0, |reach| reach.max);
        let len = most.min(*bytes - *posted);
        let lent = if len == 0 { None } else { channel.ops().add_device_write(*op, peer, *posted, len) };
        let Some((memory, registration)) = lent else { return Ok(Went::Finished) };
        let crossing =
            !streams.is_empty() || self.peers.get(peer).is_some_and(|peer| peer.bodies.are_there());
        let to = MemoryPart { bidirectional: crossing, ..memory.part(*posted, len, registration.as_ref()) };
        let what = DeviceOp::Get { channel: Arc::clone(channel), op: *op, peer, len };
        let token = self.begin_device_op(what);
        let begun = self.trace().map(Trace::now);
        // SAFETY: the receive is lent for this piece: its target stays where it is, untouched, until the piece has ended.
        #[expect(unsafe_code, reason = "see above")]
        let result = unsafe { link.get(key, *posted as u64, to, token) };
        if result.is_ok() {
            sent.lent.add(len);
            if let Some(begun) = begun {
                self.trace_piece(begun, "piece got", "from", peer, len);
            }
        }
        if let Ok(OpStatus::InProgress) = result {
            *posted += len;
            return Ok(Went::On(0));
        }
        self.drop_device_op(token);
        let get = |landed| DeferredCompletion::Get { channel: Arc::clone(channel), peer, op: *op, landed };
        match result {
            Err(PostError::Again) => {
                // The get itself still holds the receive.
                let _ = channel.ops().end_device_write(*op, peer, Some(0));
                Err(PostError::Again)
            }
            Err(error) => {
                ended.push(get(None));
                Err(error)
            }
            Ok(_) => {
                ended.push(get(Some(len)));
                *posted += len;
                Ok(Went::On(len))
            }
        }
    }

    /// Ends a get that has pieces to post, and will not post them.
    pub(crate) fn abort_get(&self, from: PeerId, PendingGet { channel, op, .. }: PendingGet) {
        self.get_piece_done(&channel, from, op, None);
    }

    /// Ends a piece of a get, which has landed so many bytes or failed, or the posting of pieces.
    pub(crate) fn get_piece_done(
        &self,
        channel: &Arc<Channel>,
        from: PeerId,
        op: u64,
        landed: Option<usize>,
    ) {
        let back = channel.ops().end_device_write(op, from, landed);
        match back {
            WriteDone::Pending => (),
            WriteDone::Complete(RecvOp {
                mut target,
                message,
                ender,
                sender_op: theirs,
                registration,
                ..
            }) => {
                self.trace_received(channel, from, theirs, &message, "body got");
                self.answer(from, channel, FrameKind::Fin, theirs, 0);
                drop(registration);
                let valid = target.finish(&message);
                target.release();
                ender.complete(valid.map(|()| message));
            }
            WriteDone::Failed(op, fault) => op.complete(Err(fault)),
            WriteDone::Refetch { theirs } => {
                self.answer(from, channel, FrameKind::Cts, theirs, op);
                self.recheck_exits(channel, Some(from));
            }
        }
    }
}

/// Whether a device moves memory by this way of its, where it pays or `path` asks for it.
pub(super) fn can_move(
    device: &dyn Device,
    reach: Option<Reach>,
    memory: &MemoryDesc,
    path: DataPath,
) -> bool {
    let least = |reach: Reach| if path == DataPath::ZeroCopy { 1 } else { reach.min.max(1) };
    let pays = reach.is_some_and(|reach| memory.bytes() >= least(reach) && reach.max > 0);
    pays && (device.caps().noncontiguous || memory.run().is_some())
}

/// The longest body that goes through a block without being asked to: who sends more has better uses for as much memory.
const LONGEST_BLOCK: usize = 16 << 20;

/// Whether a body of so many bytes that a device may move goes through a block of the pool first, or comes to one: where its
/// memory would have to be registered for this operation alone, and that takes longer than a copy; or where the device does
/// not move its layout.
pub(super) fn needs_bounce(
    device: &dyn Device,
    memory: &MemoryDesc,
    bytes: usize,
    region: Option<&Region>,
    path: DataPath,
) -> bool {
    let caps = device.caps();
    let Some(own) = caps.register_from.filter(|_| bytes <= LONGEST_BLOCK) else { return false };
    let is_moved = caps.noncontiguous || memory.run().is_some();
    !is_moved || (path == DataPath::Auto && region.is_none() && bytes < own)
}

/// Makes the memory of a receive ready for the get of so many bytes, which pays where the sender has thought so; `None` if it
/// cannot be got into.
fn prepare(device: &dyn Device, target: &Target, bytes: usize) -> Option<Option<Registration>> {
    let memory = target.memory()?.truncated_to(bytes);
    if !can_move(device, device.caps().get, &memory, DataPath::ZeroCopy) {
        return None;
    }
    // SAFETY: the memory is the target's; the registration goes into the same operation, and is dropped before it.
    #[expect(unsafe_code, reason = "see above")]
    unsafe {
        register_local(device, &memory, target.region())
    }
}

/// Registers this rank's own end of a move, where the device wants that; `None` if it cannot.
///
/// # Safety
/// That of [`Device::register`].
#[expect(unsafe_code, reason = "the contract is passed on")]
unsafe fn register_local(
    device: &dyn Device,
    memory: &MemoryDesc,
    region: Option<&Region>,
) -> Option<Option<Registration>> {
    if device.caps().register_from.is_none() {
        return Some(None);
    }
    // SAFETY: the caller's promise.
    unsafe { device.register(memory, region, Access::LOCAL) }.ok().map(Some)
}
