//! Linear scan: each rank receives from all lower ranks (F-MPJ's flat tree, FT, from every rank).

use super::local::recv_and_reduce;
use crate::arguments::Arguments;
use crate::step::{BufIndex, OperandOrder, Step};

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let (rank, operand) = (call.rank, call.operand());
    steps.extend((rank + 1..call.size).map(|to| Step::Send { to, from: operand }));
    if rank > 0 && operand.buf == BufIndex::RECV {
        // In place, the rank's own items must be sent before the result overwrites them.
        steps.push(Step::Fence);
    }
    let lower = (0..rank).rev().map(|from| (from, OperandOrder::IncomingFirst));
    recv_and_reduce(steps, lower, operand, call.count, call.separate_bufs);
}
