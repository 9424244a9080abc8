//! Allgather and alltoall.

use super::rooted::Blocks;
use super::schedule::{Area, Span, Step};

/// Bytes up to which every rank sends to every other at once; above, one partner at a time.
pub(crate) const AT_ONCE: usize = 64 << 10;

fn span(area: Area, blocks: Blocks<'_>, rank: u32) -> Span {
    let (at, count) = blocks(rank);
    Span::new(area, at, count)
}

/// An allgather: directly when small, else around a ring (F-MPJ's BKT).
pub(crate) fn allgather(rank: u32, size: u32, send: usize, recv: Blocks<'_>, bytes: usize) -> Vec<Step> {
    let block = |r: u32| span(Area::Recv, recv, r);
    let mine = Span::new(Area::Send, 0, send);
    let mut steps = Vec::with_capacity(3 * size as usize);
    steps.push(Step::Copy { from: mine, into: block(rank) });
    if bytes <= AT_ONCE {
        steps.extend(
            (1..size).map(|d| (rank + size - d) % size).map(|from| Step::Recv { from, into: block(from) }),
        );
        steps.extend((1..size).map(|d| (rank + d) % size).map(|to| Step::Send { to, from: mine }));
        return steps;
    }
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    for round in 0..size - 1 {
        let (out, back) = ((rank + size - round) % size, (rank + 2 * size - round - 1) % size);
        steps.push(Step::Recv { from: left, into: block(back) });
        steps.push(Step::Send { to: right, from: block(out) });
        steps.push(Step::Wait);
    }
    steps
}

/// An alltoall: directly when small, else in pairs.
pub(crate) fn alltoall(rank: u32, size: u32, send: Blocks<'_>, recv: Blocks<'_>, bytes: usize) -> Vec<Step> {
    let (out, back) = (|r: u32| span(Area::Send, send, r), |r: u32| span(Area::Recv, recv, r));
    let mut steps = Vec::with_capacity(3 * size as usize);
    if bytes <= AT_ONCE {
        steps.extend(
            (1..size).map(|d| (rank + size - d) % size).map(|from| Step::Recv { from, into: back(from) }),
        );
        steps.extend((1..size).map(|d| (rank + d) % size).map(|to| Step::Send { to, from: out(to) }));
    } else {
        for d in 1..size {
            let (to, from) = ((rank + d) % size, (rank + size - d) % size);
            steps.extend([
                Step::Recv { from, into: back(from) },
                Step::Send { to, from: out(to) },
                Step::Wait,
            ]);
        }
    }
    steps.push(Step::Copy { from: out(rank), into: back(rank) });
    steps
}
