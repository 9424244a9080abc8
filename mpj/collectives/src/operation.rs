//! The collective calls.

use std::fmt;

macro_rules! operations {
    ($($(#[$doc:meta])* $operation:ident = $code:literal $name:literal,)*) => {
        /// A collective call. Its discriminant is its number in messages, from 1.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        #[non_exhaustive]
        pub enum Operation {
            $($(#[$doc])* $operation = $code,)*
        }

        impl Operation {
            /// All operations.
            pub const ALL: &[Operation] = &[$(Operation::$operation),*];

            /// The largest number of an operation.
            pub const MAX_CODE: u8 = {
                let (mut at, mut max) = (0, 0);
                while at < Self::ALL.len() {
                    max = if Self::ALL[at] as u8 > max { Self::ALL[at] as u8 } else { max };
                    at += 1;
                }
                max
            };

            /// Returns the name of the call, such as `allreduce`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Operation::$operation => $name,)*
                }
            }

            /// Returns the operation with this number.
            pub fn from_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Operation::$operation),)*
                    _ => None,
                }
            }
        }
    };
}

operations! {
    /// Waits for all ranks.
    Barrier = 1 "barrier",
    /// Copies the root's items to all ranks.
    Bcast = 2 "bcast",
    /// Combines the items of all ranks at the root.
    Reduce = 3 "reduce",
    /// Combines the items of all ranks at every rank.
    Allreduce = 4 "allreduce",
    /// Combines the items of all ranks; each rank gets one block of the result.
    ReduceScatter = 5 "reduce_scatter",
    /// Combines, at each rank, the items of the ranks up to it.
    Scan = 6 "scan",
    /// Collects a block of each rank at the root.
    Gather = 7 "gather",
    /// Distributes one block of the root to each rank.
    Scatter = 8 "scatter",
    /// Collects a block of each rank at every rank.
    Allgather = 9 "allgather",
    /// Sends a block of each rank to each rank.
    Alltoall = 10 "alltoall",
    /// Broadcasts a serialized object: a [`Bcast`](Self::Bcast) of its length and one of its bytes.
    BcastObject = 11 "bcast_object",
    /// Duplicates a communicator, by a [`Barrier`](Self::Barrier) and a [`Bcast`](Self::Bcast).
    Dup = 12 "dup",
    /// Splits a communicator, by an [`Allgather`](Self::Allgather).
    Split = 13 "split",
    /// Broadcasts a sectioned message.
    BcastBuffer = 14 "bcast_buffer",
    /// Gathers sectioned messages.
    GatherBuffers = 15 "gather_buffers",
    /// Scatters sectioned messages.
    ScatterBuffers = 16 "scatter_buffers",
    /// Combines, at each rank, the items of the ranks below it.
    Exscan = 17 "exscan",
    /// Combines the items of all ranks; each rank gets one of the equal blocks of the result.
    ReduceScatterBlock = 18 "reduce_scatter_block",
    /// Sends a block to each rank, each in a buffer and of a type of its own.
    Alltoallw = 19 "alltoallw",
    /// Gathers serialized objects: a [`Gather`](Self::Gather) of their lengths and one of their bytes.
    GatherObject = 20 "gather_object",
    /// Scatters serialized objects.
    ScatterObject = 21 "scatter_object",
    /// Gathers serialized objects at every rank.
    AllgatherObject = 22 "allgather_object",
    /// Sends a serialized object of each rank to each rank.
    AlltoallObject = 23 "alltoall_object",
    /// Gathers serialized objects at the root, which combines them.
    ReduceObject = 24 "reduce_object",
    /// A [`ReduceObject`](Self::ReduceObject) and a [`BcastObject`](Self::BcastObject) of the result.
    AllreduceObject = 25 "allreduce_object",
    /// Collects a block of each neighbour of a topology.
    NeighborAllgather = 32 "neighbor_allgather",
    /// Sends a block to each neighbour of a topology, and receives one from each.
    NeighborAlltoall = 33 "neighbor_alltoall",
    /// As [`NeighborAlltoall`](Self::NeighborAlltoall), with a buffer for each block.
    NeighborAlltoallw = 34 "neighbor_alltoallw",
    /// Creates a communicator of the cells of a grid, by an [`Allgather`](Self::Allgather).
    Cart = 35 "cart",
    /// Creates communicators of sub-grids, by an [`Allgather`](Self::Allgather).
    CartSub = 36 "cart_sub",
    /// Creates a communicator of the nodes of a graph, by an [`Allgather`](Self::Allgather).
    Graph = 37 "graph",
    /// Creates a communicator of the nodes of a distributed graph: an [`Allgather`](Self::Allgather) of the numbers of
    /// edges, and one of the edges.
    DistGraph = 38 "dist_graph",
    /// Creates communicators from groups, by an [`Allgather`](Self::Allgather).
    Create = 40 "create",
    /// Splits a communicator by the hardware, by an [`Allgather`](Self::Allgather).
    SplitType = 41 "split_type",
    /// Creates an intercommunicator, by a [`Barrier`](Self::Barrier) and two [`Bcast`](Self::Bcast)s in each group.
    CreateIntercomm = 50 "create_intercomm",
    /// Merges the groups of an intercommunicator, by an [`Allgather`](Self::Allgather) of both.
    Merge = 51 "merge",
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
