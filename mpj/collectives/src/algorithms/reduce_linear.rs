//! Linear reduction: the root receives from each other rank (F-MPJ's flat tree, FT), and combines in order of rank.

use super::local::recv_and_reduce;
use crate::arguments::Arguments;
use crate::step::{OperandOrder, Step};

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let &Arguments { rank, size, root, count, .. } = call;
    if rank != root {
        steps.push(Step::Send { to: root, from: call.operand() });
        return;
    }
    let (below, above) = ((0..rank).rev(), rank + 1..size);
    let others = below
        .map(|from| (from, OperandOrder::IncomingFirst))
        .chain(above.map(|from| (from, OperandOrder::IncomingLast)));
    recv_and_reduce(steps, others, call.operand(), count, call.separate_bufs);
}
