//! Allgather and alltoall.

use super::rooted::Blocks;
use super::step::{BufIndex, Span, Step};

fn span(buf: BufIndex, blocks: Blocks<'_>, rank: u32) -> Span {
    let (at, count) = blocks(rank);
    Span::new(buf, at, count)
}

/// Computes the steps of an allgather: linear, or around a ring (F-MPJ's BKT). If `send` is `None`, each rank's items
/// are in place.
pub(crate) fn allgather(
    rank: u32,
    size: u32,
    send: Option<Span>,
    recv: Blocks<'_>,
    is_linear: bool,
) -> Vec<Step> {
    let block = |r: u32| span(BufIndex::RECV, recv, r);
    let mut steps = Vec::with_capacity(3 * size as usize);
    let copy_own = send.map(|from| Step::Copy { from, into: block(rank) });
    let own_span = send.unwrap_or_else(|| block(rank));
    if is_linear {
        steps.extend(
            (1..size).map(|d| (rank + size - d) % size).map(|from| Step::Recv { from, into: block(from) }),
        );
        steps.extend((1..size).map(|d| (rank + d) % size).map(|to| Step::Send { to, from: own_span }));
        steps.extend(copy_own);
        return steps;
    }
    steps.extend(copy_own);
    let (right, left) = ((rank + 1) % size, (rank + size - 1) % size);
    for round in 0..size - 1 {
        let (sent, received) = ((rank + size - round) % size, (rank + 2 * size - round - 1) % size);
        steps.push(Step::Recv { from: left, into: block(received) });
        steps.push(Step::Send { to: right, from: block(sent) });
        steps.push(Step::Fence);
    }
    steps
}

/// Computes the steps of an alltoall that sends from buffer `buf`: linear, or pairwise.
pub(crate) fn alltoall(
    rank: u32,
    size: u32,
    (buf, send): (BufIndex, Blocks<'_>),
    recv: Blocks<'_>,
    is_linear: bool,
) -> Vec<Step> {
    let (sent, received) = (|r: u32| span(buf, send, r), |r: u32| span(BufIndex::RECV, recv, r));
    let mut steps = Vec::with_capacity(3 * size as usize);
    if is_linear {
        steps.extend(
            (1..size).map(|d| (rank + size - d) % size).map(|from| Step::Recv { from, into: received(from) }),
        );
        steps.extend((1..size).map(|d| (rank + d) % size).map(|to| Step::Send { to, from: sent(to) }));
    } else {
        for d in 1..size {
            let (to, from) = ((rank + d) % size, (rank + size - d) % size);
            steps.extend([
                Step::Recv { from, into: received(from) },
                Step::Send { to, from: sent(to) },
                Step::Fence,
            ]);
        }
    }
    steps.push(Step::Copy { from: sent(rank), into: received(rank) });
    steps
}
