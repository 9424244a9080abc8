//! The endpoint. README.md in this folder lists the frames that it coalesces.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::NioShared;
use super::connection::TcpConnection;
use super::frame::{HEADER, NioFrameKind, NioHeader};
use super::send_buffer::{MAX_PARTS, SEND_BUFFER_MAX, SendBuffer, extend};
use crate::device::{Body, Endpoint, HEAD_MAX, Pieces, PostError};
use crate::sys::socket;

/// Bodies up to this length are copied into the send buffer, so that one write sends many frames.
const COPY_MAX: usize = 4 << 10;

/// Coalesced frames are written when they have this number of bytes together.
pub(super) const COALESCE_MAX: usize = 16 << 10;

/// A frame that finds an empty buffer is sent at once if this time has passed since [`Burst::last`].
const BURST_GAP: Duration = Duration::from_micros(20);

#[derive(Debug)]
pub(super) struct NioEndpoint {
    shared: Arc<NioShared>,
    connection: Arc<TcpConnection>,
    /// Memory into which a body above [`COPY_MAX`] is packed, if it cannot be written from user memory.
    packed: Vec<u8>,
    /// Whether the send buffer contained bytes after the last call. The flusher might have written them since.
    unflushed: bool,
    burst: Burst,
    /// Whether this end has requested an acknowledgement since the last frame was sent.
    ack_requested: bool,
    /// The longest body that the peer accepts.
    max_body: usize,
}

impl NioEndpoint {
    pub(super) fn new(shared: Arc<NioShared>, connection: Arc<TcpConnection>, max_body: usize) -> Self {
        let burst = Burst { polls: shared.polls().wrapping_sub(1), last: Instant::now() };
        NioEndpoint {
            shared,
            connection,
            packed: Vec::new(),
            unflushed: false,
            burst,
            ack_requested: false,
            max_body,
        }
    }

    /// Writes a frame after all buffered frames. Buffers a short frame instead if the socket is full, or if the caller
    /// might post `more` frames and this one [follows](Burst::follows) another.
    #[inline]
    fn send(&mut self, head: &[u8], body: Body<'_>, more: bool) -> Result<(), PostError> {
        let NioEndpoint { shared, connection, packed, burst, .. } = self;
        if connection.is_closed() || connection.stream().is_none() {
            // The inlet reports an unreachable peer as lost. If the peer has exited, the engine fails the operations.
            return Err(PostError::Again);
        }
        let mut out = connection.send_buffer();
        let len = body.len();
        if out.is_blocked() && (out.len() >= SEND_BUFFER_MAX || len > COPY_MAX) && out.write_out(connection) {
            return Err(PostError::Again);
        }
        self.ack_requested = false;
        let may_wait = more && burst.follows(shared.polls(), !out.is_empty());
        let sent = if len > COPY_MAX {
            send_long(&mut out, connection, packed, head, body)
        } else {
            out.append(head, body);
            // If the socket was full, the next poll of this rank or the flusher writes the frame.
            let is_coalesced = may_wait && out.len() < COALESCE_MAX && shared.flusher.is_running();
            if !out.is_blocked() && !is_coalesced {
                out.write_out(connection);
            }
            Ok(())
        };
        self.unflushed = !out.is_empty();
        if self.unflushed && !out.in_flusher {
            out.in_flusher = true;
            shared.flusher.watch(connection);
        }
        sent
    }

    /// Writes the buffered bytes; returns whether any remain.
    fn write_out(&mut self) -> bool {
        self.unflushed = self.connection.send_buffer().write_out(&self.connection);
        self.unflushed
    }
}

/// Consecutive frames of [`post_more`](Endpoint::post_more), between which the rank does not poll.
#[derive(Debug)]
struct Burst {
    /// The number of polls of the inlet when `post_more` was last called.
    polls: u32,
    /// The time of the last frame that began a burst or found the send buffer empty.
    last: Instant,
}

impl Burst {
    /// Records a frame. Returns whether it can be coalesced: the rank has not polled since the previous frame, and
    /// frames are still buffered (`has_buffered`) or less than [`BURST_GAP`] has passed since `last`.
    #[inline]
    fn follows(&mut self, polls: u32, has_buffered: bool) -> bool {
        let is_first = std::mem::replace(&mut self.polls, polls) != polls;
        if has_buffered && !is_first {
            return true;
        }
        let now = Instant::now();
        let before = std::mem::replace(&mut self.last, now);
        !is_first && now.duration_since(before) < BURST_GAP
    }
}

/// Writes a frame whose body is above [`COPY_MAX`]: from user memory, unless the body must be packed first.
fn send_long(
    out: &mut SendBuffer,
    connection: &TcpConnection,
    packed: &mut Vec<u8>,
    head: &[u8],
    body: Body<'_>,
) -> Result<(), PostError> {
    let len = body.len();
    let mut front = [0; HEADER + HEAD_MAX];
    front[..HEADER].copy_from_slice(&NioHeader::data(head.len(), len).to_bytes());
    front[HEADER..][..head.len()].copy_from_slice(head);
    let front = &front[..HEADER + head.len()];
    packed.clear();
    match body {
        Body::Empty => (),
        Body::Bytes(bytes) => return out.write(connection, &[front, bytes], false),
        Body::Chain(pieces) => match parts(front, pieces.clone()) {
            Some((parts, used)) => return out.write(connection, &parts[..used], false),
            // Too many pieces for one call: pack them.
            None => extend(packed, len, |room| pieces.write(room)),
        },
        Body::Packed(body) => extend(packed, len, |room| body.write(room)),
    }
    out.write(connection, &[front, packed], true)
}

/// Returns the front of a frame and the pieces of its body, and the number of these parts, if they fit into one call.
fn parts<'a>(front: &'a [u8], pieces: Pieces<'a>) -> Option<([&'a [u8]; MAX_PARTS], usize)> {
    let mut parts = [&[][..]; MAX_PARTS];
    let mut used = 0;
    for part in std::iter::once(front).chain(pieces) {
        *parts.get_mut(used)? = part;
        used += 1;
    }
    Some((parts, used))
}

impl Endpoint for NioEndpoint {
    fn peer_max_body(&self) -> Option<usize> {
        Some(self.max_body)
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
        if self.connection.stream().is_none() {
            self.connection.close();
        }
    }

    fn is_drained(&mut self) -> bool {
        if self.write_out() {
            return false;
        }
        if self.connection.is_closed()
            || self.connection.stream().is_none_or(|stream| socket::unacknowledged(stream) == 0)
        {
            return true;
        }
        if !self.ack_requested {
            self.ack_requested = true;
            // Otherwise the peer's kernel might delay its acknowledgement for 40 ms.
            let request = NioHeader::bare(NioFrameKind::Settle).to_bytes();
            let _ = self.connection.send_buffer().write(&self.connection, &[&request], true);
        }
        false
    }
}

impl Drop for NioEndpoint {
    fn drop(&mut self) {
        if self.write_out() {
            self.connection.mark_truncated();
        }
    }
}
