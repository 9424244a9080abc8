//! Linear exclusive scan: each rank receives from all lower ranks.

use super::local::recv_and_reduce;
use crate::arguments::Arguments;
use crate::step::{BufIndex, OperandOrder, Step};

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let (rank, operand, result) = (call.rank, call.operand(), call.result());
    steps.extend((rank + 1..call.size).map(|to| Step::Send { to, from: operand }));
    if rank == 0 {
        return;
    }
    if operand.buf == BufIndex::RECV {
        // In place, the rank's own items must be sent before the result overwrites them.
        steps.push(Step::Fence);
    }
    // The items of the next lower rank, the last operand, are received directly into the result.
    steps.push(Step::Recv { from: rank - 1, into: result });
    let lower = (0..rank - 1).rev().map(|from| (from, OperandOrder::IncomingFirst));
    recv_and_reduce(steps, lower, result, call.count, call.separate_bufs);
}
