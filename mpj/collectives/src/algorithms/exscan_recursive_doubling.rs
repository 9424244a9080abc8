//! Exclusive scan by recursive doubling: in round `k` each rank receives from the rank 2^k before it.
//!
//! A rank combines what it receives twice: without its own items into the result, and with them into the items that it
//! sends in the next round.

use super::local::copy;
use crate::arguments::Arguments;
use crate::step::{BufIndex, OperandOrder, Span, Step};

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let &Arguments { rank, size, count, .. } = call;
    let (result, incoming) = (call.result(), Span::new(BufIndex::TEMP, 0, count));
    let with_own = Span::new(BufIndex::TEMP2, 0, count);
    let mut current = call.operand();
    if current.buf == BufIndex::RECV && rank > 0 {
        // In place, the result overwrites the rank's own items.
        copy(steps, current, with_own);
        current = with_own;
    }
    let order = OperandOrder::IncomingFirst;
    let mut distance = 1;
    while distance < size {
        // The first items received, the last operand, are received directly into the result.
        let into = if distance == 1 { result } else { incoming };
        let (receives, sends_again) = (rank >= distance, rank + 2 * distance < size);
        if receives {
            steps.push(Step::Recv { from: rank - distance, into });
        }
        if rank + distance < size {
            steps.push(Step::Send { to: rank + distance, from: current });
        }
        if receives && sends_again {
            copy(steps, current, with_own);
            current = with_own;
        }
        steps.push(Step::Fence);
        if receives && sends_again {
            steps.push(Step::ReduceLocal { from: into, into: with_own, order });
        }
        if receives && into == incoming {
            steps.push(Step::ReduceLocal { from: incoming, into: result, order });
        }
        distance *= 2;
    }
}
