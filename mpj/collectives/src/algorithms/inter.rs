//! The steps of collectives between the two groups of an intercommunicator.
//!
//! The ranks of both groups are numbered together: first those of one group, then those of the other. If only one group
//! takes part in a phase, perhaps with a root of the other group, the steps of the phase are those of an algorithm for
//! one group, with the ranks renumbered.

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

/// The root of a rooted call, as the calling rank sees it: MPI_ROOT, MPI_PROC_NULL or a rank of the other group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Root {
    /// The calling rank.
    This,
    /// Another rank of its group: the calling rank takes no part.
    Null,
    /// This rank of the other group.
    Remote(u32),
}

/// A group and a root outside of it. In [`call`](Self::call), the root has the number after those of the group.
struct GroupAndRoot {
    group: Range<u32>,
    root: u32,
}

impl GroupAndRoot {
    fn group_size(&self) -> u32 {
        self.group.end - self.group.start
    }

    /// Returns the arguments of `rank` in a call of the group and the root.
    fn call(&self, rank: u32) -> Arguments<'static> {
        let number = if rank == self.root { self.group_size() } else { rank - self.group.start };
        Arguments { root: self.group_size(), ..Arguments::new(number, self.group_size() + 1) }
    }

    /// Returns the arguments of `rank` of the group in a reduction of the group without the root. The first rank
    /// of the group sends the result to the root, whose number is not one of the group.
    fn reduction(&self, rank: u32, own: Span) -> Arguments<'static> {
        let (own, count, commutative) = (Some(own), own.count, false);
        Arguments { size: self.group_size(), own, count, commutative, ..self.call(rank) }
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
                *rank = if *rank == self.group_size() { self.root } else { self.group.start + *rank };
            }
        }
    }
}

impl Groups {
    fn participants(&self, root: Root) -> Option<GroupAndRoot> {
        match root {
            Root::This => Some(GroupAndRoot { group: self.remote.clone(), root: self.rank }),
            Root::Remote(root) => Some(GroupAndRoot { group: self.local.clone(), root }),
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
        let Some(participants) = self.participants(root) else { return };
        let call = Arguments { count, ..participants.call(self.rank) };
        participants.add(bcast_binomial::steps, &call, steps);
    }

    /// Collects the items `own` of each rank of the other group at the root. The root's block `r`
    /// belongs to rank `r` of the other group.
    pub fn gather(&self, root: Root, own: Span, recv: Blocks<'_>, steps: &mut Vec<Step>) {
        let Some(participants) = self.participants(root) else { return };
        let own = (root != Root::This).then_some(own);
        let call = Arguments { own, recv, ..participants.call(self.rank) };
        participants.add(gather_linear::steps, &call, steps);
    }

    /// Distributes the root's blocks to the places `into` of the ranks of the other group.
    pub fn scatter(&self, root: Root, send: Blocks<'_>, into: Span, steps: &mut Vec<Step>) {
        let Some(participants) = self.participants(root) else { return };
        let into = (root != Root::This).then_some(into);
        let call = Arguments { into, send, ..participants.call(self.rank) };
        participants.add(scatter_linear::steps, &call, steps);
    }

    /// Combines the items `own` of the other group's ranks, in order of rank, in the root's receive buffer.
    pub fn reduce(&self, root: Root, own: Span, steps: &mut Vec<Step>) {
        let Some(participants) = self.participants(root) else { return };
        if root == Root::This {
            let into = Span::new(BufIndex::RECV, 0, own.count);
            steps.push(Step::Recv { from: participants.group.start, into });
        } else {
            participants.add(reduce_binomial::steps, &participants.reduction(self.rank, own), steps);
        }
    }

    /// Combines the items `own` of each group in the receive buffers of the other group.
    pub fn allreduce(&self, own: Span, steps: &mut Vec<Step>) {
        let result = Span::new(BufIndex::RECV, 0, own.count);
        let local = self.exchange_combinations(own, result, steps);
        let call = Arguments {
            count: own.count,
            ..Arguments::new(self.rank - local.group.start, local.group_size())
        };
        local.add(bcast_binomial::steps, &call, steps);
    }

    /// Combines as [`allreduce`](Self::allreduce) does, but distributes the result: rank `r` of a group gets the items
    /// `block(r)` of it, given by the first item and the count.
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
        let call = Arguments { into, send: &send, ..Arguments::new(number, local.group_size()) };
        local.add(scatter_linear::steps, &call, steps);
    }

    /// Sends the combination of each group to the first rank of the other group, at `into`. Returns the calling rank's
    /// group.
    fn exchange_combinations(&self, own: Span, into: Span, steps: &mut Vec<Step>) -> GroupAndRoot {
        let leader = self.remote.start;
        let local = GroupAndRoot { group: self.local.clone(), root: leader };
        local.add(reduce_binomial::steps, &local.reduction(self.rank, own), steps);
        if self.rank == self.local.start {
            steps.extend([Step::Recv { from: leader, into }, Step::Fence]);
        }
        local
    }

    /// Sends a block to each rank of the other group, and receives one from each. Block `r` belongs to rank `r`
    /// of the other group.
    pub fn alltoall(&self, send: Blocks<'_>, recv: Blocks<'_>, steps: &mut Vec<Step>) {
        let first = self.remote.start;
        steps.extend(self.remote.clone().map(|from| Step::Recv { from, into: recv(from - first) }));
        // Ranks begin with different receivers, so that they do not all send to the same rank first.
        let begin = (self.rank - self.local.start) % (self.remote.end - first);
        let receivers = (first + begin..self.remote.end).chain(first..first + begin);
        steps.extend(receivers.map(|to| Step::Send { to, from: send(to - first) }));
    }
}
