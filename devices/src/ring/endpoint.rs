//! The sending side of a ring as an [`Endpoint`].

use std::mem::MaybeUninit;
use std::sync::Arc;

use super::fragments::{FragmentGrant, PeerSlot};
use super::memory::{INLINE, Ring};
use super::{ExitCheck, FragmentPool, Malformed, PeerNotifier, Producer};
use crate::copy;
use crate::device::{Body, Endpoint, PostError};

/// Longest body, in bytes, that is split over a few cells instead of waiting until the peer returns a fragment. If no
/// fragment is free and the peer holds none, longer bodies are split, too.
const MAX_SPLIT_LEN: usize = 4 * INLINE;

/// Bytes of a streamed body that are announced at a time. The sender announces them and then writes the next ones, so
/// both ranks copy at the same time, and the receiver reads from the sender's cache.
const STREAM_CHUNK: usize = 8 << 10;

/// Maximum number of bytes of short pieces that are assembled on the stack first. The receiver was the last to use the
/// fragment, so the fragment's lines come from the receiver's cache. The processor fetches these
/// lines in parallel for stores of consecutive whole lines, but not for many short stores, some of which touch two.
const STACK_PACK: usize = STREAM_CHUNK;

#[derive(Debug)]
pub(crate) struct RingEndpoint<B> {
    producer: Producer,
    pool: Arc<FragmentPool>,
    slot: PeerSlot,
    /// A frame that is being split over cells. The next frame waits until all of it is sent.
    split: Option<SplitSend>,
    notifier: B,
}

/// A frame that got no fragment, and the number of bytes of its body that were sent.
#[derive(Debug)]
struct SplitSend {
    head: Option<Vec<u8>>,
    body: Box<[MaybeUninit<u8>]>,
    sent: usize,
}

impl<B: PeerNotifier> RingEndpoint<B> {
    /// Makes the only sending side of `ring`. `exit` checks the peer's process.
    pub(crate) fn new(ring: Arc<Ring>, pool: Arc<FragmentPool>, notifier: B, exit: ExitCheck) -> Self {
        let slot = pool.open(Arc::clone(&ring), exit);
        RingEndpoint { producer: Producer::new(ring), pool, slot, split: None, notifier }
    }

    /// Sends more of the split frame while cells are free; returns whether a part of it is left.
    #[cold]
    fn continue_split(&mut self) -> Result<bool, Malformed> {
        let Some(split) = &mut self.split else { return Ok(false) };
        let mut is_full = false;
        let mut moved = false;
        while split.sent < split.body.len() {
            if !self.producer.has_room()? {
                is_full = true;
                break;
            }
            match split.head.take() {
                Some(head) => self.producer.send_split_head(&head, split.body.len() as u32),
                None => split.sent += self.producer.send_split_data(&split.body[split.sent..]),
            }
            moved = true;
        }
        if !is_full {
            self.split = None;
        }
        if moved {
            self.notifier.notify_receiver();
        }
        Ok(is_full)
    }

    /// Announces a frame before all of it is written. Returns `false`, and sends nothing, if the body is a chain or
    /// gets no fragment, or if there are too few cells to announce every chunk.
    fn post_streamed(&mut self, head: &[u8], body: &Body<'_>) -> Result<bool, Malformed> {
        let len = body.len();
        let chunks = len.div_ceil(STREAM_CHUNK);
        if matches!(body, Body::Chain(_)) || !self.producer.has_cells(chunks as u64)? {
            return Ok(false);
        }
        let FragmentGrant::Fragment(index) = self.pool.alloc(self.slot)? else { return Ok(false) };
        for at in (0..len).step_by(STREAM_CHUNK) {
            // SAFETY: the fragment was just allocated, and the peer knows only of the bytes before `at`.
            #[expect(unsafe_code, reason = "see above")]
            let room = unsafe { self.pool.range_mut(index, at, STREAM_CHUNK.min(len - at)) };
            match body {
                Body::Bytes(bytes) => copy::fill(room, &bytes[at..at + room.len()]),
                Body::Packed(fill) if fill.has_short_blocks() => {
                    pack_via_stack(room, |stack| fill.pack_range(at, stack))
                }
                Body::Packed(fill) => fill.pack_range(at, room),
                Body::Empty | Body::Chain(_) => (),
            }
            match at {
                0 => self.producer.send_stream_head(head, index, len as u32, room.len() as u32),
                _ => self.producer.send_stream_data(room.len() as u32),
            }
            self.notifier.notify_receiver();
        }
        Ok(true)
    }

    /// Copies a frame and begins to send it in cells.
    #[cold]
    fn post_split(
        &mut self,
        head: &[u8],
        len: usize,
        fill: impl FnOnce(&mut [MaybeUninit<u8>]),
    ) -> Result<(), Malformed> {
        let mut body = Box::new_uninit_slice(len);
        fill(&mut body);
        self.split = Some(SplitSend { head: Some(head.to_vec()), body, sent: 0 });
        // If the ring is full, the receiver wakes this rank only if the rank tries again after a heavy fence. A caller
        // whose post fails does that, but this post succeeds.
        if self.continue_split()? {
            crate::fence::heavy_fence();
            self.continue_split()?;
        }
        Ok(())
    }
}

/// Lets `write` fill `room`, through a buffer on the stack unless `room` is very short or longer than [`STACK_PACK`].
#[inline]
fn pack_via_stack(room: &mut [MaybeUninit<u8>], write: impl FnOnce(&mut [MaybeUninit<u8>])) {
    if room.len() <= INLINE || room.len() > STACK_PACK {
        return write(room);
    }
    let mut stack = [MaybeUninit::uninit(); STACK_PACK];
    let stack = &mut stack[..room.len()];
    write(stack);
    room.copy_from_slice(stack);
}

impl From<Malformed> for PostError {
    fn from(what: Malformed) -> Self {
        PostError::Broken(what.to_string())
    }
}

impl<B: PeerNotifier> Endpoint for RingEndpoint<B> {
    #[inline]
    fn post(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        if (self.split.is_some() && self.continue_split()?) || !self.producer.has_room()? {
            return Err(PostError::Again);
        }
        // The common case: a short frame in one piece.
        if let Body::Bytes(bytes) = &body
            && head.len() + bytes.len() <= INLINE
        {
            self.producer.send_inline(head, bytes.len(), |room| copy::fill(room, bytes));
            self.notifier.notify_receiver();
            return Ok(());
        }
        let len = body.len();
        if len > STREAM_CHUNK && len <= self.pool.fragment_size() && self.post_streamed(head, &body)? {
            return Ok(());
        }
        let fill = |room: &mut [MaybeUninit<u8>]| match body {
            Body::Empty => (),
            Body::Bytes(bytes) => copy::fill(room, bytes),
            Body::Chain(pieces) => pack_via_stack(room, |stack| pieces.write(stack)),
            Body::Packed(fill) if fill.has_short_blocks() => pack_via_stack(room, |stack| fill.write(stack)),
            Body::Packed(fill) => fill.write(room),
        };
        if head.len() + len <= INLINE {
            self.producer.send_inline(head, len, fill);
        } else if len <= self.pool.fragment_size() {
            let mut fill = Some(fill);
            let grant = self.pool.alloc_filled(self.slot, len, |room| {
                if let Some(fill) = fill.take() {
                    fill(room);
                }
            })?;
            match (grant, fill) {
                (FragmentGrant::Fragment(index), _) => self.producer.send_fragment(head, index, len as u32),
                (FragmentGrant::Retry, Some(fill)) if len <= MAX_SPLIT_LEN => {
                    return Ok(self.post_split(head, len, fill)?);
                }
                (FragmentGrant::Exhausted, Some(fill)) => return Ok(self.post_split(head, len, fill)?),
                _ => return Err(PostError::Again),
            }
        } else {
            return Err(PostError::Unsupported);
        }
        self.notifier.notify_receiver();
        Ok(())
    }

    fn flush(&mut self) -> Result<bool, PostError> {
        Ok(self.continue_split()?)
    }

    fn has_unflushed(&self) -> bool {
        self.split.is_some()
    }

    fn is_drained(&mut self) -> bool {
        self.split.is_none()
    }

    fn verify(&mut self) -> Result<(), PostError> {
        Ok(self.producer.verify()?)
    }

    fn peer_gone(&mut self) {
        self.split = None;
        self.pool.release_peer(self.slot);
    }
}
