//! Error types. After an error of a write or read, the message and the caller's slice are unchanged.

use mpj_pool::AllocError;
pub use mpj_pool::Overflow;

use crate::ElementKind;

mod text;

/// The error of a call that makes a buffer in a block, and the block.
pub struct FromBlockError<R, E> {
    /// The block. The failed call might have overwritten its bytes.
    pub block: R,
    /// The reason.
    pub error: E,
}

/// An index or region outside of the slice. Nothing was written or read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum IndexError {
    /// An index is negative, or not below the length of the slice.
    Index {
        /// Position of the index in the list.
        position: usize,
        /// The index, at most `i64::MAX`: larger ones are clamped.
        index: i64,
        /// Length of the slice.
        len: usize,
    },
    /// A strided region exceeds the slice.
    Region {
        /// Index of its lowest element, clamped to the range of `i64`.
        lowest: i64,
        /// Index of its highest element, clamped to the range of `i64`.
        highest: i64,
        /// Length of the slice.
        len: usize,
    },
}

/// The bytes are not a valid message. Offsets count from the first byte of the message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum FormatError {
    /// The message ends inside a header, a payload, a record or padding, or is shorter than its header announces.
    Truncated {
        /// Offset of the part.
        at: u64,
        /// Length of the part.
        needed: u64,
        /// Bytes from that offset to the end.
        available: u64,
    },
    /// The message is longer than its header, or the header of its dynamic part, announces.
    Trailing {
        /// Length of the message that the header announces.
        total: u64,
        /// Bytes present.
        given: u64,
    },
    /// The first four bytes are not the magic number.
    Magic {
        /// The first four bytes.
        found: [u8; 4],
    },
    /// This build does not support the format version of the message.
    Version {
        /// Version in the header.
        found: u8,
        /// The only supported version.
        supported: u8,
    },
    /// The byte order mark is neither little nor big.
    ByteOrder {
        /// The mark.
        found: u8,
    },
    /// A flag is undefined in this version, or contradicts the sections.
    Flags {
        /// The flags.
        found: u8,
    },
    /// The kind of a section is unknown.
    UnknownKind {
        /// Offset of the section header.
        at: u64,
        /// The kind byte.
        found: u8,
    },
    /// The encoding, codec, schema or element size of a section does not match its kind.
    BadSection {
        /// Offset of the section header.
        at: u64,
        /// The kind byte.
        kind: u8,
    },
    /// The size of a section, or the total number of objects, overflows.
    TooLarge {
        /// Offset of the section header.
        at: u64,
        /// The count.
        count: u64,
    },
    /// A padding byte, or the reserved byte of the message header, is not zero.
    Padding {
        /// Offset of the byte.
        at: u64,
    },
    /// The number of records in the dynamic part differs from the number of objects in the sections.
    ObjectCount {
        /// Sum of the counts in the section headers.
        announced: u64,
        /// Number of records.
        found: u64,
    },
    /// The block is smaller than the message and its headroom.
    BlockTooSmall {
        /// Bytes of the message and its headroom.
        needed: u64,
        /// Capacity of the block.
        available: u64,
    },
}

/// Why a value could not be encoded or decoded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CodecError {
    /// The codec does not support this value or type.
    Unsupported,
    /// An implementation of `Serialize` or `Deserialize` returned an error, or a panic was caught during the encoding.
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
    /// The value is nested too deeply.
    TooDeep {
        /// Maximum depth.
        limit: u32,
    },
    /// The sequences and maps of the value have too many zero-sized elements.
    TooManyZeroSized {
        /// Maximum number in one value.
        limit: u32,
    },
    /// The pool has no memory left for the dynamic part.
    NoMemory,
}

/// Why nothing was written.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum WriteError {
    /// The static part is too small for the elements, or for the section header.
    Overflow(Overflow),
    /// An index or region is outside of the slice.
    Index(IndexError),
    /// The codec rejected the value.
    Codec(CodecError),
    /// The pool could not allocate a block for the dynamic part.
    Alloc(AllocError),
}

/// Why nothing was read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// The section has another kind.
    WrongType {
        /// Kind that was requested.
        expected: ElementKind,
        /// Kind of the section.
        found: ElementKind,
    },
    /// The objects of the section were written by another codec.
    WrongCodec {
        /// Id that was requested.
        expected: u8,
        /// Id in the section header.
        found: u8,
    },
    /// The objects of the section have another schema.
    WrongSchema {
        /// Schema that was requested.
        expected: u8,
        /// Schema in the section header.
        found: u8,
    },
    /// The section has fewer unread elements than requested.
    PastSection {
        /// Elements that were requested.
        needed: u64,
        /// Unread elements.
        available: u64,
    },
    /// The open section has unread elements: read them, or call `skip_section`.
    Unread {
        /// Kind of the open section.
        kind: ElementKind,
        /// Unread elements.
        left: u64,
    },
    /// The message has no further section.
    End,
    /// An element is invalid for its type: a bool above 1, or a char that is not a Unicode scalar value.
    Invalid {
        /// Kind of the element.
        kind: ElementKind,
        /// Its index among the requested elements.
        index: usize,
    },
    /// A view is impossible because the elements are not aligned for the type in memory; methods that copy work.
    Misaligned {
        /// Kind that was requested.
        kind: ElementKind,
    },
    /// A view is impossible because another process could make the checked values invalid ([`is_shared`]); methods that
    /// copy work.
    ///
    /// [`is_shared`]: mpj_pool::ReadBlock::is_shared
    Shared {
        /// Kind that was requested.
        kind: ElementKind,
    },
    /// A view is impossible because the elements are in the other byte order; methods that copy work.
    ForeignOrder {
        /// Kind that was requested.
        kind: ElementKind,
    },
    /// An index or region is outside of the slice.
    Index(IndexError),
    /// A view is impossible because the value is split over blocks of a message that this process wrote; methods that
    /// copy work.
    Split {
        /// Bytes of the value.
        len: usize,
    },
    /// The length of the slice differs from that of the slice written.
    Length {
        /// Elements of the caller's slice.
        expected: usize,
        /// Elements that were written.
        found: usize,
    },
    /// The codec rejected the record, or the length of a slice is not a multiple of its element size.
    Codec(CodecError),
    /// The message is invalid.
    Format(FormatError),
}

impl From<Overflow> for WriteError {
    fn from(e: Overflow) -> Self {
        Self::Overflow(e)
    }
}

impl From<IndexError> for WriteError {
    fn from(e: IndexError) -> Self {
        Self::Index(e)
    }
}

impl From<IndexError> for ReadError {
    fn from(e: IndexError) -> Self {
        Self::Index(e)
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
