//! Encodings of objects.
//!
//! | codec | encoding | use it |
//! |---|---|---|
//! | [`Postcard`] | variable-length integers: small | by default, and for interchange |
//! | [`Fixed`] | full-width numbers: fast | for large values over a fast network |
//!
//! Either codec copies a slice of primitives in a value as a whole if [`Raw`], [`RawVec`] or [`raw`] marks it.
//!
//! # Untrusted input
//! Values nested deeper than [`MAX_DEPTH`], and values with more than [`MAX_ZERO_SIZED`] zero-sized elements, are
//! errors. All lengths in a value together reserve memory for no more elements than the value has bytes. The
//! `Deserialize` implementation of a type is outside of these limits.
//!
//! # Implementing a codec
//! 1. Choose an id from 128 on; lower ids belong to this crate. It is a wire value.
//! 2. `encode` pushes the value's bytes into the [`RecordWriter`]. The value needs neither a length in front nor a mark
//!    at the end: each record contains its length.
//! 3. `decode` gets the bytes of one record, from an untrusted peer. It must not panic, must not reserve much more
//!    memory than the bytes can fill, and must reject trailing bytes.
mod fixed;
mod guard;
mod limits;
mod postcard;
pub mod raw;
#[expect(unsafe_code, reason = "skips the UTF-8 check of short ASCII strings; proof inside")]
mod utf8;
#[expect(unsafe_code, reason = "writes through a pointer into the block that is being filled; proofs inside")]
mod writer;

use serde::{Deserialize, Serialize};

pub use self::fixed::Fixed;
pub use self::postcard::Postcard;
pub use self::raw::{Raw, RawVec};
pub use self::writer::RecordWriter;
use crate::CodecError;

/// Maximum depth of a value: each sequence, map, tuple, struct, enum, newtype and option is one level.
///
/// Ordinary types of this depth fit on a stack of 2 MiB. [`Fixed`] enforces the limit when writing, too.
pub const MAX_DEPTH: u32 = 128;

/// Maximum number of zero-sized elements, such as those of a `Vec<()>`, in all sequences and maps of one value. They
/// cannot be checked against the available bytes.
pub const MAX_ZERO_SIZED: u32 = 1 << 16;

/// An encoding of serde values. Codecs have no state and are chosen by type.
pub trait Codec {
    /// Id in the section header; never 0.
    const ID: u8;

    /// Returns a hash of the type as this codec writes it, so that a reader that expects another type gets an error
    /// instead of a wrong value. Codecs without schemas return 0.
    fn schema<T: ?Sized>() -> u8 {
        0
    }

    /// Pushes the bytes of `value`.
    ///
    /// # Errors
    /// The error of `out`, or [`CodecError`] if the value cannot be encoded. Then the buffer discards the value.
    fn encode<T: Serialize + ?Sized>(value: &T, out: &mut RecordWriter<'_>) -> Result<(), CodecError>;

    /// Decodes a value from all of `bytes`. The value may borrow from them.
    ///
    /// # Errors
    /// [`CodecError`] if the bytes are not exactly one value.
    fn decode<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, CodecError>;
}
