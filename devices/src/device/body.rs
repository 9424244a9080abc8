//! The body of a frame, in the forms that an endpoint accepts.

use std::fmt;
use std::mem::MaybeUninit;

use crate::message::Pieces;

/// The body of a frame.
pub enum Body<'a> {
    /// No body.
    Empty,
    /// One contiguous slice.
    Bytes(&'a [u8]),
    /// Several pieces, which the device writes one after the other.
    Chain(Pieces<'a>),
    /// Bytes that the device packs directly into its memory.
    Packed(PackedBody<'a>),
}

impl Body<'_> {
    /// Returns the length of the body in bytes.
    pub fn len(&self) -> usize {
        match self {
            Body::Empty => 0,
            Body::Bytes(bytes) => bytes.len(),
            Body::Chain(pieces) => pieces.len(),
            Body::Packed(fill) => fill.len,
        }
    }

    /// Returns whether the body is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({} B)", self.len())
    }
}

/// A message that can be packed into memory of the device.
///
/// # Safety
/// [`pack`](Self::pack) initialises every byte of `room`: the device sends these bytes.
#[expect(unsafe_code, reason = "a device sends the room as initialised bytes")]
pub unsafe trait PackSource {
    /// Writes the bytes from `position` on to `room`, which does not extend beyond the end of the message.
    fn pack(&self, position: usize, room: &mut [MaybeUninit<u8>]);
}

/// A body that is not contiguous: the device calls [`write`](Self::write) to pack it into its own memory.
pub struct PackedBody<'a> {
    source: &'a dyn PackSource,
    position: usize,
    len: usize,
    in_short_blocks: bool,
}

impl<'a> PackedBody<'a> {
    /// Creates a body from the `len` bytes of the message that begin at `position`.
    #[inline]
    pub fn new(source: &'a dyn PackSource, position: usize, len: usize) -> Self {
        PackedBody { source, position, len, in_short_blocks: false }
    }

    /// Sets whether the body is packed in short blocks whose lengths are not multiples of a cache line.
    #[inline]
    pub(crate) fn in_short_blocks(self, in_short_blocks: bool) -> Self {
        PackedBody { in_short_blocks, ..self }
    }

    #[inline]
    pub(crate) fn has_short_blocks(&self) -> bool {
        self.in_short_blocks
    }

    /// Writes the bytes from `at` on to `room`, which does not extend beyond the end of the body.
    #[inline]
    pub(crate) fn pack_range(&self, at: usize, room: &mut [MaybeUninit<u8>]) {
        self.source.pack(self.position + at, room);
    }

    /// Writes the body to `room`, which has the length of the [body](Body::len), and initialises it.
    #[inline]
    pub fn write(self, room: &mut [MaybeUninit<u8>]) {
        self.source.pack(self.position, room);
    }
}

impl fmt::Debug for PackedBody<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PackedBody({} B)", self.len)
    }
}
