//! [`TopologyComm`]: a communicator with any topology.

use std::ops::Deref;

use crate::comm::Intracomm;
use crate::raw;

/// A communicator with a topology, which has the collectives among neighbours. [`Cart`](super::Cart),
/// [`Graph`](super::Graph) and [`DistGraph`](super::DistGraph) deref to it.
///
/// A receive buffer has one block for each source, and the send buffer of an alltoall one for each destination; the
/// send buffer of an allgather goes to every destination as a whole. In a grid, the order of the blocks is: for each
/// dimension, the rank before, then the rank after. In a graph, it is the order of the sources or destinations. The
/// block of a missing neighbour, outside an open dimension, is not accessed.
///
/// If a rank is a neighbour several times, or its own neighbour: in a grid, the block that a rank sends to the rank
/// before it arrives as the block from the rank after, and the reverse; in a graph, the `k`th block of one rank to
/// another is the `k`th block that the other receives from it.
#[derive(Clone, Debug)]
pub struct TopologyComm {
    comm: Intracomm,
}

impl TopologyComm {
    pub(super) fn new(comm: raw::Comm) -> Self {
        TopologyComm { comm: Intracomm::new(comm) }
    }
}

impl Deref for TopologyComm {
    type Target = Intracomm;

    fn deref(&self) -> &Intracomm {
        &self.comm
    }
}
