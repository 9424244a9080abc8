//! `Display` and `Error` of the error types, and `CodecError` as the error of serde.

use core::error::Error;
use core::fmt;

use super::{CodecError, FormatError, FromBlockError, IndexError, ReadError, WriteError};

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index { position, index, len } => {
                write!(f, "index {index} (at position {position}) is out of range for {len} elements")
            }
            Self::Region { lowest, highest, len } => {
                write!(f, "region from {lowest} to {highest} is out of range for {len} elements")
            }
        }
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { at, needed, available } => {
                write!(f, "message truncated at byte {at}: {needed} bytes expected, {available} available")
            }
            Self::Trailing { total, given } => {
                write!(f, "expected a message of {total} bytes, found {given}")
            }
            Self::Magic { found } => write!(f, "not a message: it starts with {found:02x?}"),
            Self::Version { found, supported } => {
                write!(f, "unsupported message version {found}: this build reads version {supported}")
            }
            Self::ByteOrder { found } => write!(f, "unknown byte order mark {found:#04x}"),
            Self::Flags { found } => write!(f, "invalid message flags {found:#04x}"),
            Self::UnknownKind { at, found } => write!(f, "section at byte {at} has the unknown kind {found}"),
            Self::BadSection { at, kind } => {
                write!(f, "invalid header of kind {kind} at byte {at}")
            }
            Self::TooLarge { at, count } => {
                write!(
                    f,
                    "section at byte {at} announces {count} elements: its size or the number of objects overflows"
                )
            }
            Self::Padding { at } => write!(f, "byte {at} must be zero"),
            Self::ObjectCount { announced, found } => {
                write!(f, "{announced} objects announced, {found} found")
            }
            Self::BlockTooSmall { needed, available } => {
                write!(f, "expected a block of {needed} bytes, found {available}")
            }
        }
    }
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("the codec does not support the value"),
            Self::Custom => f.write_str("the Serialize or Deserialize implementation returned an error"),
            Self::Truncated => f.write_str("the record ends within the value"),
            Self::Malformed => f.write_str("invalid encoding for this type"),
            Self::Trailing { left } => write!(f, "{left} trailing bytes after the value"),
            Self::TooDeep { limit } => write!(f, "the value is nested deeper than {limit} levels"),
            Self::TooManyZeroSized { limit } => write!(f, "more than {limit} zero-sized elements"),
            Self::NoMemory => f.write_str("no memory for the dynamic part"),
        }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overflow(e) => e.fmt(f),
            Self::Index(e) => e.fmt(f),
            Self::Codec(e) => e.fmt(f),
            Self::Alloc(e) => e.fmt(f),
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongType { expected, found } => {
                write!(f, "expected a section of {expected}, found {found}")
            }
            Self::WrongCodec { expected, found } => {
                write!(f, "expected objects of codec {expected}, found codec {found}")
            }
            Self::WrongSchema { expected, found } => {
                write!(f, "expected objects of schema {expected}, found schema {found}")
            }
            Self::PastSection { needed, available } => {
                write!(f, "{needed} elements requested, {available} unread in the section")
            }
            Self::Unread { kind, left } => write!(f, "{left} elements of {kind} are still unread"),
            Self::End => f.write_str("no further section"),
            Self::Invalid { kind, index } => write!(f, "element {index} is not a valid {kind}"),
            Self::Misaligned { kind } => write!(f, "the elements are not aligned for a view of {kind}"),
            Self::Shared { kind } => {
                write!(f, "cannot view {kind}: it needs validation, and the memory is shared with its sender")
            }
            Self::ForeignOrder { kind } => {
                write!(f, "cannot view {kind}: the section has the other byte order")
            }
            Self::Index(e) => e.fmt(f),
            Self::Split { len } => write!(f, "cannot view {len} bytes: they are split over several blocks"),
            Self::Length { expected, found } => {
                write!(f, "expected a slice of {expected} elements, found {found}")
            }
            Self::Codec(e) => e.fmt(f),
            Self::Format(e) => e.fmt(f),
        }
    }
}

impl<R, E: fmt::Debug> fmt::Debug for FromBlockError<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FromBlockError").field("error", &self.error).finish_non_exhaustive()
    }
}

impl<R, E: fmt::Display> fmt::Display for FromBlockError<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.error.fmt(f)
    }
}

impl<R, E: fmt::Debug + fmt::Display> Error for FromBlockError<R, E> {}
impl Error for IndexError {}
impl Error for FormatError {}
impl Error for CodecError {}

impl serde::ser::Error for CodecError {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Custom
    }
}

impl serde::de::Error for CodecError {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Self::Custom
    }

    fn invalid_length(_: usize, _: &dyn serde::de::Expected) -> Self {
        Self::Malformed
    }

    fn invalid_value(_: serde::de::Unexpected<'_>, _: &dyn serde::de::Expected) -> Self {
        Self::Malformed
    }

    fn unknown_variant(_: &str, _: &'static [&'static str]) -> Self {
        Self::Malformed
    }
}

impl Error for WriteError {}
impl Error for ReadError {}
