//! Reading: walking the sections in the order in which they were written.
//!
//! The rule is the mirror of writing: the calls that wrote a message, with `read` for `write`, read it. Elements come
//! from the open section; a call for another kind opens the next section, which must be of that kind, once the open one
//! is used up.

use std::borrow::Cow;

use bytemuck::checked::{self, CheckedCastError};
use mpj_pool::RawBuffer;
use serde::de::DeserializeOwned;

use crate::check;
use crate::header::{
    ALIGN, Head, MESSAGE_HEADER, Order, RECORD_ALIGN, RECORD_HEADER, SECTION_HEADER, align_up,
};
use crate::{Buffer, Codec, Element, FormatError, Kind, Postcard, ReadError, Section};

/// The mode of a buffer whose message is complete.
#[derive(Debug)]
pub struct Reading {
    order: Order,
    /// Where the dynamic part begins, or the end of the message.
    sections_end: usize,
    open: Option<Open>,
    /// Where the section behind the open one begins, before padding.
    next: usize,
    /// Where the next record of the dynamic part begins, before padding.
    record: usize,
}

/// The section that is being read. All offsets count from the start of the message.
#[derive(Clone, Copy, Debug)]
struct Open {
    section: Section,
    left: u64,
    /// The next element, unless they are objects.
    at: usize,
    /// The end of the payload.
    end: usize,
}

impl Open {
    fn touched(&self) -> bool {
        self.left != self.section.count
    }

    /// Returns the part that is unread, or nothing if all is read.
    fn rest(&self) -> Option<Section> {
        (self.left > 0).then_some(Section { count: self.left, ..self.section })
    }
}

impl Reading {
    pub(crate) fn new(order: Order, sections_end: usize) -> Self {
        // Saturating: without a dynamic part there is no record to be read there.
        let record = sections_end.saturating_add(SECTION_HEADER);
        Self { order, sections_end, open: None, next: MESSAGE_HEADER, record }
    }

    fn enter(&mut self, open: Open) {
        self.next = open.end;
        self.open = Some(open);
    }
}

impl<R: RawBuffer> Buffer<R, Reading> {
    /// Fills `dst` from the open section, or from the next one, and returns the number of elements, `dst.len()`.
    ///
    /// Bytes are swapped if the message comes from a machine of the other byte order.
    ///
    /// # Errors
    /// [`ReadError`] if the kind differs, if fewer elements are left in the section, or if an element is no value of its
    /// type. Neither `dst` nor the buffer has changed then.
    pub fn read<T: Element>(&mut self, dst: &mut [T]) -> Result<usize, ReadError> {
        let count = dst.len() as u64;
        let mut open = self.target(Section::new(T::KIND, 0, 0))?;
        if count > open.left {
            return Err(ReadError::PastSection { needed: count, left: open.left });
        }
        let end = open.at + size_of_val::<[T]>(dst);
        let src = self.fixed_range(open.at, end)?;
        T::load(src, dst, self.mode.order != Order::NATIVE)
            .map_err(|index| ReadError::Invalid { kind: T::KIND, index })?;
        open.left -= count;
        open.at = end;
        self.mode.enter(open);
        Ok(dst.len())
    }

    /// Returns the rest of the open section, or of the next one, where it lies: nothing is copied. It counts as read.
    ///
    /// # Errors
    /// As [`read`](Self::read), and if the elements cannot be used in place: the block is not aligned, or the message
    /// has the other byte order.
    pub fn view<T: Element>(&mut self) -> Result<&[T], ReadError> {
        let kind = T::KIND;
        let mut open = self.target(Section::new(kind, 0, 0))?;
        if size_of::<T>() > 1 && self.mode.order != Order::NATIVE {
            return Err(ReadError::ForeignOrder { kind });
        }
        // Not through `fixed_range`, which borrows all of `self`: the mode changes while the view is held.
        let fixed = &self.block.bytes()[self.room..];
        let bytes = part(fixed, open.at, open.end)?;
        let view = checked::try_cast_slice(bytes).map_err(|error| match error {
            CheckedCastError::InvalidBitPattern => {
                ReadError::Invalid { kind, index: first_invalid::<T>(bytes) }
            }
            CheckedCastError::PodCastError(_) => ReadError::Misaligned { kind },
        })?;
        open.left = 0;
        open.at = open.end;
        self.mode.enter(open);
        Ok(view)
    }

    /// Opens the next section, which must be of `T`, and returns the number of its elements.
    ///
    /// # Errors
    /// [`ReadError::Unread`] if the open section has elements left, [`ReadError::WrongType`], [`ReadError::End`].
    pub fn section<T: Element>(&mut self) -> Result<u64, ReadError> {
        self.open_next(Section::new(T::KIND, 0, 0))
    }

    /// Opens the next section, which must be of objects written by [`Postcard`], and returns the number of them.
    ///
    /// # Errors
    /// As [`section`](Self::section), [`ReadError::WrongCodec`].
    pub fn object_section(&mut self) -> Result<u64, ReadError> {
        self.open_next(Section::new(Kind::Object, Postcard::ID, 0))
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
        let mut open = self.target(Section::new(Kind::Object, C::ID, C::schema::<T>()))?;
        if open.left == 0 {
            return Err(ReadError::PastSection { needed: 1, left: 0 });
        }
        let (value, len) = self.record(self.mode.record)?;
        // Borrowed, unless the value lies in several chunks of a message that has never left this process.
        let value_bytes = self.range(value, len)?;
        let object = C::decode(&value_bytes).map_err(ReadError::Codec)?;
        open.left -= 1;
        self.mode.enter(open);
        self.mode.record = value + len;
        Ok(object)
    }

    /// Leaves out what [`peek`](Self::peek) shows: the rest of the open section, or the whole next one. No section is
    /// open then.
    ///
    /// # Errors
    /// [`ReadError::End`] if there is no further section.
    pub fn skip_section(&mut self) -> Result<(), ReadError> {
        let open = match self.mode.open {
            Some(open) if open.left > 0 => open,
            _ => self.next()?,
        };
        let mut record = self.mode.record;
        if open.section.kind == Kind::Object {
            for _ in 0..open.left {
                let (value, len) = self.record(record)?;
                record = value + len;
            }
        }
        self.mode.record = record;
        self.mode.next = open.end;
        self.mode.open = None;
        Ok(())
    }

    /// Returns what is still unread of the open section, or the next section, or `None` at the end.
    pub fn peek(&self) -> Option<Section> {
        match self.mode.open.and_then(|open| open.rest()) {
            Some(rest) => Some(rest),
            None => self.next().ok().map(|open| open.section),
        }
    }

    /// Returns the kind of what [`peek`](Self::peek) shows.
    pub fn kind(&self) -> Option<Kind> {
        self.peek().map(|section| section.kind)
    }

    /// Returns the number of unread elements in the open section, 0 if none is open.
    pub fn remaining(&self) -> u64 {
        self.mode.open.map_or(0, |open| open.left)
    }

    /// Goes back to the first section.
    pub fn rewind(&mut self) {
        self.mode = Reading::new(self.mode.order, self.mode.sections_end);
    }

    /// Returns the section from which elements of `want` are to be read, without opening it.
    fn target(&self, want: Section) -> Result<Open, ReadError> {
        if let Some(open) = self.mode.open {
            match mismatch(want, open.section) {
                None => return Ok(open),
                Some(_) if open.left > 0 && open.touched() => {
                    return Err(ReadError::Unread { kind: open.section.kind, left: open.left });
                }
                Some(error) if open.left > 0 => return Err(error),
                Some(_) => {}
            }
        }
        let next = self.next()?;
        mismatch(want, next.section).map_or(Ok(next), Err)
    }

    fn open_next(&mut self, want: Section) -> Result<u64, ReadError> {
        if let Some(Open { section, left, .. }) = self.mode.open
            && left > 0
        {
            return Err(ReadError::Unread { kind: section.kind, left });
        }
        let next = self.next()?;
        if let Some(error) = mismatch(want, next.section) {
            return Err(error);
        }
        self.mode.enter(next);
        Ok(next.left)
    }

    /// Reads the header behind the open section.
    ///
    /// The whole message was checked before; every step is checked again here, so that no reader has to trust that.
    fn next(&self) -> Result<Open, ReadError> {
        let end = self.mode.sections_end;
        let at = align_up(self.mode.next, ALIGN).filter(|at| *at < end).ok_or(ReadError::End)?;
        let Head::Section(section) = Head::parse(self.fixed_range(at, end)?, at, self.mode.order)? else {
            return Err(ReadError::End);
        };
        let too_large = FormatError::TooLarge { at: at as u64, count: section.count };
        let payload = at + SECTION_HEADER;
        let payload_end = section.payload().and_then(|len| payload.checked_add(len)).ok_or(too_large)?;
        Ok(Open { section, left: section.count, at: payload, end: payload_end })
    }

    /// Returns where the value of the record at `at` begins, and its length.
    fn record(&self, at: usize) -> Result<(usize, usize), ReadError> {
        let left = self.len().saturating_sub(at);
        let missing =
            FormatError::Truncated { at: at as u64, needed: RECORD_HEADER as u64, left: left as u64 };
        let at = align_up(at, RECORD_ALIGN).ok_or(missing)?;
        let head = self.range(at, RECORD_HEADER)?;
        let len = match <[u8; RECORD_HEADER]>::try_from(&*head) {
            Ok(bytes) => self.mode.order.u64(bytes),
            Err(_) => return Err(missing.into()),
        };
        check::record_len(len, at + RECORD_HEADER, self.len())
            .map(|len| (at + RECORD_HEADER, len))
            .map_err(ReadError::from)
    }

    fn fixed_range(&self, from: usize, to: usize) -> Result<&[u8], FormatError> {
        part(self.fixed(), from, to)
    }

    /// Returns bytes of the message as it is on the wire, wherever they lie.
    fn range(&self, at: usize, len: usize) -> Result<Cow<'_, [u8]>, FormatError> {
        // A message that was written here has its dynamic part in the chain, one that arrived has it in the block.
        let fixed = self.fixed_len();
        let found = if at >= fixed && self.chain.len() > 0 {
            self.chain.get(at - fixed, len)
        } else {
            at.checked_add(len).and_then(|end| self.fixed().get(at..end)).map(Cow::Borrowed)
        };
        let left = self.len().saturating_sub(at) as u64;
        found.ok_or(FormatError::Truncated { at: at as u64, needed: len as u64, left })
    }
}

/// Returns bytes of the static part.
fn part(fixed: &[u8], from: usize, to: usize) -> Result<&[u8], FormatError> {
    fixed.get(from..to).ok_or(FormatError::Truncated {
        at: from as u64,
        needed: to.saturating_sub(from) as u64,
        left: fixed.len().saturating_sub(from) as u64,
    })
}

/// Finds the first element that is no value of its type.
fn first_invalid<T: Element>(bytes: &[u8]) -> usize {
    let valid = |element: &[u8]| checked::try_pod_read_unaligned::<T>(element).is_ok();
    bytes.chunks_exact(size_of::<T>()).position(|element| !valid(element)).unwrap_or(0)
}

fn mismatch(want: Section, found: Section) -> Option<ReadError> {
    if want.kind != found.kind {
        Some(ReadError::WrongType { expected: want.kind, found: found.kind })
    } else if want.codec != found.codec {
        Some(ReadError::WrongCodec { expected: want.codec, found: found.codec })
    } else if want.schema != found.schema {
        Some(ReadError::WrongSchema { expected: want.schema, found: found.schema })
    } else {
        None
    }
}
