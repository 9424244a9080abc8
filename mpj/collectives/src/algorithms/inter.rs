//! The steps of collectives between the two groups of an intercommunicator.
//!
//! The ranks of both groups are numbered together: first those of one group, then those of the other. A part of a call in
//! which only one group takes part, perhaps with a root of the other group, is an algorithm of the table whose ranks are
//! renumbered.

use std::ops::Range;

use super::{barrier_dissemination, bcast_binomial, gather_linear, reduce_binomial, scatter_linear};
use crate::arguments::{Arguments, Blocks};
use crate::step::{BufIndex, Span, Step};

/// The two groups, as one of their ranks sees them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Groups {
    /// The calling rank.
    pub rank: u32,
    /// The ranks of its group.
    pub local: Range<u32>,
    /// The ranks of the other group.
    pub remote: Range<u32>,
}

/// The root of a call in which the items of one rank, or for one rank, go between the groups.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Root {
    /// The calling rank.
    This,
    /// Another rank of its group: the calling rank takes no part.
    Null,
    /// This rank of the other group.
    Remote(u32),
}

/// The group opposite to a root, with the root as its last rank.
struct Opposite {
    group: Range<u32>,
    root: u32,
}

impl Opposite {
    fn size(&self) -> u32 {
        self.group.end - self.group.start
    }

    /// Returns the arguments of `rank` in a call of the group and the root.
    fn call(&self, rank: u32) -> Arguments<'static> {
        let number = if rank == self.root { self.size() } else { rank - self.group.start };
        Arguments { root: self.size(), ..Arguments::new(number, self.size() + 1) }
    }

    /// Returns the arguments of `rank` of the group in a reduction of the group without the root. The ranks send the
    /// result to the root, whose number is not one of the group.
    fn reduction(&self, rank: u32, own: Span) -> Arguments<'static> {
        let (own, count, commutative) = (Some(own), own.count, false);
        Arguments { size: self.size(), own, count, commutative, ..self.call(rank) }
    }

    /// Adds the steps of an algorithm, whose ranks are those of [`call`](Self::call).
    fn add(
        &self,
        algorithm: fn(&Arguments<'_>, &mut Vec<Step>),
        call: &Arguments<'_>,
        steps: &mut Vec<Step>,
    ) {
        let start = steps.len();
        algorithm(call, steps);
        for step in &mut steps[start..] {
            if let Step::Send { to: rank, .. } | Step::Recv { from: rank, .. } = step {
                *rank = if *rank == self.size() { self.root } else { self.group.start + *rank };
            }
        }
    }
}

impl Groups {
    fn opposite(&self, root: Root) -> Option<Opposite> {
        match root {
            Root::This => Some(Opposite { group: self.remote.clone(), root: self.rank }),
            Root::Remote(root) => Some(Opposite { group: self.local.clone(), root }),
            Root::Null => None,
        }
    }

    /// Waits for all ranks of both groups.
    pub fn barrier(&self, steps: &mut Vec<Step>) {
        let size = self.local.end.max(self.remote.end);
        barrier_dissemination::steps(&Arguments::new(self.rank, size), steps);
    }

    /// Copies the first `count` items of the root's receive buffer to the other group.
    pub fn bcast(&self, root: Root, count: usize, steps: &mut Vec<Step>) {
        let Some(opposite) = self.opposite(root) else { return };
        let call = Arguments { count, ..opposite.call(self.rank) };
        opposite.add(bcast_binomial::steps, &call, steps);
    }

    /// Collects the items `own` of each rank of the other group at the root. The root's blocks have the numbers of the
    /// other group's ranks from 0.
    pub fn gather(&self, root: Root, own: Span, recv: Blocks<'_>, steps: &mut Vec<Step>) {
        let Some(opposite) = self.opposite(root) else { return };
        let own = (root != Root::This).then_some(own);
        let call = Arguments { own, recv, ..opposite.call(self.rank) };
        opposite.add(gather_linear::steps, &call, steps);
    }

    /// Distributes the root's blocks to the places `into` of the ranks of the other group.
    pub fn scatter(&self, root: Root, send: Blocks<'_>, into: Span, steps: &mut Vec<Step>) {
        let Some(opposite) = self.opposite(root) else { return };
        let into = (root != Root::This).then_some(into);
        let call = Arguments { into, send, ..opposite.call(self.rank) };
        opposite.add(scatter_linear::steps, &call, steps);
    }

    /// Combines the items `own` of the other group's ranks, in order of rank, in the root's receive buffer.
    pub fn reduce(&self, root: Root, own: Span, steps: &mut Vec<Step>) {
        let Some(opposite) = self.opposite(root) else { return };
        if root == Root::This {
            let into = Span::new(BufIndex::RECV, 0, own.count);
            steps.push(Step::Recv { from: opposite.group.start, into });
        } else {
            opposite.add(reduce_binomial::steps, &opposite.reduction(self.rank, own), steps);
        }
    }

    /// Combines the items `own` of each group in the receive buffers of the other group.
    pub fn allreduce(&self, own: Span, steps: &mut Vec<Step>) {
        let result = Span::new(BufIndex::RECV, 0, own.count);
        let local = self.exchange_combinations(own, result, steps);
        let call =
            Arguments { count: own.count, ..Arguments::new(self.rank - local.group.start, local.size()) };
        local.add(bcast_binomial::steps, &call, steps);
    }

    /// As [`allreduce`](Self::allreduce), but distributes the result: rank `r` of a group gets `block(r)`, a part of the
    /// first `own.count` items, which counts from the first item of the result. `own_block` is that of the calling rank.
    pub fn reduce_scatter(&self, own: Span, block: &dyn Fn(u32) -> (usize, usize), steps: &mut Vec<Step>) {
        // The reduction does not use this buffer any more when the receive starts.
        let result = BufIndex::TEMP2;
        let local = self.exchange_combinations(own, Span::new(result, 0, own.count), steps);
        let send = |rank| {
            let (at, count) = block(rank);
            Span::new(result, at, count)
        };
        let number = self.rank - local.group.start;
        let into = Some(Span::new(BufIndex::RECV, 0, block(number).1));
        let call = Arguments { into, send: &send, ..Arguments::new(number, local.size()) };
        local.add(scatter_linear::steps, &call, steps);
    }

    /// Sends the combination of each group to the first rank of the other group, at `into`. Returns the calling rank's
    /// group.
    fn exchange_combinations(&self, own: Span, into: Span, steps: &mut Vec<Step>) -> Opposite {
        let leader = self.remote.start;
        let local = Opposite { group: self.local.clone(), root: leader };
        local.add(reduce_binomial::steps, &local.reduction(self.rank, own), steps);
        if self.rank == self.local.start {
            steps.extend([Step::Recv { from: leader, into }, Step::Fence]);
        }
        local
    }

    /// Sends a block to each rank of the other group, and receives one from each. The blocks have the numbers of the other
    /// group's ranks from 0.
    pub fn alltoall(&self, send: Blocks<'_>, recv: Blocks<'_>, steps: &mut Vec<Step>) {
        let first = self.remote.start;
        steps.extend(self.remote.clone().map(|from| Step::Recv { from, into: recv(from - first) }));
        // Each rank begins with another receiver.
        let begin = (self.rank - self.local.start) % (self.remote.end - first);
        let receivers = (first + begin..self.remote.end).chain(first..first + begin);
        steps.extend(receivers.map(|to| Step::Send { to, from: send(to - first) }));
    }
}
