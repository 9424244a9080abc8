//! Linear alltoall among neighbours: each rank starts all its sends and receives at once.

use crate::arguments::Arguments;
use crate::step::Step;

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    steps.extend(
        call.sources.iter().map(|from| Step::Recv { from: from.rank, into: (call.recv)(from.block) }),
    );
    steps.extend(call.destinations.iter().map(|to| Step::Send { to: to.rank, from: (call.send)(to.block) }));
}
