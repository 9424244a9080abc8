//! Pairwise reduce-scatter: in round `k` each rank sends a block to the rank `k` after it.
//!
//! Items from lower ranks are combined into the result as left operand, nearest rank first. Items from higher ranks are
//! combined in a second buffer, highest rank first, which becomes the right operand of the result. In place, the result
//! is computed in a third buffer, because it would overwrite blocks that are not sent yet.

use super::local::copy;
use crate::arguments::Arguments;
use crate::step::{BufIndex, OperandOrder, Span, Step};

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let &Arguments { rank, size, count, .. } = call;
    let span = |buf| Span::new(buf, 0, count);
    let (incoming, higher, own) = (span(BufIndex::TEMP), span(BufIndex::TEMP2), (call.send)(rank));
    let result = if own.buf == BufIndex::RECV { span(BufIndex::TEMP3) } else { call.result() };
    let mut own = Some(Step::Copy { from: own, into: result });
    for round in 1..size {
        let (to, from) = (call.after(round), call.before(round));
        let into = if from == size - 1 && from > rank { higher } else { incoming };
        // Send empty blocks too: a rank with different counts waits for them, and reports the difference.
        steps.extend([Step::Recv { from, into }, Step::Send { to, from: (call.send)(to) }]);
        steps.extend(own.take());
        steps.push(Step::Fence);
        if into == incoming {
            let into = if from < rank { result } else { higher };
            steps.push(Step::ReduceLocal { from: incoming, into, order: OperandOrder::IncomingFirst });
        }
    }
    steps.extend(own);
    if rank + 1 < size {
        steps.push(Step::ReduceLocal { from: higher, into: result, order: OperandOrder::IncomingLast });
    }
    copy(steps, result, call.result());
}
