//! Dissemination barrier: in round `k` each rank receives from the rank 2^k before it (Hensgen, Finkel, Manber 1988).

use crate::arguments::Arguments;
use crate::step::{Span, Step};

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let mut distance = 1;
    while distance < call.size {
        let (to, from) = (call.after(distance), call.before(distance));
        steps.extend([
            Step::Recv { from, into: Span::NONE },
            Step::Send { to, from: Span::NONE },
            Step::Fence,
        ]);
        distance *= 2;
    }
}
