//! Objects: serde values in the dynamic part.

use mpj_pool::{RawBuffer, ReadBlock};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::codec::RecordWriter;
use crate::header::SectionTag;
use crate::read::contiguous_bytes;
use crate::{
    Buffer, Codec, CodecError, ElementKind, Overflow, Postcard, ReadError, Reading, WriteError, Writing,
};

impl<R: RawBuffer> Buffer<R, Writing> {
    /// Appends an object, encoded by [`Postcard`], to the open section of such objects, or to a new one.
    ///
    /// The static part gets only the header of a new section. serde writes the value directly to the dynamic part.
    ///
    /// # Errors
    /// [`WriteError`]; then nothing was written.
    pub fn write_object<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WriteError> {
        self.write_object_with::<Postcard, T>(value)
    }

    /// Appends an object as [`write_object`](Self::write_object) does, encoded by the codec `C`.
    ///
    /// # Errors
    /// [`WriteError`]; then nothing was written.
    pub fn write_object_with<C: Codec, T: Serialize + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), WriteError> {
        const { assert!(C::ID != 0, "a codec must not have the id 0") };
        let tag = SectionTag::objects(C::ID, C::schema::<T>());
        // Check first that a new section header fits. Open the section only after the value is encoded, so that a value
        // that cannot be encoded leaves no empty section.
        if !self.is_open(tag) {
            self.section_padding(0)?;
        }
        self.chain.get_or_create().record(0, |chain| {
            let mut writer = RecordWriter::new(chain);
            let encoded = C::encode(value, &mut writer);
            writer.finish();
            match chain.failure {
                Some(error) => Err(WriteError::Alloc(error)),
                None if chain.poisoned => Err(WriteError::Codec(CodecError::Custom)),
                None => encoded.map_err(WriteError::Codec),
            }
        })?;
        if !self.is_open(tag) {
            self.open(tag)?;
        }
        self.add_to_count(1);
        Ok(())
    }

    /// Opens a new section of objects encoded by [`Postcard`], even if the open section also contains such objects. The
    /// reader must call its own `object_section` at the same position.
    ///
    /// # Errors
    /// [`Overflow`] if the static part is too small for the header.
    pub fn object_section(&mut self) -> Result<(), Overflow> {
        self.open(SectionTag::objects(Postcard::ID, 0))
    }
}

impl<R: ReadBlock> Buffer<R, Reading> {
    /// Opens the next section, which must have objects encoded by [`Postcard`], and returns their number.
    ///
    /// # Errors
    /// As [`section`](Self::section), and [`ReadError::WrongCodec`] or [`ReadError::WrongSchema`].
    pub fn object_section(&mut self) -> Result<u64, ReadError> {
        self.open_next(SectionTag::objects(Postcard::ID, 0))
    }

    /// Reads an object written by [`write_object`](Buffer::write_object).
    ///
    /// # Errors
    /// [`ReadError`]; then the object is still unread, and can be read as another type.
    pub fn read_object<T: DeserializeOwned>(&mut self) -> Result<T, ReadError> {
        self.read_object_with::<Postcard, T>()
    }

    /// Reads an object written by the codec `C`.
    ///
    /// # Errors
    /// [`ReadError`]; then the object is still unread.
    pub fn read_object_with<C: Codec, T: DeserializeOwned>(&mut self) -> Result<T, ReadError> {
        let value = self.next_value(SectionTag::objects(C::ID, C::schema::<T>()))?;
        // Copied if several chunks of a message that this process has written hold the value, or if a text in it could
        // change after its validation.
        let bytes = match self.range(value.at, value.len)? {
            bytes if self.block.is_shared() => bytes.into_owned().into(),
            bytes => bytes,
        };
        let object = C::decode(&bytes).map_err(ReadError::Codec)?;
        self.mode.finish_record(value);
        Ok(object)
    }

    /// Reads an object written by the codec `C`. It may borrow strings and bytes from the message.
    ///
    /// # Errors
    /// As [`read_object_with`](Self::read_object_with); [`ReadError::Split`] if the value is not contiguous (the values
    /// of a received message are); [`ReadError::Shared`] if the block [is shared](ReadBlock::is_shared).
    ///
    /// # Examples
    /// ```
    /// use mpj_buffer::{Buffer, Fixed};
    ///
    /// let mut buffer = Buffer::with_capacity(256)?;
    /// buffer.write_object_with::<Fixed, _>(&("rank", 3u32))?;
    /// let mut buffer = buffer.commit();
    /// let (name, rank): (&str, u32) = buffer.view_object_with::<Fixed, _>()?;
    /// assert_eq!((name, rank), ("rank", 3));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn view_object_with<'a, C: Codec, T: Deserialize<'a>>(&'a mut self) -> Result<T, ReadError> {
        let value = self.next_value(SectionTag::objects(C::ID, C::schema::<T>()))?;
        if self.block.is_shared() {
            return Err(ReadError::Shared { kind: ElementKind::Object });
        }
        // Not through a method of `self`, which would borrow the mode too: it changes while the value is borrowed.
        let bytes = contiguous_bytes(&self.block.bytes()[self.headroom..], &self.chain, value.at, value.len)?;
        let object = C::decode(bytes).map_err(ReadError::Codec)?;
        self.mode.finish_record(value);
        Ok(object)
    }
}
