//! Strided regions of arrays of any dimension: rows, columns, faces and sub-blocks, also backwards or repeated.

use mpj_pool::{RawBuffer, ReadBlock};

use crate::{Buffer, Element, IndexError, ReadError, Reading, WriteError, Writing};

/// Maximum number of dimensions with an extent of 2 or more: with more, the volume would exceed a `usize`.
const MAX_DIMS: usize = usize::BITS as usize;

const NO_DIMS: [(usize, isize); MAX_DIMS] = [(1, 0); MAX_DIMS];

/// A checked region: every index of its elements is in range.
struct StridedRegion<'a> {
    start: usize,
    volume: usize,
    /// Dimensions with an extent of 2 or more, the innermost last. Adjacent evenly spaced ones are merged.
    dims: &'a [(usize, isize)],
}

impl<'a> StridedRegion<'a> {
    /// Checks a region of a slice of `len` elements; stores its dimensions in `storage`.
    fn check(
        len: usize,
        start: usize,
        dims: &[(usize, isize)],
        storage: &'a mut [(usize, isize); MAX_DIMS],
    ) -> Result<Self, IndexError> {
        if dims.iter().any(|(extent, _)| *extent == 0) {
            return Ok(Self { start, volume: 0, dims: &[] });
        }
        let (mut volume, mut rank) = (1usize, 0usize);
        // The product of a usize and an isize fits an i128; a saturated sum is out of range anyway.
        let (mut lowest, mut highest) = (start as i128, start as i128);
        for (extent, stride) in dims {
            let reach = (*extent as i128 - 1) * *stride as i128;
            let side = if reach < 0 { &mut lowest } else { &mut highest };
            *side = side.saturating_add(reach);
        }
        if lowest < 0 || highest >= len as i128 {
            let to_i64 =
                |index: i128| i64::try_from(index).unwrap_or(if index < 0 { i64::MIN } else { i64::MAX });
            return Err(IndexError::Region { lowest: to_i64(lowest), highest: to_i64(highest), len });
        }
        for &(extent, stride) in dims.iter().filter(|(extent, _)| *extent > 1) {
            // A saturated volume exceeds any block: `append` and `consume` return an error.
            volume = volume.saturating_mul(extent);
            match rank.checked_sub(1).map(|last| &mut storage[last]) {
                Some(outer) if Some(outer.1) == stride.checked_mul(extent as isize) && outer.1 != 0 => {
                    *outer = (outer.0 * extent, stride);
                }
                _ if rank < MAX_DIMS => {
                    storage[rank] = (extent, stride);
                    rank += 1;
                }
                _ => {
                    volume = usize::MAX;
                    break;
                }
            }
        }
        Ok(Self { start, volume, dims: &storage[..rank] })
    }

    fn innermost_dim(&self) -> (usize, isize) {
        self.dims.last().copied().unwrap_or((1, 1))
    }

    fn for_each_run(&self, mut visit: impl FnMut(usize)) {
        if self.volume == 0 {
            return;
        }
        let outer = self.dims.split_last().map_or(self.dims, |(_, outer)| outer);
        let mut at = self.start;
        // The last outer dimension has its own loop, because most regions have no other outer dimension.
        let (rows, step) = outer.last().copied().unwrap_or((1, 0));
        let planes = outer.len().saturating_sub(1);
        let mut plane = |mut row: usize| {
            for _ in 0..rows {
                visit(row);
                // Wraps only after the last row.
                row = row.wrapping_add_signed(step);
            }
        };
        if planes == 0 {
            return plane(at);
        }
        let mut counts = [0usize; MAX_DIMS];
        loop {
            plane(at);
            let mut d = planes;
            loop {
                if d == 0 {
                    return;
                }
                d -= 1;
                let (extent, stride) = outer[d];
                counts[d] += 1;
                at = at.wrapping_add_signed(stride);
                if counts[d] < extent {
                    break;
                }
                at = at.wrapping_sub(stride.wrapping_mul(extent as isize) as usize);
                counts[d] = 0;
            }
        }
    }
}

impl<R: RawBuffer> Buffer<R, Writing> {
    /// Appends a strided region of `src`, as [`write`](Self::write) appends a slice.
    ///
    /// `dims` are (extent, stride) pairs in elements, the outermost dimension first. The region begins at `src[start]`.
    /// Strides may be negative, or 0 to repeat. Without dimensions it is one element; with an extent of 0 it is empty.
    ///
    /// # Errors
    /// [`WriteError::Index`] if the region exceeds `src`, [`WriteError::Overflow`] if the static part is too small.
    /// Then nothing was written.
    ///
    /// # Examples
    /// ```
    /// # use mpj_buffer::Buffer;
    /// let matrix: Vec<i32> = (0..4).flat_map(|row| (0..6).map(move |column| 10 * row + column)).collect();
    /// let mut buffer = Buffer::with_capacity(4096)?;
    /// buffer.write_strided(&matrix, 1, &[(4, 6), (3, 2)])?; // columns 1, 3, 5 of all rows
    /// buffer.write_strided(&matrix, 5, &[(6, -1)])?; // row 0 backwards
    /// let mut buffer = buffer.commit();
    /// let expected = [1, 3, 5, 11, 13, 15, 21, 23, 25, 31, 33, 35, 5, 4, 3, 2, 1, 0];
    /// assert_eq!(buffer.view::<i32>()?, expected);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn write_strided<T: Element>(
        &mut self,
        src: &[T],
        start: usize,
        dims: &[(usize, isize)],
    ) -> Result<(), WriteError> {
        let mut storage = NO_DIMS;
        let region = StridedRegion::check(src.len(), start, dims, &mut storage)?;
        let (extent, stride) = region.innermost_dim();
        let run = |at: usize| (0..extent).map(move |i| src[at.wrapping_add_signed(stride * i as isize)]);
        self.append::<T>(region.volume, |spare| match (stride, spare.is_swapped()) {
            (1, false) => region.for_each_run(|at| spare.put_slice_as_is(&src[at..at + extent])),
            (1, true) => region.for_each_run(|at| spare.put(&src[at..at + extent])),
            (_, false) => region.for_each_run(|at| spare.put_as_is(run(at))),
            (_, true) => region.for_each_run(|at| spare.put_as_is(run(at).map(T::swapped))),
        })?;
        Ok(())
    }
}

impl<R: ReadBlock> Buffer<R, Reading> {
    /// Reads into a strided region of `dst`, which is given as for [`write_strided`](Buffer::write_strided), and
    /// returns the number of elements. If a position is repeated, the last element remains.
    ///
    /// # Errors
    /// As [`read`](Self::read), and [`ReadError::Index`] if the region exceeds `dst`, which is then unchanged.
    pub fn read_strided<T: Element>(
        &mut self,
        dst: &mut [T],
        start: usize,
        dims: &[(usize, isize)],
    ) -> Result<usize, ReadError> {
        let mut storage = NO_DIMS;
        let region = StridedRegion::check(dst.len(), start, dims, &mut storage)?;
        let (extent, stride) = region.innermost_dim();
        self.consume::<T>(region.volume, |mut bytes, swap| {
            let mut next = |count: usize| {
                let (now, later) = bytes.split_at(count * size_of::<T>());
                bytes = later;
                now
            };
            match stride {
                1 => region
                    .for_each_run(|at| T::copy_from_bytes(next(extent), &mut dst[at..at + extent], swap)),
                _ => region.for_each_run(|at| {
                    for (i, bytes) in next(extent).chunks_exact(size_of::<T>()).enumerate() {
                        dst[at.wrapping_add_signed(stride * i as isize)] = T::from_bytes(bytes, swap);
                    }
                }),
            }
            Ok(())
        })
    }
}
