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
    /// Duplicates a communicator, by a [`Bcast`](Self::Bcast).
    Dup = 12 "dup",
    /// Splits a communicator, by an [`Allgather`](Self::Allgather).
    Split = 13 "split",
    /// Broadcasts a sectioned message.
    BcastBuffer = 14 "bcast_buffer",
    /// Gathers sectioned messages.
    GatherBuffers = 15 "gather_buffers",
    /// Scatters sectioned messages.
    ScatterBuffers = 16 "scatter_buffers",
    /// Creates communicators from groups, by an [`Allgather`](Self::Allgather).
    Create = 40 "create",
    /// Splits a communicator by the hardware, by an [`Allgather`](Self::Allgather).
    SplitType = 41 "split_type",
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
