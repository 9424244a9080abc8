//! A collective as a list of steps for one rank, and the memory they name.
//!
//! Communication steps start at once; [`Step::Wait`] is a line that nothing crosses until everything started before it
//! has ended. Local steps run when they are reached.

use crate::op::OperandOrder;

/// Which memory a [`Span`] lies in, by number: first what the caller lends, then the schedule's own.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct BufIndex(u32);

impl BufIndex {
    /// The user's send buffer, of most collectives.
    pub(crate) const SEND: BufIndex = BufIndex(0);
    /// The user's receive buffer, of most collectives.
    pub(crate) const RECV: BufIndex = BufIndex(1);
    /// The first memory of the schedule's own, where two buffers are lent.
    pub(crate) const TEMP: BufIndex = BufIndex(2);
    /// As much again: items may interleave, so that two sets of them cannot lie one after the other.
    pub(crate) const TEMP2: BufIndex = BufIndex(3);

    /// The area of this number.
    pub(crate) fn of(number: u32) -> Self {
        BufIndex(number)
    }

    /// Its number.
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
    /// Nothing, nowhere: what a message without items is sent from.
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
    /// Combines items. Those at `from` lie in memory of the schedule's own, where a message has brought them.
    ReduceLocal {
        from: Span,
        into: Span,
        order: OperandOrder,
    },
}
