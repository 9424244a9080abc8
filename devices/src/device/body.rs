//! The body of a frame, as a link is given it.

use std::fmt;
use std::mem::MaybeUninit;

use crate::layout::Pieces;

/// The body of a frame to post.
pub enum Body<'a> {
    /// No body.
    Empty,
    /// These bytes; the device has copied or written them when `post` returns `Ok`.
    Bytes(&'a [u8]),
    /// Bytes in pieces, to be written one after the other.
    Chain(Pieces<'a>),
    /// Bytes that are written straight into the device's memory.
    Fill(PackedBody<'a>),
}

impl Body<'_> {
    /// Returns the length of the body in bytes.
    pub fn len(&self) -> usize {
        match self {
            Body::Empty => 0,
            Body::Bytes(bytes) => bytes.len(),
            Body::Chain(pieces) => pieces.len(),
            Body::Fill(fill) => fill.len,
        }
    }

    /// Returns whether there are no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Body<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Body({} B)", self.len())
    }
}

/// Bytes that are packed where they are wanted.
///
/// # Safety
/// [`pack`](Self::pack) initialises every byte of its room: a device sends what is there then.
#[expect(unsafe_code, reason = "a device takes its memory for written")]
pub unsafe trait Packed {
    /// Writes the bytes from `position` on to `room`, which reaches no further than they do.
    fn pack(&self, position: usize, room: &mut [MaybeUninit<u8>]);
}

/// A body that does not lie in one piece: who posts it packs it where the device wants it.
pub struct PackedBody<'a> {
    packed: &'a dyn Packed,
    position: usize,
    len: usize,
    ragged: bool,
}

impl<'a> PackedBody<'a> {
    /// Makes a body of `len` bytes from `position` on.
    #[inline]
    pub fn new(packed: &'a dyn Packed, position: usize, len: usize) -> Self {
        PackedBody { packed, position, len, ragged: false }
    }

    /// Says whether it is written in short pieces that are no whole cache lines.
    #[inline]
    pub(crate) fn in_short_blocks(self, ragged: bool) -> Self {
        PackedBody { ragged, ..self }
    }

    /// Whether it is said to be.
    #[inline]
    pub(crate) fn is_ragged(&self) -> bool {
        self.ragged
    }

    /// Writes the bytes from `at` on to `room`, which reaches no further than the body does.
    #[inline]
    pub(crate) fn pack_range(&self, at: usize, room: &mut [MaybeUninit<u8>]) {
        self.packed.pack(self.position + at, room);
    }

    /// Writes the body to `room`, which is as long as the [body](Body::len); its bytes are initialised then.
    #[inline]
    pub fn write(self, room: &mut [MaybeUninit<u8>]) {
        self.packed.pack(self.position, room);
    }
}

impl fmt::Debug for PackedBody<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fill({} B)", self.len)
    }
}
