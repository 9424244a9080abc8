//! Flushes the outbox of one peer: frames in order, then gets from the peer, then pieces of bodies.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use mpj_pool::{Pool, RawBuffer};

use super::Engine;
use super::blocked::WaitReason;
use super::channel::Channel;
use super::device_ops::{DeviceOp, StreamedSend};
use super::path_select;
use super::peer::{Outbox, Peer, QueuedFrame, Wireup};
use super::send::Coalesce;
use crate::biased::MutexGuard;
use crate::completion::Completer;
use crate::deferred_drop;
use crate::device::{Endpoint, MemoryPart, OpStatus, PeerId, PostError};
use crate::header::{FrameKind, Head};
use crate::kill_points::{KillPoint, kill_point};
use crate::matching::UnexpectedBody;
use crate::message::{Envelope, Source};
use crate::trace::Trace;

/// Maximum number of messages to one receiver that await a reply. The receiver stores an entry for each. The same limit
/// applies to the messages that wait for the connection. A message beyond the limit fails at once instead of waiting:
/// if the receiver needed that message before it replied to the others, both ranks would hang.
pub(crate) const MAX_AWAITING_REPLY: u64 = 1 << 20;

/// Marks a queued frame that is not a message of a channel, and a wire id without a channel.
const NO_CONTEXT: u64 = u64::MAX;

/// Maximum number of pieces that one pass sends to a peer, and of pieces that it gets from the peer.
pub(super) const PIECES_PER_PASS: usize = 16;

/// Returns the credit that an eager message uses: its body and the receiver's overhead.
#[inline]
pub(crate) fn credit_cost(bytes: usize) -> u64 {
    bytes as u64 + 64
}

impl Engine {
    /// Ensures that the peer knows the channel's wire id before a frame that names it.
    #[inline]
    pub(crate) fn ensure_bound(&self, out: &mut Outbox, channel: &Channel) {
        if !out.is_bound(channel) {
            self.send_bind(out, channel);
        }
    }

    #[cold]
    fn send_bind(&self, out: &mut Outbox, channel: &Channel) {
        if out.is_closed && !self.retry_wireup(out) {
            return;
        }
        let number = usize::from(channel.wire_id());
        if out.bound.len() <= number {
            out.bound.resize(number + 1, NO_CONTEXT);
        }
        out.bound[number] = channel.context;
        let mut head = Head::new(FrameKind::Bind, 0, channel.wire_id(), channel.rank().cast_signed());
        head.hash.set(channel.context);
        self.send_control(out, head);
    }

    /// Sends a frame that is not a message, now or when the endpoint has space.
    pub(crate) fn send_control(&self, out: &mut Outbox, head: Head) {
        self.push_frame(out, NO_CONTEXT, head, None, Coalesce::No);
    }

    pub(crate) fn push_frame(
        &self,
        out: &mut Outbox,
        context: u64,
        head: Head,
        body: Option<Source>,
        coalesce: Coalesce,
    ) {
        self.post_or_queue(
            out,
            QueuedFrame { context, head, body, key: None, completes: None, seq: 0 },
            coalesce,
        );
    }

    pub(crate) fn post_or_queue(&self, out: &mut Outbox, frame: QueuedFrame, coalesce: Coalesce) {
        if out.is_closed && !self.retry_wireup(out) {
            return;
        }
        if !out.queued_frames.is_empty() || self.post_frame(out, &frame, coalesce).is_err() {
            // A broken endpoint fails again when the outbox is flushed, and the flush reports it.
            self.queue_frame(out, frame);
            if out.wireup != Wireup::Connected {
                self.wake_progress();
            }
        } else {
            self.note_unflushed(out);
        }
    }

    #[inline]
    fn post_frame(&self, out: &mut Outbox, frame: &QueuedFrame, coalesce: Coalesce) -> Result<(), PostError> {
        let bytes = frame.body.as_ref().map_or(0, Source::bytes);
        self.post_traced(out, &frame.head, bytes, |out| out.post_frame(frame, coalesce))
    }

    /// Marks the outbox for a flush, and returns true, if its endpoint has accepted frames and not written them.
    #[inline]
    pub(crate) fn note_unflushed(&self, out: &mut Outbox) -> bool {
        let is_unflushed = out.endpoint.has_unflushed();
        if is_unflushed {
            let idle = out.is_idle();
            out.has_unflushed = true;
            self.note_busy(idle, out);
        }
        is_unflushed
    }

    pub(crate) fn queue(
        &self,
        out: &mut Outbox,
        context: u64,
        head: Head,
        body: Option<Source>,
        completes: Option<(Completer, Envelope)>,
    ) {
        self.queue_frame(out, QueuedFrame { context, head, body, key: None, completes, seq: 0 });
    }

    fn queue_frame(&self, out: &mut Outbox, frame: QueuedFrame) {
        let idle = out.is_idle();
        let seq = out.next_seq;
        out.queued_frames.push_back(QueuedFrame { seq, ..frame });
        out.next_seq += 1;
        self.note_busy(idle, out);
        // A sleeping thread posts only frames that were queued before it slept, so wake it for this one.
        self.site.bell.ring();
    }

    /// Updates the count and the list of busy outboxes after a change of `out`, which was idle before if `was_idle`.
    pub(crate) fn note_busy(&self, was_idle: bool, out: &mut Outbox) {
        match (was_idle, out.is_idle()) {
            (true, false) => self.busy.fetch_add(1, Ordering::AcqRel),
            (false, true) => self.busy.fetch_sub(1, Ordering::AcqRel),
            _ => return,
        };
        self.list_busy(out);
    }

    fn list_busy(&self, out: &mut Outbox) {
        if !out.is_listed_busy && !out.is_idle() {
            out.is_listed_busy = true;
            self.busy_peers.lock().push(out.id);
        }
    }

    /// Waits until all outboxes are idle or `limit` has elapsed.
    pub fn drain_for(&self, limit: Duration) {
        let end = Instant::now() + limit;
        let is_idle = |(): &mut ()| (self.busy.load(Ordering::Acquire) == 0).then_some(());
        self.wait_for_until(end, &mut (), is_idle, |()| WaitReason::call("an operation"));
    }

    /// Flushes all queued and coalesced frames for which the devices have space. Call it when the program waits for a
    /// send that was [coalesced](super::Sent::Coalesced), or when no more sends follow. If nothing is queued, it costs
    /// one load.
    #[inline]
    pub fn flush_coalesced(&self) {
        if self.is_busy() {
            self.flush_now();
        }
    }

    #[inline]
    pub(crate) fn is_busy(&self) -> bool {
        self.busy.load(Ordering::Relaxed) != 0
    }

    #[cold]
    fn flush_now(&self) {
        let hold = deferred_drop::DeferDrops::begin();
        let moved = self.flush_all(&mut Vec::new(), &mut Vec::new());
        drop(hold);
        // As in `queue_frame`: another thread might have polled and slept while this one held the list. It must post the
        // frames that are still queued, and a send for which it waits might have completed here.
        if moved > 0 {
            self.wake_all();
        } else if self.is_busy() {
            self.site.bell.ring();
        }
        deferred_drop::run_deferred_drops();
    }

    /// Connects to the peers whose cards have arrived, sends their deferred messages, and flushes every listed outbox.
    /// Returns the number of frames and pieces that were posted. The two buffers are empty before and after.
    pub(crate) fn flush_all(&self, ended: &mut Vec<DeferredCompletion>, peers: &mut Vec<PeerId>) -> usize {
        let mut moved = self.process_cards();
        std::mem::swap(peers, &mut *self.busy_peers.lock());
        for peer in peers.drain(..).filter_map(|id| self.peers.get(id)) {
            let mut out = peer.outbox();
            out.is_listed_busy = false;
            moved += self.flush(peer, out, ended);
        }
        moved
    }

    pub(super) fn flush(
        &self,
        peer: &Peer,
        mut out: MutexGuard<'_, Outbox>,
        ended: &mut Vec<DeferredCompletion>,
    ) -> usize {
        if out.is_idle() {
            return 0;
        }
        let mut moved = 0;
        let result = self
            .post_frames(&mut out, &mut moved, ended)
            .and_then(|()| self.post_gets(&mut out, &mut moved, ended))
            .and_then(|()| self.post_pieces(&mut out, &mut moved, ended));
        let flushed = out.endpoint.flush();
        let broken = match (result, flushed) {
            (Err(error), _) | (_, Err(error)) if error != PostError::Again => Some(error),
            (_, left) => {
                out.has_unflushed = left.unwrap_or(false);
                None
            }
        };
        self.note_busy(false, &mut out);
        self.list_busy(&mut out);
        drop(out);
        ended.drain(..).for_each(|ended| ended.run(self));
        if let Some(error) = broken {
            self.endpoint_broken(peer, error);
        }
        moved
    }

    fn post_frames(
        &self,
        out: &mut Outbox,
        moved: &mut usize,
        ended: &mut Vec<DeferredCompletion>,
    ) -> Result<(), PostError> {
        while let Some(frame) = out.queued_frames.pop_front() {
            if let Err(error) = self.post_frame(out, &frame, Coalesce::Allowed) {
                out.queued_frames.push_front(frame);
                return Err(error);
            }
            if frame.body.is_some() || frame.completes.is_some() {
                ended.push(DeferredCompletion::Frame { source: frame.body, completes: frame.completes });
            }
            *moved += 1;
        }
        Ok(())
    }

    fn post_pieces(
        &self,
        out: &mut Outbox,
        moved: &mut usize,
        ended: &mut Vec<DeferredCompletion>,
    ) -> Result<(), PostError> {
        for _ in 0..PIECES_PER_PASS {
            let Some(stream) = out.streams.front() else { return Ok(()) };
            if !out.is_bound(&stream.channel) {
                let channel = Arc::clone(&stream.channel);
                self.send_bind(out, &channel);
            }
            if !out.queued_frames.is_empty() {
                // The frame that binds the channel's id must go first.
                return Err(PostError::Again);
            }
            let Outbox { id, endpoint, caps, streams, sent, .. } = &mut *out;
            let Some(stream) = streams.front_mut() else { return Ok(()) };
            let bytes = stream.sending.message.bytes;
            let zcopy = &stream.sending.zcopy;
            let len = path_select::piece_len(caps, zcopy.is_some(), bytes - stream.sent);
            let mut head = Head::new(FrameKind::Data, 0, stream.channel.wire_id(), 0);
            head.op.set(stream.op);
            head.extra.set(stream.sent as u64);
            let begun = self.trace().map(Trace::now);
            let in_place = match zcopy {
                Some((memory, registration)) => {
                    let body = memory.part(stream.sent, len, registration.as_ref());
                    self.post_zcopy_piece(*id, endpoint.as_mut(), &head, body, &stream.sending)
                }
                None => Err(PostError::Unsupported),
            };
            let name = match in_place {
                Err(PostError::Unsupported) => {
                    endpoint.post(head.bytes(), stream.sending.body(stream.sent, len))?;
                    sent.copied.add(len);
                    "piece sent"
                }
                posted => {
                    posted?;
                    sent.zero_copy.add(len);
                    "piece sent zero-copy"
                }
            };
            if let Some(begun) = begun {
                self.trace_piece(begun, name, "to", *id, len);
            }
            stream.sent += len;
            kill_point(KillPoint::PieceSent, self.site.rank);
            *moved += 1;
            if stream.sent == bytes {
                ended.extend(streams.pop_front().map(|stream| DeferredCompletion::Body(stream.sending)));
            } else {
                streams.rotate_left(1);
            }
        }
        Ok(())
    }

    /// Posts a piece of a body without a copy. The send completes only after the device has finished with the piece.
    fn post_zcopy_piece(
        &self,
        peer: PeerId,
        endpoint: &mut dyn Endpoint,
        head: &Head,
        body: MemoryPart<'_>,
        sending: &Arc<StreamedSend>,
    ) -> Result<(), PostError> {
        let token = self.begin_device_op(DeviceOp::SendZcopy { peer, sending: Arc::clone(sending) });
        // SAFETY: the bytes are those of the source in `sending`, of which the `DeviceOp` keeps a handle until its end.
        #[expect(unsafe_code, reason = "see above")]
        let result = unsafe { endpoint.post_zcopy(head.bytes(), &[body], token) };
        if result != Ok(OpStatus::InProgress) {
            // This does not complete the send while the outbox is locked, because the stream in the outbox still has a
            // handle of `sending`.
            self.drop_device_op(token);
        }
        result.map(|_| ())
    }

    pub(crate) fn buffer_body(
        &self,
        bytes: usize,
        fill: impl FnOnce(&mut [MaybeUninit<u8>]),
    ) -> UnexpectedBody {
        if bytes == 0 {
            return UnexpectedBody::Empty;
        }
        match mpj_pool::global().alloc(bytes) {
            Ok(mut block) => {
                fill(&mut block.as_uninit_mut()[..bytes]);
                UnexpectedBody::Block(block)
            }
            Err(_) => UnexpectedBody::NoMemory,
        }
    }
}

/// A completion that is deferred until no outbox is locked, because it might drop a user's value.
#[derive(Debug)]
pub(crate) enum DeferredCompletion {
    Frame {
        source: Option<Source>,
        completes: Option<(Completer, Envelope)>,
    },
    Body(Arc<StreamedSend>),
    /// A piece of a get has ended, or no further pieces of the get will be posted.
    Get {
        channel: Arc<Channel>,
        peer: PeerId,
        op: u64,
        /// The bytes that arrived: 0 for the end of the posting, `None` after a failure.
        landed: Option<usize>,
    },
}

impl DeferredCompletion {
    pub(super) fn run(self, engine: &Engine) {
        match self {
            DeferredCompletion::Frame { source, completes } => {
                drop(source);
                if let Some((completer, message)) = completes {
                    completer.complete(Ok(message));
                }
            }
            DeferredCompletion::Body(sending) => drop(sending),
            DeferredCompletion::Get { channel, peer, op, landed } => {
                engine.get_piece_done(&channel, peer, op, landed)
            }
        }
    }
}
