//! Decoding of the fixed-width form from untrusted bytes.

use serde::de::{self, Visitor};

use super::access::{Fields, LengthPrefixed};
use crate::CodecError;
use crate::codec::{MAX_DEPTH, MAX_ZERO_SIZED, utf8};

#[derive(Clone, Copy)]
pub(super) struct Reader<'de> {
    pub(super) rest: &'de [u8],
    /// Further levels of nesting that are allowed.
    depth: u32,
    /// Further zero-sized elements that are allowed.
    pub(super) zero_sized: u32,
    /// Number of elements for which memory may still be reserved: at first, one per byte of the value.
    pub(super) reservable_elements: usize,
}

impl<'de> Reader<'de> {
    pub(super) fn new(bytes: &'de [u8]) -> Self {
        Self { rest: bytes, depth: MAX_DEPTH, zero_sized: MAX_ZERO_SIZED, reservable_elements: bytes.len() }
    }

    pub(super) fn remaining(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(super) fn array<const N: usize>(&mut self) -> Result<[u8; N], CodecError> {
        let (array, rest) = self.rest.split_first_chunk().ok_or(CodecError::Truncated)?;
        self.rest = rest;
        Ok(*array)
    }

    #[inline]
    fn count(&mut self) -> Result<u64, CodecError> {
        self.array().map(u64::from_le_bytes)
    }

    #[inline]
    fn bytes(&mut self) -> Result<&'de [u8], CodecError> {
        let len = usize::try_from(self.count()?).map_err(|_| CodecError::Truncated)?;
        self.take(len)
    }

    #[inline]
    fn take(&mut self, len: usize) -> Result<&'de [u8], CodecError> {
        let (bytes, rest) = self.rest.split_at_checked(len).ok_or(CodecError::Truncated)?;
        self.rest = rest;
        Ok(bytes)
    }

    #[inline]
    fn str(&mut self) -> Result<&'de str, CodecError> {
        utf8::utf8(self.bytes()?)
    }

    #[inline]
    fn flag(&mut self) -> Result<bool, CodecError> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(CodecError::Malformed),
        }
    }

    fn char(&mut self) -> Result<char, CodecError> {
        let first = *self.rest.first().ok_or(CodecError::Truncated)?;
        let len = match first.leading_ones() {
            0 => 1,
            len @ 2..=4 => len as usize,
            _ => return Err(CodecError::Malformed),
        };
        let text = core::str::from_utf8(self.take(len)?).map_err(|_| CodecError::Malformed)?;
        text.chars().next().ok_or(CodecError::Malformed)
    }

    #[inline]
    fn inside<T>(&mut self, read: impl FnOnce(&mut Self) -> Result<T, CodecError>) -> Result<T, CodecError> {
        self.depth = self.depth.checked_sub(1).ok_or(CodecError::TooDeep { limit: MAX_DEPTH })?;
        let value = read(self)?;
        self.depth += 1;
        Ok(value)
    }
}

macro_rules! numbers {
    ($($method:ident $visit:ident $type:ident)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
            visitor.$visit($type::from_le_bytes(self.array()?))
        }
    )*};
}

impl<'de> de::Deserializer<'de> for &mut Reader<'de> {
    type Error = CodecError;

    numbers! {
        deserialize_i8 visit_i8 i8  deserialize_i16 visit_i16 i16  deserialize_i32 visit_i32 i32
        deserialize_i64 visit_i64 i64  deserialize_i128 visit_i128 i128
        deserialize_u8 visit_u8 u8  deserialize_u16 visit_u16 u16  deserialize_u32 visit_u32 u32
        deserialize_u64 visit_u64 u64  deserialize_u128 visit_u128 u128
        deserialize_f32 visit_f32 f32  deserialize_f64 visit_f64 f64
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, CodecError> {
        Err(CodecError::Unsupported)
    }

    fn deserialize_ignored_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, CodecError> {
        Err(CodecError::Unsupported)
    }

    fn deserialize_identifier<V: Visitor<'de>>(self, _: V) -> Result<V::Value, CodecError> {
        Err(CodecError::Unsupported)
    }

    #[inline]
    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_bool(self.flag()?)
    }

    fn deserialize_char<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_char(self.char()?)
    }

    #[inline]
    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_borrowed_str(self.str()?)
    }

    #[inline]
    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_borrowed_str(self.str()?)
    }

    #[inline]
    fn deserialize_bytes<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_borrowed_bytes(self.bytes()?)
    }

    #[inline]
    fn deserialize_byte_buf<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_borrowed_bytes(self.bytes()?)
    }

    #[inline]
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        match self.flag()? {
            true => self.inside(|reader| visitor.visit_some(reader)),
            false => visitor.visit_none(),
        }
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_unit()
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        visitor.visit_unit()
    }

    #[inline]
    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.inside(|reader| visitor.visit_newtype_struct(reader))
    }

    #[inline]
    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        let count = self.count()?;
        self.inside(|reader| visitor.visit_seq(LengthPrefixed::new(reader, count)))
    }

    #[inline]
    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, CodecError> {
        let count = self.count()?;
        self.inside(|reader| visitor.visit_map(LengthPrefixed::new(reader, count)))
    }

    #[inline]
    fn deserialize_tuple<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, CodecError> {
        self.inside(|reader| visitor.visit_seq(Fields::new(reader, len)))
    }

    #[inline]
    fn deserialize_tuple_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        len: usize,
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.deserialize_tuple(len, visitor)
    }

    #[inline]
    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.deserialize_tuple(fields.len(), visitor)
    }

    #[inline]
    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        self.inside(|reader| visitor.visit_enum(reader))
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}
