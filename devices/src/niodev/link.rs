//! The sending end: a frame alone leaves at once, those that follow each other leave together.
//!
//! README.md beside this file tells which frames may be held back, and for how long.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Shared;
use super::frame::{HEADER, Header, Kind};
use super::outgoing::{PARTS, STAGE, SendBuffer, extend};
use super::pipe::TcpConnection;
use crate::device::{Body, Endpoint, HEAD_MAX, Pieces, PostError};
use crate::sys::socket;

/// Bodies up to this are copied next to their head, and wait on the stage when the socket is full: many small frames
/// then go out in one write.
const SMALL: usize = 4 << 10;

/// So many bytes are held back at most: what has come together is written while more is started.
pub(super) const HOLD: usize = 16 << 10;

/// A frame that comes so long after the one before it does not follow it.
const GAP: Duration = Duration::from_micros(20);

/// The sending end to one peer.
#[derive(Debug)]
pub(super) struct TcpLink {
    shared: Arc<Shared>,
    pipe: Arc<TcpConnection>,
    /// Where a body is packed that is too large for the stage.
    packed: Vec<u8>,
    /// Whether something waits on the stage, unless the flusher has written it since.
    staged: bool,
    /// The row that a frame may follow in.
    row: Row,
    /// Whether the peer was asked to acknowledge all that was sent.
    asked: bool,
    /// The longest body that the peer takes.
    takes: usize,
}

impl TcpLink {
    pub(super) fn new(shared: Arc<Shared>, pipe: Arc<TcpConnection>, takes: usize) -> Self {
        let row = Row { looks: shared.looks().wrapping_sub(1), last: Instant::now() };
        TcpLink { shared, pipe, packed: Vec::new(), staged: false, row, asked: false, takes }
    }

    /// Sends a frame, and all that was held back before it; or holds it back, too, if there may be `more` and it follows
    /// another.
    #[inline]
    fn put(&mut self, head: &[u8], body: Body<'_>, more: bool) -> Result<(), PostError> {
        let TcpLink { shared, pipe, packed, row, .. } = self;
        if pipe.is_over() || pipe.stream().is_none() {
            // It is not sent, or never will be: the inlet tells the end of a peer, and the roster ends what waits for it.
            return Err(PostError::Again);
        }
        let mut out = pipe.out();
        let len = body.len();
        if out.is_full() && (out.len() >= STAGE || len > SMALL) && out.write_out(pipe) {
            return Err(PostError::Again);
        }
        self.asked = false;
        let may_wait = more && row.follows(shared.looks(), !out.is_empty());
        let sent = if len > SMALL {
            put_long(&mut out, pipe, packed, head, body)
        } else {
            out.append(head, body);
            // Where the socket was full it is tried when it says that it has room.
            let is_held = may_wait && out.len() < HOLD && shared.flusher.is_there();
            if !out.is_full() && !is_held {
                out.write_out(pipe);
            }
            Ok(())
        };
        self.staged = !out.is_empty();
        if self.staged && !out.watched {
            out.watched = true;
            shared.flusher.watch(pipe);
        }
        sent
    }

    /// Writes out what waits; returns whether any is left.
    fn write_out(&mut self) -> bool {
        self.staged = self.pipe.out().write_out(&self.pipe);
        self.staged
    }
}

/// Frames that may be held back, one after the other, without a look for news between them.
#[derive(Debug)]
struct Row {
    /// How often this rank had looked when the last one was sent.
    looks: u32,
    /// When the last one left at once.
    last: Instant,
}

impl Row {
    /// Takes note of a frame and returns whether it follows another; surely if one is held that does.
    #[inline]
    fn follows(&mut self, looks: u32, is_held: bool) -> bool {
        let is_first = std::mem::replace(&mut self.looks, looks) != looks;
        if is_held && !is_first {
            return true;
        }
        let now = Instant::now();
        let before = std::mem::replace(&mut self.last, now);
        !is_first && now.duration_since(before) < GAP
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
            // There are many, and so they are small.
            None => extend(packed, len, |room| pieces.write(room)),
        },
        Body::Fill(fill) => extend(packed, len, |room| fill.write(room)),
    }
    out.write(pipe, &[front, packed], true)
}

/// The front of a frame and the pieces of its body, and how many parts these are, if they are not too many for one call.
fn parts<'a>(front: &'a [u8], pieces: Pieces<'a>) -> Option<([&'a [u8]; PARTS], usize)> {
    let mut parts = [&[][..]; PARTS];
    let mut used = 0;
    for part in std::iter::once(front).chain(pieces) {
        *parts.get_mut(used)? = part;
        used += 1;
    }
    Some((parts, used))
}

impl Endpoint for TcpLink {
    fn takes(&self) -> Option<usize> {
        Some(self.takes)
    }

    #[inline]
    fn post(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        self.put(head, body, false)
    }

    #[inline]
    fn post_more(&mut self, head: &[u8], body: Body<'_>) -> Result<(), PostError> {
        self.put(head, body, true)
    }

    fn flush(&mut self) -> Result<bool, PostError> {
        Ok(self.write_out())
    }

    #[inline]
    fn has_unflushed(&self) -> bool {
        self.staged
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
            // Otherwise the peer's kernel may hold its acknowledgement back for 40 ms. The request may get lost, but not in
            // the middle: what was written of it is completed.
            let request = Header::bare(Kind::Settle).to_bytes();
            let _ = self.pipe.out().write(&self.pipe, &[&request], true);
        }
        false
    }
}

impl Drop for TcpLink {
    fn drop(&mut self) {
        if self.write_out() {
            self.pipe.mark_truncated();
        }
    }
}
