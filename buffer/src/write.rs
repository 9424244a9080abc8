//! Writing: appending elements to the open section, opening sections, closing the message.

use mpj_pool::{AllocError, RawBuffer};
use serde::Serialize;

use crate::codec::Sink;
use crate::header::{ALIGN, Message, Order, SECTION_HEADER, Section, align_up};
use crate::read::Reading;
use crate::{Buffer, Codec, CodecError, Element, Kind, Overflow, Postcard, WriteError};

/// The mode of a buffer that takes sections.
#[derive(Debug)]
pub struct Writing {
    open: Option<Open>,
}

/// The section that is being written. Its count reaches its header when it is closed.
#[derive(Clone, Copy, Debug)]
struct Open {
    /// Offset of its header in the message.
    at: usize,
    section: Section,
}

impl Writing {
    pub(crate) fn new() -> Self {
        Self { open: None }
    }
}

impl<R: RawBuffer> Buffer<R, Writing> {
    /// Appends elements to the open section; if there is none, or one of another kind, opens a new one.
    ///
    /// # Errors
    /// [`Overflow`] if the static part has no room; nothing is written then.
    pub fn write<T: Element>(&mut self, src: &[T]) -> Result<(), Overflow> {
        let bytes: &[u8] = bytemuck::cast_slice(src);
        self.reserve(Section::new(T::KIND, 0, 0), bytes.len())?;
        self.block.push(bytes)?;
        self.count(src.len() as u64);
        Ok(())
    }

    /// Opens a new section, also if one of the same kind is open. The reader must then call
    /// its own `section` at the same place.
    ///
    /// # Errors
    /// [`Overflow`] if the static part has no room for the header.
    pub fn section<T: Element>(&mut self) -> Result<(), Overflow> {
        self.open(Section::new(T::KIND, 0, 0), 0)
    }

    /// Appends an object, written by [`Postcard`], to the open section; if that is not of such objects, opens a new one.
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
        let section = Section::new(Kind::Object, C::ID, C::schema::<T>());
        // First the value, then its section: if the value is refused, no empty section stays behind.
        if !self.is_open(section) {
            self.fits(0)?;
        }
        self.chain.record(|chain| {
            let mut sink = Sink::new(chain);
            let encoded = C::encode(value, &mut sink);
            match sink.into_failure() {
                Some(error) => Err(WriteError::Alloc(error)),
                None => encoded.map_err(WriteError::Codec),
            }
        })?;
        self.reserve(section, 0)?;
        self.count(1);
        Ok(())
    }

    /// Opens a new section of objects written by [`Postcard`] without a schema, also if such a one is open. The reader
    /// must then call its own `object_section` at the same place.
    ///
    /// # Errors
    /// [`Overflow`] if the static part has no room for the header.
    pub fn object_section(&mut self) -> Result<(), Overflow> {
        self.open(Section::new(Kind::Object, Postcard::ID, 0), 0)
    }

    /// Ends writing. The message can be read, and sent, from now on.
    pub fn commit(mut self) -> Buffer<R, Reading> {
        self.close();
        self.chain.finish();
        if self.chain.len() > 0 {
            // Fits: `capacity` is a multiple of `ALIGN`, and the static part is not longer.
            let padding = self.fixed_len().wrapping_neg() % ALIGN;
            let padded = self.block.push_zeros(padding);
            debug_assert_eq!(padded, Ok(()));
        }
        let sections_end = self.fixed_len();
        let total = sections_end + self.chain.len();
        self.store(0, &Message::bytes(self.chain.len() > 0, total));
        let Self { block, room, chain, .. } = self;
        Buffer { block, room, chain, mode: Reading::new(Order::NATIVE, sections_end) }
    }

    /// Returns the bytes of the static part so far, headers and padding included.
    pub fn len(&self) -> usize {
        self.fixed_len()
    }

    /// Returns whether nothing has been written yet, not even an empty section.
    pub fn is_empty(&self) -> bool {
        self.mode.open.is_none()
    }

    /// Returns the bytes left in the static part: what can still be appended to the open section.
    pub fn left(&self) -> usize {
        self.capacity() - self.fixed_len()
    }

    /// Makes sure that `bytes` bytes of elements fit, and that a section for them is open.
    fn reserve(&mut self, section: Section, bytes: usize) -> Result<(), Overflow> {
        if !self.is_open(section) {
            return self.open(section, bytes);
        }
        let left = self.left();
        if bytes > left { Err(Overflow { needed: bytes, left }) } else { Ok(()) }
    }

    fn is_open(&self, section: Section) -> bool {
        self.mode.open.is_some_and(|open| open.section.holds(&section))
    }

    /// Opens a section if its header and `bytes` bytes of elements fit.
    fn open(&mut self, section: Section, bytes: usize) -> Result<(), Overflow> {
        let padding = self.fits(bytes)?;
        self.close();
        self.block.push_zeros(padding)?;
        let at = self.fixed_len();
        self.block.push(&section.bytes())?;
        self.mode.open = Some(Open { at, section });
        Ok(())
    }

    /// Checks that a new section of `bytes` bytes fits; returns the padding in front of its header.
    fn fits(&self, bytes: usize) -> Result<usize, Overflow> {
        let (len, left) = (self.fixed_len(), self.left());
        let padding = align_up(len, ALIGN).map_or(0, |start| start - len);
        let needed = bytes.saturating_add(padding + SECTION_HEADER);
        if needed > left { Err(Overflow { needed, left }) } else { Ok(padding) }
    }

    fn count(&mut self, more: u64) {
        if let Some(open) = &mut self.mode.open {
            open.section.count += more;
        }
    }

    fn close(&mut self) {
        if let Some(Open { at, section }) = self.mode.open.take() {
            self.store(at, &section.bytes());
        }
    }

    /// Overwrites bytes of the static part.
    fn store(&mut self, at: usize, bytes: &[u8]) {
        let from = self.room + at;
        if let Some(target) = self.block.bytes_mut().get_mut(from..from + bytes.len()) {
            target.copy_from_slice(bytes);
        }
    }
}

impl From<AllocError> for WriteError {
    fn from(e: AllocError) -> Self {
        Self::Alloc(e)
    }
}

impl From<CodecError> for WriteError {
    fn from(e: CodecError) -> Self {
        Self::Codec(e)
    }
}
