//! Allgather around a ring (F-MPJ's BKT): in each round every rank passes on the block that it received last.

use crate::arguments::Arguments;
use crate::step::Step;

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let (right, left) = (call.after(1), call.before(1));
    steps.extend(call.own.map(|from| Step::Copy { from, into: (call.recv)(call.rank) }));
    for round in 0..call.size - 1 {
        let (sent, received) = (call.before(round), call.before(round + 1));
        steps.push(Step::Recv { from: left, into: (call.recv)(received) });
        steps.push(Step::Send { to: right, from: (call.recv)(sent) });
        steps.push(Step::Fence);
    }
}
