//! The arguments of a collective call on one rank.

use std::fmt;

use crate::step::{BufIndex, Span};

/// A function from a rank to the span of its block.
pub type Blocks<'a> = &'a dyn Fn(u32) -> Span;

/// A neighbour of a rank in a topology.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Neighbor {
    /// Its rank.
    pub rank: u32,
    /// The index of its block in the buffer.
    pub block: u32,
}

/// The arguments of a collective call on one rank. An algorithm uses those that its operation has. It uses the caller's
/// buffers by these rules:
///
/// * The root of a broadcast only reads its receive buffer. The other ranks receive into theirs, and send from it.
/// * In a reduction to a root, the other ranks must not use the receive buffer.
/// * In a gather and a scatter, only the root uses `recv` and `send`, which can panic on other ranks.
/// * The send buffer is never written.
/// * In an exclusive scan, rank 0 does not use the receive buffer, unless its own items are there.
/// * In a reduce-scatter in place, the blocks to send are in the receive buffer, which begins with the result.
#[derive(Clone, Copy)]
pub struct Arguments<'a> {
    /// The calling rank.
    pub rank: u32,
    /// The number of ranks.
    pub size: u32,
    /// The number of hosts that have the ranks.
    pub hosts: u32,
    /// The root.
    pub root: u32,
    /// The items that this rank contributes. `None` if they are already at their place in the receive buffer (gather,
    /// allgather).
    pub own: Option<Span>,
    /// The place for this rank's items in a scatter; `None` if they stay in the root's send buffer.
    pub into: Option<Span>,
    /// The number of items of the vector, or of this rank's block of the result (reduce-scatter).
    pub count: usize,
    /// Whether operands may be exchanged.
    pub commutative: bool,
    /// Whether a linear reduction receives the items of each rank into a buffer of its own, all at once, instead of one
    /// rank after the other into one buffer.
    pub separate_bufs: bool,
    /// The block that this rank sends to each rank. In a scatter, only the root has them. A call among neighbours has
    /// one for each [`Neighbor::block`].
    pub send: Blocks<'a>,
    /// The places for the blocks that this rank receives.
    pub recv: Blocks<'a>,
    /// The neighbours from which this rank receives, in the order of the messages. If a rank occurs several times, its
    /// `k`th message to this rank belongs to its `k`th entry.
    pub sources: &'a [Neighbor],
    /// The neighbours to which this rank sends, in the order of their messages.
    pub destinations: &'a [Neighbor],
}

impl Arguments<'_> {
    /// Returns the arguments of a call without items, such as a barrier, on one host.
    #[inline]
    pub fn new(rank: u32, size: u32) -> Self {
        Arguments {
            rank,
            size,
            hosts: 1,
            root: 0,
            own: None,
            into: None,
            count: 0,
            commutative: true,
            separate_bufs: false,
            send: &|_| Span::NONE,
            recv: &|_| Span::NONE,
            sources: &[],
            destinations: &[],
        }
    }

    /// Returns the first `count` items of the receive buffer.
    #[inline]
    pub(crate) fn result(&self) -> Span {
        Span::new(BufIndex::RECV, 0, self.count)
    }

    /// Returns the items that this rank contributes to a reduction.
    #[inline]
    pub(crate) fn operand(&self) -> Span {
        self.own.unwrap_or(self.result())
    }

    /// Returns the rank that is `distance` after this one, in a ring of all ranks.
    #[inline]
    pub(crate) fn after(&self, distance: u32) -> u32 {
        (self.rank + distance) % self.size
    }

    /// Returns the rank that is `distance` before this one, in a ring of all ranks; `distance` is at most the size.
    #[inline]
    pub(crate) fn before(&self, distance: u32) -> u32 {
        (self.rank + self.size - distance) % self.size
    }
}

impl fmt::Debug for Arguments<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Arguments { rank, size, root, own, into, count, commutative, .. } = self;
        f.debug_struct("Arguments")
            .field("rank", rank)
            .field("size", size)
            .field("root", root)
            .field("own", own)
            .field("into", into)
            .field("count", count)
            .field("commutative", commutative)
            .finish_non_exhaustive()
    }
}

/// Divides `count` items into `size` blocks, of which the first `count % size` are one item longer than the others.
/// Returns the start and length of block `r`.
pub fn block_range(r: u32, size: u32, count: usize) -> (usize, usize) {
    let (r, size) = (r as usize, size as usize);
    let (each, more) = (count / size, count % size);
    (r * each + r.min(more), each + usize::from(r < more))
}
