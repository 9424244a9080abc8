//! The temporary buffers of a schedule.

use mpj_collectives::Step;
use mpj_datatypes::Datatype;
use mpj_devices::{Buf, BufError};
use mpj_pool::{DefaultBlock, Pool, RawBuffer};

use crate::error::{Error, ErrorClass, Result};

/// The temporary buffers of a schedule, of equal size, in one block. Items are aligned as their type is.
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
    /// Allocates what the steps write beyond the first `user_bufs` buffers: items of `datatype`. `None` if the steps
    /// write only to those.
    pub(crate) fn for_steps(
        call: &'static str,
        steps: &[Step],
        user_bufs: usize,
        datatype: &Datatype,
    ) -> Result<Option<Self>> {
        let (mut items, mut count) = (0, 0);
        for step in steps {
            if let Step::Recv { into, .. } | Step::Copy { into, .. } = step
                && into.count > 0
                && into.buf.index() >= user_bufs
            {
                items = items.max(into.at + into.count);
                count = count.max(into.buf.index() + 1 - user_bufs);
            }
        }
        (count > 0).then(|| TempBuffers::new(call, datatype, items, count)).transpose()
    }

    fn new(call: &'static str, datatype: &Datatype, items: usize, count: usize) -> Result<Self> {
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
