//! Scan by recursive doubling (Hillis, Steele 1986): in round `k` each rank receives from the rank 2^k before it.

use super::local::copy;
use crate::arguments::Arguments;
use crate::step::{BufIndex, OperandOrder, Span, Step};

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let &Arguments { rank, size, count, .. } = call;
    let (result, incoming) = (call.result(), Span::new(BufIndex::TEMP, 0, count));
    // The first send reads the user's buffer, so the copy can overlap with the transfer.
    let mut current = call.operand();
    let mut distance = 1;
    while distance < size {
        if rank >= distance {
            steps.push(Step::Recv { from: rank - distance, into: incoming });
        }
        if rank + distance < size {
            steps.push(Step::Send { to: rank + distance, from: current });
        }
        copy(steps, current, result);
        current = result;
        steps.push(Step::Fence);
        if rank >= distance {
            let order = OperandOrder::IncomingFirst;
            steps.push(Step::ReduceLocal { from: incoming, into: result, order });
        }
        distance *= 2;
    }
    copy(steps, current, result);
}
