//! [`Graph`] and [`DistGraph`]: communicators whose ranks are the nodes of a graph.

use std::ops::Deref;
use std::sync::Arc;

use super::{Adjacency, GraphLayout, Reorder, TopologyComm};
use crate::comm::Intracomm;
use crate::error::{Error, ErrorClass, Result};
use crate::raw::{self, TopologyLayout};

/// A communicator whose ranks are the nodes of a graph that each of them knows. [`Intracomm::graph`] creates it. A
/// [`DistGraph`] needs less memory, and its neighbourhood collectives also work with edges in one direction.
#[derive(Clone, Debug)]
pub struct Graph {
    comm: TopologyComm,
    layout: Arc<GraphLayout>,
}

/// A communicator whose ranks are the nodes of a graph of which each rank knows its own neighbours.
/// [`Intracomm::dist_graph_adjacent`] and [`Intracomm::dist_graph`] create it.
#[derive(Clone, Debug)]
pub struct DistGraph {
    comm: TopologyComm,
    adjacency: Arc<Adjacency>,
}

impl Graph {
    fn new(comm: raw::Comm) -> Result<Self> {
        let Some(TopologyLayout::Graph(layout)) = raw::topology(&comm).map(raw::VirtualTopology::layout)
        else {
            return Err(Error::new(ErrorClass::Topology, "graph", "the communicator is not a graph"));
        };
        let layout = Arc::clone(layout);
        Ok(Graph { comm: TopologyComm::new(comm), layout })
    }

    /// Returns the graph (MPI_Graph_get).
    pub fn layout(&self) -> &GraphLayout {
        &self.layout
    }

    /// Returns the neighbours of a rank (MPI_Graph_neighbors).
    ///
    /// # Errors
    /// [`ErrorClass::Rank`] if there is no such rank.
    pub fn neighbors(&self, rank: usize) -> Result<&[usize]> {
        self.layout.neighbors(rank)
    }

    /// Creates a communicator of the same graph with its own messages. Collective.
    ///
    /// # Errors
    /// As [`Intracomm::dup`].
    pub fn dup(&self) -> Result<Graph> {
        self.as_raw().dup().and_then(Graph::new)
    }
}

impl DistGraph {
    fn new(comm: raw::Comm) -> Result<Self> {
        let Some(TopologyLayout::DistGraph(adjacency)) =
            raw::topology(&comm).map(raw::VirtualTopology::layout)
        else {
            let why = "the communicator is not a distributed graph";
            return Err(Error::new(ErrorClass::Topology, "dist_graph", why));
        };
        let adjacency = Arc::clone(adjacency);
        Ok(DistGraph { comm: TopologyComm::new(comm), adjacency })
    }

    /// Returns the neighbours of this rank and the weights of their edges (MPI_Dist_graph_neighbors).
    pub fn adjacency(&self) -> &Adjacency {
        &self.adjacency
    }

    /// Returns the ranks from which this rank receives.
    pub fn sources(&self) -> &[usize] {
        &self.adjacency.sources
    }

    /// Returns the ranks to which this rank sends.
    pub fn destinations(&self) -> &[usize] {
        &self.adjacency.destinations
    }

    /// Creates a communicator of the same graph with its own messages. Collective.
    ///
    /// # Errors
    /// As [`Intracomm::dup`].
    pub fn dup(&self) -> Result<DistGraph> {
        self.as_raw().dup().and_then(DistGraph::new)
    }
}

macro_rules! derefs_to_topology {
    ($($comm:ty),*) => {$(
        impl Deref for $comm {
            type Target = TopologyComm;

            fn deref(&self) -> &TopologyComm {
                &self.comm
            }
        }
    )*};
}

derefs_to_topology!(Graph, DistGraph);

/// Graphs (MPI 4.1 §8.5.3 and §8.5.4).
impl Intracomm {
    /// Creates a communicator whose ranks are the nodes of a graph (MPI_Graph_create); ranks that are not nodes get
    /// `None`. The neighbours of node `i` are `edges[index[i - 1]..index[i]]`, and those of node 0 `edges[..index[0]]`.
    /// All ranks must pass the same arguments. Collective.
    ///
    /// ```
    /// use mpj::Reorder;
    ///
    /// # mpj::threads(3, |world| {
    /// // 0 ── 1 ── 2
    /// let path = world.graph(&[1, 3, 4], &[1, 0, 2, 1], Reorder::No)?.expect("3 nodes");
    /// assert_eq!(path.neighbors(1)?, [0, 2]);
    /// let mut from_neighbors = vec![0usize; path.neighbors(path.rank())?.len()];
    /// path.neighbor_allgather(&[10 * path.rank()], &mut from_neighbors)?;
    /// assert_eq!(from_neighbors, [&[10][..], &[0, 20], &[10]][path.rank()]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier); [`ErrorClass::Topology`] if `index` decreases or does not end with the number of
    /// edges, an edge leads to a node that does not exist, the graph has more nodes than the communicator has ranks, or
    /// the ranks have passed different arguments; a rank has too many communicators.
    pub fn graph(&self, index: &[usize], edges: &[usize], reorder: Reorder) -> Result<Option<Graph>> {
        raw::graph_create(self.as_raw(), index, edges, reorder.flag())?.map(Graph::new).transpose()
    }

    /// Returns the rank that this process would get from [`graph`](Self::graph) with [`Reorder::ByHost`], or `None` if
    /// it would not be a node (MPI_Graph_map). Not collective.
    ///
    /// # Errors
    /// [`ErrorClass::Topology`] if the graph is invalid, or has more nodes than the communicator has ranks; the
    /// communicator was freed.
    pub fn graph_map(&self, index: &[usize], edges: &[usize]) -> Result<Option<usize>> {
        Ok(raw::graph_map(self.as_raw(), index, edges)?.map(|rank| rank as usize))
    }

    /// Creates a communicator in which this rank receives from `sources` and sends to `destinations`
    /// (MPI_Dist_graph_create_adjacent). `weights` are those of the edges from the sources and to the destinations; they
    /// guide [`Reorder::ByHost`]. If the processes are reordered, another one can get this rank and its neighbours.
    /// Collective.
    ///
    /// ```
    /// use mpj::Reorder;
    ///
    /// # mpj::threads(4, |world| {
    /// // Ranks 1 to 3 send to rank 0.
    /// let (sources, destinations) = if world.rank() == 0 { (vec![1, 2, 3], vec![]) } else { (vec![], vec![0]) };
    /// let star = world.dist_graph_adjacent(&sources, &destinations, None, Reorder::No)?;
    /// let mut all = vec![0; star.sources().len()];
    /// star.neighbor_allgather(&[star.rank()], &mut all)?;
    /// assert_eq!(all, star.sources());
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`barrier`](Self::barrier); [`ErrorClass::Rank`] if a neighbour is out of range; [`ErrorClass::Arg`] if there
    /// is not one weight for each edge; [`ErrorClass::Topology`] if the two ends of an edge do not pass it equally often,
    /// or if the ranks differ in `reorder` or in the use of weights; a rank has too many communicators.
    pub fn dist_graph_adjacent(
        &self,
        sources: &[usize],
        destinations: &[usize],
        weights: Option<(&[u32], &[u32])>,
        reorder: Reorder,
    ) -> Result<DistGraph> {
        let neighbors = (sources, destinations);
        raw::dist_graph_create_adjacent(self.as_raw(), neighbors, weights, reorder.flag())
            .and_then(DistGraph::new)
    }

    /// Creates a communicator of a graph of which each rank passes some edges, in any distribution: pairs of a source
    /// and a destination (MPI_Dist_graph_create). The neighbours of a rank are in the order of the ranks that pass the
    /// edges, and then of their lists. Collective.
    ///
    /// ```
    /// use mpj::Reorder;
    ///
    /// # mpj::threads(3, |world| {
    /// // Rank 2 passes all edges.
    /// let edges: &[(usize, usize)] = if world.rank() == 2 { &[(0, 1), (2, 1), (1, 0)] } else { &[] };
    /// let graph = world.dist_graph(edges, None, Reorder::No)?;
    /// assert_eq!(graph.sources(), [&[1][..], &[0, 2], &[]][graph.rank()]);
    /// assert_eq!(graph.destinations(), [[1], [0], [1]][graph.rank()]);
    /// # Ok::<(), mpj::Error>(()) }).unwrap();
    /// ```
    ///
    /// # Errors
    /// As [`dist_graph_adjacent`](Self::dist_graph_adjacent), except that each edge is passed once.
    pub fn dist_graph(
        &self,
        edges: &[(usize, usize)],
        weights: Option<&[u32]>,
        reorder: Reorder,
    ) -> Result<DistGraph> {
        raw::dist_graph_create(self.as_raw(), edges, weights, reorder.flag()).and_then(DistGraph::new)
    }

    /// Returns this communicator as a graph, if it is a handle or a duplicate of one (MPI_Topo_test).
    pub fn as_graph(&self) -> Option<Graph> {
        Graph::new(self.as_raw().clone()).ok()
    }

    /// Returns this communicator as a distributed graph, if it is a handle or a duplicate of one (MPI_Topo_test).
    pub fn as_dist_graph(&self) -> Option<DistGraph> {
        DistGraph::new(self.as_raw().clone()).ok()
    }
}
