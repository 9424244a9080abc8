//! Reading: walking the sections in the order in which they were written.
//!
//! The rule is the mirror of writing: the calls that wrote a message, with `read` for `write`, read it. Elements come
//! from the open section; a call for another kind opens the next section, which must be of that kind, once the open one
//! is used up.

use bytemuck::checked::{self, CheckedCastError};
use mpj_pool::RawBuffer;

mod cursor;

pub use self::cursor::Reading;
pub(crate) use self::cursor::contiguous_bytes;
use self::cursor::{OpenSection, part};
use crate::header::{MESSAGE_HEADER, SectionTag};
use crate::{Buffer, Element, ElementKind, ReadError, Section};

impl<R: RawBuffer> Buffer<R, Reading> {
    /// Fills `dst` from the open section, or from the next one, and returns the number of elements, `dst.len()`.
    ///
    /// Bytes are swapped if the section has the other byte order: because the message comes from a machine of that
    /// order, or because the section was opened in it.
    ///
    /// # Errors
    /// [`ReadError`] if the kind differs, if the section has fewer elements left, or if an element is not a valid value
    /// of its type. Then neither `dst` nor the buffer has changed.
    #[inline]
    pub fn read<T: Element>(&mut self, dst: &mut [T]) -> Result<usize, ReadError> {
        self.consume::<T>(dst.len(), |bytes, swap| {
            T::load(bytes, dst, swap);
            Ok(())
        })
    }

    /// Returns the rest of the open section, or of the next one, in place, without a copy. It counts as read.
    ///
    /// # Errors
    /// As [`read`](Self::read), and if the elements cannot be used in place: the block is not aligned, or the section
    /// is in the other byte order.
    #[inline]
    pub fn view<T: Element>(&mut self) -> Result<&[T], ReadError> {
        let open = self.target(SectionTag::of::<T>())?;
        self.view_open(open, open.left)
    }

    /// Returns the next `count` elements in place, as [`view`](Self::view) does with all.
    ///
    /// # Errors
    /// As `view`, and [`ReadError::PastSection`] if fewer are left.
    #[inline]
    pub fn view_n<T: Element>(&mut self, count: usize) -> Result<&[T], ReadError> {
        let open = self.target(SectionTag::of::<T>())?;
        self.view_open(open, count as u64)
    }

    #[inline(always)]
    fn view_open<T: Element>(&mut self, mut open: OpenSection, count: u64) -> Result<&[T], ReadError> {
        let kind = T::KIND;
        let past = ReadError::PastSection { needed: count, left: open.left };
        open.left = open.left.checked_sub(count).ok_or(past)?;
        open.touched |= count > 0;
        if size_of::<T>() > 1 && open.order.is_foreign() {
            return Err(ReadError::ForeignOrder { kind });
        }
        // Not through `fixed_range`, which borrows all of `self`: the mode changes while the view is held.
        let fixed = &self.block.bytes()[self.room..];
        // Cannot wrap: `open.left` elements lay before `open.end`.
        let from = open.at;
        open.at += count as usize * size_of::<T>();
        let bytes = part(fixed, from, open.at)?;
        let view = checked::try_cast_slice(bytes).map_err(|error| match error {
            CheckedCastError::InvalidBitPattern => {
                ReadError::Invalid { kind, index: first_invalid::<T>(bytes) }
            }
            CheckedCastError::PodCastError(_) => ReadError::Misaligned { kind },
        })?;
        self.mode.enter(open);
        Ok(view)
    }

    /// Opens the next section, which must be of `T`, and returns the number of its elements.
    ///
    /// # Errors
    /// [`ReadError::Unread`] if the open section has elements left, [`ReadError::WrongType`], [`ReadError::End`].
    pub fn section<T: Element>(&mut self) -> Result<u64, ReadError> {
        self.open_next(SectionTag::of::<T>())
    }

    /// Skips `count` of the elements that [`peek`](Self::peek) shows: of the rest of the open section, or of the next
    /// one. They count as read.
    ///
    /// # Errors
    /// [`ReadError::PastSection`] if the section has fewer elements, [`ReadError::End`] if the message has no further
    /// section. Then nothing is skipped.
    ///
    /// # Examples
    /// ```
    /// # use mpj_buffer::Buffer;
    /// let mut buffer = Buffer::with_capacity(4096)?;
    /// buffer.write(&[1u8, 2, 3, 4])?;
    /// let mut buffer = buffer.commit();
    /// buffer.skip(3)?;
    /// assert_eq!(buffer.view::<u8>()?, [4]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn skip(&mut self, count: u64) -> Result<(), ReadError> {
        let mut open = self.shown()?;
        let past = ReadError::PastSection { needed: count, left: open.left };
        open.left = open.left.checked_sub(count).ok_or(past)?;
        open.touched |= count > 0;
        self.mode.record = self.behind(open.tag, count)?;
        // Cannot wrap: `open.left` elements lay before `open.end`.
        open.at += count as usize * open.tag.kind().size();
        self.mode.enter(open);
        Ok(())
    }

    /// Skips all elements that [`peek`](Self::peek) shows: the rest of the open section, or the whole next one.
    /// Afterwards no section is open.
    ///
    /// # Errors
    /// [`ReadError::End`] if the message has no further section.
    pub fn skip_section(&mut self) -> Result<(), ReadError> {
        let open = self.shown()?;
        self.mode.record = self.behind(open.tag, open.left)?;
        self.mode.next = open.end;
        self.mode.open = OpenSection::NONE;
        Ok(())
    }

    /// Returns what is unread of the open section, or the next one.
    fn shown(&self) -> Result<OpenSection, ReadError> {
        if self.mode.open.left > 0 { Ok(self.mode.open) } else { self.next() }
    }

    /// Returns the position of the next record after `count` elements of a section of `tag`.
    fn behind(&self, tag: SectionTag, count: u64) -> Result<usize, ReadError> {
        let mut record = self.mode.record;
        if tag.kind() == ElementKind::Object {
            for _ in 0..count {
                let (value, len) = self.record(record)?;
                record = value + len;
            }
        }
        Ok(record)
    }

    /// Returns what is still unread of the open section, or the next section, or `None` at the end.
    pub fn peek(&self) -> Option<Section> {
        self.shown().ok().map(|open| open.section())
    }

    /// Returns the kind of what [`peek`](Self::peek) shows.
    pub fn kind(&self) -> Option<ElementKind> {
        self.peek().map(|section| section.kind)
    }

    /// Returns the number of unread elements in the open section, 0 if none is open.
    pub fn remaining(&self) -> u64 {
        self.mode.open.left
    }

    /// Returns all sections of the message, whatever has been read, with their counts.
    ///
    /// # Examples
    /// ```
    /// # use mpj_buffer::{Buffer, ElementKind};
    /// let mut buffer = Buffer::with_capacity(4096)?;
    /// buffer.write(&[1u8, 2, 3])?;
    /// buffer.write_object("four")?;
    /// let kinds: Vec<_> = buffer.commit().sections().map(|section| (section.kind, section.count)).collect();
    /// assert_eq!(kinds, [(ElementKind::U8, 3), (ElementKind::Object, 1)]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn sections(&self) -> impl Iterator<Item = Section> {
        let mut next = MESSAGE_HEADER;
        core::iter::from_fn(move || {
            let found = self.next_at(next).ok()?;
            next = found.end;
            Some(found.section())
        })
    }

    /// Goes back to the first section.
    #[inline]
    pub fn rewind(&mut self) {
        self.mode = Reading::new(self.mode.order, self.mode.sections_end);
    }

    /// Takes `count` elements of `T`, all of them values: `take` gets their bytes, and whether to swap them. They count
    /// as read if it succeeds.
    #[inline]
    pub(crate) fn consume<T: Element>(
        &mut self,
        count: usize,
        take: impl FnOnce(&[u8], bool) -> Result<(), ReadError>,
    ) -> Result<usize, ReadError> {
        let mut open = self.target(SectionTag::of::<T>())?;
        let past = ReadError::PastSection { needed: count as u64, left: open.left };
        open.left = open.left.checked_sub(count as u64).ok_or(past)?;
        open.touched |= count > 0;
        // Cannot wrap: `open.left` elements lie before `open.end`.
        let end = open.at + count * size_of::<T>();
        let src = self.fixed_range(open.at, end)?;
        let swap = open.order.is_foreign();
        T::check(src, swap).map_err(|index| ReadError::Invalid { kind: T::KIND, index })?;
        take(src, swap)?;
        open.at = end;
        self.mode.enter(open);
        Ok(count)
    }
}

/// Returns the index of the first invalid element.
fn first_invalid<T: Element>(bytes: &[u8]) -> usize {
    let valid = |element: &[u8]| checked::try_pod_read_unaligned::<T>(element).is_ok();
    bytes.chunks_exact(size_of::<T>()).position(|element| !valid(element)).unwrap_or(0)
}
