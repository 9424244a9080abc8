//! How objects become bytes.
//!
//! | codec | its bytes | take it |
//! |---|---|---|
//! | [`Postcard`] | variable-length integers: small | by default, and for interchange |
//! | [`Fixed`] | full-width numbers: fast | for large values between machines that are near each other |
//!
//! Slices of primitives inside a value go at the speed of a copy, in either, if they are marked: [`Raw`], [`RawVec`].
//!
//! # Untrusted input
//! Values nested deeper than [`MAX_DEPTH`], and sequences of more than [`MAX_ZERO_SIZED`] zero-sized elements, are
//! errors. No announced length reserves more memory than the bytes present can fill. The `Deserialize` implementation
//! of a type is outside of these limits.
//!
//! # Implementing a codec
//! 1. Choose an id from 128 on; below that they belong to this crate. It is a wire value.
//! 2. `encode` pushes the value's bytes into the [`RecordWriter`]. The length need not be known before, and needs no
//!    mark at the end: each record carries its length.
//! 3. `decode` gets exactly the bytes pushed, from an untrusted peer. It returns errors, reserves no more memory than
//!    the bytes justify, and rejects trailing bytes.

mod fixed;
mod guard;
mod limits;
mod postcard;
pub mod raw;
#[expect(unsafe_code, reason = "spares strings of ASCII the walk over their bytes; proof inside")]
mod utf8;
#[expect(unsafe_code, reason = "writes through a pointer into the block that is being filled; proofs inside")]
mod writer;

use serde::{Deserialize, Serialize};

pub use self::fixed::Fixed;
pub use self::postcard::Postcard;
pub use self::raw::{Raw, RawVec};
pub use self::writer::RecordWriter;
use crate::CodecError;

/// How deep a value may be nested: each sequence, map, tuple, struct, enum, newtype and option is one level.
///
/// The stack of a thread of 2 MiB holds this many levels of ordinary types, even without optimisation. [`Fixed`]
/// enforces the limit when writing, too.
pub const MAX_DEPTH: u32 = 128;

/// How many zero-sized elements, such as those of `Vec<()>`, the sequences and maps of one value may have together.
/// Their number cannot be checked against the bytes present.
pub const MAX_ZERO_SIZED: u32 = 1 << 16;

/// An encoding of serde values. Codecs have no state: they are named by type.
pub trait Codec {
    /// Id in the section header; never 0.
    const ID: u8;

    /// Returns a hash of the type as this codec writes it, so that a reader that expects another type gets an error and
    /// not a wrong value. Codecs without schemas return 0.
    fn schema<T: ?Sized>() -> u8 {
        0
    }

    /// Pushes the bytes of `value`.
    ///
    /// # Errors
    /// The error of `out`, or [`CodecError`] if the value cannot be written this way. None of the value is kept then.
    fn encode<T: Serialize + ?Sized>(value: &T, out: &mut RecordWriter<'_>) -> Result<(), CodecError>;

    /// Makes the value of `bytes`, all of them. It may borrow from them.
    ///
    /// # Errors
    /// [`CodecError`] if they are not exactly one value.
    fn decode<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, CodecError>;
}
