//! Reading: the reader repeats the calls of the writer, with `read` in place of `write`. `README.md` has a table.

use bytemuck::checked::{self, CheckedCastError};
use mpj_pool::ReadBlock;

mod cursor;

pub use self::cursor::Reading;
pub(crate) use self::cursor::contiguous_bytes;
use self::cursor::{OpenSection, static_bytes};
use crate::header::{MESSAGE_HEADER_LEN, SectionTag};
use crate::{Buffer, Element, ElementKind, ReadError, Section};

impl<R: ReadBlock> Buffer<R, Reading> {
    /// Fills `dst` from the open section if it has this kind, otherwise from the next one. Returns `dst.len()`.
    ///
    /// Elements are swapped if their section has the other byte order.
    ///
    /// # Errors
    /// [`ReadError`] if that section has another kind or fewer unread elements, if the open section has unread elements
    /// of another kind, if no section follows, or if an element is invalid. Then `dst` and the buffer are unchanged.
    #[inline]
    pub fn read<T: Element>(&mut self, dst: &mut [T]) -> Result<usize, ReadError> {
        self.consume::<T>(dst.len(), |bytes, swap| {
            T::copy_from_bytes(bytes, dst, swap);
            Ok(())
        })
    }

    /// Returns the rest of the open section in place if it has this kind, even if empty; otherwise the next section.
    /// The elements count as read.
    ///
    /// # Errors
    /// As [`read`](Self::read), and if the elements cannot be used in place: the block is not aligned for the type, the
    /// section has the other byte order, or the type needs validation and the block [is shared](ReadBlock::is_shared).
    #[inline]
    pub fn view<T: Element>(&mut self) -> Result<&[T], ReadError> {
        let open = self.target(SectionTag::of::<T>())?;
        self.view_open(open, open.left)
    }

    /// Returns the next `count` elements in place, as [`view`](Self::view) does.
    ///
    /// # Errors
    /// As `view`, and [`ReadError::PastSection`] if the section has fewer unread elements.
    #[inline]
    pub fn view_n<T: Element>(&mut self, count: usize) -> Result<&[T], ReadError> {
        let open = self.target(SectionTag::of::<T>())?;
        self.view_open(open, count as u64)
    }

    #[inline(always)]
    fn view_open<T: Element>(&mut self, mut open: OpenSection, count: u64) -> Result<&[T], ReadError> {
        let kind = T::KIND;
        let past = ReadError::PastSection { needed: count, available: open.left };
        open.left = open.left.checked_sub(count).ok_or(past)?;
        open.touched |= count > 0;
        if size_of::<T>() > 1 && open.order.is_foreign() {
            return Err(ReadError::ForeignOrder { kind });
        }
        if kind.needs_validation() && self.block.is_shared() {
            return Err(ReadError::Shared { kind });
        }
        // Not through `static_range`, which borrows all of `self`: the mode changes while the view is borrowed.
        let static_part = &self.block.bytes()[self.headroom..];
        // Cannot wrap: at least `count` elements were unread before `open.end`.
        let from = open.at;
        open.at += count as usize * size_of::<T>();
        let bytes = static_bytes(static_part, from, open.at)?;
        let view = checked::try_cast_slice(bytes).map_err(|error| match error {
            CheckedCastError::InvalidBitPattern => {
                ReadError::Invalid { kind, index: first_invalid::<T>(bytes) }
            }
            CheckedCastError::PodCastError(_) => ReadError::Misaligned { kind },
        })?;
        self.mode.enter(open);
        Ok(view)
    }

    /// Opens the next section, which must have elements of `T`, and returns their number.
    ///
    /// # Errors
    /// [`ReadError::Unread`] if the open section has unread elements, [`ReadError::WrongType`], [`ReadError::End`].
    pub fn section<T: Element>(&mut self) -> Result<u64, ReadError> {
        self.open_next(SectionTag::of::<T>())
    }

    /// Skips `count` elements of the section that [`peek`](Self::peek) returns. They count as read.
    ///
    /// # Errors
    /// [`ReadError::PastSection`] if the section has fewer unread elements, [`ReadError::End`] if no section follows.
    /// Then nothing is skipped.
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
        let mut open = self.current_section()?;
        let past = ReadError::PastSection { needed: count, available: open.left };
        open.left = open.left.checked_sub(count).ok_or(past)?;
        open.touched |= count > 0;
        self.mode.record = self.record_after(open.tag, count)?;
        // Cannot wrap: at least `count` elements were unread before `open.end`.
        open.at += count as usize * open.tag.kind().size();
        self.mode.enter(open);
        Ok(())
    }

    /// Skips all elements of the section that [`peek`](Self::peek) returns. Afterwards no section is open.
    ///
    /// # Errors
    /// [`ReadError::End`] if no section follows.
    pub fn skip_section(&mut self) -> Result<(), ReadError> {
        let open = self.current_section()?;
        self.mode.record = self.record_after(open.tag, open.left)?;
        self.mode.next = open.end;
        self.mode.open = OpenSection::NONE;
        Ok(())
    }

    fn current_section(&self) -> Result<OpenSection, ReadError> {
        if self.mode.open.left > 0 { Ok(self.mode.open) } else { self.next() }
    }

    /// Returns the offset of the next record after `count` elements of a section with the tag `tag`.
    fn record_after(&self, tag: SectionTag, count: u64) -> Result<usize, ReadError> {
        let mut record = self.mode.record;
        if tag.kind() == ElementKind::Object {
            for _ in 0..count {
                let (value, len) = self.record(record)?;
                record = value + len;
            }
        }
        Ok(record)
    }

    /// Returns the unread rest of the open section, or the next section, or `None` at the end.
    pub fn peek(&self) -> Option<Section> {
        self.current_section().ok().map(|open| open.section())
    }

    /// Returns the kind of the section that [`peek`](Self::peek) returns.
    pub fn kind(&self) -> Option<ElementKind> {
        self.peek().map(|section| section.kind)
    }

    /// Returns the number of unread elements in the open section, 0 if none is open.
    pub fn remaining(&self) -> u64 {
        self.mode.open.left
    }

    /// Returns all sections of the message with their counts, whether they have been read or not.
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
        let mut next = MESSAGE_HEADER_LEN;
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

    /// Checks the next `count` elements of `T`. `take` gets their bytes, and whether it must swap them. The elements
    /// count as read if `take` succeeds.
    #[inline]
    pub(crate) fn consume<T: Element>(
        &mut self,
        count: usize,
        take: impl FnOnce(&[u8], bool) -> Result<(), ReadError>,
    ) -> Result<usize, ReadError> {
        let mut open = self.target(SectionTag::of::<T>())?;
        let past = ReadError::PastSection { needed: count as u64, available: open.left };
        open.left = open.left.checked_sub(count as u64).ok_or(past)?;
        open.touched |= count > 0;
        // Cannot wrap: at least `count` elements were unread before `open.end`.
        let end = open.at + count * size_of::<T>();
        let src = self.static_range(open.at, end)?;
        let swap = open.order.is_foreign();
        T::check(src, swap).map_err(|index| ReadError::Invalid { kind: T::KIND, index })?;
        take(src, swap)?;
        open.at = end;
        self.mode.enter(open);
        Ok(count)
    }
}

fn first_invalid<T: Element>(bytes: &[u8]) -> usize {
    let valid = |element: &[u8]| checked::try_pod_read_unaligned::<T>(element).is_ok();
    bytes.chunks_exact(size_of::<T>()).position(|element| !valid(element)).unwrap_or(0)
}
