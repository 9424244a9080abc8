//! Linear gather: each rank sends its block to the root (F-MPJ's flat tree, FT).

use crate::arguments::Arguments;
use crate::step::Step;

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let root = call.root;
    if call.rank != root {
        steps.extend(call.own.map(|from| Step::Send { to: root, from }));
        return;
    }
    let others = (0..call.size).filter(|r| *r != root);
    steps.extend(others.map(|from| Step::Recv { from, into: (call.recv)(from) }));
    steps.extend(call.own.map(|from| Step::Copy { from, into: (call.recv)(root) }));
}
