//! `Display` of the errors, and their conversions.

use core::error::Error;
use core::fmt;

use super::{CodecError, FormatError, FromBlockError, IndexError, ReadError, WriteError};

impl fmt::Display for IndexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Index { position, index, len } => {
                write!(f, "index {index}, number {position} of them, is outside of {len} elements")
            }
            Self::Region { lowest, highest, len } => {
                write!(f, "a region from {lowest} to {highest} is outside of {len} elements")
            }
        }
    }
}

impl fmt::Display for FormatError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated { at, needed, available: left } => {
                write!(f, "message cut off at byte {at}: {needed} bytes needed, {left} left")
            }
            Self::Trailing { total, given } => write!(f, "message of {total} bytes, but {given} were given"),
            Self::Magic { found } => write!(f, "not a message: it starts with {found:02x?}"),
            Self::Version { found, newest } => {
                write!(f, "message of version {found}; this build knows 1 to {newest}")
            }
            Self::ByteOrder { found } => write!(f, "unknown byte order mark {found:#04x}"),
            Self::Flags { found } => write!(f, "impossible message flags {found:#04x}"),
            Self::UnknownKind { at, found } => write!(f, "section at byte {at} is of unknown kind {found}"),
            Self::BadSection { at, kind } => {
                write!(f, "header of kind {kind} at byte {at} contradicts itself")
            }
            Self::TooLarge { at, count } => write!(f, "section at byte {at} announces {count} elements"),
            Self::Padding { at } => write!(f, "byte {at} must be zero"),
            Self::Objects { announced, found } => write!(f, "{announced} objects announced, {found} there"),
            Self::BlockTooSmall { needed, left } => {
                write!(f, "{needed} bytes said to lie in a block of {left}")
            }
        }
    }
}

impl fmt::Display for CodecError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported => f.write_str("the codec cannot express the value"),
            Self::Custom => f.write_str("the value's own serde code refused"),
            Self::Truncated => f.write_str("the record ends within the value"),
            Self::Malformed => f.write_str("the record is no value of this type"),
            Self::Trailing { left } => write!(f, "{left} bytes behind the value"),
            Self::TooDeep { limit } => write!(f, "the value is nested deeper than {limit} levels"),
            Self::TooManyEmpty { limit } => write!(f, "more than {limit} elements that take no bytes"),
            Self::NoMemory => f.write_str("no memory for the dynamic part"),
        }
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overflow(e) => e.fmt(f),
            Self::Place(e) => e.fmt(f),
            Self::Codec(e) => e.fmt(f),
            Self::Alloc(e) => e.fmt(f),
        }
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongType { expected, found } => write!(f, "section of {found}, not {expected}"),
            Self::WrongCodec { expected, found } => write!(f, "objects of codec {found}, not {expected}"),
            Self::WrongSchema { expected, found } => write!(f, "objects of schema {found}, not {expected}"),
            Self::PastSection { needed, left } => {
                write!(f, "{needed} elements needed, {left} left in the section")
            }
            Self::Unread { kind, left } => write!(f, "{left} elements of {kind} are still unread"),
            Self::End => f.write_str("no further section"),
            Self::Invalid { kind, index } => write!(f, "element {index} is no {kind}"),
            Self::Misaligned { kind } => write!(f, "the block is not aligned for a view of {kind}"),
            Self::ForeignOrder { kind } => {
                write!(f, "no view of {kind}: the section is in the other byte order")
            }
            Self::Place(e) => e.fmt(f),
            Self::Split { len } => write!(f, "no view: the {len} bytes lie in several blocks"),
            Self::Length { expected, found } => write!(f, "{found} elements were written, not {expected}"),
            Self::Codec(e) => e.fmt(f),
            Self::Format(e) => e.fmt(f),
        }
    }
}

impl<R, E: fmt::Debug> fmt::Debug for FromBlockError<R, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Refused").field("error", &self.error).finish_non_exhaustive()
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
