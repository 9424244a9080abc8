//! The receiver's side of the rendezvous protocol, and the registration of local memory for a device. The device gets
//! the body from the sender's memory, in one or more pieces, or a CTS requests the body in frames.
//!
//! ```text
//!   sender                          receiver
//!   RTS (key) ────────────────────► matched: the device may write to the receive buffer
//!      ◄─ ─ ─ ─ ─ ─ ─ get ─ ─ ─ ─ ─ its pieces complete in any order
//!   the message completes ◄─── FIN  all pieces have completed
//!   sends the body ◄────────── CTS  instead of a get, or after a failed one; the engine owns the buffer
//! ```
//! If the operation fails during a get, it completes after the last piece of the get.

use std::sync::Arc;

use mpj_pool::{Access, Region};

use super::Engine;
use super::channel::Channel;
use super::device_ops::DeviceOp;
use super::flush::{DeferredCompletion, PIECES_PER_PASS};
use super::ops::{BufferOwner, Op, RecvOp, WriteDone};
use super::path_select::{LocalBody, ReceivePath, get_len, receive_path, sends_zcopy};
use super::peer::{Outbox, Peer};
use super::send::local_body;
use crate::completion::Completer;
use crate::deferred_drop;
use crate::device::{Device, MemoryDesc, OpStatus, PeerId, PostError, Registration, RemoteKey};
use crate::header::FrameKind;
use crate::message::{Envelope, Source, Target};
use crate::trace::Trace;

#[derive(Debug)]
pub(crate) struct MatchedRts<'a> {
    pub(crate) channel: &'a Arc<Channel>,
    pub(crate) from: PeerId,
    pub(crate) message: Envelope,
    pub(crate) op: u64,
    pub(crate) key: Option<&'a RemoteKey>,
}

/// A get that has pieces to post. It counts as one device write to the receive, in addition to the pieces under way.
#[derive(Debug)]
pub(crate) struct PendingGet {
    channel: Arc<Channel>,
    op: u64,
    key: RemoteKey,
    bytes: usize,
    posted: usize,
}

enum GetStep {
    /// A piece was posted. The number counts the bytes that moved within the call: all of the piece, or 0.
    Posted(usize),
    /// No piece will follow.
    Finished,
}

/// Limit on the bytes that one pass copies in gets that complete within their calls, because the outbox is locked
/// meanwhile. The last piece may exceed it.
const GET_BYTES_PER_PASS: usize = 1 << 20;

impl Engine {
    pub(crate) fn receive_rendezvous(&self, rts: &MatchedRts<'_>, mut target: Target, completer: Completer) {
        let MatchedRts { channel, from, message, op: sender_op, key } = *rts;
        let get = key
            .zip(self.peer(from).ok())
            .and_then(|(key, peer)| Some((key, peer, self.prepare_get(peer, &mut target, message.bytes)?)));
        let (get, registration) = match get {
            Some((key, peer, registration)) => (Some((key, peer)), registration),
            None => (None, None),
        };
        let owner = if get.is_some() { BufferOwner::ONE_WRITE } else { BufferOwner::Engine };
        let registered = registration.as_ref().map_or(0, Registration::bytes);
        let recv =
            RecvOp { peer: from, sender_op, target, message, received: 0, completer, owner, registration };
        let op = channel.ops().insert(Op::RecvOp(recv));
        match get {
            Some((key, peer)) => {
                let channel = Arc::clone(channel);
                let get_op = PendingGet { channel, op, key: *key, bytes: message.bytes, posted: 0 };
                self.start_get(peer, get_op, registered);
            }
            None => self.send_reply(from, channel, FrameKind::Cts, sender_op, op),
        }
        self.recheck_exits(channel, Some(from));
    }

    /// Prepares the memory of a receive for a get. Returns `None` if the body should come in frames instead, or if the
    /// registration failed; `Some(None)` if the device needs no registration.
    fn prepare_get(&self, peer: &Peer, target: &mut Target, bytes: usize) -> Option<Option<Registration>> {
        let device = self.device_of(peer)?;
        let body = LocalBody {
            path: target.path().unwrap_or(self.path),
            bytes,
            is_contiguous: target.is_contiguous(),
            in_region: target.region().is_some(),
            is_owned: false,
        };
        let mut path = receive_path(device.caps(), body, true);
        if path == ReceivePath::GetIntoBounce {
            path = match self.bounce_buffers.try_alloc(bytes) {
                Some(block) => {
                    target.use_bounce(block);
                    ReceivePath::Get
                }
                None => receive_path(device.caps(), body, false),
            };
        }
        if path != ReceivePath::Get {
            return None;
        }
        let memory = target.memory()?.truncated_to(bytes);
        // SAFETY: the memory is the target's; the registration is stored in the same operation, and is dropped first.
        #[expect(unsafe_code, reason = "see above")]
        unsafe {
            register_local(device, &memory, target.region())
        }
    }

    fn start_get(&self, peer: &Peer, get_op: PendingGet, registered: usize) {
        let (mut posted, mut ended) = (0, Vec::new());
        let mut out = peer.outbox();
        self.note_registered(&mut out, registered);
        if out.is_closed {
            drop(out);
            return self.get_piece_done(&get_op.channel, peer.id, get_op.op, None);
        }
        let was_idle = out.is_idle();
        out.gets.push_back(get_op);
        let result = self.post_gets(&mut out, &mut posted, &mut ended);
        self.note_busy(was_idle, &mut out);
        let is_left = !out.gets.is_empty();
        drop(out);
        if is_left {
            // Wake a sleeping holder of the progress lock to continue the get.
            self.site.bell.ring();
        }
        let hold = deferred_drop::DeferDrops::begin();
        ended.into_iter().for_each(|ended| ended.run(self));
        drop(hold);
        deferred_drop::run_deferred_drops();
        if let Err(error @ PostError::Broken(_)) = result {
            self.endpoint_broken(peer, error);
        }
    }

    /// Prepares a body for a zero-copy send, if [`sends_zcopy`] selects it.
    pub(crate) fn prepare_zcopy(
        &self,
        peer: &Peer,
        source: &Source,
    ) -> Option<(MemoryDesc, Option<Registration>)> {
        let device = self.device_of(peer)?;
        if !sends_zcopy(device.caps(), local_body(source, self.path)) {
            return None;
        }
        let memory = source.memory()?;
        // SAFETY: the memory is the source's; the registration is stored with the source, and is dropped first.
        #[expect(unsafe_code, reason = "see above")]
        let registration = unsafe { register_local(device, &memory, source.region()) }?;
        if let Some(registration) = &registration {
            self.note_registered(&mut peer.outbox(), registration.bytes());
        }
        Some((memory, registration))
    }

    /// Posts pieces of the gets of an outbox, until the limits of one pass are reached or the device is full.
    pub(crate) fn post_gets(
        &self,
        out: &mut Outbox,
        posted: &mut usize,
        ended: &mut Vec<DeferredCompletion>,
    ) -> Result<(), PostError> {
        let mut copied_bytes = 0;
        for _ in 0..PIECES_PER_PASS {
            if out.gets.is_empty() || copied_bytes >= GET_BYTES_PER_PASS {
                break;
            }
            let step = self.post_get_piece(out, ended);
            let result = match step {
                Ok(GetStep::Posted(bytes)) => {
                    *posted += 1;
                    copied_bytes += bytes;
                    if out.gets.front().is_some_and(|get_op| get_op.posted < get_op.bytes) {
                        continue;
                    }
                    Ok(())
                }
                Err(PostError::Again) => return Err(PostError::Again),
                Ok(GetStep::Finished) => Ok(()),
                Err(error) => Err(error),
            };
            if let Some(PendingGet { channel, op, .. }) = out.gets.pop_front() {
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

    fn post_get_piece(
        &self,
        out: &mut Outbox,
        ended: &mut Vec<DeferredCompletion>,
    ) -> Result<GetStep, PostError> {
        let Outbox { id, endpoint, caps, gets, sent, .. } = out;
        let peer = *id;
        let Some(PendingGet { channel, op, key, bytes, posted }) = gets.front_mut() else {
            return Ok(GetStep::Finished);
        };
        let len = get_len(caps, *bytes - *posted);
        let lent = if len == 0 { None } else { channel.ops().add_device_write(*op, peer, *posted, len) };
        let Some((memory, registration)) = lent else { return Ok(GetStep::Finished) };
        let to = memory.part(*posted, len, registration.as_ref());
        let what = DeviceOp::Get { channel: Arc::clone(channel), op: *op, peer, len };
        let token = self.begin_device_op(what);
        let begun = self.trace().map(Trace::now);
        // SAFETY: the receive is marked as written by the device for this piece: its target stays where it is,
        // untouched, until the piece has completed.
        #[expect(unsafe_code, reason = "see above")]
        let result = unsafe { endpoint.get(key, *posted as u64, to, token) };
        if result.is_ok() {
            sent.zero_copy.add(len);
            if let Some(begun) = begun {
                self.trace_piece(begun, "get", "from", peer, len);
            }
        }
        if let Ok(OpStatus::InProgress) = result {
            *posted += len;
            return Ok(GetStep::Posted(0));
        }
        self.drop_device_op(token);
        let get = |landed| DeferredCompletion::Get { channel: Arc::clone(channel), peer, op: *op, landed };
        match result {
            Err(PostError::Again) => {
                // This is not the last write: the `PendingGet` still counts as one.
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
                Ok(GetStep::Posted(len))
            }
        }
    }

    pub(crate) fn abort_get(&self, from: PeerId, PendingGet { channel, op, .. }: PendingGet) {
        self.get_piece_done(&channel, from, op, None);
    }

    /// Ends a device write of a get: a piece of `landed` bytes, or the posting of pieces (0); `None` if that failed.
    pub(crate) fn get_piece_done(
        &self,
        channel: &Arc<Channel>,
        from: PeerId,
        op: u64,
        landed: Option<usize>,
    ) {
        let done = channel.ops().end_device_write(op, from, landed);
        match done {
            WriteDone::Pending => (),
            WriteDone::Complete(RecvOp {
                mut target, message, completer, sender_op, registration, ..
            }) => {
                self.trace_received(channel, from, sender_op, &message, "body fetched");
                self.send_reply(from, channel, FrameKind::Fin, sender_op, 0);
                drop(registration);
                let valid = target.finish(&message);
                target.drop_fast();
                completer.complete(valid.map(|()| message));
            }
            WriteDone::Failed(op, fault) => op.complete(Err(fault)),
            WriteDone::Refetch { sender_op } => {
                self.send_reply(from, channel, FrameKind::Cts, sender_op, op);
                self.recheck_exits(channel, Some(from));
            }
        }
    }
}

/// Registers the local memory of an operation, if the device needs that. Returns `None` if the registration failed.
///
/// # Safety
/// As for [`Device::register`].
#[expect(unsafe_code, reason = "the contract is passed on")]
unsafe fn register_local(
    device: &dyn Device,
    memory: &MemoryDesc,
    region: Option<&Region>,
) -> Option<Option<Registration>> {
    if device.caps().register_min.is_none() {
        return Some(None);
    }
    // SAFETY: the caller's promise.
    unsafe { device.register(memory, region, Access::LOCAL) }.ok().map(Some)
}
