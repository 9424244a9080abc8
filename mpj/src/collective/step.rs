//! The steps of a collective on one rank, and the memory that they name.

use crate::op::OperandOrder;

/// The index of a buffer: first the caller's buffers, then the temporary ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BufIndex(u32);

impl BufIndex {
    /// The caller's send buffer in most collectives.
    pub(crate) const SEND: BufIndex = BufIndex(0);
    /// The caller's receive buffer in most collectives.
    pub(crate) const RECV: BufIndex = BufIndex(1);
    /// The first temporary buffer, if the caller has two buffers.
    pub(crate) const TEMP: BufIndex = BufIndex(2);
    /// The second temporary buffer. Two sets of items cannot share a buffer: the last items of the first set can have
    /// gaps in which the second set would begin.
    pub(crate) const TEMP2: BufIndex = BufIndex(3);

    pub(crate) fn new(index: u32) -> Self {
        BufIndex(index)
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// The `count` items of a buffer that begin at item `at`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) buf: BufIndex,
    pub(crate) at: usize,
    pub(crate) count: usize,
}

impl Span {
    /// The empty span, for messages without items.
    pub(crate) const NONE: Span = Span { buf: BufIndex(u32::MAX), at: 0, count: 0 };

    pub(crate) fn new(buf: BufIndex, at: usize, count: usize) -> Self {
        Span { buf, at, count }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Send {
        to: u32,
        from: Span,
    },
    Recv {
        from: u32,
        into: Span,
    },
    /// Waits until all earlier sends and receives have completed. No other step waits.
    Fence,
    Copy {
        from: Span,
        into: Span,
    },
    /// Combines the items at `from` with those at `into`, which the result replaces.
    ReduceLocal {
        from: Span,
        into: Span,
        order: OperandOrder,
    },
}
