//! Receiving frames from one connection.

use std::mem::MaybeUninit;
use std::sync::Arc;

use super::connection::TcpConnection;
use super::frame::{HEADER, Header, Kind};
use super::recv_buffer::{RecvBuffer, STAGE};
use crate::device::{HEAD_MAX, Landing, Sink};
use crate::sys::{Errno, socket};

/// Frames of up to this number of bytes are kept until they are complete.
const BUFFERED_MAX: usize = 8 << 10;

/// The maximum size of the read after a long body. It is enough for the next head, so that the next body can be read
/// directly into its destination and not through the receive buffer.
const HEAD_READ: usize = HEADER + HEAD_MAX + 1024;

/// The reason why a connection is not read any more.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum CloseReason {
    /// The peer has sent a goodbye before.
    Goodbye,
    /// The connection is lost.
    Lost(String),
}

/// The receiving end of one connection.
#[derive(Debug)]
pub(super) struct Reader {
    pipe: Arc<TcpConnection>,
    /// The beginning of a small frame, or of a head, whose rest has not arrived.
    partial: Vec<u8>,
    body: Option<BodyProgress>,
    /// Whether the last frame was long.
    long: bool,
    saw_goodbye: bool,
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
    pub(super) fn new(pipe: Arc<TcpConnection>) -> Self {
        Reader { pipe, partial: Vec::new(), body: None, long: false, saw_goodbye: false }
    }

    pub(super) fn pipe(&self) -> &Arc<TcpConnection> {
        &self.pipe
    }

    /// Returns whether a body is in transfer.
    pub(super) fn has_begun(&self) -> bool {
        self.body.is_some()
    }

    /// Returns the capacity of the memory in which it keeps an incomplete frame, in bytes.
    #[cfg(test)]
    pub(super) fn room(&self) -> usize {
        self.partial.capacity()
    }

    /// Reads once, or twice if a long body begins, and passes on the frames through the receive buffer. Returns the
    /// number of frames, or 1 for bytes that do not complete a frame.
    #[inline]
    pub(super) fn read(&mut self, stage: &mut RecvBuffer, sink: &mut dyn Sink) -> Result<usize, CloseReason> {
        if let Some(BodyProgress::Into(..)) = self.body {
            return self.read_body(sink);
        }
        let kept = self.partial.len();
        let limit = if self.long && self.body.is_none() { (kept + HEAD_READ).min(STAGE) } else { STAGE };
        let Some(count) = self.receive(stage, limit)? else { return Ok(0) };
        let full = kept + count == limit;
        let frames = self.parse(stage, sink)?;
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
    fn receive(&mut self, stage: &mut RecvBuffer, limit: usize) -> Result<Option<usize>, CloseReason> {
        let Some(stream) = self.pipe.stream() else { return Ok(None) };
        match socket::recv(stream, stage.room(self.partial.len(), limit)) {
            Ok(0) => Err(self.ended("its connection was closed")),
            Ok(count) => {
                stage.fill(&mut self.partial, count);
                Ok(Some(count))
            }
            Err(error) => self.failed(error).map(|()| None),
        }
    }

    /// Reads directly into the destination of the body in transfer.
    fn read_body(&mut self, sink: &mut dyn Sink) -> Result<usize, CloseReason> {
        let (Some(BodyProgress::Into(place, left)), Some(stream)) = (&mut self.body, self.pipe.stream())
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
            sink.landed(self.pipe.peer);
            return 1;
        }
        0
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
            // A peer that has sent a goodbye closes without reading data in flight to it; the kernel then resets the
            // connection. That is an orderly end, too.
            Errno::CONNRESET | Errno::PIPE => Err(self.ended("its connection was reset")),
            error => Err(self.ended(&format!("its connection failed: {}", std::io::Error::from(error)))),
        }
    }

    /// Passes on the contents of the receive buffer; returns the number of frames.
    fn parse(&mut self, stage: &mut RecvBuffer, sink: &mut dyn Sink) -> Result<usize, CloseReason> {
        let mut frames = 0;
        loop {
            if self.body.is_some() {
                frames += self.take_body(stage, sink);
                if self.body.is_some() {
                    break;
                }
            }
            if !self.take_frame(stage, sink, &mut frames)? {
                break;
            }
        }
        stage.save_rest(&mut self.partial);
        Ok(frames)
    }

    /// Takes the next frame from the receive buffer; returns false if it is incomplete.
    fn take_frame(
        &mut self,
        stage: &mut RecvBuffer,
        sink: &mut dyn Sink,
        frames: &mut usize,
    ) -> Result<bool, CloseReason> {
        let pipe = &self.pipe;
        let Some((header, rest)) = stage.unparsed().split_first_chunk::<HEADER>() else { return Ok(false) };
        let header =
            Header::parse(header).ok_or_else(|| CloseReason::Lost("it sent a malformed frame".into()))?;
        if self.saw_goodbye {
            return Err(CloseReason::Lost("it sent a frame after its goodbye".into()));
        }
        match header.kind {
            Kind::Data => (),
            Kind::Goodbye => {
                self.saw_goodbye = true;
                // The peer does not read any more, either.
                pipe.end();
            }
            Kind::Settle => {
                if let Some(stream) = pipe.stream() {
                    socket::acknowledge(stream);
                }
            }
        }
        if header.kind != Kind::Data {
            stage.pass(HEADER);
            return Ok(true);
        }
        let Some((head, rest)) = rest.split_at_checked(header.head) else { return Ok(false) };
        if let Some(body) = rest.get(..header.body) {
            sink.frame(pipe.peer, head, body);
            stage.pass(HEADER + header.head + header.body);
            *frames += 1;
            return Ok(true);
        }
        if header.body <= BUFFERED_MAX {
            return Ok(false);
        }
        self.long = true;
        self.body = Some(match sink.begin(pipe.peer, head, header.body) {
            Landing::Into(to) => BodyProgress::Into(BodyPtr(to), header.body),
            Landing::Pieces => BodyProgress::Pieces(header.body),
        });
        stage.pass(HEADER + header.head);
        Ok(true)
    }

    /// Takes bytes of the body in transfer from the receive buffer; returns the number of completed bodies.
    fn take_body(&mut self, stage: &mut RecvBuffer, sink: &mut dyn Sink) -> usize {
        let there = stage.unparsed();
        let count = match &mut self.body {
            Some(BodyProgress::Into(place, left)) => {
                let count = there.len().min(*left);
                // SAFETY: `there` holds `count` bytes, and the body's place, which nothing else uses until it has
                // landed, has room for `left`.
                unsafe { std::ptr::copy_nonoverlapping(there.as_ptr(), place.0, count) };
                place.0 = place.0.wrapping_add(count);
                *left -= count;
                count
            }
            Some(BodyProgress::Pieces(left)) => {
                let count = there.len().min(*left);
                *left -= count;
                sink.piece(self.pipe.peer, &there[..count]);
                count
            }
            None => 0,
        };
        stage.pass(count);
        self.end_body(sink)
    }
}
