//! A body of several segments, in the form in which a device takes it.

use std::fmt;
use std::mem::MaybeUninit;

use crate::buf::ChainRange;

/// A range of a [chain](crate::Chain) as an iterator over non-empty pieces.
///
/// # Invariants
/// 1. The segments of `range` are initialised and not written to for `'a`.
#[derive(Clone)]
pub struct Pieces<'a> {
    pub(super) range: ChainRange<'a>,
}

impl Pieces<'_> {
    /// Returns the total length of all pieces in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Returns whether the pieces contain no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes the pieces one after the other to `room`, which has their length, and initialises it.
    ///
    /// # Panics
    /// If `room` has another length.
    #[inline(never)]
    pub fn write(self, room: &mut [MaybeUninit<u8>]) {
        assert!(room.len() == self.len(), "the room has the length of the pieces");
        let mut at = 0;
        for piece in self {
            room[at..at + piece.len()].write_copy_of_slice(piece);
            at += piece.len();
        }
    }
}

impl<'a> Iterator for Pieces<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let segment = self.range.next()?;
        // SAFETY: invariant 1.
        Some(unsafe { std::slice::from_raw_parts(segment.base, segment.len) })
    }
}

impl fmt::Debug for Pieces<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pieces({} B)", self.len())
    }
}
