//! Scan: rank `r` gets the combination of ranks 0 to `r`.

use super::reduce::copy;
use super::step::{Area, Span, Step};
use crate::op::Order;

/// A scan by doubling (Hillis, Steele 1986). Needs `count` items of own memory.
pub(crate) fn scan(rank: u32, size: u32, mine: Span, count: usize) -> Vec<Step> {
    let result = Span::new(Area::RECV, 0, count);
    let incoming = Span::new(Area::TEMP, 0, count);
    let mut steps = Vec::with_capacity(4 * (size.ilog2() as usize + 1) + 1);
    // Its own items go out from where they lie, and are copied while messages are on their way.
    let mut held = mine;
    let mut distance = 1;
    while distance < size {
        if rank >= distance {
            steps.push(Step::Recv { from: rank - distance, into: incoming });
        }
        if rank + distance < size {
            steps.push(Step::Send { to: rank + distance, from: held });
        }
        steps.extend(copy(held, result));
        held = result;
        steps.push(Step::Wait);
        if rank >= distance {
            steps.push(Step::Fold { from: incoming, into: result, order: Order::FromLeft });
        }
        distance *= 2;
    }
    steps.extend(copy(held, result));
    steps
}
