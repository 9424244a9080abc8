//! Objects: values of any serde type, in the dynamic part.

use mpj_pool::RawBuffer;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use crate::codec::RecordWriter;
use crate::header::SectionTag;
use crate::read::contiguous_bytes;
use crate::{Buffer, Codec, CodecError, Overflow, Postcard, ReadError, Reading, WriteError, Writing};

impl<R: RawBuffer> Buffer<R, Writing> {
    /// Appends an object, written by [`Postcard`], to the open section; if that is not of such objects, opens a new
    /// one.
    ///
    /// Only the 16 bytes of a section header lie in the static part; the value goes to the dynamic part, straight from
    /// serde, without a copy in between.
    ///
    /// # Errors
    /// [`WriteError`]; nothing is written then.
    pub fn write_object<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), WriteError> {
        self.write_object_with::<Postcard, T>(value)
    }

    /// Appends an object as [`write_object`](Self::write_object) does, written by the codec `C`.
    ///
    /// # Errors
    /// [`WriteError`]; nothing is written then.
    pub fn write_object_with<C: Codec, T: Serialize + ?Sized>(
        &mut self,
        value: &T,
    ) -> Result<(), WriteError> {
        const { assert!(C::ID != 0, "0 is the id of no codec") };
        let tag = SectionTag::objects(C::ID, C::schema::<T>());
        // First the value, then its section: a rejected value leaves no empty section.
        if !self.is_open(tag) {
            self.fits(0)?;
        }
        self.chain.grown().record(0, |chain| {
            let mut sink = RecordWriter::new(chain);
            let encoded = C::encode(value, &mut sink);
            sink.finish();
            match chain.failure {
                Some(error) => Err(WriteError::Alloc(error)),
                None if chain.poisoned => Err(WriteError::Codec(CodecError::Custom)),
                None => encoded.map_err(WriteError::Codec),
            }
        })?;
        if !self.is_open(tag) {
            self.open(tag)?;
        }
        self.count(1);
        Ok(())
    }

    /// Opens a new section of objects written by [`Postcard`] without a schema, also if such a one is open. The reader
    /// must then call its own `object_section` at the same place.
    ///
    /// # Errors
    /// [`Overflow`] if the static part has no room for the header.
    pub fn object_section(&mut self) -> Result<(), Overflow> {
        self.open(SectionTag::objects(Postcard::ID, 0))
    }
}

impl<R: RawBuffer> Buffer<R, Reading> {
    /// Opens the next section, which must be of objects written by [`Postcard`], and returns the number of them.
    ///
    /// # Errors
    /// As [`section`](Self::section), [`ReadError::WrongCodec`].
    pub fn object_section(&mut self) -> Result<u64, ReadError> {
        self.open_next(SectionTag::objects(Postcard::ID, 0))
    }

    /// Reads an object written by [`write_object`](Buffer::write_object).
    ///
    /// # Errors
    /// [`ReadError`]; the object is still unread then, and can be read as another type.
    pub fn read_object<T: DeserializeOwned>(&mut self) -> Result<T, ReadError> {
        self.read_object_with::<Postcard, T>()
    }

    /// Reads an object written by the codec `C`.
    ///
    /// # Errors
    /// [`ReadError`]; the object is still unread then.
    pub fn read_object_with<C: Codec, T: DeserializeOwned>(&mut self) -> Result<T, ReadError> {
        let value = self.next_value(SectionTag::objects(C::ID, C::schema::<T>()))?;
        // Borrowed, unless the value lies in several chunks of a message that has never left this process.
        let bytes = self.range(value.at, value.len)?;
        let object = C::decode(&bytes).map_err(ReadError::Codec)?;
        self.mode.finish_record(value);
        Ok(object)
    }

    /// Reads an object written by the codec `C` that borrows from the message: strings and bytes are not copied.
    ///
    /// # Errors
    /// As [`read_object_with`](Self::read_object_with), and [`ReadError::Split`] if the value is not contiguous.
    /// In a received message every value is.
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
        // Not through a method of `self`: the mode changes while the value is held.
        let bytes = contiguous_bytes(&self.block.bytes()[self.room..], &self.chain, value.at, value.len)?;
        let object = C::decode(bytes).map_err(ReadError::Codec)?;
        self.mode.finish_record(value);
        Ok(object)
    }
}
