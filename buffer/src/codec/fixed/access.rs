//! serde access to elements, fields and variants.

use serde::de::{self, DeserializeSeed, IntoDeserializer, Visitor};

use super::de::Reader;
use crate::CodecError;
use crate::codec::MAX_ZERO_SIZED;

/// A sequence or map whose length is read from the bytes.
///
/// Elements that have bytes cannot outnumber the unread bytes. Zero-sized elements are counted when the sequence ends,
/// so that the loop needs no test for them. Until then, the limit on the number of elements is the sum of the unread
/// bytes and of the zero-sized elements still allowed.
///
/// The copy of the reader stays in registers; `drop` copies it back to the outer reader.
pub(super) struct LengthPrefixed<'a, 'de> {
    reader: Reader<'de>,
    outer: &'a mut Reader<'de>,
    left: usize,
    /// Announced elements that are above the limit.
    surplus: u64,
    /// The number of elements to read when the sequence began; 0 after its end.
    count: usize,
    /// The number of unread bytes when the sequence began.
    initial_bytes: usize,
    hint: usize,
}

impl<'a, 'de> LengthPrefixed<'a, 'de> {
    #[inline]
    pub(super) fn new(outer: &'a mut Reader<'de>, announced: u64) -> Self {
        let mut reader = *outer;
        let initial_bytes = reader.rest.len();
        let most = initial_bytes.saturating_add(reader.zero_sized as usize);
        let count = usize::try_from(announced).map_or(most, |count| count.min(most));
        // At most one element per byte, so that a false length does not reserve much memory. All sequences of a value
        // share `reservable_elements`; otherwise nested sequences with false lengths would reserve memory at every
        // level.
        let hint = count.min(initial_bytes).min(reader.reservable_elements);
        reader.reservable_elements -= hint;
        Self { reader, outer, left: count, surplus: announced - count as u64, count, initial_bytes, hint }
    }

    #[inline]
    fn next<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, CodecError> {
        match self.left.checked_sub(1) {
            Some(left) => {
                self.left = left;
                seed.deserialize(&mut self.reader).map(Some)
            }
            None => self.end().map(|()| None),
        }
    }

    /// Returns the minimum number of zero-sized elements among those read so far; 0 after [`end`](Self::end), which has
    /// subtracted them.
    #[inline]
    fn zero_sized_so_far(&self) -> u32 {
        let taken = self.initial_bytes - self.reader.rest.len();
        u32::try_from((self.count - self.left).saturating_sub(taken)).unwrap_or(u32::MAX)
    }

    fn end(&mut self) -> Result<(), CodecError> {
        let rest = self.reader.zero_sized.checked_sub(self.zero_sized_so_far()).filter(|_| self.surplus == 0);
        self.reader.zero_sized = rest.ok_or(CodecError::TooManyZeroSized { limit: MAX_ZERO_SIZED })?;
        self.count = 0;
        Ok(())
    }
}

impl Drop for LengthPrefixed<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        // The visitor might not have read to the end.
        self.reader.zero_sized = self.reader.zero_sized.saturating_sub(self.zero_sized_so_far());
        *self.outer = self.reader;
    }
}

impl<'de> de::SeqAccess<'de> for LengthPrefixed<'_, 'de> {
    type Error = CodecError;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, CodecError> {
        self.next(seed)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        Some(self.hint.min(self.left))
    }
}

impl<'de> de::MapAccess<'de> for LengthPrefixed<'_, 'de> {
    type Error = CodecError;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, CodecError> {
        self.next(seed)
    }

    #[inline]
    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, CodecError> {
        seed.deserialize(&mut self.reader)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        Some(self.hint.min(self.left))
    }
}

pub(super) struct Fields<'a, 'de> {
    reader: &'a mut Reader<'de>,
    left: usize,
}

impl<'a, 'de> Fields<'a, 'de> {
    #[inline]
    pub(super) fn new(reader: &'a mut Reader<'de>, count: usize) -> Self {
        Self { reader, left: count }
    }
}

impl<'de> de::SeqAccess<'de> for Fields<'_, 'de> {
    type Error = CodecError;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, CodecError> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.reader).map(Some)
    }

    #[inline]
    fn size_hint(&self) -> Option<usize> {
        Some(self.left)
    }
}

impl<'de> de::EnumAccess<'de> for &mut Reader<'de> {
    type Error = CodecError;
    type Variant = Self;

    #[inline]
    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Self), CodecError> {
        let index = u32::from_le_bytes(self.array()?);
        let value = seed.deserialize(IntoDeserializer::<CodecError>::into_deserializer(index))?;
        Ok((value, self))
    }
}

impl<'de> de::VariantAccess<'de> for &mut Reader<'de> {
    type Error = CodecError;

    fn unit_variant(self) -> Result<(), CodecError> {
        Ok(())
    }

    #[inline]
    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, CodecError> {
        seed.deserialize(self)
    }

    #[inline]
    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, CodecError> {
        visitor.visit_seq(Fields::new(self, len))
    }

    #[inline]
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, CodecError> {
        visitor.visit_seq(Fields::new(self, fields.len()))
    }
}
