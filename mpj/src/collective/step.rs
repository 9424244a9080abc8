//! A collective as a list of steps for one rank, and the memory that the steps name.
//!
//! Communication steps start at once. [`Step::Fence`] waits until every operation that was started before it has
//! completed. Local steps run when they are reached.

use crate::op::OperandOrder;

/// The number of the memory area that a [`Span`] lies in: first the caller's buffers, then the temporary areas.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BufIndex(u32);

impl BufIndex {
    /// The user's send buffer, of most collectives.
    pub(crate) const SEND: BufIndex = BufIndex(0);
    /// The user's receive buffer, of most collectives.
    pub(crate) const RECV: BufIndex = BufIndex(1);
    /// The first temporary area, if the caller has two buffers.
    pub(crate) const TEMP: BufIndex = BufIndex(2);
    /// The second temporary area. It is separate because items may interleave, so two sets of them cannot lie one after
    /// the other.
    pub(crate) const TEMP2: BufIndex = BufIndex(3);

    /// Returns the area with this number.
    pub(crate) fn of(number: u32) -> Self {
        BufIndex(number)
    }

    /// Returns the number of the area.
    #[inline]
    pub(crate) fn number(self) -> usize {
        self.0 as usize
    }
}

/// `count` items of an area, from item `at` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) area: BufIndex,
    pub(crate) at: usize,
    pub(crate) count: usize,
}

impl Span {
    /// The empty span, for messages without items.
    pub(crate) const NONE: Span = Span { area: BufIndex(u32::MAX), at: 0, count: 0 };

    pub(crate) fn new(area: BufIndex, at: usize, count: usize) -> Self {
        Span { area, at, count }
    }
}

/// One step.
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
    Fence,
    Copy {
        from: Span,
        into: Span,
    },
    /// Combines items. Those at `from` lie in a temporary area, into which a message or a copy has brought them.
    ReduceLocal {
        from: Span,
        into: Span,
        order: OperandOrder,
    },
}
