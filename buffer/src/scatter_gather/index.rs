//! `gather` and `scatter`: elements in the order of a list of indices.

use mpj_pool::{RawBuffer, ReadBlock};

use crate::{Buffer, Element, IndexError, ReadError, Reading, WriteError, Writing};

/// Integer type of an index: `usize`, `u64`, `u32`, `i64` or `i32`. A negative index is out of range.
///
/// Sealed, because the check relies on properties of these five types.
pub trait IndexInt: private::ToInt64 {}

mod private {
    #[expect(unnameable_types, reason = "seals `IndexInt`")]
    pub trait ToInt64: Copy {
        /// Returns the index; a negative one becomes larger than any length.
        fn to_u64(self) -> u64;

        fn to_i64(self) -> i64;
    }
}

macro_rules! indices {
    ($($type:ident)*) => {$(
        impl IndexInt for $type {}

        impl private::ToInt64 for $type {
            #[inline]
            fn to_u64(self) -> u64 {
                self as u64
            }

            fn to_i64(self) -> i64 {
                i64::try_from(self).unwrap_or(i64::MAX)
            }
        }
    )*};
}

indices! { usize u64 u32 i64 i32 }

fn check<I: IndexInt>(indices: &[I], len: usize) -> Result<(), IndexError> {
    // No early exit, so that the loop vectorizes. A slice has fewer than 2^63 elements, so a negative index, which
    // becomes at least 2^63, is out of range.
    let bound = len as u64;
    let good = indices.iter().fold(true, |good, index| good & (index.to_u64() < bound));
    if good {
        return Ok(());
    }
    let wrong = indices.iter().position(|index| index.to_u64() >= bound);
    let position = wrong.unwrap_or(0);
    Err(IndexError::Index { position, index: indices[position].to_i64(), len })
}

impl<R: RawBuffer> Buffer<R, Writing> {
    /// Appends `src[i]` for each index `i`, as [`write`](Self::write) appends a slice. An index may be repeated.
    ///
    /// # Errors
    /// [`WriteError::Index`] if an index is out of range for `src`, [`WriteError::Overflow`] if the static part is too
    /// small. Then nothing was written.
    ///
    /// # Examples
    /// ```
    /// # use mpj_buffer::Buffer;
    /// let mut buffer = Buffer::with_capacity(4096)?;
    /// buffer.gather(&[0.0, 0.1, 0.2, 0.3], &[3, 1, 1])?;
    /// let mut buffer = buffer.commit();
    /// let mut mesh = [9.0; 4];
    /// buffer.scatter(&mut mesh, &[0u32, 3, 1])?;
    /// assert_eq!(mesh, [0.3, 0.1, 9.0, 0.1]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn gather<T: Element, I: IndexInt>(&mut self, src: &[T], indices: &[I]) -> Result<(), WriteError> {
        // An invalid index makes the append fail. A second pass then finds that index for the error.
        let chosen = |index: I| src.get(usize::try_from(index.to_u64()).ok()?).copied();
        let appended = self.append::<T>(indices.len(), |spare| spare.put_all(indices, chosen));
        appended.or_else(|full| {
            check(indices, src.len())?;
            Err(full.into())
        })
    }
}

impl<R: ReadBlock> Buffer<R, Reading> {
    /// Reads one element into `dst[i]` for each index `i`, as [`read`](Self::read) fills a slice, and returns their
    /// number. If an index is repeated, the last element remains.
    ///
    /// # Errors
    /// As `read`, and [`ReadError::Index`] if an index is out of range. `dst` and the buffer are then unchanged.
    pub fn scatter<T: Element, I: IndexInt>(
        &mut self,
        dst: &mut [T],
        indices: &[I],
    ) -> Result<usize, ReadError> {
        self.consume::<T>(indices.len(), |bytes, swap| {
            check(indices, dst.len())?;
            scatter_elements(bytes, dst, indices, swap);
            Ok(())
        })
    }
}

fn scatter_elements<T: Element, I: IndexInt>(bytes: &[u8], dst: &mut [T], indices: &[I], swap: bool) {
    // Two loops, so that neither tests the byte order per element.
    let elements = bytes.chunks_exact(size_of::<T>()).zip(indices);
    if swap {
        elements.for_each(|(bytes, index)| dst[index.to_u64() as usize] = T::from_bytes(bytes, true));
    } else {
        elements.for_each(|(bytes, index)| dst[index.to_u64() as usize] = T::from_bytes(bytes, false));
    }
}
