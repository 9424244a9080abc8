//! Slices of primitives inside serde values, copied as a whole; serde would serialize element by element.
//!
//! The elements are written as a byte string, in little endian. Use [`Raw`] to write a slice, [`RawVec`] to read it, or
//! `#[serde(with = "mpj_buffer::raw")]` at a field that is a vector of primitives:
//!
//! ```
//! use mpj_buffer::{Buffer, Fixed};
//!
//! #[derive(serde::Serialize, serde::Deserialize, PartialEq, Debug)]
//! struct Field {
//!     name: String,
//!     #[serde(with = "mpj_buffer::raw")]
//!     values: Vec<f64>,
//! }
//!
//! let field = Field { name: "density".into(), values: vec![0.5; 1000] };
//! let mut buffer = Buffer::with_capacity(256)?;
//! buffer.write_object_with::<Fixed, _>(&field)?;
//! assert_eq!(buffer.commit().read_object_with::<Fixed, Field>()?, field);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use core::fmt;
use core::marker::PhantomData;
use std::borrow::Cow;

use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::Element;

/// A borrowed slice of primitives that is serialized as a byte string; [`RawVec`] deserializes it.
///
/// # Examples
/// ```
/// use mpj_buffer::{Buffer, Raw, RawVec};
///
/// let samples = [0.5f64; 1000];
/// let mut buffer = Buffer::with_capacity(256)?;
/// buffer.write_object(&("pressure", Raw(&samples)))?;
/// let (name, RawVec(back)): (String, RawVec<f64>) = buffer.commit().read_object()?;
/// assert_eq!((name.as_str(), back.as_slice()), ("pressure", &samples[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Raw<'a, T>(pub &'a [T]);

/// A vector of primitives that is serialized and deserialized as a byte string.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct RawVec<T>(pub Vec<T>);

/// Serializes the elements as a byte string.
///
/// # Errors
/// The error of `serializer`.
pub fn serialize<T: Element, S: Serializer>(elements: &[T], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_bytes(&to_le_bytes(elements))
}

/// Deserializes elements from a byte string.
///
/// # Errors
/// The error of `deserializer`; an error if the bytes end within an element, or if an element is invalid for its type.
pub fn deserialize<'de, T: Element, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<T>, D::Error> {
    deserializer.deserialize_bytes(Bytes(PhantomData))
}

fn to_le_bytes<T: Element>(elements: &[T]) -> Cow<'_, [u8]> {
    let bytes = bytemuck::cast_slice(elements);
    if cfg!(target_endian = "little") || size_of::<T>() == 1 {
        return Cow::Borrowed(bytes);
    }
    let swapped: Vec<T::Swapped> = elements.iter().map(|element| element.swapped()).collect();
    Cow::Owned(bytemuck::cast_slice(&swapped).to_vec())
}

struct Bytes<T>(PhantomData<T>);

impl<T: Element> Visitor<'_> for Bytes<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the bytes of elements of {}", T::KIND)
    }

    fn visit_bytes<E: serde::de::Error>(self, bytes: &[u8]) -> Result<Vec<T>, E> {
        if !bytes.len().is_multiple_of(size_of::<T>()) {
            return Err(E::invalid_length(bytes.len(), &self));
        }
        elements(bytes, cfg!(target_endian = "big"))
            .map_err(|index| E::custom(format_args!("element {index} is not a valid {}", T::KIND)))
    }
}

pub(crate) fn elements<T: Element>(bytes: &[u8], swap: bool) -> Result<Vec<T>, usize> {
    T::check(bytes, swap)?;
    let elements = bytes.chunks_exact(size_of::<T>());
    // Two loops, of which the compiler turns the second into a plain copy.
    Ok(if swap {
        elements.map(|b| T::from_bytes(b, true)).collect()
    } else {
        elements.map(|b| T::from_bytes(b, false)).collect()
    })
}

impl<T: Element> Serialize for Raw<'_, T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(self.0, serializer)
    }
}

impl<T: Element> Serialize for RawVec<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serialize(&self.0, serializer)
    }
}

impl<'de, T: Element> Deserialize<'de> for RawVec<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserialize(deserializer).map(Self)
    }
}
