//! The send buffer of a connection, which is written with few system calls.

use std::io::IoSlice;
use std::mem::MaybeUninit;

use super::connection::TcpConnection;
use super::frame::{HEADER, Header};
use crate::device::{Body, PostError};
use crate::sys::{Errno, OwnedFd, socket};

/// While the socket is full, frames are buffered up to this number of bytes.
pub(super) const STAGE: usize = 64 << 10;

/// The maximum number of parts of a frame in one call.
pub(super) const PARTS: usize = 64;

/// The send buffer of a connection: frames that were delayed, or for which its socket had no space.
///
/// # Invariants
/// 1. It holds at most [`STAGE`] bytes and the rest of one frame.
#[derive(Debug, Default)]
pub(super) struct SendBuffer {
    bytes: Vec<u8>,
    /// The bytes of `bytes` that were already written.
    written: usize,
    /// Whether the socket did not take all bytes of the last write.
    is_blocked: bool,
    /// Whether the flusher watches the connection.
    pub(super) in_flusher: bool,
}

impl SendBuffer {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the number of waiting bytes.
    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    /// Returns whether the socket had no space at the last attempt.
    #[inline]
    pub(super) fn is_full(&self) -> bool {
        self.is_blocked
    }

    /// Appends a frame to the waiting bytes.
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

    /// Writes the waiting bytes followed by `parts` in one call, and buffers the rest that the socket does not take.
    ///
    /// # Errors
    /// `Again` if the socket takes none of `parts` and `must` is not set.
    pub(super) fn write(
        &mut self,
        pipe: &TcpConnection,
        parts: &[&[u8]],
        must: bool,
    ) -> Result<(), PostError> {
        let Some(stream) = pipe.stream() else { return Err(PostError::Again) };
        let mut sent = match send(stream, &self.bytes[self.written..], parts) {
            Ok(sent) => sent,
            Err(error) if is_transient(error) => 0,
            Err(_) => {
                // The connection is broken. Bytes that arrived before may contain a goodbye: the inlet evaluates them.
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
        self.on_partial_write(pipe, sent.min(waited));
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

    /// Writes the waiting bytes; returns whether any remain.
    #[inline]
    pub(super) fn write_out(&mut self, pipe: &TcpConnection) -> bool {
        while self.written < self.bytes.len() {
            let Some(stream) = pipe.stream().filter(|_| !pipe.is_over()) else { break };
            match socket::send(stream, &self.bytes[self.written..]) {
                Ok(sent) => self.written += sent,
                Err(Errno::INTR) => (),
                Err(error) if is_transient(error) => {
                    self.on_partial_write(pipe, 0);
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
        self.is_blocked = false;
    }

    /// Records that the socket has taken only `sent` more of the waiting bytes.
    #[cold]
    fn on_partial_write(&mut self, pipe: &TcpConnection, sent: usize) {
        self.written += sent;
        self.is_blocked = true;
        if self.written >= STAGE || self.written == self.bytes.len() {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        pipe.set_write_interest(true);
    }
}

/// Returns whether a write that failed with this error should be retried.
fn is_transient(error: Errno) -> bool {
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

/// Appends `len` bytes to `bytes`; `pack` initialises all of the slice that it is given.
#[inline]
pub(super) fn extend(bytes: &mut Vec<u8>, len: usize, pack: impl FnOnce(&mut [MaybeUninit<u8>])) {
    bytes.reserve(len);
    pack(&mut bytes.spare_capacity_mut()[..len]);
    let end = bytes.len() + len;
    // SAFETY: the `len` bytes after the end of the vector are initialised, as `PackedBody` and `Pieces` promise.
    unsafe { bytes.set_len(end) };
}
