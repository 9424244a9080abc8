//! Linear barrier: rank 0 receives from all ranks and then sends to all (F-MPJ's flat tree, FT, once in each
//! direction).

use crate::arguments::Arguments;
use crate::step::{Span, Step};

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let (into, from) = (Span::NONE, Span::NONE);
    if call.rank != 0 {
        steps.extend([Step::Recv { from: 0, into }, Step::Send { to: 0, from }]);
        return;
    }
    steps.extend((1..call.size).map(|from| Step::Recv { from, into }));
    steps.push(Step::Fence);
    steps.extend((1..call.size).map(|to| Step::Send { to, from }));
}
