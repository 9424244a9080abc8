//! A collective as a list of steps for one rank, and the memory they name.
//!
//! Communication steps start at once; [`Step::Wait`] is a line that nothing crosses until everything started before it
//! has ended. Local steps run when they are reached.

use crate::op::Order;

/// Which memory a [`Span`] lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Area {
    /// The user's send buffer.
    Send = 0,
    /// The user's receive buffer.
    Recv = 1,
    /// The schedule's own memory.
    Temp = 2,
    /// As much again: items may interleave, so that two sets of them cannot lie one after the other.
    More = 3,
}

/// `count` items of an area, from item `at` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) area: Area,
    pub(crate) at: usize,
    pub(crate) count: usize,
}

impl Span {
    pub(crate) const NONE: Span = Span { area: Area::Temp, at: 0, count: 0 };

    pub(crate) fn new(area: Area, at: usize, count: usize) -> Self {
        Span { area, at, count }
    }
}

/// One step.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Send { to: u32, from: Span },
    Recv { from: u32, into: Span },
    Wait,
    Copy { from: Span, into: Span },
    Fold { from: Span, into: Span, order: Order },
}
