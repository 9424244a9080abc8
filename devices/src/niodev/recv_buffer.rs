//! The receive buffer, shared by all connections of an inlet.

/// The maximum number of bytes in one read, unless they are read directly into their destination.
pub(super) const RECV_BUFFER: usize = 32 << 10;

/// The bytes of one read until they are parsed. Any rest is the beginning of a frame, which the connection's reader
/// keeps.
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

    /// Returns the part of the buffer after the `kept` first bytes, up to byte `limit`.
    #[inline]
    pub(super) fn room(&mut self, kept: usize, limit: usize) -> &mut [u8] {
        &mut self.bytes[kept..limit]
    }

    /// Puts the kept bytes before the `count` bytes that were read after them, and reuses the memory of `kept`.
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
    pub(super) fn pass(&mut self, count: usize) {
        self.start += count;
    }

    /// Moves the bytes that are not parsed to `kept`, which is empty.
    #[inline]
    pub(super) fn save_rest(&mut self, kept: &mut Vec<u8>) {
        if self.start < self.end {
            *kept = std::mem::take(&mut self.spare);
            kept.extend_from_slice(self.unparsed());
            self.start = self.end;
        }
    }
}
