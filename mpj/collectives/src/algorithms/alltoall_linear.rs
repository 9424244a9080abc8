//! Linear alltoall: each rank starts all its sends and receives at once.

use crate::arguments::Arguments;
use crate::step::Step;

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let distances = 1..call.size;
    steps.extend(distances.clone().map(|distance| call.before(distance)).map(|from| recv(call, from)));
    steps.extend(distances.map(|distance| call.after(distance)).map(|to| send(call, to)));
    steps.push(Step::Copy { from: (call.send)(call.rank), into: (call.recv)(call.rank) });
}

fn recv(call: &Arguments<'_>, from: u32) -> Step {
    Step::Recv { from, into: (call.recv)(from) }
}

fn send(call: &Arguments<'_>, to: u32) -> Step {
    Step::Send { to, from: (call.send)(to) }
}
