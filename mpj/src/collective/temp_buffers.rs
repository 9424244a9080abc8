//! The temporary buffers of a schedule.

use mpj_collectives::{Span, Step};
use mpj_datatypes::Datatype;
use mpj_devices::{Buf, BufError};
use mpj_pool::{DefaultBlock, Pool, RawBuffer};

use super::plan::PlanBuffers;
use crate::error::{Error, ErrorClass, Result};

/// The temporary buffers of a schedule, of equal size, in one block. Items are aligned as their type is, up to 64 bytes.
#[derive(Debug)]
pub(crate) struct TempBuffers {
    /// The items of the first buffer.
    items: Buf,
    count: usize,
    /// The distance between two buffers in bytes.
    stride: usize,
    _block: DefaultBlock,
}

const CACHE_LINE: usize = 64;

impl TempBuffers {
    /// Allocates the buffers that the steps name and the caller does not have, for items of `datatype`. `None` if there
    /// are no such buffers.
    ///
    /// # Errors
    /// A span exceeds its buffer, which is a defect of the algorithm; the size overflows; memory is exhausted.
    #[inline]
    pub(crate) fn for_steps(
        call: &'static str,
        steps: &[Step],
        user: &PlanBuffers<'_>,
        datatype: &Datatype,
    ) -> Result<Option<Self>> {
        let (mut items, mut count) = (0, 0);
        let mut check = |span: &Span| {
            let Some(end) = span.at.checked_add(span.count) else { return false };
            match user.get(span.buf) {
                _ if span.count == 0 => true,
                Some(buf) => end <= buf.count(),
                None => {
                    items = items.max(end);
                    count = count.max(span.buf.index() + 1 - user.count());
                    true
                }
            }
        };
        let is_valid = steps.iter().all(|step| match step {
            Step::Send { from: span, .. } | Step::Recv { into: span, .. } => check(span),
            Step::Copy { from, into } | Step::ReduceLocal { from, into, .. } => check(from) && check(into),
            Step::Fence => true,
        });
        if !is_valid {
            return Err(Error::new(ErrorClass::Intern, call, "a step of the algorithm exceeds its buffer"));
        }
        (count > 0).then(|| TempBuffers::new(call, datatype, items, count)).transpose()
    }

    /// Allocates `count` buffers of `items` items each.
    pub(crate) fn new(call: &'static str, datatype: &Datatype, items: usize, count: usize) -> Result<Self> {
        let too_large = || Error::buf(call, BufError::TooLarge { count: items });
        let (low, high) = datatype.byte_bounds(items).map_err(|_| too_large())?;
        // A block begins at a cache line, and items keep their alignment if the start of the first one does.
        let low = low.div_euclid(CACHE_LINE as i64) * CACHE_LINE as i64;
        let bytes = usize::try_from(high - low).map_err(|_| too_large())?;
        let stride = if count == 1 {
            bytes
        } else {
            bytes.checked_next_multiple_of(CACHE_LINE).ok_or_else(too_large)?
        };
        let all = stride.checked_mul(count).ok_or_else(too_large)?;
        let block =
            mpj_pool::global().alloc(all).map_err(|e| Error::new(ErrorClass::NoMem, call, e.to_string()))?;
        let base = block.as_ptr().as_ptr().wrapping_offset(-(low as isize));
        Ok(TempBuffers { items: Buf::new(base, items, datatype), count, stride, _block: block })
    }

    /// Returns a description of items like those of the buffers, and the address of the first item of a buffer.
    #[inline]
    pub(crate) fn first_item(&self, index: usize) -> (&Buf, *mut u8) {
        (&self.items, self.items.base().wrapping_add(index * self.stride))
    }

    #[inline]
    pub(crate) fn part(&self, index: usize, at: usize, items: usize) -> Buf {
        if index >= self.count {
            return Buf::empty();
        }
        let part = self.items.part(at, items);
        if index == 0 {
            return part;
        }
        Buf::new(part.base().wrapping_add(index * self.stride), items, part.datatype())
    }
}
