//! Pairwise alltoall: in round `k` each rank sends to the rank `k` after it and receives from the rank `k` before it.

use crate::arguments::Arguments;
use crate::step::Step;

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    for distance in 1..call.size {
        let (to, from) = (call.after(distance), call.before(distance));
        steps.extend([
            Step::Recv { from, into: (call.recv)(from) },
            Step::Send { to, from: (call.send)(to) },
            Step::Fence,
        ]);
    }
    steps.push(Step::Copy { from: (call.send)(call.rank), into: (call.recv)(call.rank) });
}
