//! The errors: one small `Copy` enum per operation, with the sizes that explain it.
//!
//! An operation checks the mode by type, then the section, then the length, then the values. A failed operation leaves
//! the buffer and the caller's slice exactly as they were, so that the caller can try something else.

use mpj_pool::AllocError;
pub use mpj_pool::Overflow;

use crate::ElementKind;

mod text;

/// A block that could not become a buffer, returned together with the reason.
pub struct FromBlockError<R, E> {
    /// The block, unchanged in length and place.
    pub block: R,
    /// The reason.
    pub error: E,
}

/// A place outside of the slice that elements come from or go to. Nothing was copied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum IndexError {
    /// An index is negative, or not below the length of the slice.
    Index {
        /// Its place among the indices.
        position: usize,
        /// The index; `i64::MAX` also stands for all greater ones.
        index: i64,
        /// Length of the slice.
        len: usize,
    },
    /// A strided region reaches out of the slice.
    Region {
        /// Index of its lowest element; an index beyond the range of `i64` is given as the nearest end of the range.
        lowest: i64,
        /// Index of its highest element.
        highest: i64,
        /// Length of the slice.
        len: usize,
    },
}

/// Bytes that are not a message of this format. Offsets count from the first byte of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FormatError {
    /// The bytes end before something that a header announces.
    Truncated {
        /// Offset of what is cut off.
        at: u64,
        /// Bytes it needs.
        needed: u64,
        /// Bytes that are left there.
        available: u64,
    },
    /// More bytes are there than the message announces.
    Trailing {
        /// Length in the message header.
        total: u64,
        /// Bytes that were given.
        given: u64,
    },
    /// The first four bytes are not those of a message.
    Magic {
        /// The bytes found there.
        found: [u8; 4],
    },
    /// The message is of a version that this build does not know.
    Version {
        /// Version in the header.
        found: u8,
        /// Newest version that is understood.
        newest: u8,
    },
    /// The byte order mark is neither little nor big.
    ByteOrder {
        /// The mark.
        found: u8,
    },
    /// A flag is set that this version does not define, or one that contradicts the sections.
    Flags {
        /// The flags.
        found: u8,
    },
    /// A section is of no known kind.
    UnknownKind {
        /// Offset of the section header.
        at: u64,
        /// The kind byte.
        found: u8,
    },
    /// Encoding, codec, schema or element size of a section do not fit its kind.
    BadSection {
        /// Offset of the section header.
        at: u64,
        /// The kind byte.
        kind: u8,
    },
    /// A count multiplied by its element size is larger than any memory.
    TooLarge {
        /// Offset of the section header.
        at: u64,
        /// The count.
        count: u64,
    },
    /// A byte that must be zero is not.
    Padding {
        /// Offset of the byte.
        at: u64,
    },
    /// The number of objects in the object sections differs from that in the dynamic part.
    Objects {
        /// Sum of the counts in the section headers.
        announced: u64,
        /// Records that are really there.
        found: u64,
    },
    /// The block has fewer bytes than the message and its headroom.
    BlockTooSmall {
        /// Bytes that the block must have, headroom included.
        needed: u64,
        /// Bytes of the block.
        left: u64,
    },
}

/// Why a value could not be encoded or decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CodecError {
    /// The codec cannot express this value or this type.
    Unsupported,
    /// The value's own `Serialize` or `Deserialize` returned an error.
    Custom,
    /// The record ends within the value.
    Truncated,
    /// The bytes are not a valid value of this type.
    Malformed,
    /// The value ends before its record does.
    Trailing {
        /// Bytes after the value.
        left: usize,
    },
    /// The value is nested too deep.
    TooDeep {
        /// How many levels there may be.
        limit: u32,
    },
    /// Sequences announce too many elements that take no bytes.
    TooManyEmpty {
        /// How many there may be in one value.
        limit: u32,
    },
    /// No memory could be had for the dynamic part.
    NoMemory,
}

/// Why nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// The static part has no room for the elements, or for the section header.
    Overflow(Overflow),
    /// An element lies outside of the slice.
    Place(IndexError),
    /// The codec rejected the value.
    Codec(CodecError),
    /// The pool had no block for the dynamic part.
    Alloc(AllocError),
}

/// Why nothing was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The section holds another kind.
    WrongType {
        /// Kind that was requested.
        expected: ElementKind,
        /// Kind of the section.
        found: ElementKind,
    },
    /// The section's objects were written by another codec.
    WrongCodec {
        /// Id that was requested.
        expected: u8,
        /// Id in the section header.
        found: u8,
    },
    /// The section's objects are of another schema.
    WrongSchema {
        /// Hash that was requested.
        expected: u8,
        /// Hash in the section header.
        found: u8,
    },
    /// The section has fewer elements left than were requested.
    PastSection {
        /// Elements that were requested.
        needed: u64,
        /// Elements left.
        left: u64,
    },
    /// The open section still has elements: read them, or call `skip_section`.
    Unread {
        /// Kind of the open section.
        kind: ElementKind,
        /// Elements left.
        left: u64,
    },
    /// The message has no further section.
    End,
    /// An element is not a valid value of its type: a bool that is neither 0 nor 1, or a char outside Unicode's scalar
    /// values.
    Invalid {
        /// Kind of the element.
        kind: ElementKind,
        /// Its index among the requested elements.
        index: usize,
    },
    /// A view is impossible because the block is not aligned for the type; `read` works.
    Misaligned {
        /// Kind that was requested.
        kind: ElementKind,
    },
    /// A view is impossible because the elements are in the other byte order; `read` works.
    ForeignOrder {
        /// Kind that was requested.
        kind: ElementKind,
    },
    /// An element is to go outside of the slice.
    Place(IndexError),
    /// A view is impossible because the value lies in several blocks of a message that has not left this process;
    /// `read` works.
    Split {
        /// Bytes of the value.
        len: usize,
    },
    /// The length of the slice differs from the number of elements that were written with one call.
    Length {
        /// Elements of the slice.
        expected: usize,
        /// Elements that were written.
        found: usize,
    },
    /// The codec rejected the record.
    Codec(CodecError),
    /// The message itself is broken.
    Format(FormatError),
}

impl From<Overflow> for WriteError {
    fn from(e: Overflow) -> Self {
        Self::Overflow(e)
    }
}

impl From<IndexError> for WriteError {
    fn from(e: IndexError) -> Self {
        Self::Place(e)
    }
}

impl From<IndexError> for ReadError {
    fn from(e: IndexError) -> Self {
        Self::Place(e)
    }
}

impl From<FormatError> for ReadError {
    fn from(e: FormatError) -> Self {
        Self::Format(e)
    }
}

impl From<AllocError> for WriteError {
    fn from(e: AllocError) -> Self {
        Self::Alloc(e)
    }
}

impl From<CodecError> for WriteError {
    fn from(e: CodecError) -> Self {
        Self::Codec(e)
    }
}
