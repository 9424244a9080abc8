//! Allreduce by recursive doubling (F-MPJ's BDE): in round `k` each rank exchanges items with the rank whose position
//! differs in bit `k`. If the size is a power of two, the position of a rank is its number. If the size exceeds the
//! nearest lower power of two by `extra`, the first 2·`extra` ranks first combine their items in pairs. Only the even
//! rank of a pair has a position; the odd one gets the result from it at the end. All ranks combine in order of rank.

use super::local::copy;
use crate::arguments::Arguments;
use crate::step::{BufIndex, OperandOrder, Span, Step};

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let &Arguments { rank, size, count, .. } = call;
    let result = call.result();
    let incoming = Span::new(BufIndex::TEMP, 0, count);
    let power = 1 << size.ilog2();
    let extra = size - power;
    // The first send reads the user's buffer, so the copy can overlap with the transfer.
    let mut current = call.operand();
    // In each pair, the odd rank sends its items to the even one, and waits for the result.
    let position = if rank < 2 * extra {
        if rank % 2 == 1 {
            steps.extend([
                Step::Send { to: rank - 1, from: current },
                Step::Fence,
                Step::Recv { from: rank - 1, into: result },
            ]);
            return;
        }
        steps.push(Step::Recv { from: rank + 1, into: incoming });
        copy(steps, current, result);
        current = result;
        let order = OperandOrder::IncomingLast;
        steps.extend([Step::Fence, Step::ReduceLocal { from: incoming, into: result, order }]);
        rank / 2
    } else {
        rank - extra
    };
    let rank_at = |position: u32| if position < extra { 2 * position } else { position + extra };
    let mut bit = 1;
    while bit < power {
        let partner = position ^ bit;
        let order = if partner < position { OperandOrder::IncomingFirst } else { OperandOrder::IncomingLast };
        steps.extend([
            Step::Recv { from: rank_at(partner), into: incoming },
            Step::Send { to: rank_at(partner), from: current },
        ]);
        copy(steps, current, result);
        current = result;
        steps.extend([Step::Fence, Step::ReduceLocal { from: incoming, into: result, order }]);
        bit *= 2;
    }
    copy(steps, current, result);
    if rank < 2 * extra {
        steps.push(Step::Send { to: rank + 1, from: result });
    }
}
