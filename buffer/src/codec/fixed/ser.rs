//! Encoding of the fixed-width form.

use serde::{Serialize, ser};

use crate::CodecError;
use crate::codec::{MAX_DEPTH, RecordWriter};

/// A serializer that writes into the message. Its two words are passed in registers.
pub(super) struct Writer<'a, 'b> {
    out: &'a mut RecordWriter<'b>,
    depth: u32,
}

impl<'a, 'b> Writer<'a, 'b> {
    pub(super) fn new(out: &'a mut RecordWriter<'b>) -> Self {
        Self { out, depth: 0 }
    }

    #[inline]
    fn len(&mut self, len: usize) -> Result<(), CodecError> {
        self.out.push_array((len as u64).to_le_bytes())
    }

    #[inline]
    fn variant(&mut self, index: u32) -> Result<(), CodecError> {
        self.out.push_array(index.to_le_bytes())
    }

    #[inline]
    fn enter(self) -> Result<Self, CodecError> {
        match self.depth < MAX_DEPTH {
            true => Ok(Self { out: self.out, depth: self.depth + 1 }),
            false => Err(CodecError::TooDeep { limit: MAX_DEPTH }),
        }
    }

    #[inline]
    fn component<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CodecError> {
        value.serialize(Writer { out: self.out, depth: self.depth })
    }
}

macro_rules! numbers {
    ($($method:ident $type:ident)*) => {$(
        // A loop over numbers vectorizes only if it contains no call.
        #[inline(always)]
        fn $method(self, v: $type) -> Result<(), CodecError> {
            self.out.push_array(v.to_le_bytes())
        }
    )*};
}

impl ser::Serializer for Writer<'_, '_> {
    type Ok = ();
    type Error = CodecError;
    type SerializeSeq = Self;
    type SerializeTuple = Self;
    type SerializeTupleStruct = Self;
    type SerializeTupleVariant = Self;
    type SerializeMap = Self;
    type SerializeStruct = Self;
    type SerializeStructVariant = Self;

    numbers! {
        serialize_i8 i8  serialize_i16 i16  serialize_i32 i32  serialize_i64 i64  serialize_i128 i128
        serialize_u8 u8  serialize_u16 u16  serialize_u32 u32  serialize_u64 u64  serialize_u128 u128
        serialize_f32 f32  serialize_f64 f64
    }

    #[inline]
    fn serialize_bool(self, v: bool) -> Result<(), CodecError> {
        self.out.push_array([u8::from(v)])
    }

    fn serialize_char(self, v: char) -> Result<(), CodecError> {
        self.out.push(v.encode_utf8(&mut [0; 4]).as_bytes())
    }

    #[inline]
    fn serialize_str(self, v: &str) -> Result<(), CodecError> {
        self.serialize_bytes(v.as_bytes())
    }

    #[inline]
    fn serialize_bytes(self, v: &[u8]) -> Result<(), CodecError> {
        self.out.push_counted(v)
    }

    #[inline]
    fn serialize_none(self) -> Result<(), CodecError> {
        self.out.push_array([0])
    }

    #[inline]
    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), CodecError> {
        self.out.push_array([1])?;
        value.serialize(self.enter()?)
    }

    fn serialize_unit(self) -> Result<(), CodecError> {
        Ok(())
    }

    fn serialize_unit_struct(self, _: &'static str) -> Result<(), CodecError> {
        Ok(())
    }

    #[inline]
    fn serialize_unit_variant(
        mut self,
        _: &'static str,
        index: u32,
        _: &'static str,
    ) -> Result<(), CodecError> {
        self.variant(index)?;
        // A reader counts a level for every enum.
        self.enter().map(drop)
    }

    #[inline]
    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), CodecError> {
        value.serialize(self.enter()?)
    }

    #[inline]
    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        mut self,
        _: &'static str,
        index: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), CodecError> {
        self.variant(index)?;
        value.serialize(self.enter()?)
    }

    #[inline]
    fn serialize_seq(mut self, len: Option<usize>) -> Result<Self, CodecError> {
        self.len(len.ok_or(CodecError::Unsupported)?)?;
        self.enter()
    }

    #[inline]
    fn collect_seq<I: IntoIterator<Item: Serialize>>(mut self, elements: I) -> Result<(), CodecError> {
        let elements = elements.into_iter();
        let (len, most) = elements.size_hint();
        if most != Some(len) {
            return Err(CodecError::Unsupported);
        }
        self.len(len)?;
        let Writer { out, depth } = self.enter()?;
        out.each(elements, |out, element| element.serialize(Writer { out, depth }))
    }

    #[inline]
    fn serialize_tuple(self, _: usize) -> Result<Self, CodecError> {
        self.enter()
    }

    #[inline]
    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Self, CodecError> {
        self.enter()
    }

    #[inline]
    fn serialize_tuple_variant(
        mut self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, CodecError> {
        self.variant(index)?;
        self.enter()
    }

    #[inline]
    fn serialize_map(self, len: Option<usize>) -> Result<Self, CodecError> {
        self.serialize_seq(len)
    }

    #[inline]
    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Self, CodecError> {
        self.enter()
    }

    #[inline]
    fn serialize_struct_variant(
        mut self,
        _: &'static str,
        index: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Self, CodecError> {
        self.variant(index)?;
        self.enter()
    }

    fn is_human_readable(&self) -> bool {
        false
    }
}

macro_rules! compounds {
    ($($compound:ident $method:ident $(($key:ty))?;)*) => {$(
        impl ser::$compound for Writer<'_, '_> {
            type Ok = ();
            type Error = CodecError;

            #[inline]
            fn $method<T: Serialize + ?Sized>(&mut self, $(_: $key,)? value: &T) -> Result<(), CodecError> {
                self.component(value)
            }

            #[inline]
            fn end(self) -> Result<(), CodecError> {
                Ok(())
            }
        }
    )*};
}

compounds! {
    SerializeSeq serialize_element;
    SerializeTuple serialize_element;
    SerializeTupleStruct serialize_field;
    SerializeTupleVariant serialize_field;
    SerializeStruct serialize_field (&'static str);
    SerializeStructVariant serialize_field (&'static str);
}

impl ser::SerializeMap for Writer<'_, '_> {
    type Ok = ();
    type Error = CodecError;

    #[inline]
    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), CodecError> {
        self.component(key)
    }

    #[inline]
    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), CodecError> {
        self.component(value)
    }

    #[inline]
    fn end(self) -> Result<(), CodecError> {
        Ok(())
    }
}
