//! How objects become bytes.
//!
//! | codec | its bytes | take it |
//! |---|---|---|
//! | [`Postcard`] | variable-length integers: small | by default, and for interchange |
//! | [`Fixed`] | full-width numbers: fast | for large values between machines that are near each other |
//!
//! Slices of primitives inside a value go at the speed of a copy, in either, if they are marked: [`Raw`], [`RawVec`].
//!
//! # What strangers' bytes cannot do
//! Values nested deeper than [`MAX_DEPTH`], and sequences of more than [`MAX_ZERO_SIZED`] elements that take no bytes, are
//! errors; no announced length reserves more memory than the bytes that are there can fill. What a type's own
//! `Deserialize` does is its own affair.
//!
//! # Implementing a codec
//! 1. Choose an id from 128 on; below that they belong to this crate. It is a wire value.
//! 2. `encode` pushes the value's bytes into the [`RecordWriter`]. The length need not be known before, and needs no mark at the
//!    end: each record carries its length.
//! 3. `decode` gets exactly the bytes pushed, from a peer who may lie. It returns errors, reserves no more memory than the
//!    bytes justify, and refuses bytes that are left over.

mod fixed;
mod guard;
mod limits;
mod postcard;
pub mod raw;
#[expect(unsafe_code, reason = "writes through a pointer into the block that is being filled; proofs inside")]
mod sink;
#[expect(unsafe_code, reason = "spares strings of ASCII the walk over their bytes; proof inside")]
mod text;

use serde::{Deserialize, Serialize};

pub use self::fixed::Fixed;
pub use self::postcard::Postcard;
pub use self::raw::{Raw, RawVec};
pub use self::sink::RecordWriter;
use crate::CodecError;

/// How deep a value may be nested: each sequence, map, tuple, struct, enum, newtype and option is one level.
///
/// The stack of a thread of 2 MiB holds as many levels of ordinary types, also without optimisation. [`Fixed`] keeps the
/// limit when writing, too.
pub const MAX_DEPTH: u32 = 128;

/// How many elements without bytes, such as those of `Vec<()>`, the sequences and maps of one value may have together.
/// Their number cannot be checked against the bytes that are there.
pub const MAX_ZERO_SIZED: u32 = 1 << 16;

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
    fn encode<T: Serialize + ?Sized>(value: &T, out: &mut RecordWriter<'_>) -> Result<(), CodecError>;

    /// Makes the value of `bytes`, all of them. It may borrow from them.
    ///
    /// # Errors
    /// [`CodecError`] if they are not exactly one value.
    fn decode<'de, T: Deserialize<'de>>(bytes: &'de [u8]) -> Result<T, CodecError>;
}
