//! The state of each peer to which a rank has sent a message or a reply. It is created before the peer is connected.

use std::collections::VecDeque;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};

use super::channel::Channel;
use super::device_ops::StreamedSend;
use super::flush::credit_cost;
use super::rendezvous::PendingGet;
use super::send::{Coalesce, Mode};
use super::traffic::Traffic;
use crate::biased::{Bias, Mutex, MutexGuard};
use crate::completion::Completer;
use crate::device::{Body, Caps, Endpoint, PeerId, PostError, RemoteKey};
use crate::header::{FrameKind, Head};
use crate::message::{Envelope, Source};

/// A table with an optional entry for each rank of the world. Memory for entries is allocated in chunks at first use.
#[derive(Debug)]
pub(crate) struct PeerTable<T> {
    chunks: Box<[OnceLock<Chunk<T>>]>,
}

type Chunk<T> = Box<[OnceLock<T>]>;

const CHUNK: usize = 16;

impl<T> PeerTable<T> {
    pub(crate) fn new(size: u32) -> Self {
        PeerTable { chunks: (0..(size as usize).div_ceil(CHUNK)).map(|_| OnceLock::new()).collect() }
    }

    #[inline]
    pub(crate) fn get(&self, at: PeerId) -> Option<&T> {
        self.chunks.get(at.0 as usize / CHUNK)?.get()?.get(at.0 as usize % CHUNK)?.get()
    }

    pub(crate) fn get_or_init(&self, at: PeerId, make: impl FnOnce() -> T) -> Option<&T> {
        let chunk = self.chunks.get(at.0 as usize / CHUNK)?;
        let chunk = chunk.get_or_init(|| (0..CHUNK).map(|_| OnceLock::new()).collect());
        Some(chunk.get(at.0 as usize % CHUNK)?.get_or_init(make))
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: PeerId) -> Option<&mut T> {
        self.chunks.get_mut(at.0 as usize / CHUNK)?.get_mut()?.get_mut(at.0 as usize % CHUNK)?.get_mut()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().filter_map(OnceLock::get).flatten().filter_map(OnceLock::get)
    }
}

#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: PeerId,
    /// The index of the device that reaches the peer; set when the peer is connected.
    pub(crate) device: OnceLock<usize>,
    outbox: Mutex<Outbox>,
    /// Total eager credit granted to the peer, without the initial credit.
    pub(crate) granted: AtomicU64,
    /// Total number of replies to messages of the peer; written under the outbox's lock.
    pub(crate) replies_sent: AtomicU64,
    /// Total number of the peer's replies to this rank's messages; written by the holder of the progress lock.
    pub(crate) replies_received: AtomicU64,
}

impl Peer {
    pub(crate) fn new(id: PeerId, initial_credit: u64, bias: &Arc<Bias>) -> Self {
        let outbox = Outbox {
            id,
            wireup: Wireup::Requested,
            endpoint: Box::new(NoEndpoint),
            caps: Caps::NONE,
            bound: Vec::new(),
            deferred_sends: VecDeque::new(),
            queued_frames: VecDeque::new(),
            next_seq: 0,
            streams: VecDeque::new(),
            gets: VecDeque::new(),
            send_credit: 0,
            credit_given: initial_credit,
            credit_freed: 0,
            credit_recalled: 0,
            replies_expected: 0,
            sent: Traffic::default(),
            has_unflushed: false,
            is_closed: false,
            is_listed_busy: false,
        };
        let [granted, replies_sent, replies_received] = [const { AtomicU64::new(0) }; 3];
        let (device, outbox) = (OnceLock::new(), Mutex::new(bias, outbox));
        Peer { id, device, outbox, granted, replies_sent, replies_received }
    }

    #[inline]
    pub(crate) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock()
    }
}

/// The frames, bodies and gets that are queued for one peer. Frames are sent in the order in which they were queued.
///
/// # Invariants
/// 1. While a peer is not connected, `send_credit` is 0 and the endpoint accepts nothing: messages are in
///    `deferred_sends`, other frames in `queued_frames`. Once it is connected, `deferred_sends` is empty.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) id: PeerId,
    pub(crate) wireup: Wireup,
    pub(crate) endpoint: Box<dyn Endpoint>,
    pub(crate) caps: Caps,
    /// The context of the last `Bind` for each wire id of a channel.
    pub(crate) bound: Vec<u64>,
    /// Messages to an unconnected peer. Their protocol depends on the device, which is not known yet.
    pub(crate) deferred_sends: VecDeque<DeferredSend>,
    /// Frames that the endpoint has not accepted yet, in order of their sequence numbers.
    pub(crate) queued_frames: VecDeque<QueuedFrame>,
    pub(crate) next_seq: u64,
    pub(crate) streams: VecDeque<BodyStream>,
    pub(crate) gets: VecDeque<PendingGet>,
    /// Eager credit that this rank can still use at the peer.
    pub(crate) send_credit: u64,
    /// Eager credit that the peer may have outstanding at this rank.
    pub(crate) credit_given: u64,
    /// Credit that unexpected messages of the peer have freed and that was not granted again yet.
    pub(crate) credit_freed: u64,
    /// Credit that was recalled from the peer; 0 if no recall is outstanding.
    pub(crate) credit_recalled: u64,
    /// Total number of messages to the peer that need a reply.
    pub(crate) replies_expected: u64,
    /// Traffic with the peer, except for bodies copied out of the device.
    pub(crate) sent: Traffic,
    pub(crate) has_unflushed: bool,
    /// Whether the peer takes no more frames: they are discarded.
    pub(crate) is_closed: bool,
    /// Whether this peer is in the engine's list of busy peers, or in the list that a pass has taken.
    pub(crate) is_listed_busy: bool,
}

impl Outbox {
    #[inline]
    pub(crate) fn post_body(
        &mut self,
        head: &[u8],
        body: Body<'_>,
        coalesce: Coalesce,
    ) -> Result<(), PostError> {
        match coalesce {
            Coalesce::No => self.endpoint.post(head, body),
            Coalesce::Allowed => self.endpoint.post_more(head, body),
        }
    }

    #[inline]
    pub(crate) fn post(
        &mut self,
        head: &Head,
        source: Option<&Source>,
        coalesce: Coalesce,
    ) -> Result<(), PostError> {
        let Some(source) = source else { return self.post_body(head.bytes(), Body::Empty, coalesce) };
        self.post_body(head.bytes(), source.whole(), coalesce)?;
        self.note_eager(source.bytes());
        Ok(())
    }

    #[inline]
    pub(crate) fn note_eager(&mut self, bytes: usize) {
        self.sent.eager.add(bytes);
        if bytes > 0 {
            self.sent.copied.add(bytes);
        }
    }

    #[inline]
    pub(crate) fn post_frame(&mut self, frame: &QueuedFrame, coalesce: Coalesce) -> Result<(), PostError> {
        match &frame.key {
            None => self.post(&frame.head, frame.body.as_ref(), coalesce),
            Some(key) => self.post_body(frame.head.bytes(), Body::Bytes(key.as_bytes()), coalesce),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.deferred_sends.is_empty()
            && self.queued_frames.is_empty()
            && self.streams.is_empty()
            && self.gets.is_empty()
            && !self.has_unflushed
    }

    /// Undoes the accounting of a frame that will not be sent: its credit and the expected reply.
    pub(crate) fn refund(&mut self, frame: &QueuedFrame) {
        self.send_credit += frame.body.as_ref().map_or(0, |body| credit_cost(body.bytes()));
        let kind = frame.head.short.kind();
        if kind == FrameKind::Rts as u8 || kind == FrameKind::EagerSync as u8 {
            self.replies_expected -= 1;
        }
    }

    /// Returns whether the frame with sequence number `seq`, which was not cancelled, is still queued.
    pub(crate) fn is_queued(&self, seq: u64) -> bool {
        self.queued_frames.front().is_some_and(|first| first.seq <= seq)
    }

    /// Returns whether the last `Bind` with the channel's wire id had the channel's context.
    #[inline]
    pub(crate) fn is_bound(&self, channel: &Channel) -> bool {
        self.bound.get(usize::from(channel.wire_id())) == Some(&channel.context)
    }

    /// Returns whether everything has reached the peer's host, or the peer takes no more frames.
    pub(crate) fn is_drained(&mut self) -> bool {
        self.is_idle() && (self.is_closed || self.endpoint.is_drained())
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wireup {
    Requested,
    /// The cards could not be obtained, or no device could connect. The next message or reply requests them again.
    Unreachable,
    Connected,
}

#[derive(Debug)]
pub(super) struct NoEndpoint;

impl Endpoint for NoEndpoint {
    fn post(&mut self, _head: &[u8], _body: Body<'_>) -> Result<(), PostError> {
        Err(PostError::Again)
    }
}

#[derive(Debug)]
pub(crate) struct DeferredSend {
    pub(crate) channel: Arc<Channel>,
    pub(crate) message: Envelope,
    pub(crate) source: Source,
    pub(crate) mode: Mode,
    pub(crate) completer: Completer,
}

#[derive(Debug)]
pub(crate) struct QueuedFrame {
    /// The context of a message, needed because its channel id can be reused; `NO_CONTEXT` for other frames.
    pub(crate) context: u64,
    pub(crate) head: Head,
    pub(crate) body: Option<Source>,
    pub(crate) key: Option<Box<RemoteKey>>,
    /// The operation that completes when the frame is posted.
    pub(crate) completes: Option<(Completer, Envelope)>,
    /// Increases along the queue.
    pub(crate) seq: u64,
}

#[derive(Debug)]
pub(crate) struct BodyStream {
    /// The channel might have been freed and its id reused, so each piece binds the id again if necessary.
    pub(crate) channel: Arc<Channel>,
    pub(crate) op: u64,
    pub(crate) sending: Arc<StreamedSend>,
    pub(crate) sent: usize,
}
