//! Barrier, broadcast, gather and scatter.

use super::step::{BufIndex, Span, Step};

/// Computes the steps of a dissemination barrier: in round `k` each rank receives from the rank 2^k before it (Hensgen,
/// Finkel, Manber 1988).
pub(crate) fn barrier(rank: u32, size: u32) -> Vec<Step> {
    let mut steps = Vec::with_capacity(3 * (size.ilog2() as usize + 1));
    let mut distance = 1;
    while distance < size {
        let (to, from) = ((rank + distance) % size, (rank + size - distance) % size);
        steps.extend([
            Step::Recv { from, into: Span::NONE },
            Step::Send { to, from: Span::NONE },
            Step::Fence,
        ]);
        distance *= 2;
    }
    steps
}

/// Computes the steps of a barrier in which rank 0 receives from all ranks and then sends to all (F-MPJ's FT, twice).
pub(crate) fn barrier_linear(rank: u32, size: u32) -> Vec<Step> {
    if rank != 0 {
        let (into, from) = (Span::NONE, Span::NONE);
        return vec![Step::Recv { from: 0, into }, Step::Send { to: 0, from }];
    }
    let receives = (1..size).map(|from| Step::Recv { from, into: Span::NONE });
    let sends = (1..size).map(|to| Step::Send { to, from: Span::NONE });
    receives.chain([Step::Fence]).chain(sends).collect()
}

/// Computes the steps of a linear broadcast (F-MPJ's FT).
pub(crate) fn bcast_linear(rank: u32, size: u32, root: u32, count: usize) -> Vec<Step> {
    let whole = Span::new(BufIndex::RECV, 0, count);
    if rank != root {
        return vec![Step::Recv { from: root, into: whole }];
    }
    (1..size).map(|distance| Step::Send { to: (root + distance) % size, from: whole }).collect()
}

/// Computes the steps of a broadcast along a binomial tree (F-MPJ's MST).
pub(crate) fn bcast(rank: u32, size: u32, root: u32, count: usize) -> Vec<Step> {
    let whole = Span::new(BufIndex::RECV, 0, count);
    let relative = (rank + size - root) % size;
    let mut steps = Vec::with_capacity(size.ilog2() as usize + 3);
    let mut bit = 1;
    while bit < size {
        if relative & bit != 0 {
            steps.extend([Step::Recv { from: (rank + size - bit) % size, into: whole }, Step::Fence]);
            break;
        }
        bit *= 2;
    }
    while bit > 1 {
        bit /= 2;
        if relative + bit < size {
            steps.push(Step::Send { to: (rank + bit) % size, from: whole });
        }
    }
    steps
}

/// Function from a rank to the first item and the number of items of its block.
pub(crate) type Blocks<'a> = &'a dyn Fn(u32) -> (usize, usize);

/// Computes the steps of a linear gather (F-MPJ's FT). If `send` is `None` at the root, its own items are in place.
/// `into` returns the span for the items of a rank.
pub(crate) fn gather(
    rank: u32,
    size: u32,
    root: u32,
    send: Option<Span>,
    into: &dyn Fn(u32) -> Span,
) -> Vec<Step> {
    if rank != root {
        return send.map(|from| Step::Send { to: root, from }).into_iter().collect();
    }
    let others = (0..size).filter(|r| *r != root).map(|from| Step::Recv { from, into: into(from) });
    let own = send.map(|from| Step::Copy { from, into: into(root) });
    others.chain(own).collect()
}

/// Computes the steps of a linear scatter. If `recv` is `None` at the root, its own items stay in place.
pub(crate) fn scatter(rank: u32, size: u32, root: u32, send: Blocks<'_>, recv: Option<Span>) -> Vec<Step> {
    if rank != root {
        return recv.map(|into| Step::Recv { from: root, into }).into_iter().collect();
    }
    let from = |to: u32| {
        let (at, count) = send(to);
        Span::new(BufIndex::SEND, at, count)
    };
    let others = (0..size).filter(|r| *r != root).map(|to| Step::Send { to, from: from(to) });
    others.chain(recv.map(|into| Step::Copy { from: from(root), into })).collect()
}
