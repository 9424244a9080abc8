//! Allreduce around a ring: a reduce-scatter of blocks and then an allgather. The reduction of each block begins at
//! another rank, so the operation must be commutative.

use super::local::copy;
use crate::arguments::{Arguments, block_range};
use crate::step::{BufIndex, OperandOrder, Span, Step};

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let &Arguments { rank, size, count, .. } = call;
    let block = |r: u32| {
        let (at, len) = block_range(r % size, size, count);
        Span::new(BufIndex::RECV, at, len)
    };
    let (right, left) = (call.after(1), call.before(1));
    copy(steps, call.operand(), call.result());
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
}
