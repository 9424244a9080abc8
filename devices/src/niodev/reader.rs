//! Receiving frames from one connection.

use std::mem::MaybeUninit;
use std::sync::Arc;

use super::connection::TcpConnection;
use super::frame::{HEADER, NioFrameKind, NioHeader};
use super::recv_buffer::{RECV_BUFFER, RecvBuffer};
use crate::device::{HEAD_MAX, Landing, Sink};
use crate::sys::{Errno, socket};

/// Bodies of up to this number of bytes are buffered until they are complete.
const BUFFERED_MAX: usize = 8 << 10;

/// The maximum size in bytes of the read after a long body: enough for the next head, but small, so that most of the
/// next long body is read directly into its destination.
const HEAD_READ: usize = HEADER + HEAD_MAX + 1024;

/// The reason why a connection is not read any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CloseReason {
    Goodbye,
    /// The peer closed the connection, possibly before it knew that it was established.
    Unconfirmed(String),
    Lost(String),
}

#[derive(Debug)]
pub(super) struct Reader {
    connection: Arc<TcpConnection>,
    /// The beginning of a frame, up to the end of its head or of a short body, whose rest has not arrived.
    partial: Vec<u8>,
    body: Option<BodyProgress>,
    /// Whether the next body is probably long, because the last one was: see [`HEAD_READ`].
    long: bool,
    saw_goodbye: bool,
    /// Whether the peer might not have received the verdict: this rank accepted the connection, and nothing has arrived.
    unconfirmed: bool,
}

/// A body in transfer, and the number of bytes still to come.
#[derive(Debug)]
enum BodyProgress {
    Into(BodyPtr, usize),
    Pieces(usize),
}

/// The address for the next bytes of a body: valid until the body has landed, see [`Landing::Into`].
#[derive(Debug)]
struct BodyPtr(*mut u8);

// SAFETY: the holder of the progress lock writes through it, on any thread; `Landing::Into` promises the memory to the
// device, not to a thread.
unsafe impl Send for BodyPtr {}

impl Reader {
    pub(super) fn new(connection: Arc<TcpConnection>, accepted: bool) -> Self {
        let (partial, unconfirmed) = (Vec::new(), accepted);
        Reader { connection, partial, body: None, long: false, saw_goodbye: false, unconfirmed }
    }

    pub(super) fn connection(&self) -> &Arc<TcpConnection> {
        &self.connection
    }

    pub(super) fn has_body_in_transfer(&self) -> bool {
        self.body.is_some()
    }

    #[cfg(test)]
    pub(super) fn partial_capacity(&self) -> usize {
        self.partial.capacity()
    }

    /// Reads once, or twice if the first read ends within a long body, and delivers the frames. Returns 0 if nothing
    /// has arrived, otherwise at least 1 and at least the number of frames.
    #[inline]
    pub(super) fn read(
        &mut self,
        recv_buffer: &mut RecvBuffer,
        sink: &mut dyn Sink,
    ) -> Result<usize, CloseReason> {
        if let Some(BodyProgress::Into(..)) = self.body {
            return self.read_body(sink);
        }
        let kept = self.partial.len();
        let limit =
            if self.long && self.body.is_none() { (kept + HEAD_READ).min(RECV_BUFFER) } else { RECV_BUFFER };
        let Some(count) = self.receive(recv_buffer, limit)? else { return Ok(0) };
        let full = kept + count == limit;
        let frames = self.parse(recv_buffer, sink)?;
        if self.long && full && self.body.is_none() {
            self.long = false;
        }
        if full && matches!(self.body, Some(BodyProgress::Into(..))) {
            return Ok(1 + frames + self.read_body(sink)?);
        }
        Ok(frames.max(1))
    }

    /// Reads into the receive buffer, after the kept bytes and up to byte `limit`.
    #[inline]
    fn receive(&mut self, recv_buffer: &mut RecvBuffer, limit: usize) -> Result<Option<usize>, CloseReason> {
        let Some(stream) = self.connection.stream() else { return Ok(None) };
        match socket::recv(stream, recv_buffer.room(self.partial.len(), limit)) {
            Ok(0) => Err(self.closed("its connection was closed")),
            Ok(count) => {
                self.unconfirmed = false;
                recv_buffer.fill(&mut self.partial, count);
                Ok(Some(count))
            }
            Err(error) => self.failed(error).map(|()| None),
        }
    }

    /// Reads directly into the destination of the body in transfer.
    fn read_body(&mut self, sink: &mut dyn Sink) -> Result<usize, CloseReason> {
        let (Some(BodyProgress::Into(place, left)), Some(stream)) =
            (&mut self.body, self.connection.stream())
        else {
            return Ok(0);
        };
        // SAFETY: the sink gave the body's bytes to this device until `landed` or `peer_lost`, which are still to come,
        // and `left` of them are at `place`.
        let room = unsafe { std::slice::from_raw_parts_mut(place.0.cast::<MaybeUninit<u8>>(), *left) };
        match socket::recv_uninit(stream, room) {
            Ok(0) => Err(self.ended("its connection was closed in the middle of a message")),
            Ok(count) => {
                place.0 = place.0.wrapping_add(count);
                *left -= count;
                self.end_body(sink);
                Ok(1)
            }
            Err(error) => self.failed(error).map(|()| 0),
        }
    }

    /// Completes the body in transfer if all of it has arrived; returns the number of completed bodies.
    fn end_body(&mut self, sink: &mut dyn Sink) -> usize {
        if let Some(BodyProgress::Into(_, 0) | BodyProgress::Pieces(0)) = self.body {
            self.body = None;
            sink.landed(self.connection.peer);
            return 1;
        }
        0
    }

    #[cold]
    fn closed(&self, why: &str) -> CloseReason {
        if self.unconfirmed { CloseReason::Unconfirmed(why.into()) } else { self.ended(why) }
    }

    #[cold]
    fn ended(&self, why: &str) -> CloseReason {
        let whole = self.body.is_none() && self.partial.is_empty();
        if self.saw_goodbye && whole { CloseReason::Goodbye } else { CloseReason::Lost(why.into()) }
    }

    #[inline]
    fn failed(&self, error: Errno) -> Result<(), CloseReason> {
        match error {
            Errno::WOULDBLOCK | Errno::INTR => Ok(()),
            // If data reaches a peer that has closed after its goodbye, the peer's kernel resets the connection. That
            // is an orderly end, too.
            Errno::CONNRESET | Errno::PIPE => Err(self.closed("its connection was reset")),
            error => Err(self.ended(&format!("its connection failed: {}", std::io::Error::from(error)))),
        }
    }

    /// Parses the receive buffer and delivers its frames; returns their number.
    fn parse(&mut self, recv_buffer: &mut RecvBuffer, sink: &mut dyn Sink) -> Result<usize, CloseReason> {
        let mut frames = 0;
        loop {
            if self.body.is_some() {
                frames += self.take_body(recv_buffer, sink);
                if self.body.is_some() {
                    break;
                }
            }
            if !self.take_frame(recv_buffer, sink, &mut frames)? {
                break;
            }
        }
        recv_buffer.save_rest(&mut self.partial);
        Ok(frames)
    }

    /// Takes the next frame from the receive buffer; returns false if it is incomplete.
    fn take_frame(
        &mut self,
        recv_buffer: &mut RecvBuffer,
        sink: &mut dyn Sink,
        frames: &mut usize,
    ) -> Result<bool, CloseReason> {
        let connection = &self.connection;
        let Some((header, rest)) = recv_buffer.unparsed().split_first_chunk::<HEADER>() else {
            return Ok(false);
        };
        let header =
            NioHeader::parse(header).ok_or_else(|| CloseReason::Lost("it sent a malformed frame".into()))?;
        if self.saw_goodbye {
            return Err(CloseReason::Lost("it sent a frame after its goodbye".into()));
        }
        match header.kind {
            NioFrameKind::Data => (),
            NioFrameKind::Goodbye => {
                self.saw_goodbye = true;
                // The peer does not read any more.
                connection.close();
            }
            NioFrameKind::Settle => {
                if let Some(stream) = connection.stream() {
                    socket::acknowledge(stream);
                }
            }
        }
        if header.kind != NioFrameKind::Data {
            recv_buffer.consume(HEADER);
            return Ok(true);
        }
        let Some((head, rest)) = rest.split_at_checked(header.head) else { return Ok(false) };
        if let Some(body) = rest.get(..header.body) {
            sink.frame(connection.peer, head, body);
            recv_buffer.consume(HEADER + header.head + header.body);
            *frames += 1;
            return Ok(true);
        }
        if header.body <= BUFFERED_MAX {
            return Ok(false);
        }
        self.long = true;
        self.body = Some(match sink.begin(connection.peer, head, header.body) {
            Landing::Into(to) => BodyProgress::Into(BodyPtr(to), header.body),
            Landing::Pieces => BodyProgress::Pieces(header.body),
        });
        recv_buffer.consume(HEADER + header.head);
        Ok(true)
    }

    /// Takes bytes of the body in transfer from the receive buffer; returns the number of completed bodies.
    fn take_body(&mut self, recv_buffer: &mut RecvBuffer, sink: &mut dyn Sink) -> usize {
        let available = recv_buffer.unparsed();
        let count = match &mut self.body {
            Some(BodyProgress::Into(place, left)) => {
                let count = available.len().min(*left);
                // SAFETY: `available` holds `count` bytes. `place` has room for `left` bytes, at least `count`, and
                // nothing else uses them until the body has landed, so they are not in the receive buffer.
                unsafe { std::ptr::copy_nonoverlapping(available.as_ptr(), place.0, count) };
                place.0 = place.0.wrapping_add(count);
                *left -= count;
                count
            }
            Some(BodyProgress::Pieces(left)) => {
                let count = available.len().min(*left);
                *left -= count;
                sink.piece(self.connection.peer, &available[..count]);
                count
            }
            None => 0,
        };
        recv_buffer.consume(count);
        self.end_body(sink)
    }
}
