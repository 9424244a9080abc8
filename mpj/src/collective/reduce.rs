//! Reduce, allreduce and reduce-scatter.
//!
//! The accumulator is the receive buffer, or temporary memory if the rank has no receive buffer. Lower ranks are always
//! the left operand, so the result is in order of rank (from the root on if the operation is commutative), and has the
//! same bits on every rank.
//!
//! `mine` is the contribution of this rank. `count` is in items of the accumulator, whose type may have another layout.

use super::step::{BufIndex, Span, Step};
use crate::op::OperandOrder;

/// Computes the steps of a reduction to `root` along a binomial tree. A leaf sends its own items from the user's
/// buffer. If the tree ends at the root, the root combines in the result; other ranks need `count` items of temporary
/// memory, twice.
pub(crate) fn reduce(
    rank: u32,
    size: u32,
    root: u32,
    mine: Span,
    count: usize,
    commutative: bool,
) -> Vec<Step> {
    // The tree ends at the root if the operation is commutative; otherwise it ends at rank 0, which costs one more
    // message.
    let first = if commutative { root } else { 0 };
    let relative = (rank + size - first) % size;
    let result = Span::new(BufIndex::RECV, 0, count);
    let is_end = rank == first && rank == root;
    let (accumulator, incoming) =
        if is_end { (BufIndex::RECV, BufIndex::TEMP) } else { (BufIndex::TEMP, BufIndex::TEMP2) };
    let (accumulator, incoming) = (Span::new(accumulator, 0, count), Span::new(incoming, 0, count));
    let mut steps = Vec::with_capacity(4 * (size.ilog2() as usize + 1) + 2);
    let mut held = mine;
    let mut bit = 1;
    while bit < size {
        if relative & bit != 0 {
            steps.push(Step::Send { to: (relative - bit + first) % size, from: held });
            break;
        }
        if relative + bit < size {
            steps.push(Step::Recv { from: (relative + bit + first) % size, into: incoming });
            steps.extend(copy(held, accumulator));
            held = accumulator;
            let fold =
                Step::ReduceLocal { from: incoming, into: accumulator, order: OperandOrder::IncomingLast };
            steps.extend([Step::Fence, fold]);
        }
        bit *= 2;
    }
    match (rank == first, rank == root) {
        (true, true) => steps.extend(copy(held, result)),
        (true, false) => steps.push(Step::Send { to: root, from: held }),
        (false, true) => steps.extend([Step::Fence, Step::Recv { from: first, into: result }]),
        (false, false) => (),
    }
    steps
}

/// Computes the steps of a reduction in which the root receives from each other rank (F-MPJ's FT), in order of rank for
/// any operation. Needs `count` items of temporary memory, once or, if `apart`, for each other rank.
pub(crate) fn reduce_flat(
    rank: u32,
    size: u32,
    root: u32,
    mine: Span,
    count: usize,
    apart: bool,
) -> Vec<Step> {
    if rank != root {
        return vec![Step::Send { to: root, from: mine }];
    }
    let (below, above) = ((0..rank).rev(), rank + 1..size);
    let others = below
        .map(|from| (from, OperandOrder::IncomingFirst))
        .chain(above.map(|from| (from, OperandOrder::IncomingLast)));
    let mut steps = Vec::with_capacity(3 * size as usize);
    recv_and_reduce(&mut steps, others, (mine, count), apart);
    steps
}

/// Adds steps that receive from `ranks` and combine their items with this rank's own in the result, in the given order.
/// If `apart`, all receives are posted at once, each into an area of its own; otherwise one after the other, which
/// needs less memory.
pub(crate) fn recv_and_reduce(
    steps: &mut Vec<Step>,
    ranks: impl Iterator<Item = (u32, OperandOrder)> + Clone,
    (mine, count): (Span, usize),
    apart: bool,
) {
    let (first, result) = (BufIndex::TEMP.number() as u32, Span::new(BufIndex::RECV, 0, count));
    let areas = (0..).map(|at| Span::new(BufIndex::of(first + if apart { at } else { 0 }), 0, count));
    let ranks = ranks.zip(areas);
    let recv = |((from, _), into)| Step::Recv { from, into };
    let fold = |((_, order), from)| Step::ReduceLocal { from, into: result, order };
    if apart {
        steps.extend(ranks.clone().map(recv));
    }
    steps.extend(copy(mine, result));
    if apart {
        steps.push(Step::Fence);
        steps.extend(ranks.map(fold));
    } else {
        steps.extend(ranks.flat_map(|rank| [recv(rank), Step::Fence, fold(rank)]));
    }
}

/// Computes the steps of an allreduce in which rank 0 receives from all ranks and sends the result to all (F-MPJ's FT,
/// twice). Needs the temporary memory of [`reduce_flat`].
pub(crate) fn allreduce_flat(rank: u32, size: u32, mine: Span, count: usize, apart: bool) -> Vec<Step> {
    let result = Span::new(BufIndex::RECV, 0, count);
    let mut steps = reduce_flat(rank, size, 0, mine, count, apart);
    if rank == 0 {
        steps.extend((1..size).map(|to| Step::Send { to, from: result }));
        return steps;
    }
    if mine == result {
        // In place, the rank's own items must be sent before the result overwrites them.
        steps.push(Step::Fence);
    }
    steps.push(Step::Recv { from: 0, into: result });
    steps
}

/// Computes the steps of an allreduce by recursive doubling (F-MPJ's BDE). Ranks beyond the largest power of two are
/// first combined into their neighbours. Needs `count` items of temporary memory.
pub(crate) fn allreduce_recursive_doubling(rank: u32, size: u32, mine: Span, count: usize) -> Vec<Step> {
    let result = Span::new(BufIndex::RECV, 0, count);
    let incoming = Span::new(BufIndex::TEMP, 0, count);
    let power = 1 << size.ilog2();
    let extra = size - power;
    let mut steps = Vec::with_capacity(4 * (size.ilog2() as usize + 1) + 1);
    // The rank sends its own items from the user's buffer, and copies them while messages are in flight.
    let mut held = mine;
    // The first 2·extra ranks form pairs: the odd rank of each pair sends its items to the even one and waits for the
    // result.
    let position = if rank < 2 * extra {
        if rank % 2 == 1 {
            steps.extend([
                Step::Send { to: rank - 1, from: held },
                Step::Fence,
                Step::Recv { from: rank - 1, into: result },
            ]);
            return steps;
        }
        steps.push(Step::Recv { from: rank + 1, into: incoming });
        steps.extend(copy(held, result));
        held = result;
        steps.extend([
            Step::Fence,
            Step::ReduceLocal { from: incoming, into: result, order: OperandOrder::IncomingLast },
        ]);
        rank / 2
    } else {
        rank - extra
    };
    let actual = |position: u32| if position < extra { 2 * position } else { position + extra };
    let mut bit = 1;
    while bit < power {
        let partner = position ^ bit;
        let order = if partner < position { OperandOrder::IncomingFirst } else { OperandOrder::IncomingLast };
        steps.extend([
            Step::Recv { from: actual(partner), into: incoming },
            Step::Send { to: actual(partner), from: held },
        ]);
        steps.extend(copy(held, result));
        held = result;
        steps.extend([Step::Fence, Step::ReduceLocal { from: incoming, into: result, order }]);
        bit *= 2;
    }
    steps.extend(copy(held, result));
    if rank < 2 * extra {
        steps.push(Step::Send { to: rank + 1, from: result });
    }
    steps
}

/// Computes the steps of an allreduce around a ring, for long vectors and commutative operations: each rank reduces one
/// block, and then the blocks go around. Every block is reduced once, so all ranks get the same bits. Needs temporary
/// memory for the largest block: see [`ring_block`].
pub(crate) fn allreduce_ring(rank: u32, size: u32, mine: Span, count: usize) -> Vec<Step> {
    let block = |r: u32| {
        let (at, len) = ring_block(r % size, size, count);
        Span::new(BufIndex::RECV, at, len)
    };
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    let mut steps = Vec::with_capacity(7 * size as usize);
    steps.extend(copy(mine, Span::new(BufIndex::RECV, 0, count)));
    for round in 0..size - 1 {
        let (out, back) = (block(rank + size - round), block(rank + 2 * size - round - 1));
        let incoming = Span::new(BufIndex::TEMP, 0, back.count);
        steps.extend([
            Step::Recv { from: left, into: incoming },
            Step::Send { to: right, from: out },
            Step::Fence,
            Step::ReduceLocal { from: incoming, into: back, order: OperandOrder::IncomingFirst },
        ]);
    }
    for round in 0..size - 1 {
        let (out, back) = (block(rank + 1 + size - round), block(rank + size - round));
        steps.extend([
            Step::Recv { from: left, into: back },
            Step::Send { to: right, from: out },
            Step::Fence,
        ]);
    }
    steps
}

/// Computes the steps of a reduction of which each rank keeps a block, by exchanging blocks with each other rank in
/// turn. Needs `count` items of temporary memory, twice; `count` is the length of this rank's block in items of the
/// accumulator.
///
/// Items from lower ranks are combined to the left of the result, nearest rank first. Items from higher ranks, highest
/// first, are combined in a second area. `block` returns the start and the length of a rank's block in the send buffer.
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
    let span = |area| Span::new(area, 0, count);
    let (result, incoming, higher) = (span(BufIndex::RECV), span(BufIndex::TEMP), span(BufIndex::TEMP2));
    let mut steps = Vec::with_capacity(4 * size as usize);
    let mut own = Some(Step::Copy { from: of(rank), into: result });
    for round in 1..size {
        let (to, from) = ((rank + round) % size, (rank + size - round) % size);
        let into = if from == size - 1 && from > rank { higher } else { incoming };
        // Send empty blocks, too: a rank with different counts waits for them, and reports the difference.
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

/// Returns the step that copies a rank's own items, unless they are in place.
pub(crate) fn copy(from: Span, into: Span) -> impl Iterator<Item = Step> {
    (from != into).then_some(Step::Copy { from, into }).into_iter()
}

/// Returns the start and the length of block `r` of `size` in `count` items; the first blocks are the longer ones.
pub(crate) fn ring_block(r: u32, size: u32, count: usize) -> (usize, usize) {
    let (r, size) = (r as usize, size as usize);
    let (each, more) = (count / size, count % size);
    (r * each + r.min(more), each + usize::from(r < more))
}
