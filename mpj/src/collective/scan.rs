//! Scan: rank `r` gets the combination of the items of ranks 0 to `r`.

use super::reduce::{copy, recv_and_reduce};
use super::step::{BufIndex, Span, Step};
use crate::op::OperandOrder;

/// Computes the steps of a scan by recursive doubling (Hillis, Steele 1986). Needs a temporary buffer of `count` items.
pub(crate) fn scan(rank: u32, size: u32, own_span: Span, count: usize) -> Vec<Step> {
    let result = Span::new(BufIndex::RECV, 0, count);
    let incoming = Span::new(BufIndex::TEMP, 0, count);
    let mut steps = Vec::with_capacity(4 * (size.ilog2() as usize + 1) + 1);
    // The first send reads the user's buffer, so the copy can overlap with the transfer.
    let mut current = own_span;
    let mut distance = 1;
    while distance < size {
        if rank >= distance {
            steps.push(Step::Recv { from: rank - distance, into: incoming });
        }
        if rank + distance < size {
            steps.push(Step::Send { to: rank + distance, from: current });
        }
        steps.extend(copy(current, result));
        current = result;
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
    steps.extend(copy(current, result));
    steps
}

/// Computes the steps of a scan in which each rank receives from all lower ranks (F-MPJ's FT, from every rank). Needs a
/// temporary buffer of `count` items, or one for each lower rank if `separate_bufs`.
pub(crate) fn scan_linear(
    rank: u32,
    size: u32,
    own_span: Span,
    count: usize,
    separate_bufs: bool,
) -> Vec<Step> {
    let mut steps = Vec::with_capacity((size + 2 * rank) as usize + 2);
    steps.extend((rank + 1..size).map(|to| Step::Send { to, from: own_span }));
    if rank > 0 && own_span.buf == BufIndex::RECV {
        // In place, the rank's own items must be sent before the result overwrites them.
        steps.push(Step::Fence);
    }
    recv_and_reduce(
        &mut steps,
        (0..rank).rev().map(|from| (from, OperandOrder::IncomingFirst)),
        (own_span, count),
        separate_bufs,
    );
    steps
}
