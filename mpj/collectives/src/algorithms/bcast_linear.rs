//! Linear broadcast: the root sends to each rank (F-MPJ's flat tree, FT).

use crate::arguments::Arguments;
use crate::step::Step;

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let whole = call.result();
    if call.rank == call.root {
        steps.extend((1..call.size).map(|distance| Step::Send { to: call.after(distance), from: whole }));
    } else {
        steps.push(Step::Recv { from: call.root, into: whole });
    }
}
