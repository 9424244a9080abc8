//! The send buffer of a connection.

use std::io::IoSlice;
use std::mem::MaybeUninit;

use super::connection::TcpConnection;
use super::frame::{HEADER, NioHeader};
use crate::device::{Body, PostError};
use crate::sys::{Errno, OwnedFd, socket};

/// While the socket is full, short frames are accepted until this number of bytes is buffered.
pub(super) const SEND_BUFFER_MAX: usize = 64 << 10;

/// The maximum number of parts of a frame, its header and head counted as one, that are written in one call.
pub(super) const MAX_PARTS: usize = 64;

/// Frames that are coalesced, or for which the socket had no space.
#[derive(Debug, Default)]
pub(super) struct SendBuffer {
    bytes: Vec<u8>,
    /// The number of these bytes that were written to the socket.
    written: usize,
    /// Whether the socket did not take all bytes of the last write.
    is_blocked: bool,
    /// Whether the connection was passed to the flusher, which has not flushed it since.
    pub(super) in_flusher: bool,
}

impl SendBuffer {
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.written
    }

    #[inline]
    pub(super) fn is_blocked(&self) -> bool {
        self.is_blocked
    }

    #[inline]
    pub(super) fn append(&mut self, head: &[u8], body: Body<'_>) {
        let len = body.len();
        self.bytes.reserve(HEADER + head.len() + len);
        self.bytes.extend_from_slice(&NioHeader::data(head.len(), len).to_bytes());
        self.bytes.extend_from_slice(head);
        match body {
            Body::Empty => (),
            Body::Bytes(bytes) => self.bytes.extend_from_slice(bytes),
            Body::Chain(pieces) => extend(&mut self.bytes, len, |room| pieces.write(room)),
            Body::Packed(body) => extend(&mut self.bytes, len, |room| body.write(room)),
        }
    }

    /// Writes the buffered bytes and then `parts` in one call, and buffers the bytes that the socket does not take. If
    /// the connection is broken, discards all bytes and returns `Ok`.
    ///
    /// # Errors
    /// `Again` if the connection is not established; or, without `buffer_all`, if the socket takes none of `parts`.
    pub(super) fn write(
        &mut self,
        connection: &TcpConnection,
        parts: &[&[u8]],
        buffer_all: bool,
    ) -> Result<(), PostError> {
        let Some(stream) = connection.stream() else { return Err(PostError::Again) };
        let mut sent = match send(stream, &self.bytes[self.written..], parts) {
            Ok(sent) => sent,
            Err(error) if is_transient(error) => 0,
            Err(_) => {
                // The connection is broken. The inlet still reads the bytes that arrived before, perhaps a goodbye.
                connection.close();
                self.clear();
                return Ok(());
            }
        };
        let buffered = self.len();
        if sent == buffered + parts.iter().map(|part| part.len()).sum::<usize>() {
            self.clear();
            return Ok(());
        }
        self.on_partial_write(connection, sent.min(buffered));
        sent = sent.saturating_sub(buffered);
        if sent == 0 && !buffer_all {
            return Err(PostError::Again);
        }
        for part in parts {
            let skip = sent.min(part.len());
            self.bytes.extend_from_slice(&part[skip..]);
            sent -= skip;
        }
        Ok(())
    }

    /// Writes the buffered bytes, or discards them if the connection is closed; returns whether any remain.
    #[inline]
    pub(super) fn write_out(&mut self, connection: &TcpConnection) -> bool {
        while self.written < self.bytes.len() {
            let Some(stream) = connection.stream().filter(|_| !connection.is_closed()) else { break };
            match socket::send(stream, &self.bytes[self.written..]) {
                Ok(sent) => self.written += sent,
                Err(Errno::INTR) => (),
                Err(error) if is_transient(error) => {
                    self.on_partial_write(connection, 0);
                    return true;
                }
                Err(_) => connection.close(),
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

    /// Records that the socket took only a part of the bytes: `sent` of the buffered bytes.
    #[cold]
    fn on_partial_write(&mut self, connection: &TcpConnection, sent: usize) {
        self.written += sent;
        self.is_blocked = true;
        if self.written >= SEND_BUFFER_MAX || self.written == self.bytes.len() {
            self.bytes.drain(..self.written);
            self.written = 0;
        }
        connection.set_write_interest(true);
    }
}

fn is_transient(error: Errno) -> bool {
    matches!(error, Errno::WOULDBLOCK | Errno::INTR | Errno::NOBUFS | Errno::NOMEM)
}

/// Sends as much of `before` and then of `parts` as the socket takes, in one call.
#[inline]
fn send(stream: &OwnedFd, before: &[u8], parts: &[&[u8]]) -> Result<usize, Errno> {
    if let (true, [one, two]) = (before.is_empty(), parts) {
        return socket::send_parts(stream, &[IoSlice::new(one), IoSlice::new(two)]);
    }
    let mut slices = [IoSlice::new(&[]); 1 + MAX_PARTS];
    slices[0] = IoSlice::new(before);
    for (slice, part) in slices[1..].iter_mut().zip(parts) {
        *slice = IoSlice::new(part);
    }
    socket::send_parts(stream, &slices[..1 + parts.len().min(MAX_PARTS)])
}

/// Appends `len` bytes to `bytes`; `pack` initialises all of the slice that it is given.
#[inline]
pub(super) fn extend(bytes: &mut Vec<u8>, len: usize, pack: impl FnOnce(&mut [MaybeUninit<u8>])) {
    bytes.reserve(len);
    pack(&mut bytes.spare_capacity_mut()[..len]);
    let end = bytes.len() + len;
    // SAFETY: `pack` has initialised the `len` bytes after the end of the vector: every caller passes a `PackedBody` or
    // `Pieces`, which promise that.
    unsafe { bytes.set_len(end) };
}
