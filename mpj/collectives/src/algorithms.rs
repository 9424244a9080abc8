//! The table of algorithms. Each is in a file of its own.

mod allgather_linear;
mod allgather_ring;
mod allreduce_linear;
mod allreduce_recursive_doubling;
mod allreduce_ring;
mod alltoall_linear;
mod alltoall_pairwise;
mod barrier_dissemination;
mod barrier_linear;
mod bcast_binomial;
mod bcast_linear;
mod exscan_linear;
mod exscan_recursive_doubling;
mod gather_linear;
mod local;
mod neighbor_allgather_linear;
mod neighbor_alltoall_linear;
mod reduce_binomial;
mod reduce_linear;
mod reduce_scatter_pairwise;
mod scan_linear;
mod scan_recursive_doubling;
mod scatter_linear;

use std::fmt;

use crate::arguments::Arguments;
use crate::operation::Operation;
use crate::step::Step;

/// An algorithm of a collective operation.
#[derive(Clone, Copy, Debug)]
pub struct Algorithm {
    /// The operation.
    pub operation: Operation,
    /// Its number in messages, from 1, unique among the algorithms of the operation.
    pub id: u8,
    /// Its name, unique among the algorithms of the operation.
    pub name: &'static str,
    /// The requirements that a call must meet.
    pub requires: &'static [Requirement],
    /// Appends the steps of the calling rank.
    pub steps: fn(&Arguments<'_>, &mut Vec<Step>),
}

/// A condition for the use of an algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Requirement {
    /// The reduction operation must be commutative.
    Commutative,
    /// The number of the call's items must be at least the number of ranks.
    ItemPerRank,
}

use Operation::{
    Allgather, Allreduce, Alltoall, Alltoallw, Barrier, Bcast, Exscan, Gather, NeighborAllgather,
    NeighborAlltoall, NeighborAlltoallw, Reduce, ReduceScatter, ReduceScatterBlock, Scan, Scatter,
};
use Requirement::{Commutative, ItemPerRank};

/// All algorithms.
#[rustfmt::skip]
pub const ALGORITHMS: &[Algorithm] = &[
    algorithm(Barrier, 1, "linear", &[], barrier_linear::steps),
    algorithm(Barrier, 2, "dissemination", &[], barrier_dissemination::steps),
    algorithm(Bcast, 1, "linear", &[], bcast_linear::steps),
    algorithm(Bcast, 2, "binomial", &[], bcast_binomial::steps),
    algorithm(Reduce, 1, "linear", &[], reduce_linear::steps),
    algorithm(Reduce, 2, "binomial", &[], reduce_binomial::steps),
    algorithm(Allreduce, 1, "linear", &[], allreduce_linear::steps),
    algorithm(Allreduce, 2, "recursive_doubling", &[], allreduce_recursive_doubling::steps),
    algorithm(Allreduce, 3, "ring", &[Commutative, ItemPerRank], allreduce_ring::steps),
    algorithm(ReduceScatter, 1, "pairwise", &[], reduce_scatter_pairwise::steps),
    algorithm(Scan, 1, "linear", &[], scan_linear::steps),
    algorithm(Scan, 2, "recursive_doubling", &[], scan_recursive_doubling::steps),
    algorithm(Gather, 1, "linear", &[], gather_linear::steps),
    algorithm(Scatter, 1, "linear", &[], scatter_linear::steps),
    algorithm(Allgather, 1, "linear", &[], allgather_linear::steps),
    algorithm(Allgather, 2, "ring", &[], allgather_ring::steps),
    algorithm(Alltoall, 1, "linear", &[], alltoall_linear::steps),
    algorithm(Alltoall, 2, "pairwise", &[], alltoall_pairwise::steps),
    algorithm(Exscan, 1, "linear", &[], exscan_linear::steps),
    algorithm(Exscan, 2, "recursive_doubling", &[], exscan_recursive_doubling::steps),
    algorithm(ReduceScatterBlock, 1, "pairwise", &[], reduce_scatter_pairwise::steps),
    algorithm(Alltoallw, 1, "linear", &[], alltoall_linear::steps),
    algorithm(Alltoallw, 2, "pairwise", &[], alltoall_pairwise::steps),
    algorithm(NeighborAllgather, 1, "linear", &[], neighbor_allgather_linear::steps),
    algorithm(NeighborAlltoall, 1, "linear", &[], neighbor_alltoall_linear::steps),
    algorithm(NeighborAlltoallw, 1, "linear", &[], neighbor_alltoall_linear::steps),
];

const fn algorithm(
    operation: Operation,
    id: u8,
    name: &'static str,
    requires: &'static [Requirement],
    steps: fn(&Arguments<'_>, &mut Vec<Step>),
) -> Algorithm {
    Algorithm { operation, id, name, requires, steps }
}

/// Returns the algorithms of an operation.
pub fn algorithms_of(operation: Operation) -> impl Iterator<Item = &'static Algorithm> + Clone {
    ALGORITHMS.iter().filter(move |algorithm| algorithm.operation == operation)
}

/// Returns an algorithm by its name, such as `binomial`.
pub fn algorithm_named(operation: Operation, name: &str) -> Option<&'static Algorithm> {
    algorithms_of(operation).find(|algorithm| algorithm.name == name)
}

impl Algorithm {
    /// Returns whether the call fulfils the requirements.
    #[inline]
    pub fn fits(&self, call: &Arguments<'_>) -> bool {
        self.requires.iter().all(|requirement| requirement.is_met(call))
    }
}

impl Requirement {
    fn is_met(self, call: &Arguments<'_>) -> bool {
        match self {
            Requirement::Commutative => call.commutative,
            Requirement::ItemPerRank => call.count >= call.size as usize,
        }
    }
}

impl fmt::Display for Algorithm {
    /// Writes the name and the requirements, such as
    /// `ring (needs a commutative reduction operation and at least one item per rank)`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)?;
        for (at, requirement) in self.requires.iter().enumerate() {
            write!(f, "{}{requirement}", if at == 0 { " (needs " } else { " and " })?;
        }
        f.write_str(if self.requires.is_empty() { "" } else { ")" })
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Requirement::Commutative => "a commutative reduction operation",
            Requirement::ItemPerRank => "at least one item per rank",
        })
    }
}
