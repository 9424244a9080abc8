//! What a rank keeps of each peer it has spoken to, made on first use, before the peer is met.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use super::channel::Channel;
use super::fetch::PendingGet;
use super::moves::StreamedSend;
use super::outbox::credit_cost;
use super::send::{Coalesce, Mode};
use super::traffic::Traffic;
use crate::biased::{Bias, Mutex, MutexGuard};
use crate::completion::Completer;
use crate::device::{Body, Caps, Endpoint, PeerId, PostError, RemoteKey};
use crate::header::{FrameKind, Head};
use crate::layout::{Envelope, Source};

/// A table with room for every rank of the world that costs memory only where it is used.
#[derive(Debug)]
pub(crate) struct Table<T> {
    chunks: Box<[OnceLock<Chunk<T>>]>,
}

type Chunk<T> = Box<[OnceLock<T>]>;

const CHUNK: usize = 256;

impl<T> Table<T> {
    pub(crate) fn new(size: u32) -> Self {
        Table { chunks: (0..(size as usize).div_ceil(CHUNK)).map(|_| OnceLock::new()).collect() }
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

/// A peer.
#[derive(Debug)]
pub(crate) struct Peer {
    pub(crate) id: PeerId,
    /// Which of the engine's devices reaches it, once it is met.
    pub(crate) device: OnceLock<usize>,
    outbox: Mutex<Outbox>,
    /// Eager room given back to the peer, in all.
    pub(crate) granted: AtomicU64,
    /// Answers to messages that the peer had announced, in all; written under the outbox's lock.
    pub(crate) replies_sent: AtomicU64,
    /// Answers of the peer to messages announced to it, in all; written by the holder of the turn.
    pub(crate) replies_received: AtomicU64,
    /// Long messages announced to the peer that it has neither got nor asked for.
    pub(crate) bodies: Bodies,
}

/// How many bodies wait for something.
#[derive(Clone, Default, Debug)]
pub(crate) struct Bodies(Arc<AtomicUsize>);

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Counted(Bodies);

impl Bodies {
    /// Counts one more.
    pub(crate) fn count(&self) -> Counted {
        self.0.fetch_add(1, Ordering::Relaxed);
        Counted(self.clone())
    }

    pub(crate) fn are_there(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Peer {
    /// Makes a peer that is asked for, and may have `room` bytes of eager messages here.
    pub(crate) fn new(id: PeerId, room: u64, bias: &Arc<Bias>) -> Self {
        let outbox = Outbox {
            id,
            contact: Wireup::Requested,
            link: Box::new(NoLink),
            caps: Caps::frames(0, 0),
            bound: Vec::new(),
            unsent: VecDeque::new(),
            waiting: VecDeque::new(),
            place: 0,
            streams: VecDeque::new(),
            fetches: VecDeque::new(),
            credit: 0,
            credit_given: room,
            freed: 0,
            recalled: 0,
            announced: 0,
            sent: Traffic::default(),
            unflushed: false,
            gone: false,
            listed: false,
        };
        let [granted, answered, heard] = [const { AtomicU64::new(0) }; 3];
        let (device, outbox, bodies) = (OnceLock::new(), Mutex::new(bias, outbox), Bodies::default());
        Peer { id, device, outbox, granted, replies_sent: answered, replies_received: heard, bodies }
    }

    #[inline]
    pub(crate) fn outbox(&self) -> MutexGuard<'_, Outbox> {
        self.outbox.lock()
    }
}

/// Everything on its way to one peer. Frames go out in the order they came in.
///
/// # Invariants
/// 1. A peer that is not met has no credit and a link without room: whatever is sent to it is queued, messages in
///    `unsent`, frames in `waiting`. Of a peer that is met `unsent` is empty.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Whose it is.
    pub(crate) id: PeerId,
    pub(crate) contact: Wireup,
    pub(crate) link: Box<dyn Endpoint>,
    /// What the link can do.
    pub(crate) caps: Caps,
    /// By channel number: the context the peer knows it for.
    pub(crate) bound: Vec<u64>,
    /// Messages to a peer that is not met: how they go depends on the device.
    pub(crate) unsent: VecDeque<DeferredSend>,
    /// Frames the link had no room for, in the order of their places.
    pub(crate) waiting: VecDeque<QueuedFrame>,
    /// The place of the next frame that waits.
    pub(crate) place: u64,
    /// Bodies the peer has asked for.
    pub(crate) streams: VecDeque<BodyStream>,
    /// Bodies that are got from the peer, and have pieces to post.
    pub(crate) fetches: VecDeque<PendingGet>,
    /// Bytes of eager messages that may still go.
    pub(crate) credit: u64,
    /// What the peer may have waiting here, in all.
    pub(crate) credit_given: u64,
    /// What of it receives of early messages have freed and the peer has not been told of.
    pub(crate) freed: u64,
    /// How much of that it was asked to return, and has not answered.
    pub(crate) recalled: u64,
    /// Messages that were announced to the peer, in all.
    pub(crate) announced: u64,
    /// What was sent to the peer, and how; of the copies those made here.
    pub(crate) sent: Traffic,
    /// Whether the link still has bytes to write out.
    pub(crate) unflushed: bool,
    /// Whether the peer takes no more frames: they are dropped.
    pub(crate) gone: bool,
    /// Whether its peer is in the engine's list of busy ones: always when it is not idle.
    pub(crate) listed: bool,
}

impl Outbox {
    /// Posts one frame.
    #[inline]
    pub(crate) fn post_body(
        &mut self,
        head: &[u8],
        body: Body<'_>,
        leave: Coalesce,
    ) -> Result<(), PostError> {
        match leave {
            Coalesce::No => self.link.post(head, body),
            Coalesce::Allowed => self.link.post_more(head, body),
        }
    }

    /// Posts one frame with the whole of a source as its body.
    #[inline]
    pub(crate) fn post(
        &mut self,
        head: &Head,
        source: Option<&Source>,
        leave: Coalesce,
    ) -> Result<(), PostError> {
        let Some(source) = source else { return self.post_body(head.bytes(), Body::Empty, leave) };
        self.post_body(head.bytes(), source.whole(), leave)?;
        self.note_eager(source.bytes());
        Ok(())
    }

    /// Counts a message that went with its body.
    #[inline]
    pub(crate) fn note_eager(&mut self, bytes: usize) {
        self.sent.eager.add(bytes);
        if bytes > 0 {
            self.sent.copied.add(bytes);
        }
    }

    /// Posts a frame that has waited, or may have to.
    #[inline]
    pub(crate) fn post_frame(&mut self, frame: &QueuedFrame, leave: Coalesce) -> Result<(), PostError> {
        match &frame.key {
            None => self.post(&frame.head, frame.body.as_ref(), leave),
            Some(key) => self.post_body(frame.head.bytes(), Body::Bytes(key.as_bytes()), leave),
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.unsent.is_empty()
            && self.waiting.is_empty()
            && self.streams.is_empty()
            && self.fetches.is_empty()
            && !self.unflushed
    }

    /// Gives back what a frame has taken of the peer's room that will not be sent.
    pub(crate) fn refund(&mut self, frame: &QueuedFrame) {
        self.credit += frame.body.as_ref().map_or(0, |body| credit_cost(body.bytes()));
        let kind = frame.head.short.kind();
        if kind == FrameKind::Rts as u8 || kind == FrameKind::EagerSync as u8 {
            self.announced -= 1;
        }
    }

    /// Whether the frame that would have waited at this place still does.
    pub(crate) fn has_waiting(&self, place: u64) -> bool {
        self.waiting.front().is_some_and(|first| first.seq <= place)
    }

    /// Whether the peer takes the channel's number for its context.
    #[inline]
    pub(crate) fn is_bound(&self, channel: &Channel) -> bool {
        self.bound.get(usize::from(channel.wire_id())) == Some(&channel.context)
    }

    /// Whether all of it has reached the peer's host.
    pub(crate) fn is_drained(&mut self) -> bool {
        self.is_idle() && (self.gone || self.link.is_drained())
    }
}

/// How far a rank is with a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Wireup {
    /// Its cards are asked for.
    Requested,
    /// No device reaches it; the next message asks again.
    Unreachable,
    /// It has a link.
    Connected,
}

/// The link to a peer that is not met: it never has room.
#[derive(Debug)]
pub(super) struct NoLink;

impl Endpoint for NoLink {
    fn post(&mut self, _head: &[u8], _body: Body<'_>) -> Result<(), PostError> {
        Err(PostError::Again)
    }
}

/// A message to a peer that is not met.
#[derive(Debug)]
pub(crate) struct DeferredSend {
    pub(crate) channel: Arc<Channel>,
    pub(crate) message: Envelope,
    pub(crate) source: Source,
    pub(crate) mode: Mode,
    pub(crate) ender: Completer,
}

/// A frame the link had no room for.
#[derive(Debug)]
pub(crate) struct QueuedFrame {
    /// The context that its message belongs to, as the number may be another channel's by now; of other frames none.
    pub(crate) context: u64,
    pub(crate) head: Head,
    pub(crate) body: Option<Source>,
    /// The body of an announcement.
    pub(crate) key: Option<Box<RemoteKey>>,
    /// The operation that ends when the frame has gone.
    pub(crate) completes: Option<(Completer, Envelope)>,
    /// Its place among all frames that ever waited here.
    pub(crate) seq: u64,
}

/// A body on its way in pieces.
#[derive(Debug)]
pub(crate) struct BodyStream {
    /// It may have been left since: its number is bound again before each piece.
    pub(crate) channel: Arc<Channel>,
    pub(crate) op: u64,
    pub(crate) sending: Arc<StreamedSend>,
    pub(crate) sent: usize,
}
