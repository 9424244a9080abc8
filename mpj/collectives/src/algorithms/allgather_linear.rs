//! Linear allgather: each rank sends its block to all ranks at once.

use crate::arguments::Arguments;
use crate::step::Step;

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let own = call.own.unwrap_or_else(|| (call.recv)(call.rank));
    for from in (1..call.size).map(|distance| call.before(distance)) {
        steps.push(Step::Recv { from, into: (call.recv)(from) });
    }
    steps.extend((1..call.size).map(|distance| Step::Send { to: call.after(distance), from: own }));
    steps.extend(call.own.map(|from| Step::Copy { from, into: (call.recv)(call.rank) }));
}
