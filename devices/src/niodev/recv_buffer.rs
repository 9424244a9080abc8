//! The receive buffer, shared by all connections of an inlet.

/// The length of the buffer in bytes. It limits every read that does not go directly to the destination of a body.
pub(super) const RECV_BUFFER: usize = 32 << 10;

/// The bytes of one read, until they are parsed. The reader of the connection keeps the beginning of a frame whose rest
/// has not arrived.
#[derive(Debug)]
pub(super) struct RecvBuffer {
    bytes: Box<[u8]>,
    /// The range that was read and not parsed yet.
    start: usize,
    end: usize,
    /// Memory for the next reader that must keep bytes.
    spare: Vec<u8>,
}

impl RecvBuffer {
    pub(super) fn new() -> Self {
        RecvBuffer { bytes: vec![0; RECV_BUFFER].into_boxed_slice(), start: 0, end: 0, spare: Vec::new() }
    }

    /// Returns the part of the buffer from byte `kept` to byte `limit`, to read into.
    #[inline]
    pub(super) fn room(&mut self, kept: usize, limit: usize) -> &mut [u8] {
        &mut self.bytes[kept..limit]
    }

    /// Copies the kept bytes to the space in front of the `count` bytes just read, and reuses the memory of `kept`.
    #[inline]
    pub(super) fn fill(&mut self, kept: &mut Vec<u8>, count: usize) {
        (self.start, self.end) = (0, kept.len() + count);
        if !kept.is_empty() {
            self.bytes[..kept.len()].copy_from_slice(kept);
            kept.clear();
            self.spare = std::mem::take(kept);
        }
    }

    #[inline]
    pub(super) fn unparsed(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    #[inline]
    pub(super) fn consume(&mut self, count: usize) {
        self.start += count;
    }

    /// Moves the bytes that are not parsed yet to `kept`, which is empty.
    #[inline]
    pub(super) fn save_rest(&mut self, kept: &mut Vec<u8>) {
        if self.start < self.end {
            *kept = std::mem::take(&mut self.spare);
            kept.extend_from_slice(self.unparsed());
            self.start = self.end;
        }
    }
}
