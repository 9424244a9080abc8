//! Enforces [`Limits`] for a deserializer that has none: [`LimitGuard`] wraps it and every visitor, seed and access
//! below it, so that each nested value passes through a guard.

use core::fmt;

use serde::de::{self, DeserializeSeed, Deserializer, Error, Visitor};

use super::limits::Limits;

pub(super) struct LimitGuard<'g, T> {
    inner: T,
    limits: &'g Limits,
    /// Whether the number of elements is read from the bytes, and all elements so far were zero-sized. Always false for
    /// the fields of a type, whose number is fixed.
    counts_zero_sized: bool,
}

impl<'g, T> LimitGuard<'g, T> {
    pub(super) fn new(inner: T, limits: &'g Limits) -> Self {
        Self { inner, limits, counts_zero_sized: false }
    }

    #[inline]
    fn with<U>(&self, inner: U) -> LimitGuard<'g, U> {
        LimitGuard::new(inner, self.limits)
    }
}

macro_rules! leaves {
    ($($method:ident)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
            self.limits.has_read_bytes.set(true);
            self.inner.$method(visitor)
        }
    )*};
}

// Composite values. `$has_bytes`: they have bytes of their own, such as a length. `$counts_zero_sized`: see
// `LimitGuard`.
macro_rules! nests {
    ($($method:ident ($($arg:ident: $type:ty),*) $has_bytes:literal $counts_zero_sized:literal;)*) => {$(
        #[inline]
        fn $method<V: Visitor<'de>>(self, $($arg: $type,)* visitor: V) -> Result<V::Value, D::Error> {
            if $has_bytes {
                self.limits.has_read_bytes.set(true);
            }
            let visitor = LimitGuard { counts_zero_sized: $counts_zero_sized, ..self.with(visitor) };
            self.limits.nested(|| self.inner.$method($($arg,)* visitor))
        }
    )*};
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for LimitGuard<'_, D> {
    type Error = D::Error;

    leaves! {
        deserialize_bool deserialize_i8 deserialize_i16 deserialize_i32 deserialize_i64 deserialize_i128
        deserialize_u8 deserialize_u16 deserialize_u32 deserialize_u64 deserialize_u128
        deserialize_f32 deserialize_f64 deserialize_char deserialize_str deserialize_string
        deserialize_bytes deserialize_byte_buf deserialize_identifier deserialize_ignored_any
    }

    nests! {
        deserialize_any() true true;
        deserialize_option() true false;
        deserialize_seq() true true;
        deserialize_map() true true;
        deserialize_tuple(len: usize) false false;
        deserialize_tuple_struct(name: &'static str, len: usize) false false;
        deserialize_newtype_struct(name: &'static str) false false;
        deserialize_struct(name: &'static str, fields: &'static [&'static str]) false false;
        deserialize_enum(name: &'static str, variants: &'static [&'static str]) true false;
    }

    fn deserialize_unit<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit(visitor)
    }

    fn deserialize_unit_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.inner.deserialize_unit_struct(name, visitor)
    }

    fn is_human_readable(&self) -> bool {
        self.inner.is_human_readable()
    }
}

macro_rules! visits {
    ($($method:ident $type:ty)*) => {$(
        #[inline]
        fn $method<E: Error>(self, v: $type) -> Result<V::Value, E> {
            self.inner.$method(v)
        }
    )*};
}

impl<'de, V: Visitor<'de>> Visitor<'de> for LimitGuard<'_, V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.expecting(f)
    }

    visits! {
        visit_bool bool  visit_i8 i8  visit_i16 i16  visit_i32 i32  visit_i64 i64  visit_i128 i128
        visit_u8 u8  visit_u16 u16  visit_u32 u32  visit_u64 u64  visit_u128 u128
        visit_f32 f32  visit_f64 f64  visit_char char  visit_str &str  visit_borrowed_str &'de str
        visit_string String  visit_bytes &[u8]  visit_borrowed_bytes &'de [u8]  visit_byte_buf Vec<u8>
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.inner.visit_unit()
    }

    #[inline]
    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let guarded = self.with(deserializer);
        self.inner.visit_some(guarded)
    }

    #[inline]
    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        let guarded = self.with(deserializer);
        self.inner.visit_newtype_struct(guarded)
    }

    #[inline]
    fn visit_seq<A: de::SeqAccess<'de>>(self, seq: A) -> Result<V::Value, A::Error> {
        let guarded = LimitGuard { counts_zero_sized: self.counts_zero_sized, ..self.with(seq) };
        self.inner.visit_seq(guarded)
    }

    #[inline]
    fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        let guarded = LimitGuard { counts_zero_sized: self.counts_zero_sized, ..self.with(map) };
        self.inner.visit_map(guarded)
    }

    #[inline]
    fn visit_enum<A: de::EnumAccess<'de>>(self, data: A) -> Result<V::Value, A::Error> {
        let guarded = self.with(data);
        self.inner.visit_enum(guarded)
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for LimitGuard<'_, S> {
    type Value = S::Value;

    #[inline]
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        let guarded = self.with(deserializer);
        self.inner.deserialize(guarded)
    }
}

impl<'de, A: de::SeqAccess<'de>> de::SeqAccess<'de> for LimitGuard<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, A::Error> {
        let seed = self.with(seed);
        let inner = &mut self.inner;
        if !self.counts_zero_sized {
            return inner.next_element_seed(seed);
        }
        let (value, has_bytes) = self.limits.element(|| inner.next_element_seed(seed))?;
        self.counts_zero_sized = !has_bytes;
        Ok(value)
    }

    fn size_hint(&self) -> Option<usize> {
        let announced = self.inner.size_hint()?;
        Some(if self.counts_zero_sized { self.limits.hint(announced) } else { announced })
    }
}

impl<'de, A: de::MapAccess<'de>> de::MapAccess<'de> for LimitGuard<'_, A> {
    type Error = A::Error;

    #[inline]
    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        let seed = self.with(seed);
        let inner = &mut self.inner;
        if !self.counts_zero_sized {
            return inner.next_key_seed(seed);
        }
        let (value, has_bytes) = self.limits.element(|| inner.next_key_seed(seed))?;
        self.counts_zero_sized = !has_bytes;
        Ok(value)
    }

    #[inline]
    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.with(seed);
        self.inner.next_value_seed(seed)
    }

    fn size_hint(&self) -> Option<usize> {
        let announced = self.inner.size_hint()?;
        Some(if self.counts_zero_sized { self.limits.hint(announced) } else { announced })
    }
}

impl<'de, 'g, A: de::EnumAccess<'de>> de::EnumAccess<'de> for LimitGuard<'g, A> {
    type Error = A::Error;
    type Variant = LimitGuard<'g, A::Variant>;

    #[inline]
    fn variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<(S::Value, Self::Variant), A::Error> {
        let limits = self.limits;
        let (value, variant) = self.inner.variant_seed(seed)?;
        Ok((value, LimitGuard::new(variant, limits)))
    }
}

impl<'de, A: de::VariantAccess<'de>> de::VariantAccess<'de> for LimitGuard<'_, A> {
    type Error = A::Error;

    fn unit_variant(self) -> Result<(), A::Error> {
        self.inner.unit_variant()
    }

    #[inline]
    fn newtype_variant_seed<S: DeserializeSeed<'de>>(self, seed: S) -> Result<S::Value, A::Error> {
        let seed = self.with(seed);
        self.inner.newtype_variant_seed(seed)
    }

    #[inline]
    fn tuple_variant<V: Visitor<'de>>(self, len: usize, visitor: V) -> Result<V::Value, A::Error> {
        let visitor = self.with(visitor);
        self.inner.tuple_variant(len, visitor)
    }

    #[inline]
    fn struct_variant<V: Visitor<'de>>(
        self,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, A::Error> {
        let visitor = self.with(visitor);
        self.inner.struct_variant(fields, visitor)
    }
}
