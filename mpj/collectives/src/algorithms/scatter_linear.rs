//! Linear scatter: the root sends each rank its block.

use crate::arguments::Arguments;
use crate::step::Step;

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let root = call.root;
    if call.rank != root {
        steps.extend(call.into.map(|into| Step::Recv { from: root, into }));
        return;
    }
    let others = (0..call.size).filter(|r| *r != root);
    steps.extend(others.map(|to| Step::Send { to, from: (call.send)(to) }));
    steps.extend(call.into.map(|into| Step::Copy { from: (call.send)(root), into }));
}
