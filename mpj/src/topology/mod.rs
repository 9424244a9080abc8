//! Virtual topologies: grids and graphs of ranks, and collectives among neighbours (MPI 4.1 §8).
//!
//! | communicator | created by | neighbours |
//! |---|---|---|
//! | [`Cart`] | [`Intracomm::cart`] | those before and after a rank in each dimension of a grid |
//! | [`DistGraph`] | [`Intracomm::dist_graph_adjacent`], [`Intracomm::dist_graph`] | any; each rank knows its own |
//! | [`Graph`] | [`Intracomm::graph`] | any; each rank knows the whole graph |
//!
//! Each of them derefs to a [`TopologyComm`], which has the neighbourhood collectives, and that to an [`Intracomm`].
//! [`dims`] divides ranks into balanced dimensions.
//!
//! A halo exchange in two dimensions:
//! ```
//! use mpj::Reorder;
//! use mpj::topology::Dim;
//!
//! # mpj::threads(6, |world| {
//! let sizes = mpj::dims(world.size(), &[None, None])?;
//! let grid = world.cart(&[Dim::open(sizes[0]), Dim::periodic(sizes[1])], Reorder::ByHost)?;
//! let grid = grid.expect("the grid has a cell for each rank");
//! // One block for each neighbour: before and after in dimension 0, before and after in dimension 1.
//! let edges = [grid.rank(); 4];
//! let mut halo = [usize::MAX; 4];
//! grid.neighbor_alltoall(&edges, &mut halo)?;
//! let (before, after) = grid.shift(0, 1)?;
//! assert_eq!(halo[..2], [before.unwrap_or(usize::MAX), after.unwrap_or(usize::MAX)]);
//! # Ok::<(), mpj::Error>(()) }).unwrap();
//! ```

mod cart;
mod cart_layout;
mod dims;
mod graph;
mod graph_layout;
pub(crate) mod placement;
mod topology_comm;

pub use cart::Cart;
pub use cart_layout::{CartLayout, Dim};
pub use dims::dims;
pub use graph::{DistGraph, Graph};
pub use graph_layout::{Adjacency, EdgeWeights, GraphLayout};
pub use topology_comm::TopologyComm;

#[cfg(doc)]
use crate::Intracomm;

/// Whether a process can get another rank in a new topology than it had before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Reorder {
    /// Each process keeps its rank.
    No,
    /// The processes are placed so that fewer neighbours are on different hosts, if that is possible.
    ByHost,
}

impl Reorder {
    fn flag(self) -> bool {
        self == Reorder::ByHost
    }
}
