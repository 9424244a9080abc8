//! The steps of a collective on one rank, and the memory that they name.

/// The index of a buffer: first the caller's buffers, then the temporary ones.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct BufIndex(u32);

impl BufIndex {
    /// The caller's send buffer in most collectives.
    pub const SEND: BufIndex = BufIndex(0);
    /// The caller's receive buffer in most collectives.
    pub const RECV: BufIndex = BufIndex(1);
    /// The first temporary buffer, if the caller has two buffers.
    pub const TEMP: BufIndex = BufIndex(2);
    /// The second temporary buffer. A second set of items cannot simply follow the first in one buffer: if the datatype
    /// has gaps, the sets would interleave.
    pub const TEMP2: BufIndex = BufIndex(3);
    /// The third temporary buffer.
    pub const TEMP3: BufIndex = BufIndex(4);

    /// Returns the index with this number.
    pub fn new(index: u32) -> Self {
        BufIndex(index)
    }

    /// Returns its number, from 0.
    #[inline]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The `count` items of a buffer that begin at item `at`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The buffer.
    pub buf: BufIndex,
    /// The index of the first item.
    pub at: usize,
    /// The number of items.
    pub count: usize,
}

impl Span {
    /// The empty span, for messages without items.
    pub const NONE: Span = Span { buf: BufIndex(u32::MAX), at: 0, count: 0 };

    /// Returns the span of `count` items from item `at` of a buffer.
    pub fn new(buf: BufIndex, at: usize, count: usize) -> Self {
        Span { buf, at, count }
    }
}

/// The order of the operands of a [`Step::ReduceLocal`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OperandOrder {
    /// `into = from ∘ into`.
    IncomingFirst,
    /// `into = into ∘ from`.
    IncomingLast,
}

/// One step of a rank. Sends and receives start in the order of the steps.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Starts a send.
    Send {
        /// The receiving rank.
        to: u32,
        /// The items to send.
        from: Span,
    },
    /// Starts a receive; the message must have the length of the span.
    Recv {
        /// The sending rank.
        from: u32,
        /// The place for the items.
        into: Span,
    },
    /// Waits until all earlier sends and receives have completed. No other step waits.
    Fence,
    /// Copies items.
    Copy {
        /// The items to copy.
        from: Span,
        /// The place for the items, of the same length.
        into: Span,
    },
    /// Combines the items at `from` with those at `into`, which the result replaces.
    ReduceLocal {
        /// One operand.
        from: Span,
        /// The other operand and the result, of the same length.
        into: Span,
        /// Which operand is the left one.
        order: OperandOrder,
    },
}
