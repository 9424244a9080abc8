//! How objects become bytes. [`Postcard`] is the default and the interchange form; others plug in here.
//!
//! # Implementing a codec
//! 1. Choose an id from 128 on; below that they belong to this crate. It is a wire value.
//! 2. `encode` pushes the value's bytes into the [`Sink`]. The length need not be known before, and needs no mark at the
//!    end: each record carries its length.
//! 3. `decode` gets exactly the bytes pushed, from a peer who may lie. It returns errors, reserves no more memory than the
//!    bytes justify, and refuses bytes that are left over.

mod postcard;

use core::fmt;

use mpj_pool::AllocError;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub use self::postcard::Postcard;
use crate::CodecError;
use crate::dynamic::Chain;

/// A way to write serde values. Codecs have no state: they are named by type.
pub trait Codec {
    /// Id in the section header; never 0.
    const ID: u8;

    /// Returns a hash of the type as this codec writes it, so that a reader who expects another type gets an error and
    /// not a wrong value. 0 says nothing, and is what codecs answer that know no schema.
    fn schema<T: ?Sized>() -> u8 {
        0
    }

    /// Pushes the bytes of `value`.
    ///
    /// # Errors
    /// What `out` answers, or [`CodecError`] if the value cannot be written this way. Nothing is kept of it then.
    fn encode<T: Serialize + ?Sized>(value: &T, out: &mut Sink<'_>) -> Result<(), CodecError>;

    /// Makes the value of `bytes`, all of them.
    ///
    /// # Errors
    /// [`CodecError`] if they are not exactly one value.
    fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, CodecError>;
}

/// Where a codec pushes the bytes of one value: the end of the message's dynamic part.
pub struct Sink<'a> {
    chain: &'a mut Chain,
    /// Kept apart because the codec may see it as an error of its own.
    failure: Option<AllocError>,
}

impl<'a> Sink<'a> {
    pub(crate) fn new(chain: &'a mut Chain) -> Self {
        Self { chain, failure: None }
    }

    /// Returns why a push failed, if one did.
    pub(crate) fn into_failure(self) -> Option<AllocError> {
        self.failure
    }

    /// Appends bytes.
    ///
    /// # Errors
    /// [`CodecError::NoMemory`] if the pool has no block left; the record is lost then, whatever the codec makes of it.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), CodecError> {
        if self.failure.is_none() {
            self.failure = self.chain.push(bytes).err();
        }
        if self.failure.is_none() { Ok(()) } else { Err(CodecError::NoMemory) }
    }
}

impl fmt::Debug for Sink<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("failure", &self.failure).finish_non_exhaustive()
    }
}
