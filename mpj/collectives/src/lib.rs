//! Algorithms of MPI's collective operations.
//!
//! An [`Algorithm`] is a function from the arguments of a call on one rank, [`Arguments`], to the [`Step`]s of that
//! rank. The table [`ALGORITHMS`] lists them all, except those between two groups, which are in [`inter`]. [`Rules`]
//! select one by the numbers of ranks, hosts and bytes, and by its [requirements](Requirement). This crate executes
//! nothing: a message passing library, or a simulator, does.
//!
//! ```
//! use mpj_collectives::{Arguments, Operation, Rules, Step};
//!
//! // The steps of rank 1 of 4 in a broadcast of 10 items of 8 bytes from rank 0.
//! let call = Arguments { count: 10, ..Arguments::new(1, 4) };
//! let rules = Rules::default();
//! let algorithm = rules.select(Operation::Bcast, &call, 80).expect("every operation has an algorithm that fits");
//! let mut steps = Vec::new();
//! (algorithm.steps)(&call, &mut steps);
//! assert_eq!(algorithm.name, "linear");
//! assert!(matches!(steps[..], [Step::Recv { from: 0, .. }]));
//! ```

mod algorithms;
mod arguments;
mod operation;
mod rules;
mod step;

pub use algorithms::{ALGORITHMS, Algorithm, Requirement, algorithm_named, algorithms_of, inter};
pub use arguments::{Arguments, Blocks, Neighbor, block_range};
pub use operation::Operation;
pub use rules::{Misfit, Rules};
pub use step::{BufIndex, OperandOrder, Span, Step};
