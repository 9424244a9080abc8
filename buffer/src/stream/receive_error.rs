//! The error of a receive from a stream.

use core::error::Error;
use core::fmt;
use std::io;

use mpj_pool::AllocError;

use crate::FormatError;
use crate::header::MESSAGE_HEADER_LEN;

/// Why no message was received.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The stream failed, or ended before the end of a message.
    Io(io::Error),
    /// The bytes are not a message.
    Format(FormatError),
    /// The header announces more bytes than the limit.
    TooLong {
        /// Length that the header announces.
        len: u64,
        /// The limit.
        limit: usize,
        /// The message header that was read.
        header: [u8; MESSAGE_HEADER_LEN],
    },
    /// The pool could not allocate a block for the message.
    Alloc {
        /// The error of the pool.
        error: AllocError,
        /// The message header that was read.
        header: [u8; MESSAGE_HEADER_LEN],
    },
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(e) => e.fmt(f),
            Self::Format(e) => e.fmt(f),
            Self::TooLong { len, limit, .. } => {
                write!(f, "message of {len} bytes exceeds the limit of {limit}")
            }
            Self::Alloc { error, .. } => error.fmt(f),
        }
    }
}

impl Error for ReceiveError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::Io(e) => Some(e),
            Self::Format(e) => Some(e),
            Self::TooLong { .. } => None,
            Self::Alloc { error, .. } => Some(error),
        }
    }
}

impl From<io::Error> for ReceiveError {
    fn from(e: io::Error) -> Self {
        Self::Io(e)
    }
}

/// Returns an `Io` error as it is. `Format` and `TooLong` become `InvalidData`, `Alloc` becomes `OutOfMemory`.
impl From<ReceiveError> for io::Error {
    fn from(e: ReceiveError) -> Self {
        match e {
            ReceiveError::Io(e) => e,
            ReceiveError::Format(_) | ReceiveError::TooLong { .. } => {
                io::Error::new(io::ErrorKind::InvalidData, e)
            }
            ReceiveError::Alloc { .. } => io::Error::new(io::ErrorKind::OutOfMemory, e),
        }
    }
}
