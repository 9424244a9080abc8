//! The sending end of a ring as an [`Endpoint`].

use std::mem::MaybeUninit;
use std::sync::Arc;

use super::fragments::{FragmentGrant, PeerSlot};
use super::memory::{INLINE, Ring};
use super::{ExitCheck, FragmentPool, Malformed, PeerNotifier, Producer};
use crate::copy;
use crate::device::{Body, Endpoint, PostError};

/// Longest body that is split over a few cells rather than wait for a fragment to come back.
const MAX_SPLIT: usize = 4 * INLINE;

/// Bytes of a part of a streamed body. The sender announces each part and then writes the next one. So both ends copy
/// at the same time, and the receiver reads each part while it is still in the sender's cache.
const STREAM_CHUNK: usize = 8 << 10;

/// Longest body of short pieces that is assembled in the sender's own cache first. The receiver was the last to read
/// the destination, so its lines come from the receiver's cache. Stores of consecutive whole lines wait for them
/// together; many short stores, of which some touch two lines, do not.
const STAGE: usize = STREAM_CHUNK;

/// The sending side of the ring to one peer.
#[derive(Debug)]
pub(crate) struct RingEndpoint<B> {
    producer: Producer,
    area: Arc<FragmentPool>,
    borrower: PeerSlot,
    /// A frame that is being split over cells: nothing else is sent before all of it is.
    cut: Option<Cut>,
    bell: B,
}

/// A frame for which no fragment was free, and how much of its body was sent.
#[derive(Debug)]
struct Cut {
    head: Option<Vec<u8>>,
    body: Box<[MaybeUninit<u8>]>,
    sent: usize,
}

impl<B: PeerNotifier> RingEndpoint<B> {
    /// Makes the sending side of `ring`, of which there is one. `exit` is the peer's.
    pub(crate) fn new(ring: Arc<Ring>, area: Arc<FragmentPool>, bell: B, exit: ExitCheck) -> Self {
        let borrower = area.open(Arc::clone(&ring), exit);
        RingEndpoint { producer: Producer::new(ring), area, borrower, cut: None, bell }
    }

    /// Notifies the peer of work other than frames.
    pub(crate) fn notify_receiver(&mut self) {
        self.bell.notify_receiver();
    }

    /// Sends pieces while cells are free; returns whether some are left.
    #[cold]
    fn send_pieces(&mut self) -> Result<bool, Malformed> {
        let Some(cut) = &mut self.cut else { return Ok(false) };
        let mut is_full = false;
        let mut moved = false;
        while cut.sent < cut.body.len() {
            if !self.producer.has_room()? {
                is_full = true;
                break;
            }
            match cut.head.take() {
                Some(head) => self.producer.send_cut(&head, cut.body.len() as u32),
                None => cut.sent += self.producer.send_piece(&cut.body[cut.sent..]),
            }
            moved = true;
        }
        if !is_full {
            self.cut = None;
        }
        if moved {
            self.bell.notify_receiver();
        }
        Ok(is_full)
    }

    /// Sends a frame part by part. Returns `false`, and sends nothing, if the body cannot be written in parts, no
    /// fragment is free, or there are too few cells to announce every part.
    fn post_streamed(&mut self, head: &[u8], body: &Body<'_>) -> Result<bool, Malformed> {
        let len = body.len();
        let parts = len.div_ceil(STREAM_CHUNK);
        if matches!(body, Body::Chain(_)) || !self.producer.has_cells(parts as u64)? {
            return Ok(false);
        }
        let FragmentGrant::Fragment(index) = self.area.alloc(self.borrower)? else { return Ok(false) };
        for at in (0..len).step_by(STREAM_CHUNK) {
            // SAFETY: the fragment was just allocated, and the peer was told only of the bytes before `at`.
            #[expect(unsafe_code, reason = "see above")]
            let room = unsafe { self.area.range_mut(index, at, STREAM_CHUNK.min(len - at)) };
            match body {
                Body::Bytes(bytes) => copy::fill(room, &bytes[at..at + room.len()]),
                Body::Packed(fill) if fill.has_short_blocks() => {
                    pack_via_stack(room, |stage| fill.pack_range(at, stage))
                }
                Body::Packed(fill) => fill.pack_range(at, room),
                Body::Empty | Body::Chain(_) => (),
            }
            match at {
                0 => self.producer.send_stream_head(head, index, len as u32, room.len() as u32),
                _ => self.producer.send_stream_data(room.len() as u32),
            }
            self.bell.notify_receiver();
        }
        Ok(true)
    }

    /// Keeps a copy of a frame and begins to send it in pieces.
    #[cold]
    fn cut(
        &mut self,
        head: &[u8],
        len: usize,
        fill: impl FnOnce(&mut [MaybeUninit<u8>]),
    ) -> Result<(), Malformed> {
        let mut body = Box::new_uninit_slice(len);
        fill(&mut body);
        self.cut = Some(Cut { head: Some(head.to_vec()), body, sent: 0 });
        // The post succeeds, so a sleeping thread of this rank is not told to try again. Execute the fence and try
        // again here.
        if self.send_pieces()? {
            crate::fence::heavy_fence();
            self.send_pieces()?;
        }
        Ok(())
    }
}

/// Calls `write` to fill `room`, through a buffer on the stack if that pays.
#[inline]
fn pack_via_stack(room: &mut [MaybeUninit<u8>], write: impl FnOnce(&mut [MaybeUninit<u8>])) {
    if room.len() <= INLINE || room.len() > STAGE {
        return write(room);
    }
    let mut stage = [MaybeUninit::uninit(); STAGE];
    let stage = &mut stage[..room.len()];
    write(stage);
    room.copy_from_slice(stage);
}

impl From<Malformed> for PostError {
    fn from(what: Malformed) -> Self {
        PostError::Broken(what.to_string())
    }
}

impl<B: PeerNotifier> Endpoint for RingEndpoint<B> {
    #[inline]
    fn post(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        if (self.cut.is_some() && self.send_pieces()?) || !self.producer.has_room()? {
            return Err(PostError::Again);
        }
        // Most frames are short and in one piece; they take this path.
        if let Body::Bytes(bytes) = &body
            && head.len() + bytes.len() <= INLINE
        {
            self.producer.send_inline(head, bytes.len(), |room| copy::fill(room, bytes));
            self.bell.notify_receiver();
            return Ok(());
        }
        let len = body.len();
        if len > STREAM_CHUNK && len <= self.area.fragment() && self.post_streamed(head, &body)? {
            return Ok(());
        }
        let fill = |room: &mut [MaybeUninit<u8>]| match body {
            Body::Empty => (),
            Body::Bytes(bytes) => copy::fill(room, bytes),
            Body::Chain(pieces) => pack_via_stack(room, |stage| pieces.write(stage)),
            Body::Packed(fill) if fill.has_short_blocks() => pack_via_stack(room, |stage| fill.write(stage)),
            Body::Packed(fill) => fill.write(room),
        };
        if head.len() + len <= INLINE {
            self.producer.send_inline(head, len, fill);
        } else if len <= self.area.fragment() {
            let mut fill = Some(fill);
            let lent = self.area.alloc_filled(self.borrower, len, |room| {
                if let Some(fill) = fill.take() {
                    fill(room);
                }
            })?;
            match (lent, fill) {
                (FragmentGrant::Fragment(index), _) => self.producer.send_fragment(head, index, len as u32),
                (FragmentGrant::Retry, Some(fill)) if len <= MAX_SPLIT => {
                    return Ok(self.cut(head, len, fill)?);
                }
                (FragmentGrant::Exhausted, Some(fill)) => return Ok(self.cut(head, len, fill)?),
                _ => return Err(PostError::Again),
            }
        } else {
            return Err(PostError::Unsupported);
        }
        self.bell.notify_receiver();
        Ok(())
    }

    fn flush(&mut self) -> Result<bool, PostError> {
        Ok(self.send_pieces()?)
    }

    fn has_unflushed(&self) -> bool {
        self.cut.is_some()
    }

    fn is_drained(&mut self) -> bool {
        self.cut.is_none()
    }

    fn verify(&mut self) -> Result<(), PostError> {
        Ok(self.producer.verify()?)
    }

    fn peer_gone(&mut self) {
        self.cut = None;
        self.area.release_peer(self.borrower);
    }
}
