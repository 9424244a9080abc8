//! What goes out on one connection: frames that wait, and one system call for as many as there are.

use std::io::IoSlice;
use std::mem::MaybeUninit;

use super::frame::{HEADER, Header};
use super::pipe::TcpConnection;
use crate::device::{Body, PostError};
use crate::sys::{Errno, OwnedFd, socket};

/// While the socket is full, frames are staged until this many bytes are.
pub(super) const STAGE: usize = 64 << 10;

/// The most parts of a frame that go out in one call.
pub(super) const PARTS: usize = 64;

/// The stage of a connection: frames that were held back, or that its socket had no room for.
///
/// # Invariants
/// 1. It holds at most [`STAGE`] bytes and the rest of one frame.
#[derive(Debug, Default)]
pub(super) struct SendBuffer {
    bytes: Vec<u8>,
    /// Bytes of `bytes` that were written out.
    written: usize,
    /// Whether the socket did not take all that it was given last.
    full: bool,
    /// Whether the flusher looks after it.
    pub(super) watched: bool,
}

impl SendBuffer {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns how many bytes wait.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Whether the socket had no room when it was last tried.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Puts a frame behind what waits.
    #[inline]
    pub(super) fn append(&mut self, head: &[u8], body: Body<'_>) {
        let len = body.len();
        self.bytes.reserve(HEADER + head.len() + len);
        self.bytes.extend_from_slice(&Header::data(head.len(), len).to_bytes());
        self.bytes.extend_from_slice(head);
        match body {
            Body::Empty => (),
            Body::Bytes(bytes) => self.bytes.extend_from_slice(bytes),
            Body::Chain(pieces) => extend(&mut self.bytes, len, |room| pieces.write(room)),
            Body::Fill(fill) => extend(&mut self.bytes, len, |room| fill.write(room)),
        }
    }

    /// Writes what waits, and `parts` behind it, in one call; keeps what the socket does not take of them.
    ///
    /// # Errors
    /// `Again` if the socket takes nothing of them and `must` is not set.
    pub(super) fn write(
        &mut self,
        pipe: &TcpConnection,
        parts: &[&[u8]],
        must: bool,
    ) -> Result<(), PostError> {
        let Some(stream) = pipe.stream() else { return Err(PostError::Again) };
        let mut sent = match send(stream, &self.bytes[self.written..], parts) {
            Ok(sent) => sent,
            Err(error) if is_passing(error) => 0,
            Err(_) => {
                // The connection is broken. What came before may still hold a goodbye: the inlet says what it means.
                pipe.end();
                self.clear();
                return Ok(());
            }
        };
        let waited = self.len();
        if sent == waited + parts.iter().map(|part| part.len()).sum::<usize>() {
            self.clear();
            return Ok(());
        }
        self.fill_up(pipe, sent.min(waited));
        sent = sent.saturating_sub(waited);
        if sent == 0 && !must {
            return Err(PostError::Again);
        }
        for part in parts {
            let skip = sent.min(part.len());
            self.bytes.extend_from_slice(&part[skip..]);
            sent -= skip;
        }
        Ok(())
    }

    /// Writes out what waits; returns whether any is left.
    #[inline]
    pub(super) fn write_out(&mut self, pipe: &TcpConnection) -> bool {
        while self.written < self.bytes.len() {
            let Some(stream) = pipe.stream().filter(|_| !pipe.is_over()) else { break };
            match socket::send(stream, &self.bytes[self.written..]) {
                Ok(sent) => self.written += sent,
                Err(Errno::INTR) => (),
                Err(error) if is_passing(error) => {
                    self.fill_up(pipe, 0);
                    return true;
                }
                Err(_) => pipe.end(),
            }
        }
        self.clear();
        false
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.written = 0;
        self.full = false;
    }

    /// Takes note that the socket has taken `sent` bytes more of what waits, and no others.
    #[cold]
    fn fill_up(&mut self, pipe: &TcpConnection, sent: usize) {
        self.written += sent;
        self.full = true;
        if self.written >= STAGE || self.written == self.bytes.len() {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        pipe.set_write_interest(true);
    }
}

/// Whether an error of a write only means that it is to be tried again.
fn is_passing(error: Errno) -> bool {
    matches!(error, Errno::WOULDBLOCK | Errno::INTR | Errno::NOBUFS | Errno::NOMEM)
}

/// Sends as much of `before` and then of `parts` as the socket takes, in one call.
#[inline]
fn send(stream: &OwnedFd, before: &[u8], parts: &[&[u8]]) -> Result<usize, Errno> {
    if let (true, [one, two]) = (before.is_empty(), parts) {
        return socket::send_parts(stream, &[IoSlice::new(one), IoSlice::new(two)]);
    }
    let mut slices = [IoSlice::new(&[]); 1 + PARTS];
    slices[0] = IoSlice::new(before);
    for (slice, part) in slices[1..].iter_mut().zip(parts) {
        *slice = IoSlice::new(part);
    }
    socket::send_parts(stream, &slices[..1 + parts.len().min(PARTS)])
}

/// Appends `len` bytes to `bytes`; `pack` initialises its room.
#[inline]
pub(super) fn extend(bytes: &mut Vec<u8>, len: usize, pack: impl FnOnce(&mut [MaybeUninit<u8>])) {
    bytes.reserve(len);
    pack(&mut bytes.spare_capacity_mut()[..len]);
    let end = bytes.len() + len;
    // SAFETY: the `len` bytes behind the vector's are initialised, as `PackedBody` and `Pieces` promise.
    unsafe { bytes.set_len(end) };
}
