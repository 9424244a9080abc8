//! Reduction along a binomial tree.
//!
//! Operands are combined in order of rank. For a commutative operation, the order begins at the root and wraps around.

use super::local::copy;
use crate::arguments::Arguments;
use crate::step::{BufIndex, OperandOrder, Span, Step};

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let &Arguments { rank, size, root, count, .. } = call;
    // The tree ends at the root if the operation is commutative. Otherwise it ends at rank 0, which sends the result to
    // the root.
    let tree_root = if call.commutative { root } else { 0 };
    let relative = (rank + size - tree_root) % size;
    let result = call.result();
    // The rank at which the tree ends accumulates in the receive buffer if that is the root's.
    let ends_here = rank == tree_root && rank == root;
    let (accumulator, incoming) =
        if ends_here { (BufIndex::RECV, BufIndex::TEMP) } else { (BufIndex::TEMP, BufIndex::TEMP2) };
    let (accumulator, incoming) = (Span::new(accumulator, 0, count), Span::new(incoming, 0, count));
    let mut current = call.operand();
    let mut bit = 1;
    while bit < size {
        if relative & bit != 0 {
            steps.push(Step::Send { to: (relative - bit + tree_root) % size, from: current });
            break;
        }
        if relative + bit < size {
            steps.push(Step::Recv { from: (relative + bit + tree_root) % size, into: incoming });
            copy(steps, current, accumulator);
            current = accumulator;
            let order = OperandOrder::IncomingLast;
            steps.extend([Step::Fence, Step::ReduceLocal { from: incoming, into: accumulator, order }]);
        }
        bit *= 2;
    }
    match (rank == tree_root, rank == root) {
        (true, true) => copy(steps, current, result),
        (true, false) => steps.push(Step::Send { to: root, from: current }),
        (false, true) => steps.extend([Step::Fence, Step::Recv { from: tree_root, into: result }]),
        (false, false) => (),
    }
}
