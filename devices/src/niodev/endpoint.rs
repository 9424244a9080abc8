//! The endpoint: a single frame is sent at once; frames in quick succession are coalesced, as README.md in this folder
//! describes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::NioShared;
use super::connection::TcpConnection;
use super::frame::{HEADER, NioFrameKind, NioHeader};
use super::send_buffer::{PARTS, SEND_BUFFER_MAX, SendBuffer, extend};
use crate::device::{Body, Endpoint, HEAD_MAX, Pieces, PostError};
use crate::sys::socket;

/// Bodies up to this length are copied into the send buffer, so that one write sends many frames.
const COPY_MAX: usize = 4 << 10;

/// Coalesced frames are written when they reach this number of bytes.
pub(super) const COALESCE_MAX: usize = 16 << 10;

/// A frame that is posted this long after the previous one is not coalesced with it.
const BURST_GAP: Duration = Duration::from_micros(20);

#[derive(Debug)]
pub(super) struct NioEndpoint {
    shared: Arc<NioShared>,
    connection: Arc<TcpConnection>,
    /// Buffer for packing a body that is too large for the send buffer.
    packed: Vec<u8>,
    /// Whether the send buffer contains bytes, unless the flusher has written them since.
    unflushed: bool,
    burst: Burst,
    /// Whether the peer was requested to acknowledge all that was sent.
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

    /// Sends a frame together with all coalesced ones. If the caller may post `more` and the frame follows another, the
    /// frame may be coalesced, too.
    #[inline]
    fn send(&mut self, head: &[u8], body: Body<'_>, more: bool) -> Result<(), PostError> {
        let NioEndpoint { shared, connection, packed, burst, .. } = self;
        if connection.is_closed() || connection.stream().is_none() {
            // If the peer is unreachable, the inlet reports it lost; if it has exited, the roster's record fails the
            // operations.
            return Err(PostError::Again);
        }
        let mut out = connection.out();
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
            // If the socket was full, the next attempt waits until the poller reports space.
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
        self.unflushed = self.connection.out().write_out(&self.connection);
        self.unflushed
    }
}

/// A sequence of frames that may be coalesced: the rank has not polled between them.
#[derive(Debug)]
struct Burst {
    /// The number of this rank's polls when the last frame was sent.
    polls: u32,
    /// When the last frame was sent that was not added to coalesced ones.
    last: Instant,
}

impl Burst {
    /// Records a frame and returns whether it follows another. It always does if `is_coalesced`: a frame of the same
    /// burst is still buffered.
    #[inline]
    fn follows(&mut self, polls: u32, is_coalesced: bool) -> bool {
        let is_first = std::mem::replace(&mut self.polls, polls) != polls;
        if is_coalesced && !is_first {
            return true;
        }
        let now = Instant::now();
        let before = std::mem::replace(&mut self.last, now);
        !is_first && now.duration_since(before) < BURST_GAP
    }
}

/// Sends a frame whose body is not copied, unless it must be packed.
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
            // There are too many pieces for one call, and so they are short.
            None => extend(packed, len, |room| pieces.write(room)),
        },
        Body::Packed(body) => extend(packed, len, |room| body.write(room)),
    }
    out.write(connection, &[front, packed], true)
}

/// Returns the front of a frame, the pieces of its body, and their number, if they fit into one call.
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
            // Otherwise the peer's kernel may delay its acknowledgement for 40 ms.
            let request = NioHeader::bare(NioFrameKind::Settle).to_bytes();
            let _ = self.connection.out().write(&self.connection, &[&request], true);
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
