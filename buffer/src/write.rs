//! Writing: appends elements, opens sections, commits the message.

use mpj_pool::RawBuffer;

use crate::block::SpareWriter;
use crate::header::{ALIGN, COUNT_OFFSET, MessageHeader, SECTION_HEADER_LEN, SectionTag, align_up};
use crate::read::Reading;
use crate::{Buffer, ByteOrder, Element, Overflow};

/// The mode of a buffer to which sections are written.
#[derive(Debug)]
pub struct Writing {
    tag: SectionTag,
    at: usize,
    /// Elements of the open section. Stored in its header when it is closed.
    count: u64,
}

impl Writing {
    pub(crate) fn new() -> Self {
        Self { tag: SectionTag::NONE, at: 0, count: 0 }
    }
}

impl<R: RawBuffer> Buffer<R, Writing> {
    /// Appends elements to the open section if that has the same kind, otherwise to a new one.
    ///
    /// # Errors
    /// [`Overflow`] if the static part is too small; then nothing was written.
    #[inline]
    pub fn write<T: Element>(&mut self, src: &[T]) -> Result<(), Overflow> {
        self.append::<T>(src.len(), |spare| spare.put(src))
    }

    /// Appends `count` elements, `next(0)`, `next(1)`, …, and stores them directly in the block.
    ///
    /// # Errors
    /// [`Overflow`] if the static part is too small; then `next` was not called. Nothing is written if `next` panics.
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

    /// Opens a new section, even if the open one has the same kind. The reader must call its own `section` at the same
    /// position.
    ///
    /// # Errors
    /// [`Overflow`] if the static part is too small for the header.
    pub fn section<T: Element>(&mut self) -> Result<(), Overflow> {
        self.open(SectionTag::of::<T>())
    }

    /// Opens a new section as [`section`](Self::section) does, with elements in the byte order `order`. A receiver of
    /// that order can view them in place. The reader calls `section` for either order.
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
        let swapped = order.is_foreign() && size_of::<T>() > 1;
        self.open(if swapped { SectionTag::of::<T>().swapped() } else { SectionTag::of::<T>() })
    }

    /// Ends writing. Then the message can be read and sent.
    #[inline]
    pub fn commit(mut self) -> Buffer<R, Reading> {
        self.close();
        self.chain.finish();
        if self.chain.len() > 0 {
            // Fits, because `capacity` is a multiple of `ALIGN`.
            let padding = self.static_len().wrapping_neg() % ALIGN;
            if padding > 0 {
                let padded = self.block.push_zeros(padding);
                debug_assert_eq!(padded, Ok(()));
            }
        }
        let sections_end = self.static_len();
        let total = sections_end + self.chain.len();
        self.store(0, &MessageHeader::bytes(self.chain.len() > 0, total));
        let Self { block, headroom, chain, .. } = self;
        Buffer { block, headroom, chain, mode: Reading::new(ByteOrder::NATIVE, sections_end) }
    }

    /// Returns the length of the static part so far, headers and padding included.
    pub fn len(&self) -> usize {
        self.static_len()
    }

    /// Returns whether no section has been written or opened.
    pub fn is_empty(&self) -> bool {
        self.mode.tag == SectionTag::NONE
    }

    /// Returns the unused bytes of the static part: how many bytes the open section can still take.
    pub fn remaining_capacity(&self) -> usize {
        self.capacity() - self.static_len()
    }

    /// Appends the `count` elements that `fill` writes to the open section or a new one. An error or a panic of `fill`
    /// changes nothing.
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
                return Err(Overflow { needed: bytes, available: left });
            }
            self.block.push_with(bytes, fill)?;
        } else if self.is_open(tag.swapped()) {
            self.append_swapped(bytes, fill)?;
        } else {
            let padding = self.section_padding(bytes)?;
            let at = self.static_len() + padding;
            self.block.push_with(padding + SECTION_HEADER_LEN + bytes, |spare| {
                spare.pad(padding);
                spare.put(&tag.header(0));
                fill(spare);
            })?;
            self.close();
            self.mode = Writing { tag, at, count: 0 };
        }
        self.add_to_count(count as u64);
        Ok(())
    }

    #[cold]
    fn append_swapped(
        &mut self,
        bytes: usize,
        fill: impl FnOnce(&mut SpareWriter<'_>),
    ) -> Result<(), Overflow> {
        let left = self.remaining_capacity();
        if bytes > left {
            return Err(Overflow { needed: bytes, available: left });
        }
        self.block.push_swapped(bytes, fill)
    }

    #[inline]
    pub(crate) fn is_open(&self, tag: SectionTag) -> bool {
        self.mode.tag == tag
    }

    pub(crate) fn open(&mut self, tag: SectionTag) -> Result<(), Overflow> {
        let padding = self.section_padding(0)?;
        let at = self.static_len() + padding;
        self.block.push_with(padding + SECTION_HEADER_LEN, |spare| {
            spare.pad(padding);
            spare.put(&tag.header(0));
        })?;
        self.close();
        self.mode = Writing { tag, at, count: 0 };
        Ok(())
    }

    /// Returns the padding in front of a new section with a payload of `bytes` bytes, if the section fits.
    #[inline]
    pub(crate) fn section_padding(&self, bytes: usize) -> Result<usize, Overflow> {
        let (len, left) = (self.static_len(), self.remaining_capacity());
        let padding = align_up(len, ALIGN).map_or(0, |start| start - len);
        let needed = bytes.saturating_add(padding + SECTION_HEADER_LEN);
        if needed > left { Err(Overflow { needed, available: left }) } else { Ok(padding) }
    }

    #[inline]
    pub(crate) fn add_to_count(&mut self, more: u64) {
        self.mode.count += more;
    }

    #[inline]
    fn close(&mut self) {
        if self.mode.tag != SectionTag::NONE {
            self.store(self.mode.at + COUNT_OFFSET, &self.mode.count.to_ne_bytes());
        }
    }

    #[inline]
    fn store(&mut self, at: usize, bytes: &[u8]) {
        let from = self.headroom + at;
        if let Some(target) = self.block.bytes_mut().get_mut(from..from + bytes.len()) {
            target.copy_from_slice(bytes);
        }
    }
}
