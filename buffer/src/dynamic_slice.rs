//! Slices of primitives of any length, in the dynamic part; the static part contains only their section header.

use mpj_pool::{RawBuffer, ReadBlock};

use crate::codec::raw;
use crate::header::SectionTag;
use crate::read::contiguous_bytes;
use crate::{Buffer, CodecError, Element, ReadError, Reading, WriteError, Writing};

impl<R: RawBuffer> Buffer<R, Writing> {
    /// Appends a slice as one value to the dynamic part, which grows as needed.
    ///
    /// # Errors
    /// [`WriteError`]; then nothing was written.
    ///
    /// # Examples
    /// ```
    /// # use mpj_buffer::Buffer;
    /// let mut buffer = Buffer::with_capacity(64)?;
    /// buffer.write_dynamic(&[0.5f64; 100_000])?;
    /// buffer.write_dynamic(&[1.5f64])?;
    /// let mut buffer = buffer.commit();
    /// assert_eq!(buffer.read_dynamic::<f64>()?.len(), 100_000);
    /// assert_eq!(buffer.view_dynamic::<f64>()?, [1.5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_dynamic<T: Element>(&mut self, src: &[T]) -> Result<(), WriteError> {
        let tag = SectionTag::slices::<T>();
        if !self.is_open(tag) {
            self.section_padding(0)?;
        }
        let bytes: &[u8] = bytemuck::cast_slice(src);
        let chain = self.chain.get_or_create();
        chain.record(bytes.len(), |chain| chain.push(bytes).map_err(WriteError::Alloc))?;
        if !self.is_open(tag) {
            self.open(tag)?;
        }
        self.add_to_count(1);
        Ok(())
    }
}

impl<R: ReadBlock> Buffer<R, Reading> {
    /// Reads a slice written by [`write_dynamic`](Buffer::write_dynamic).
    ///
    /// # Errors
    /// [`ReadError`]; then the slice is still unread.
    pub fn read_dynamic<T: Element>(&mut self) -> Result<Vec<T>, ReadError> {
        self.slice::<T, _>(|bytes, swap| raw::elements(bytes, swap).map_err(invalid::<T>))
    }

    /// Reads a slice written by [`write_dynamic`](Buffer::write_dynamic), which must have `dst.len()` elements.
    ///
    /// # Errors
    /// As [`read_dynamic`](Self::read_dynamic), and [`ReadError::Length`]; then `dst` and the buffer are unchanged.
    pub fn read_dynamic_into<T: Element>(&mut self, dst: &mut [T]) -> Result<(), ReadError> {
        self.slice::<T, _>(|bytes, swap| {
            let found = bytes.len() / size_of::<T>();
            if found != dst.len() {
                return Err(ReadError::Length { expected: dst.len(), found });
            }
            T::check(bytes, swap).map_err(invalid::<T>)?;
            T::copy_from_bytes(bytes, dst, swap);
            Ok(())
        })
    }

    /// Returns a slice written by [`write_dynamic`](Buffer::write_dynamic), in place.
    ///
    /// # Errors
    /// As [`read_dynamic`](Self::read_dynamic), and if the elements are split over blocks, are in the other byte order,
    /// are not aligned in memory, or need validation in a [shared](ReadBlock::is_shared) block.
    ///
    /// In the message, the elements begin at a multiple of 8, so the alignment depends on the address of the message.
    /// Elements of `i128` and `u128` can need a multiple of 16, at which those of the first record never begin.
    pub fn view_dynamic<T: Element>(&mut self) -> Result<&[T], ReadError> {
        let value = self.next_value(SectionTag::slices::<T>())?;
        let kind = T::KIND;
        if size_of::<T>() > 1 && self.mode.order.is_foreign() {
            return Err(ReadError::ForeignOrder { kind });
        }
        if kind.needs_validation() && self.block.is_shared() {
            return Err(ReadError::Shared { kind });
        }
        let bytes = contiguous_bytes(&self.block.bytes()[self.headroom..], &self.chain, value.at, value.len)?;
        check_len::<T>(bytes)?;
        T::check(bytes, false).map_err(invalid::<T>)?;
        let view = bytemuck::checked::try_cast_slice(bytes).map_err(|_| ReadError::Misaligned { kind })?;
        self.mode.finish_record(value);
        Ok(view)
    }

    /// Reads the next slice. `take` gets its bytes, and whether the bytes of each element must be swapped.
    fn slice<T: Element, V>(
        &mut self,
        take: impl FnOnce(&[u8], bool) -> Result<V, ReadError>,
    ) -> Result<V, ReadError> {
        let value = self.next_value(SectionTag::slices::<T>())?;
        let bytes = self.range(value.at, value.len)?;
        check_len::<T>(&bytes)?;
        let taken = take(&bytes, self.mode.order.is_foreign())?;
        self.mode.finish_record(value);
        Ok(taken)
    }
}

fn check_len<T: Element>(bytes: &[u8]) -> Result<(), ReadError> {
    match bytes.len() % size_of::<T>() {
        0 => Ok(()),
        left => Err(ReadError::Codec(CodecError::Trailing { left })),
    }
}

fn invalid<T: Element>(index: usize) -> ReadError {
    ReadError::Invalid { kind: T::KIND, index }
}
