//! Strided regions: rows, columns, faces and sub-blocks of arrays of any rank, forwards, backwards or repeated.

use mpj_pool::RawBuffer;

use crate::{Buffer, Element, IndexError, ReadError, Reading, WriteError, Writing};

/// More dimensions of two elements and more than this have no volume that a `usize` can count.
const MOST: usize = usize::BITS as usize;

/// Memory for the dimensions of a region. It is kept outside of the region, since moving both would cost more than a
/// small copy.
const ROOM: [(usize, isize); MOST] = [(1, 0); MOST];

/// A checked region: every element that [`runs`](Self::runs) names lies in the slice.
struct StridedRegion<'a> {
    start: usize,
    volume: usize,
    /// Dimensions of at least two elements; neighbours that continue each other are merged. The innermost is the last.
    dims: &'a [(usize, isize)],
}

impl<'a> StridedRegion<'a> {
    /// Checks a region of a slice of `len` elements; its dimensions are stored in `room`.
    fn check(
        len: usize,
        start: usize,
        dims: &[(usize, isize)],
        room: &'a mut [(usize, isize); MOST],
    ) -> Result<Self, IndexError> {
        if dims.iter().any(|(extent, _)| *extent == 0) {
            return Ok(Self { start, volume: 0, dims: &[] });
        }
        let (mut volume, mut rank) = (1usize, 0usize);
        // A product of a usize and an isize fits an i128; a sum at its end is out of every slice anyway.
        let (mut lowest, mut highest) = (start as i128, start as i128);
        for (extent, stride) in dims {
            let reach = (*extent as i128 - 1) * *stride as i128;
            let side = if reach < 0 { &mut lowest } else { &mut highest };
            *side = side.saturating_add(reach);
        }
        if lowest < 0 || highest >= len as i128 {
            let shown =
                |index: i128| i64::try_from(index).unwrap_or(if index < 0 { i64::MIN } else { i64::MAX });
            return Err(IndexError::Region { lowest: shown(lowest), highest: shown(highest), len });
        }
        for &(extent, stride) in dims.iter().filter(|(extent, _)| *extent > 1) {
            // Saturated, it is more than fits any block; the caller compares.
            volume = volume.saturating_mul(extent);
            match rank.checked_sub(1).map(|last| &mut room[last]) {
                Some(outer) if Some(outer.1) == stride.checked_mul(extent as isize) && outer.1 != 0 => {
                    *outer = (outer.0 * extent, stride);
                }
                _ if rank < MOST => {
                    room[rank] = (extent, stride);
                    rank += 1;
                }
                _ => {
                    volume = usize::MAX;
                    break;
                }
            }
        }
        Ok(Self { start, volume, dims: &room[..rank] })
    }

    /// Returns the innermost dimension: the number of elements and their distance.
    fn run(&self) -> (usize, isize) {
        self.dims.last().copied().unwrap_or((1, 1))
    }

    /// Calls `each` with the first index of every run, in order.
    fn runs(&self, mut each: impl FnMut(usize)) {
        if self.volume == 0 {
            return;
        }
        let outer = self.dims.split_last().map_or(self.dims, |(_, outer)| outer);
        let mut at = self.start;
        // The innermost of the outer dimensions has a loop of its own: most regions have only that one.
        let (rows, step) = outer.last().copied().unwrap_or((1, 0));
        let planes = outer.len().saturating_sub(1);
        let mut plane = |mut row: usize| {
            for _ in 0..rows {
                each(row);
                // It wraps only past the last row, where it is not used.
                row = row.wrapping_add_signed(step);
            }
        };
        if planes == 0 {
            return plane(at);
        }
        let mut counts = [0usize; MOST];
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
    /// `dims` are pairs of an extent and a stride, both in elements, the outermost dimension first: the last one runs
    /// fastest. The region begins at `src[start]`; strides may be negative, or 0 to repeat. Without dimensions the
    /// region is that one element; with an extent of 0 it is empty.
    ///
    /// # Errors
    /// [`WriteError::Place`] if the region reaches out of `src`, [`WriteError::Overflow`] if the static part has no
    /// room; nothing is written then.
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
        let mut room = ROOM;
        let region = StridedRegion::check(src.len(), start, dims, &mut room)?;
        let (extent, stride) = region.run();
        let run = |at: usize| (0..extent).map(move |i| src[at.wrapping_add_signed(stride * i as isize)]);
        self.append::<T>(region.volume, |spare| match (stride, spare.is_turned()) {
            (1, false) => region.runs(|at| spare.put_slice_as_is(&src[at..at + extent])),
            (1, true) => region.runs(|at| spare.put(&src[at..at + extent])),
            (_, false) => region.runs(|at| spare.put_as_is(run(at))),
            (_, true) => region.runs(|at| spare.put_as_is(run(at).map(T::turned))),
        })?;
        Ok(())
    }
}

impl<R: RawBuffer> Buffer<R, Reading> {
    /// Reads into a strided region of `dst`, as [`read`](Self::read) fills a slice, and returns the number of elements;
    /// [`write_strided`](Buffer::write_strided) describes regions. If a position occurs more than once, the last
    /// element stays.
    ///
    /// # Errors
    /// As `read`, and [`ReadError::Place`] if the region reaches out of `dst`. Neither `dst` nor the buffer has changed
    /// then.
    pub fn read_strided<T: Element>(
        &mut self,
        dst: &mut [T],
        start: usize,
        dims: &[(usize, isize)],
    ) -> Result<usize, ReadError> {
        let mut room = ROOM;
        let region = StridedRegion::check(dst.len(), start, dims, &mut room)?;
        let (extent, stride) = region.run();
        self.consume::<T>(region.volume, |mut bytes, swap| {
            let mut next = |count: usize| {
                let (now, later) = bytes.split_at(count * size_of::<T>());
                bytes = later;
                now
            };
            match stride {
                1 => region.runs(|at| T::load(next(extent), &mut dst[at..at + extent], swap)),
                _ => region.runs(|at| {
                    for (i, bytes) in next(extent).chunks_exact(size_of::<T>()).enumerate() {
                        dst[at.wrapping_add_signed(stride * i as isize)] = T::take(bytes, swap);
                    }
                }),
            }
            Ok(())
        })
    }
}
