//! Linear allreduce: rank 0 receives from all ranks and sends the result to all (F-MPJ's flat tree, FT, once to reduce
//! and once to broadcast).

use super::reduce_linear;
use crate::arguments::Arguments;
use crate::step::Step;

pub(super) fn steps(call: &Arguments<'_>, steps: &mut Vec<Step>) {
    let result = call.result();
    reduce_linear::steps(&Arguments { root: 0, ..*call }, steps);
    if call.rank == 0 {
        steps.extend((1..call.size).map(|to| Step::Send { to, from: result }));
        return;
    }
    if call.operand() == result {
        // In place, the rank's own items must be sent before the result overwrites them.
        steps.push(Step::Fence);
    }
    steps.push(Step::Recv { from: 0, into: result });
}
