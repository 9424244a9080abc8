//! Reduce, allreduce and reduce-scatter.
//!
//! The accumulator is the receive buffer. In the tree of `reduce` it is temporary memory, except at the root if the
//! tree ends there. Operands are combined in order of rank. For a commutative operation, the order can begin at another
//! rank (the root, or one rank for each block of the ring) and wrap around. In an allreduce all ranks use one order.
//!
//! `own_span` is the contribution of this rank. `count` is in items of the accumulator, whose type can have another
//! layout.

use super::step::{BufIndex, Span, Step};
use crate::op::OperandOrder;

/// Computes the steps of a reduction to `root` along a binomial tree. If the tree ends at `root`, that rank accumulates
/// in the receive buffer, and needs at most one temporary buffer of `count` items. Other ranks need up to two.
pub(crate) fn reduce(
    rank: u32,
    size: u32,
    root: u32,
    own_span: Span,
    count: usize,
    commutative: bool,
) -> Vec<Step> {
    // The tree ends at the root if the operation is commutative. Otherwise it ends at rank 0, which sends the result to
    // the root.
    let tree_root = if commutative { root } else { 0 };
    let relative = (rank + size - tree_root) % size;
    let result = Span::new(BufIndex::RECV, 0, count);
    let ends_here = rank == tree_root && rank == root;
    let (accumulator, incoming) =
        if ends_here { (BufIndex::RECV, BufIndex::TEMP) } else { (BufIndex::TEMP, BufIndex::TEMP2) };
    let (accumulator, incoming) = (Span::new(accumulator, 0, count), Span::new(incoming, 0, count));
    let mut steps = Vec::with_capacity(4 * (size.ilog2() as usize + 1) + 2);
    let mut current = own_span;
    let mut bit = 1;
    while bit < size {
        if relative & bit != 0 {
            steps.push(Step::Send { to: (relative - bit + tree_root) % size, from: current });
            break;
        }
        if relative + bit < size {
            steps.push(Step::Recv { from: (relative + bit + tree_root) % size, into: incoming });
            steps.extend(copy(current, accumulator));
            current = accumulator;
            let reduce =
                Step::ReduceLocal { from: incoming, into: accumulator, order: OperandOrder::IncomingLast };
            steps.extend([Step::Fence, reduce]);
        }
        bit *= 2;
    }
    match (rank == tree_root, rank == root) {
        (true, true) => steps.extend(copy(current, result)),
        (true, false) => steps.push(Step::Send { to: root, from: current }),
        (false, true) => steps.extend([Step::Fence, Step::Recv { from: tree_root, into: result }]),
        (false, false) => (),
    }
    steps
}

/// Computes the steps of a reduction in which the root receives from each other rank (F-MPJ's FT), in order of rank for
/// any operation. The root needs a temporary buffer of `count` items, or one for each other rank if `separate_bufs`.
pub(crate) fn reduce_linear(
    rank: u32,
    size: u32,
    root: u32,
    own_span: Span,
    count: usize,
    separate_bufs: bool,
) -> Vec<Step> {
    if rank != root {
        return vec![Step::Send { to: root, from: own_span }];
    }
    let (below, above) = ((0..rank).rev(), rank + 1..size);
    let others = below
        .map(|from| (from, OperandOrder::IncomingFirst))
        .chain(above.map(|from| (from, OperandOrder::IncomingLast)));
    let mut steps = Vec::with_capacity(3 * size as usize);
    recv_and_reduce(&mut steps, others, (own_span, count), separate_bufs);
    steps
}

/// Adds steps that receive from `ranks` and combine their items with this rank's own in the receive buffer. If
/// `separate_bufs`, all receives are posted at once, each into its own buffer; otherwise one after the other.
pub(crate) fn recv_and_reduce(
    steps: &mut Vec<Step>,
    ranks: impl Iterator<Item = (u32, OperandOrder)> + Clone,
    (own_span, count): (Span, usize),
    separate_bufs: bool,
) {
    let (first, result) = (BufIndex::TEMP.index() as u32, Span::new(BufIndex::RECV, 0, count));
    let bufs = (0..).map(|at| Span::new(BufIndex::new(first + if separate_bufs { at } else { 0 }), 0, count));
    let ranks = ranks.zip(bufs);
    let recv = |((from, _), into)| Step::Recv { from, into };
    let reduce = |((_, order), from)| Step::ReduceLocal { from, into: result, order };
    if separate_bufs {
        steps.extend(ranks.clone().map(recv));
    }
    steps.extend(copy(own_span, result));
    if separate_bufs {
        steps.push(Step::Fence);
        steps.extend(ranks.map(reduce));
    } else {
        steps.extend(ranks.flat_map(|rank| [recv(rank), Step::Fence, reduce(rank)]));
    }
}

/// Computes the steps of an allreduce in which rank 0 receives from all ranks and sends the result to all (F-MPJ's FT,
/// twice). Needs the temporary memory of [`reduce_linear`].
pub(crate) fn allreduce_linear(
    rank: u32,
    size: u32,
    own_span: Span,
    count: usize,
    separate_bufs: bool,
) -> Vec<Step> {
    let result = Span::new(BufIndex::RECV, 0, count);
    let mut steps = reduce_linear(rank, size, 0, own_span, count, separate_bufs);
    if rank == 0 {
        steps.extend((1..size).map(|to| Step::Send { to, from: result }));
        return steps;
    }
    if own_span == result {
        // In place, the rank's own items must be sent before the result overwrites them.
        steps.push(Step::Fence);
    }
    steps.push(Step::Recv { from: 0, into: result });
    steps
}

/// Computes the steps of an allreduce by recursive doubling (F-MPJ's BDE). If `size` exceeds a power of two by `extra`,
/// the first 2·`extra` ranks first combine their items in pairs. Needs a temporary buffer of `count` items.
pub(crate) fn allreduce_recursive_doubling(rank: u32, size: u32, own_span: Span, count: usize) -> Vec<Step> {
    let result = Span::new(BufIndex::RECV, 0, count);
    let incoming = Span::new(BufIndex::TEMP, 0, count);
    let power = 1 << size.ilog2();
    let extra = size - power;
    let mut steps = Vec::with_capacity(4 * (size.ilog2() as usize + 1) + 1);
    // The first send reads the user's buffer, so the copy can overlap with the transfer.
    let mut current = own_span;
    // In each pair, the odd rank sends its items to the even one, and waits for the result.
    let position = if rank < 2 * extra {
        if rank % 2 == 1 {
            steps.extend([
                Step::Send { to: rank - 1, from: current },
                Step::Fence,
                Step::Recv { from: rank - 1, into: result },
            ]);
            return steps;
        }
        steps.push(Step::Recv { from: rank + 1, into: incoming });
        steps.extend(copy(current, result));
        current = result;
        steps.extend([
            Step::Fence,
            Step::ReduceLocal { from: incoming, into: result, order: OperandOrder::IncomingLast },
        ]);
        rank / 2
    } else {
        rank - extra
    };
    let rank_at = |position: u32| if position < extra { 2 * position } else { position + extra };
    let mut bit = 1;
    while bit < power {
        let partner = position ^ bit;
        let order = if partner < position { OperandOrder::IncomingFirst } else { OperandOrder::IncomingLast };
        steps.extend([
            Step::Recv { from: rank_at(partner), into: incoming },
            Step::Send { to: rank_at(partner), from: current },
        ]);
        steps.extend(copy(current, result));
        current = result;
        steps.extend([Step::Fence, Step::ReduceLocal { from: incoming, into: result, order }]);
        bit *= 2;
    }
    steps.extend(copy(current, result));
    if rank < 2 * extra {
        steps.push(Step::Send { to: rank + 1, from: result });
    }
    steps
}

/// Computes the steps of an allreduce around a ring, for commutative operations: a reduce-scatter of blocks and then an
/// allgather. Needs a temporary buffer for the largest block: see [`block_range`].
pub(crate) fn allreduce_ring(rank: u32, size: u32, own_span: Span, count: usize) -> Vec<Step> {
    let block = |r: u32| {
        let (at, len) = block_range(r % size, size, count);
        Span::new(BufIndex::RECV, at, len)
    };
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut steps = Vec::with_capacity(7 * size as usize);
    steps.extend(copy(own_span, Span::new(BufIndex::RECV, 0, count)));
    for round in 0..size - 1 {
        let (sent, received) = (block(rank + size - round), block(rank + 2 * size - round - 1));
        let incoming = Span::new(BufIndex::TEMP, 0, received.count);
        steps.extend([
            Step::Recv { from: left, into: incoming },
            Step::Send { to: right, from: sent },
            Step::Fence,
            Step::ReduceLocal { from: incoming, into: received, order: OperandOrder::IncomingFirst },
        ]);
    }
    for round in 0..size - 1 {
        let (sent, received) = (block(rank + 1 + size - round), block(rank + size - round));
        steps.extend([
            Step::Recv { from: left, into: received },
            Step::Send { to: right, from: sent },
            Step::Fence,
        ]);
    }
    steps
}

/// Computes the steps of a pairwise reduce-scatter. `block` returns the start and length of a rank's block in the send
/// buffer; `count` is the length of this rank's block. Needs up to two temporary buffers of `count` items.
///
/// Items from lower ranks are combined into the result as left operand, nearest rank first. Items from higher ranks are
/// combined in a second buffer, highest rank first, which becomes the right operand of the result.
pub(crate) fn reduce_scatter(
    rank: u32,
    size: u32,
    block: &dyn Fn(u32) -> (usize, usize),
    count: usize,
) -> Vec<Step> {
    let of = |r: u32| {
        let (at, count) = block(r);
        Span::new(BufIndex::SEND, at, count)
    };
    let span = |buf| Span::new(buf, 0, count);
    let (result, incoming, higher) = (span(BufIndex::RECV), span(BufIndex::TEMP), span(BufIndex::TEMP2));
    let mut steps = Vec::with_capacity(4 * size as usize);
    let mut own = Some(Step::Copy { from: of(rank), into: result });
    for round in 1..size {
        let (to, from) = ((rank + round) % size, (rank + size - round) % size);
        let into = if from == size - 1 && from > rank { higher } else { incoming };
        // Send empty blocks too: a rank with different counts waits for them, and reports the difference.
        steps.extend([Step::Recv { from, into }, Step::Send { to, from: of(to) }]);
        steps.extend(own.take());
        steps.push(Step::Fence);
        if into == incoming {
            let into = if from < rank { result } else { higher };
            steps.push(Step::ReduceLocal { from: incoming, into, order: OperandOrder::IncomingFirst });
        }
    }
    steps.extend(own);
    if rank + 1 < size {
        steps.push(Step::ReduceLocal { from: higher, into: result, order: OperandOrder::IncomingLast });
    }
    steps
}

/// Returns the step that copies items, or no step if both spans are the same.
pub(crate) fn copy(from: Span, into: Span) -> impl Iterator<Item = Step> {
    (from != into).then_some(Step::Copy { from, into }).into_iter()
}

/// Divides `count` items into `size` blocks, the first of which can be one item longer. Returns the start and length of
/// block `r`.
pub(crate) fn block_range(r: u32, size: u32, count: usize) -> (usize, usize) {
    let (r, size) = (r as usize, size as usize);
    let (each, more) = (count / size, count % size);
    (r * each + r.min(more), each + usize::from(r < more))
}
