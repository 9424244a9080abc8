//! Where bytes are read to before it is known what they are: one place for all connections.

/// The bytes of one read at most, unless they go straight to their place.
pub(super) const STAGE: usize = 32 << 10;

/// The stage of an inlet. It holds what one read has brought, until that is looked through: what is left then is the
/// beginning of a frame, and is kept by the reader of its connection.
#[derive(Debug)]
pub(super) struct RecvBuffer {
    bytes: Box<[u8]>,
    /// The part that was read and not looked at yet.
    start: usize,
    end: usize,
    /// Memory for the next reader that has to keep something, left by the last one.
    spare: Vec<u8>,
}

impl RecvBuffer {
    pub(super) fn new() -> Self {
        RecvBuffer { bytes: vec![0; STAGE].into_boxed_slice(), start: 0, end: 0, spare: Vec::new() }
    }

    /// Returns the room for what follows `kept` bytes, up to byte `credit_limit`.
    #[inline]
    pub(super) fn room(&mut self, kept: usize, limit: usize) -> &mut [u8] {
        &mut self.bytes[kept..limit]
    }

    /// Puts what was kept before the `count` bytes that were read to the room behind it, and takes its memory back.
    #[inline]
    pub(super) fn fill(&mut self, kept: &mut Vec<u8>, count: usize) {
        (self.start, self.end) = (0, kept.len() + count);
        if !kept.is_empty() {
            self.bytes[..kept.len()].copy_from_slice(kept);
            kept.clear();
            self.spare = std::mem::take(kept);
        }
    }

    /// Returns what was not looked at.
    #[inline]
    pub(super) fn there(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }

    /// Takes note that the next `count` bytes were looked at.
    #[inline]
    pub(super) fn pass(&mut self, count: usize) {
        self.start += count;
    }

    /// Moves what was not looked at to `kept`, which is empty.
    #[inline]
    pub(super) fn keep(&mut self, kept: &mut Vec<u8>) {
        if self.start < self.end {
            *kept = std::mem::take(&mut self.spare);
            kept.extend_from_slice(self.there());
            self.start = self.end;
        }
    }
}
