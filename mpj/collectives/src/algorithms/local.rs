//! Steps that several algorithms share.

use crate::step::{BufIndex, OperandOrder, Span, Step};

/// Adds the step that copies items, or no step if both spans are the same.
pub(super) fn copy(steps: &mut Vec<Step>, from: Span, into: Span) {
    if from != into {
        steps.push(Step::Copy { from, into });
    }
}

/// Adds steps that receive from `ranks` and combine their items with this rank's own, at `operand`, in the receive
/// buffer. If `separate_bufs`, all receives are posted at once, each into its own temporary buffer; otherwise one after
/// the other, into one.
pub(super) fn recv_and_reduce(
    steps: &mut Vec<Step>,
    ranks: impl Iterator<Item = (u32, OperandOrder)> + Clone,
    operand: Span,
    count: usize,
    separate_bufs: bool,
) {
    let (first, result) = (BufIndex::TEMP.index() as u32, Span::new(BufIndex::RECV, 0, count));
    let bufs = (0..).map(|at| Span::new(BufIndex::new(first + if separate_bufs { at } else { 0 }), 0, count));
    let ranks = ranks.zip(bufs);
    let recv = |((from, _), into)| Step::Recv { from, into };
    let reduce = |((_, order), from)| Step::ReduceLocal { from, into: result, order };
    if separate_bufs {
        steps.extend(ranks.clone().map(recv));
    }
    copy(steps, operand, result);
    if separate_bufs {
        steps.push(Step::Fence);
        steps.extend(ranks.map(reduce));
    } else {
        steps.extend(ranks.flat_map(|rank| [recv(rank), Step::Fence, reduce(rank)]));
    }
}
