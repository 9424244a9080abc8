use core::fmt;

use crate::StorageError;

/// A failed allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AllocError {
    /// The bytes requested.
    pub requested: usize,
    /// The largest request that this pool accepts.
    pub max_request: usize,
    /// The bytes granted in live blocks when the request failed.
    pub live_bytes: usize,
    /// The reason for the failure.
    pub kind: AllocErrorKind,
}

/// The reason for a failed allocation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AllocErrorKind {
    /// The request exceeds the maximum of the pool.
    TooLarge,
    /// No free memory suits the request, and a new region would exceed `capacity`. The request can succeed after other
    /// blocks have been freed.
    Full {
        /// The limit of the pool's memory in bytes.
        capacity: usize,
    },
    /// The storage of a new region could not be created.
    Storage(StorageError),
}

impl AllocError {
    /// Creates an error, for implementations of [`Pool`](crate::Pool).
    pub const fn new(
        requested: usize,
        max_request: usize,
        live_bytes: usize,
        kind: AllocErrorKind,
    ) -> AllocError {
        AllocError { requested, max_request, live_bytes, kind }
    }
}

impl fmt::Display for AllocError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let AllocError { requested, max_request, live_bytes, .. } = *self;
        match self.kind {
            AllocErrorKind::TooLarge => {
                write!(f, "cannot allocate {requested} bytes: the maximum is {max_request}")
            }
            AllocErrorKind::Full { capacity } => {
                write!(f, "cannot allocate {requested} bytes: {live_bytes} of {capacity} bytes are in use")
            }
            AllocErrorKind::Storage(_) => {
                write!(f, "cannot allocate a region for {requested} bytes ({live_bytes} bytes in use)")
            }
        }
    }
}

impl core::error::Error for AllocError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match &self.kind {
            AllocErrorKind::Storage(error) => Some(error),
            _ => None,
        }
    }
}
