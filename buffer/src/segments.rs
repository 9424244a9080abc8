//! A committed message as bytes: as segments for a gathering write, or copied.

use mpj_pool::ReadBlock;

use crate::{Buffer, Overflow, Reading};

impl<R: ReadBlock> Buffer<R, Reading> {
    /// Returns the length of the message on the wire in bytes.
    pub fn len(&self) -> usize {
        self.static_len() + self.chain.len()
    }

    /// Returns the message as non-empty segments, which are its bytes on the wire in order: the static part, then each
    /// block of the dynamic part.
    pub fn segments(&self) -> impl Iterator<Item = &[u8]> {
        core::iter::once(self.static_part()).chain(self.dynamic())
    }

    /// Returns the segments as [`segments`](Self::segments) does, with the headroom in front of the first, so that
    /// device header and message can be sent in one write.
    pub fn segments_with_headroom(&self) -> impl Iterator<Item = &[u8]> {
        core::iter::once(self.block.bytes()).chain(self.dynamic())
    }

    /// Copies the message to the front of `dst` and returns its length.
    ///
    /// # Errors
    /// [`Overflow`] if `dst` is shorter; then it is unchanged.
    pub fn copy_to(&self, dst: &mut [u8]) -> Result<usize, Overflow> {
        let (needed, left) = (self.len(), dst.len());
        let mut rest = dst.get_mut(..needed).ok_or(Overflow { needed, available: left })?;
        for segment in self.segments() {
            let (now, later) = rest.split_at_mut(segment.len());
            now.copy_from_slice(segment);
            rest = later;
        }
        Ok(needed)
    }

    /// Copies the message into a vector.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut all = Vec::with_capacity(self.len());
        self.segments().for_each(|segment| all.extend_from_slice(segment));
        all
    }

    fn dynamic(&self) -> impl Iterator<Item = &[u8]> {
        self.chain.chunks().filter(|chunk| !chunk.is_empty())
    }
}
