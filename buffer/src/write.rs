//! Writing: appending elements to the open section, opening sections, closing the message.

use mpj_pool::RawBuffer;

use crate::block::SpareWriter;
use crate::header::{ALIGN, COUNT_AT, MessageHeader, SECTION_HEADER, SectionTag, align_up};
use crate::read::Reading;
use crate::{Buffer, ByteOrder, Element, Overflow};

/// The mode of a buffer that takes sections.
#[derive(Debug)]
pub struct Writing {
    /// The tag of the open section; `NONE` if no section is open.
    tag: SectionTag,
    /// Offset of its header in the message.
    at: usize,
    /// Elements written to it. They reach its header when it is closed.
    count: u64,
}

impl Writing {
    pub(crate) fn new() -> Self {
        Self { tag: SectionTag::NONE, at: 0, count: 0 }
    }
}

impl<R: RawBuffer> Buffer<R, Writing> {
    /// Appends elements to the open section. If no section is open, or the open one is of another kind, opens a new
    /// one.
    ///
    /// # Errors
    /// [`Overflow`] if the static part has no room; nothing is written then.
    #[inline]
    pub fn write<T: Element>(&mut self, src: &[T]) -> Result<(), Overflow> {
        self.append::<T>(src.len(), |spare| spare.put(src))
    }

    /// Appends `count` elements that `next` makes, from the number of each: written straight into the block.
    ///
    /// # Errors
    /// [`Overflow`] if the static part has no room; nothing is written, and `next` is not called, then. Nothing is
    /// written if `next` panics.
    ///
    /// # Examples
    /// ```
    /// # use mpj_buffer::Buffer;
    /// let mut buffer = Buffer::with_capacity(4096)?;
    /// buffer.fill_with(5, |i| (i * i) as u32)?;
    /// assert_eq!(buffer.commit().view::<u32>()?, [0, 1, 4, 9, 16]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn fill_with<T: Element>(
        &mut self,
        count: usize,
        mut next: impl FnMut(usize) -> T,
    ) -> Result<(), Overflow> {
        self.append::<T>(count, |spare| spare.put_each((0..count).map(&mut next)))
    }

    /// Opens a new section, also if one of the same kind is open. The reader must then call
    /// its own `section` at the same place.
    ///
    /// # Errors
    /// [`Overflow`] if the static part has no room for the header.
    pub fn section<T: Element>(&mut self) -> Result<(), Overflow> {
        self.open(SectionTag::of::<T>())
    }

    /// Opens a new section as [`section`](Self::section) does, with elements in the byte order `order`. Methods that
    /// append to it swap the elements; other sections keep the order of this machine.
    ///
    /// A receiver of that order can then view the elements in place. The reader must call its own
    /// `section` at the same place; that takes either order.
    ///
    /// # Errors
    /// As `section`.
    ///
    /// # Examples
    /// ```
    /// use mpj_buffer::{Buffer, ByteOrder};
    ///
    /// let mut buffer = Buffer::with_capacity(256)?;
    /// buffer.section_with_order::<u32>(ByteOrder::Big)?;
    /// buffer.write(&[1u32, 2])?;
    /// let mut buffer = buffer.commit();
    /// assert!(buffer.to_vec().ends_with(&[0, 0, 0, 1, 0, 0, 0, 2]));
    /// assert_eq!(buffer.peek().map(|section| section.byte_order), Some(ByteOrder::Big));
    /// let mut numbers = [0u32; 2];
    /// buffer.read(&mut numbers)?;
    /// assert_eq!(numbers, [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn section_with_order<T: Element>(&mut self, order: ByteOrder) -> Result<(), Overflow> {
        // Single bytes have no order.
        let turned = order.is_foreign() && size_of::<T>() > 1;
        self.open(if turned { SectionTag::of::<T>().turned() } else { SectionTag::of::<T>() })
    }

    /// Ends writing. The message can be read, and sent, from now on.
    #[inline]
    pub fn commit(mut self) -> Buffer<R, Reading> {
        self.close();
        self.chain.finish();
        if self.chain.len() > 0 {
            // Fits: `capacity` is a multiple of `ALIGN`, and the static part is not longer.
            let padding = self.fixed_len().wrapping_neg() % ALIGN;
            if padding > 0 {
                let padded = self.block.push_zeros(padding);
                debug_assert_eq!(padded, Ok(()));
            }
        }
        let sections_end = self.fixed_len();
        let total = sections_end + self.chain.len();
        self.store(0, &MessageHeader::bytes(self.chain.len() > 0, total));
        let Self { block, room, chain, .. } = self;
        Buffer { block, room, chain, mode: Reading::new(ByteOrder::NATIVE, sections_end) }
    }

    /// Returns the bytes of the static part so far, headers and padding included.
    pub fn len(&self) -> usize {
        self.fixed_len()
    }

    /// Returns whether nothing has been written yet, not even an empty section.
    pub fn is_empty(&self) -> bool {
        self.mode.tag == SectionTag::NONE
    }

    /// Returns how many more bytes of elements the open section can take, which is the unused rest of the static part.
    pub fn remaining_capacity(&self) -> usize {
        self.capacity() - self.fixed_len()
    }

    /// Appends `count` elements, all of which `fill` puts; a section is opened for them if need be.
    ///
    /// Nothing has changed until `fill` has returned.
    #[inline]
    pub(crate) fn append<T: Element>(
        &mut self,
        count: usize,
        fill: impl FnOnce(&mut SpareWriter<'_>),
    ) -> Result<(), Overflow> {
        let tag = SectionTag::of::<T>();
        let bytes = count.saturating_mul(size_of::<T>());
        if self.is_open(tag) {
            let left = self.remaining_capacity();
            if bytes > left {
                return Err(Overflow { needed: bytes, left });
            }
            self.block.push_with(bytes, fill)?;
        } else if self.is_open(tag.turned()) {
            self.append_turned(bytes, fill)?;
        } else {
            let padding = self.fits(bytes)?;
            let at = self.fixed_len() + padding;
            self.block.push_with(padding + SECTION_HEADER + bytes, |spare| {
                spare.pad(padding);
                spare.put(&tag.header(0));
                fill(spare);
            })?;
            self.close();
            self.mode = Writing { tag, at, count: 0 };
        }
        self.count(count as u64);
        Ok(())
    }

    /// Appends elements of `bytes` bytes to the open section, which has the other byte order.
    #[cold]
    fn append_turned(
        &mut self,
        bytes: usize,
        fill: impl FnOnce(&mut SpareWriter<'_>),
    ) -> Result<(), Overflow> {
        let left = self.remaining_capacity();
        if bytes > left {
            return Err(Overflow { needed: bytes, left });
        }
        self.block.push_turned(bytes, fill)
    }

    #[inline]
    pub(crate) fn is_open(&self, tag: SectionTag) -> bool {
        self.mode.tag == tag
    }

    /// Opens a section if its header fits.
    pub(crate) fn open(&mut self, tag: SectionTag) -> Result<(), Overflow> {
        let padding = self.fits(0)?;
        let at = self.fixed_len() + padding;
        self.block.push_with(padding + SECTION_HEADER, |spare| {
            spare.pad(padding);
            spare.put(&tag.header(0));
        })?;
        self.close();
        self.mode = Writing { tag, at, count: 0 };
        Ok(())
    }

    /// Checks that a new section of `bytes` bytes fits; returns the padding in front of its header.
    #[inline]
    pub(crate) fn fits(&self, bytes: usize) -> Result<usize, Overflow> {
        let (len, left) = (self.fixed_len(), self.remaining_capacity());
        let padding = align_up(len, ALIGN).map_or(0, |start| start - len);
        let needed = bytes.saturating_add(padding + SECTION_HEADER);
        if needed > left { Err(Overflow { needed, left }) } else { Ok(padding) }
    }

    /// Counts elements of the open section.
    #[inline]
    pub(crate) fn count(&mut self, more: u64) {
        self.mode.count += more;
    }

    #[inline]
    fn close(&mut self) {
        if self.mode.tag != SectionTag::NONE {
            self.store(self.mode.at + COUNT_AT, &self.mode.count.to_ne_bytes());
        }
    }

    /// Overwrites bytes of the static part.
    #[inline]
    fn store(&mut self, at: usize, bytes: &[u8]) {
        let from = self.room + at;
        if let Some(target) = self.block.bytes_mut().get_mut(from..from + bytes.len()) {
            target.copy_from_slice(bytes);
        }
    }
}
