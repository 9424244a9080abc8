//! Scan: rank `r` gets the combination of ranks 0 to `r`.

use super::reduce::{copy, recv_and_reduce};
use super::step::{BufIndex, Span, Step};
use crate::op::OperandOrder;

/// A scan by doubling (Hillis, Steele 1986). Needs `count` items of own memory.
pub(crate) fn scan(rank: u32, size: u32, mine: Span, count: usize) -> Vec<Step> {
    let result = Span::new(BufIndex::RECV, 0, count);
    let incoming = Span::new(BufIndex::TEMP, 0, count);
    let mut steps = Vec::with_capacity(4 * (size.ilog2() as usize + 1) + 1);
    // Its own items go out from where they lie, and are copied while messages are on their way.
    let mut held = mine;
    let mut distance = 1;
    while distance < size {
        if rank >= distance {
            steps.push(Step::Recv { from: rank - distance, into: incoming });
        }
        if rank + distance < size {
            steps.push(Step::Send { to: rank + distance, from: held });
        }
        steps.extend(copy(held, result));
        held = result;
        steps.push(Step::Fence);
        if rank >= distance {
            steps.push(Step::ReduceLocal {
                from: incoming,
                into: result,
                order: OperandOrder::IncomingFirst,
            });
        }
        distance *= 2;
    }
    steps.extend(copy(held, result));
    steps
}

/// A scan in which each rank hears from all before it (F-MPJ's FT, from every rank). Needs `count` items of own memory, for
/// each of them if they come `apart`.
pub(crate) fn scan_flat(rank: u32, size: u32, mine: Span, count: usize, apart: bool) -> Vec<Step> {
    let mut steps = Vec::with_capacity((size + 2 * rank) as usize + 2);
    steps.extend((rank + 1..size).map(|to| Step::Send { to, from: mine }));
    if rank > 0 && mine.area == BufIndex::RECV {
        // What is in place is not written to while it is sent.
        steps.push(Step::Fence);
    }
    recv_and_reduce(
        &mut steps,
        (0..rank).rev().map(|from| (from, OperandOrder::IncomingFirst)),
        (mine, count),
        apart,
    );
    steps
}
