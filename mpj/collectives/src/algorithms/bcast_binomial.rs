//! Broadcast along a binomial tree (F-MPJ's MST).

use crate::arguments::Arguments;
use crate::step::Step;

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let whole = call.result();
    let relative = (call.rank + call.size - call.root) % call.size;
    let mut bit = 1;
    while bit < call.size {
        if relative & bit != 0 {
            steps.extend([Step::Recv { from: call.before(bit), into: whole }, Step::Fence]);
            break;
        }
        bit *= 2;
    }
    while bit > 1 {
        bit /= 2;
        if relative + bit < call.size {
            steps.push(Step::Send { to: call.after(bit), from: whole });
        }
    }
}
