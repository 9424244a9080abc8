//! The common state of packers and unpackers.

use crate::kernels::{KernelArgs, Side};
use crate::node::Node;
use crate::{Datatype, OutOfRangeError, slice_bounds};
use core::fmt;
use std::borrow::Cow;

impl Node {
    /// Returns the kernel arguments for the packed bytes of `count` items from `position` on, at most `capacity` bytes.
    #[inline]
    pub(crate) fn kernel_args(
        &self,
        user: *mut u8,
        count: usize,
        position: usize,
        packed: *mut u8,
        capacity: usize,
    ) -> KernelArgs {
        let len = self.size.saturating_mul(count).saturating_sub(position).min(capacity);
        KernelArgs { user, packed, len, position, count, stride: self.extent.extent() }
    }
}

/// A position in the packed bytes of items in memory. The owner decides how the memory may be accessed.
///
/// # Invariants
/// 1. `position <= total`, the packed bytes of `count` items.
/// 2. Every byte that the items contain is inside the slice or view from which the cursor was made.
pub(crate) struct Cursor<'a> {
    datatype: Cow<'a, Datatype>,
    origin: *mut u8,
    count: usize,
    position: usize,
    total: usize,
}

impl<'a> Cursor<'a> {
    /// Makes a cursor over `count` items in the slice of `available` bytes at `start`; displacement 0 of the first is
    /// at byte `origin`.
    ///
    /// Inlined: a result in memory would be written in words and read in pairs of words, which stalls.
    #[inline(always)]
    pub(crate) fn new(
        datatype: Cow<'a, Datatype>,
        start: *mut u8,
        available: usize,
        origin: usize,
        count: usize,
    ) -> Result<Cursor<'a>, OutOfRangeError> {
        let total = slice_bounds::check(&datatype, origin, count, available)?;
        Ok(Cursor { datatype, origin: start.wrapping_add(origin), count, position: 0, total })
    }

    /// Makes a cursor over one item. The caller ensures invariant 2.
    #[cfg(feature = "ndarray")]
    pub(crate) fn item(datatype: Datatype, origin: *mut u8) -> Cursor<'a> {
        let total = datatype.size();
        Cursor { datatype: Cow::Owned(datatype), origin, count: 1, position: 0, total }
    }

    #[inline]
    pub(crate) fn parts(&self) -> (&Datatype, *mut u8, usize, usize) {
        (&self.datatype, self.origin, self.count, self.position)
    }

    pub(crate) fn side(&self) -> Side<'_> {
        let node = self.datatype.node();
        let (plan, stride) = (&node.plan, node.extent.extent());
        Side { plan, user: self.origin, count: self.count, stride, position: self.position }
    }

    /// Counts `len` bytes as done. At least `len` bytes must remain.
    #[inline]
    pub(crate) fn skip(&mut self, len: usize) {
        self.position += len;
    }

    #[inline]
    pub(crate) fn remaining(&self) -> usize {
        self.total - self.position
    }

    #[inline]
    pub(crate) fn position(&self) -> usize {
        self.position
    }

    pub(crate) fn debug(&self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct(name)
            .field("datatype", &self.datatype)
            .field("count", &self.count)
            .field("position", &self.position)
            .field("total", &self.total)
            .finish()
    }
}
