//! The constructor of subarrays.

use super::TypeBuilder;
use crate::plan::Loop;
use crate::{Datatype, TypeEnvelope, TypeError};
use std::sync::Arc;

/// The dimension of an array whose index changes fastest in memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum ArrayOrder {
    /// The last, as in C and Rust (`MPI_ORDER_C`).
    C,
    /// The first (`MPI_ORDER_FORTRAN`).
    Fortran,
}

impl ArrayOrder {
    pub(super) fn fastest_first(self, rank: usize) -> impl Iterator<Item = usize> {
        (0..rank).map(move |i| match self {
            ArrayOrder::C => rank - 1 - i,
            ArrayOrder::Fortran => i,
        })
    }
}

/// The part of one dimension that a subarray selects.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Subrange {
    /// Length of the array along the dimension.
    pub size: usize,
    /// Length of the block.
    pub sub_size: usize,
    /// Start of the block.
    pub start: usize,
}

/// Maximum number of dimensions whose loops need no allocation.
const INLINE_DIMS: usize = 8;

impl Datatype {
    /// Returns the type of a block of an array: in dimension `d` the array has the length `sizes[d]`, and the block
    /// begins at `starts[d]` and has the length `subsizes[d]`. The bounds are those of the array (MPI 4.1 §5.1.3).
    ///
    /// # Errors
    /// [`TypeError::Subarray`] if the block exceeds the array, [`TypeError::Dimensions`] if the lists have different
    /// lengths, and others as for [`contiguous`](Self::contiguous).
    ///
    /// # Examples
    /// The inner points of a 4 × 5 grid with a halo:
    /// ```
    /// use mpj_datatypes::{Datatype, ArrayOrder, Run};
    /// let inner = Datatype::of::<u8>().subarray(&[4, 5], &[2, 3], &[1, 1], ArrayOrder::C)?;
    /// let runs: Vec<Run> = inner.runs(1).collect();
    /// assert_eq!(runs, [Run { offset: 6, len: 3 }, Run { offset: 11, len: 3 }]);
    /// assert_eq!(inner.extent(), 20);
    /// # Ok::<(), mpj_datatypes::TypeError>(())
    /// ```
    pub fn subarray(
        &self,
        sizes: &[usize],
        subsizes: &[usize],
        starts: &[usize],
        order: ArrayOrder,
    ) -> Result<Datatype, TypeError> {
        let rank = sizes.len();
        if subsizes.len() != rank || starts.len() != rank {
            let other = if subsizes.len() != rank { subsizes.len() } else { starts.len() };
            return Err(TypeError::Dimensions { expected: rank, given: other });
        }
        let numbers = sizes.iter().zip(subsizes).zip(starts);
        let ranges: Arc<[Subrange]> =
            numbers.map(|((&size, &sub), &start)| Subrange { size, sub_size: sub, start }).collect();
        let (mut displacement, mut whole) = (0i64, self.extent());
        let (mut few, mut many) = ([Loop { count: 1, stride: 0 }; INLINE_DIMS], Vec::new());
        let levels = match few.get_mut(..rank) {
            Some(levels) => levels,
            None => {
                many.resize(rank, Loop { count: 1, stride: 0 });
                &mut many[..]
            }
        };
        for (level, d) in levels.iter_mut().zip(order.fastest_first(rank)) {
            let Subrange { size, sub_size: sub, start } = ranges[d];
            if start > size || sub > size - start {
                return Err(TypeError::Subarray { dimension: d, size, sub, start });
            }
            let stride = whole;
            let too_far = TypeError::Extent { count: size, step: stride };
            let steps = i64::try_from(size).map_err(|_| TypeError::Count { count: size })?;
            whole = stride.checked_mul(steps).ok_or(too_far)?;
            displacement = displacement.checked_add(stride.wrapping_mul(start as i64)).ok_or(too_far)?;
            *level = Loop { count: sub, stride };
        }
        let mut build = TypeBuilder::new();
        build.nest(self, displacement, levels)?;
        if rank > 0 {
            build.bounds.mark(0, whole);
        }
        build.finish(TypeEnvelope::Subarray { ranges, order, inner: self.clone() })
    }

    /// Returns the type of `sub` items from item `start` on, with the bounds of `size` items.
    pub(super) fn one_dim_subarray(
        &self,
        size: usize,
        sub: usize,
        start: usize,
    ) -> Result<Datatype, TypeError> {
        let whole = self.extent_of(size)?;
        let at = self.scaled(1, isize::try_from(start).map_err(|_| TypeError::Count { count: start })?)?;
        self.hindexed(&[(sub, at)])?.resized(0, whole)
    }

    pub(super) fn extent_of(&self, size: usize) -> Result<i64, TypeError> {
        let steps = i64::try_from(size).map_err(|_| TypeError::Count { count: size })?;
        steps.checked_mul(self.extent()).ok_or(TypeError::Extent { count: size, step: self.extent() })
    }
}

/// Returns the byte offsets of the rows of a subarray in pack order. A row is the block's run in the fastest dimension.
pub(crate) fn rows(ranges: &[Subrange], order: ArrayOrder, extent: i64) -> impl Iterator<Item = i64> + '_ {
    let dimensions: Vec<usize> = order.fastest_first(ranges.len()).collect();
    let all = ranges.iter().map(|range| range.sub_size).product::<usize>();
    let total = all / dimensions.first().map_or(1, |&d| ranges[d].sub_size.max(1));
    (0..total).map(move |row| {
        let (mut rest, mut stride, mut at) = (row, extent, 0i64);
        for (i, &d) in dimensions.iter().enumerate() {
            let Subrange { size, sub_size: sub, start } = ranges[d];
            let place = if i == 0 { 0 } else { rest % sub };
            if i > 0 {
                rest /= sub;
            }
            at = at.wrapping_add(stride.wrapping_mul((start + place) as i64));
            stride = stride.wrapping_mul(size as i64);
        }
        at
    })
}
