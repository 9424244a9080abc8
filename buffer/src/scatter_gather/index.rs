//! `gather` and `scatter`: elements in the order of a list of indices.

use mpj_pool::RawBuffer;

use crate::{Buffer, Element, IndexError, ReadError, Reading, WriteError, Writing};

/// An integer that names an element of a slice: `usize`, `u64`, `u32`, `i64` or `i32`. A negative index is out of
/// range.
///
/// Sealed: the cheap check relies on the properties of these five types.
pub trait IndexInt: private::Wide {}

mod private {
    #[expect(unnameable_types, reason = "seals `IndexInt`")]
    pub trait Wide: Copy {
        /// Returns the index; a negative one becomes greater than any length.
        fn wide(self) -> u64;

        /// Returns the index for an error message.
        fn shown(self) -> i64;
    }
}

macro_rules! indices {
    ($($type:ident)*) => {$(
        impl IndexInt for $type {}

        impl private::Wide for $type {
            #[inline]
            fn wide(self) -> u64 {
                self as u64
            }

            fn shown(self) -> i64 {
                i64::try_from(self).unwrap_or(i64::MAX)
            }
        }
    )*};
}

indices! { usize u64 u32 i64 i32 }

/// Checks that all indices are below `len`.
fn check<I: IndexInt>(indices: &[I], len: usize) -> Result<(), IndexError> {
    // No exit in the middle, so that the loop can take many at a time; slices are shorter than 2^63, so a wrong index
    // is known by the sign of the difference.
    let bound = len as u64;
    let good = indices.iter().fold(true, |good, index| good & (index.wide() < bound));
    if good {
        return Ok(());
    }
    let wrong = indices.iter().position(|index| index.wide() >= bound);
    let position = wrong.unwrap_or(0);
    Err(IndexError::Index { position, index: indices[position].shown(), len })
}

impl<R: RawBuffer> Buffer<R, Writing> {
    /// Appends `src[i]` for each index `i`, as [`write`](Self::write) appends a slice. Indices may come more than once.
    ///
    /// # Errors
    /// [`WriteError::Place`] if an index lies outside of `src`, [`WriteError::Overflow`] if the static part has no
    /// room; nothing is written then.
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
        // One pass: an invalid index ends the append, which then has no effect. The second pass finds the index for the
        // error.
        let chosen = |index: I| src.get(usize::try_from(index.wide()).ok()?).copied();
        let appended = self.append::<T>(indices.len(), |spare| spare.put_all(indices, chosen));
        appended.or_else(|full| {
            check(indices, src.len())?;
            Err(full.into())
        })
    }
}

impl<R: RawBuffer> Buffer<R, Reading> {
    /// Reads one element into `dst[i]` for each index `i`, as [`read`](Self::read) fills a slice, and returns their
    /// number. Where an index comes more than once, the last element stays.
    ///
    /// # Errors
    /// As `read`, and [`ReadError::Place`] if an index lies outside of `dst`. Neither `dst` nor the buffer has changed
    /// then.
    pub fn scatter<T: Element, I: IndexInt>(
        &mut self,
        dst: &mut [T],
        indices: &[I],
    ) -> Result<usize, ReadError> {
        self.consume::<T>(indices.len(), |bytes, swap| {
            check(indices, dst.len())?;
            spread(bytes, dst, indices, swap);
            Ok(())
        })
    }
}

fn spread<T: Element, I: IndexInt>(bytes: &[u8], dst: &mut [T], indices: &[I], swap: bool) {
    // Two loops, so that neither tests the byte order for each element.
    let elements = bytes.chunks_exact(size_of::<T>()).zip(indices);
    if swap {
        elements.for_each(|(bytes, index)| dst[index.wide() as usize] = T::take(bytes, true));
    } else {
        elements.for_each(|(bytes, index)| dst[index.wide() as usize] = T::take(bytes, false));
    }
}
