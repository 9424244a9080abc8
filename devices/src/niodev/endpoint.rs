//! The sending end: a single frame is sent at once; frames in quick succession are coalesced.
//!
//! README.md in this folder describes which frames may be delayed, and for how long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::NioShared;
use super::connection::TcpConnection;
use super::frame::{HEADER, Header, Kind};
use super::send_buffer::{PARTS, STAGE, SendBuffer, extend};
use crate::device::{Body, Endpoint, HEAD_MAX, Pieces, PostError};
use crate::sys::socket;

/// Bodies up to this length are copied next to their head, and wait in the send buffer if the socket is full. Many
/// small frames are then sent with one write.
const COPY_MAX: usize = 4 << 10;

/// Maximum number of delayed bytes: coalesced frames are written while more are posted.
pub(super) const COALESCE_MAX: usize = 16 << 10;

/// A frame that is posted this long after the previous one is not coalesced with it.
const BURST_GAP: Duration = Duration::from_micros(20);

/// The sending end to one peer.
#[derive(Debug)]
pub(super) struct NioEndpoint {
    shared: Arc<NioShared>,
    pipe: Arc<TcpConnection>,
    /// Buffer for packing a body that is too large for the send buffer.
    packed: Vec<u8>,
    /// Whether the send buffer contains bytes, unless the flusher has written them since.
    unflushed: bool,
    /// The current sequence of frames that may be coalesced.
    row: Burst,
    /// Whether the peer was asked to acknowledge all that was sent.
    asked: bool,
    /// The longest body that the peer accepts.
    takes: usize,
}

impl NioEndpoint {
    pub(super) fn new(shared: Arc<NioShared>, pipe: Arc<TcpConnection>, takes: usize) -> Self {
        let row = Burst { looks: shared.polls().wrapping_sub(1), last: Instant::now() };
        NioEndpoint { shared, pipe, packed: Vec::new(), unflushed: false, row, asked: false, takes }
    }

    /// Sends a frame together with all delayed ones. If there may be `more` and the frame follows another, it may delay
    /// this frame, too.
    #[inline]
    fn send(&mut self, head: &[u8], body: Body<'_>, more: bool) -> Result<(), PostError> {
        let NioEndpoint { shared, pipe, packed, row, .. } = self;
        if pipe.is_over() || pipe.stream().is_none() {
            // It cannot be sent now, or not at all. The inlet reports that the peer is lost, and the roster's exit
            // fails the operations that wait for it.
            return Err(PostError::Again);
        }
        let mut out = pipe.out();
        let len = body.len();
        if out.is_full() && (out.len() >= STAGE || len > COPY_MAX) && out.write_out(pipe) {
            return Err(PostError::Again);
        }
        self.asked = false;
        let may_wait = more && row.follows(shared.polls(), !out.is_empty());
        let sent = if len > COPY_MAX {
            put_long(&mut out, pipe, packed, head, body)
        } else {
            out.append(head, body);
            // If the socket was full, the next attempt is made when the poller reports space.
            let is_held = may_wait && out.len() < COALESCE_MAX && shared.flusher.is_running();
            if !out.is_full() && !is_held {
                out.write_out(pipe);
            }
            Ok(())
        };
        self.unflushed = !out.is_empty();
        if self.unflushed && !out.in_flusher {
            out.in_flusher = true;
            shared.flusher.watch(pipe);
        }
        sent
    }

    /// Writes the waiting bytes; returns whether any remain.
    fn write_out(&mut self) -> bool {
        self.unflushed = self.pipe.out().write_out(&self.pipe);
        self.unflushed
    }
}

/// A sequence of frames that may be coalesced: the rank has not polled between them.
#[derive(Debug)]
struct Burst {
    /// The number of this rank's polls when the last frame was sent.
    looks: u32,
    /// When the last frame was sent that was not added to delayed ones.
    last: Instant,
}

impl Burst {
    /// Records a frame and returns whether it follows another. It always does if a frame of the same sequence is
    /// delayed.
    #[inline]
    fn follows(&mut self, looks: u32, is_held: bool) -> bool {
        let is_first = std::mem::replace(&mut self.looks, looks) != looks;
        if is_held && !is_first {
            return true;
        }
        let now = Instant::now();
        let before = std::mem::replace(&mut self.last, now);
        !is_first && now.duration_since(before) < BURST_GAP
    }
}

/// Sends a frame whose body is not copied, unless it must be packed.
fn put_long(
    out: &mut SendBuffer,
    pipe: &TcpConnection,
    packed: &mut Vec<u8>,
    head: &[u8],
    body: Body<'_>,
) -> Result<(), PostError> {
    let len = body.len();
    let mut front = [0; HEADER + HEAD_MAX];
    front[..HEADER].copy_from_slice(&Header::data(head.len(), len).to_bytes());
    front[HEADER..][..head.len()].copy_from_slice(head);
    let front = &front[..HEADER + head.len()];
    packed.clear();
    match body {
        Body::Empty => (),
        Body::Bytes(bytes) => return out.write(pipe, &[front, bytes], false),
        Body::Chain(pieces) => match parts(front, pieces.clone()) {
            Some((parts, used)) => return out.write(pipe, &parts[..used], false),
            // There are too many pieces for one call, and so they are short.
            None => extend(packed, len, |room| pieces.write(room)),
        },
        Body::Fill(fill) => extend(packed, len, |room| fill.write(room)),
    }
    out.write(pipe, &[front, packed], true)
}

/// Returns the front of a frame and the pieces of its body, and their number, if they fit into one call.
fn parts<'a>(front: &'a [u8], pieces: Pieces<'a>) -> Option<([&'a [u8]; PARTS], usize)> {
    let mut parts = [&[][..]; PARTS];
    let mut used = 0;
    for part in std::iter::once(front).chain(pieces) {
        *parts.get_mut(used)? = part;
        used += 1;
    }
    Some((parts, used))
}

impl Endpoint for NioEndpoint {
    fn takes(&self) -> Option<usize> {
        Some(self.takes)
    }

    #[inline]
    fn post(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        self.send(head, body, false)
    }

    #[inline]
    fn post_more(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        self.send(head, body, true)
    }

    fn flush(&mut self) -> Result<bool, PostError> {
        Ok(self.write_out())
    }

    #[inline]
    fn has_unflushed(&self) -> bool {
        self.unflushed
    }

    fn peer_gone(&mut self) {
        if self.pipe.stream().is_none() {
            self.pipe.end();
        }
    }

    fn is_drained(&mut self) -> bool {
        if self.write_out() {
            return false;
        }
        if self.pipe.is_over() || self.pipe.stream().is_none_or(|stream| socket::unacknowledged(stream) == 0)
        {
            return true;
        }
        if !self.asked {
            self.asked = true;
            // Otherwise the peer's kernel may delay its acknowledgement for 40 ms. The request may be dropped as a
            // whole, but if a part of it was written, the rest is kept and written later.
            let request = Header::bare(Kind::Settle).to_bytes();
            let _ = self.pipe.out().write(&self.pipe, &[&request], true);
        }
        false
    }
}

impl Drop for NioEndpoint {
    fn drop(&mut self) {
        if self.write_out() {
            self.pipe.mark_truncated();
        }
    }
}
