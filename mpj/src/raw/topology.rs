//! Communicators whose ranks are the cells of a grid or the nodes of a graph (MPI 4.1 §8).
//!
//! All of these calls are collective, except [`topology`], [`cart_map`] and [`graph_map`]. Every rank must pass the same
//! grid or graph and the same `reorder`; otherwise the call fails on every rank. If `reorder` is true, the new ranks are
//! placed so that fewer neighbours are on different hosts, if that is possible.

use std::sync::Arc;

use mpj_collectives::{Neighbor, Operation};
use mpj_devices::HostId;

use super::comm::Comm;
use crate::collective::blocking::BlockingCall;
use crate::collective::call_id::CallDigest;
use crate::error::{Error, ErrorClass, Result};
use crate::topology::placement::{place_graph, place_grid};
use crate::topology::{Adjacency, CartLayout, Dim, GraphLayout};

/// The topology of a communicator, as one of its ranks knows it.
#[derive(Debug)]
pub struct VirtualTopology {
    layout: TopologyLayout,
    /// The neighbours from which this rank receives, in the order of the messages.
    pub(super) sources: Vec<Neighbor>,
    /// The neighbours to which this rank sends, in the order of the messages.
    pub(super) destinations: Vec<Neighbor>,
    /// The numbers of blocks in a receive and in a send buffer, which include those of missing neighbours.
    pub(super) block_counts: (usize, usize),
    /// An edge of a graph that occurs more often than its reverse. Neighbourhood collectives need each reverse edge.
    pub(super) one_way_edge: Option<(usize, usize)>,
}

/// The kind of a topology, and its description.
#[derive(Clone, Debug)]
pub enum TopologyLayout {
    /// A grid.
    Cart(Arc<CartLayout>),
    /// A graph that each rank knows as a whole.
    Graph(Arc<GraphLayout>),
    /// A graph of which each rank knows its own neighbours.
    DistGraph(Arc<Adjacency>),
}

impl VirtualTopology {
    /// Returns the description of the topology.
    pub fn layout(&self) -> &TopologyLayout {
        &self.layout
    }

    fn of_cart(layout: Arc<CartLayout>, rank: u32) -> Result<Self> {
        let all = layout.neighbors(rank as usize)?;
        let neighbor = |block: usize| Some(Neighbor { rank: all[block]? as u32, block: block as u32 });
        Ok(VirtualTopology {
            // The message that a rank sends to the rank before it is the message from the rank after that one. In a
            // periodic dimension with one or two cells, both are the same rank, so the order of messages matters.
            sources: (0..all.len()).map(|block| block ^ 1).filter_map(neighbor).collect(),
            destinations: (0..all.len()).filter_map(neighbor).collect(),
            block_counts: (all.len(), all.len()),
            one_way_edge: None,
            layout: TopologyLayout::Cart(layout),
        })
    }

    fn of_graph(layout: Arc<GraphLayout>, rank: u32) -> Result<Self> {
        let neighbors = in_order(layout.neighbors(rank as usize)?);
        Ok(VirtualTopology {
            sources: neighbors.clone(),
            block_counts: (neighbors.len(), neighbors.len()),
            destinations: neighbors,
            one_way_edge: layout.one_way_edge(),
            layout: TopologyLayout::Graph(layout),
        })
    }

    pub(super) fn of_dist_graph(adjacency: Adjacency) -> Self {
        VirtualTopology {
            sources: in_order(&adjacency.sources),
            destinations: in_order(&adjacency.destinations),
            block_counts: (adjacency.sources.len(), adjacency.destinations.len()),
            one_way_edge: None,
            layout: TopologyLayout::DistGraph(Arc::new(adjacency)),
        }
    }
}

fn in_order(ranks: &[usize]) -> Vec<Neighbor> {
    (0..).zip(ranks).map(|(block, rank)| Neighbor { rank: *rank as u32, block }).collect()
}

/// Returns the topology of a communicator, if it has one (MPI_Topo_test). A duplicate has that of its original.
pub fn topology(comm: &Comm) -> Option<&VirtualTopology> {
    comm.topology()?.downcast_ref()
}

/// Creates a communicator whose ranks are the cells of a grid; `None` on ranks outside (MPI_Cart_create).
///
/// # Errors
/// As [`barrier`](super::barrier); [`ErrorClass::Dims`] if the grid is invalid or has more cells than the communicator
/// has ranks; [`ErrorClass::Topology`] if the ranks have passed different arguments; a rank has too many communicators.
pub fn cart_create(comm: &Comm, dims: &[Dim], reorder: bool) -> Result<Option<Comm>> {
    comm.collective("cart", |blocking| {
        let layout = cart_layout(comm, "cart", dims)?;
        let dim_words = dims.iter().flat_map(|dim| [dim.size as u64, u64::from(dim.periodic)]);
        let words = [u64::from(reorder)].into_iter().chain(dim_words);
        let passed = || format!("the grid {layout} and reorder = {reorder}");
        let ids = comm.agree(blocking, ("cart", Operation::Cart), words, passed)?;
        let members = comm.cart_members(&layout, reorder);
        comm.create_with_topology("cart", ids[0], &members, |rank| {
            VirtualTopology::of_cart(Arc::new(layout), rank)
        })
    })
}

/// Returns the rank that this process would get from [`cart_create`] with `reorder`; `None` outside of the grid
/// (MPI_Cart_map). Not collective.
///
/// # Errors
/// [`ErrorClass::Dims`] if the grid is invalid or has more cells than the communicator has ranks; the communicator was
/// freed.
pub fn cart_map(comm: &Comm, dims: &[Dim]) -> Result<Option<u32>> {
    let layout = cart_layout(comm, "cart_map", dims)?;
    Ok(position(&comm.cart_members(&layout, true), comm.rank()))
}

/// Creates communicators of the sub-grids that consist of the dimensions for which `keep` is true, and returns that of
/// this rank (MPI_Cart_sub).
///
/// # Errors
/// As [`barrier`](super::barrier); [`ErrorClass::Topology`] if the communicator is not a grid, or if the ranks have
/// passed different flags; [`ErrorClass::Dims`] if there is not one flag for each dimension; a rank has too many
/// communicators.
pub fn cart_sub(comm: &Comm, keep: &[bool]) -> Result<Comm> {
    comm.collective("cart_sub", |blocking| {
        let layout = match topology(comm).map(VirtualTopology::layout) {
            Some(TopologyLayout::Cart(layout)) => layout,
            _ => return Err(no_topology("cart_sub", "a Cartesian topology: create it by `cart`")),
        };
        let sub = layout.sub(keep)?;
        let words = keep.iter().map(|keep| u64::from(*keep));
        let ids = comm.agree(blocking, ("cart_sub", Operation::CartSub), words, || format!("{keep:?}"))?;
        let index = layout.sub_index_of(comm.rank() as usize, keep)?;
        let is_member =
            |rank: &u32| layout.sub_index_of(*rank as usize, keep).is_ok_and(|other| other == index);
        let members: Vec<u32> = (0..comm.size()).filter(is_member).collect();
        let id = ids[members[0] as usize];
        let sub = comm.create_with_topology("cart_sub", id, &members, |rank| {
            VirtualTopology::of_cart(Arc::new(sub), rank)
        })?;
        sub.ok_or_else(|| Error::new(ErrorClass::Intern, "cart_sub", "this rank is in no sub-grid"))
    })
}

/// Creates a communicator whose ranks are the nodes of a graph; `None` on ranks outside (MPI_Graph_create).
/// [`GraphLayout`] describes `index` and `edges`.
///
/// # Errors
/// As [`barrier`](super::barrier); [`ErrorClass::Topology`] if the graph is invalid or has more nodes than the
/// communicator has ranks, or if the ranks have passed different arguments; a rank has too many communicators.
pub fn graph_create(comm: &Comm, index: &[usize], edges: &[usize], reorder: bool) -> Result<Option<Comm>> {
    comm.collective("graph", |blocking| {
        let layout = graph_layout(comm, "graph", index, edges)?;
        let words = [u64::from(reorder), index.len() as u64].into_iter();
        let words = words.chain(index.iter().chain(edges).map(|number| *number as u64));
        let passed = || format!("{} nodes, {} edges and reorder = {reorder}", index.len(), edges.len());
        let ids = comm.agree(blocking, ("graph", Operation::Graph), words, passed)?;
        let members = comm.graph_members(&layout, reorder);
        comm.create_with_topology("graph", ids[0], &members, |rank| {
            VirtualTopology::of_graph(Arc::new(layout), rank)
        })
    })
}

/// Returns the rank that this process would get from [`graph_create`] with `reorder`; `None` outside of the graph
/// (MPI_Graph_map). Not collective.
///
/// # Errors
/// [`ErrorClass::Topology`] if the graph is invalid or has more nodes than the communicator has ranks; the communicator
/// was freed.
pub fn graph_map(comm: &Comm, index: &[usize], edges: &[usize]) -> Result<Option<u32>> {
    let layout = graph_layout(comm, "graph_map", index, edges)?;
    Ok(position(&comm.graph_members(&layout, true), comm.rank()))
}

fn cart_layout(comm: &Comm, call: &'static str, dims: &[Dim]) -> Result<CartLayout> {
    comm.check_not_freed(call)?;
    let layout = CartLayout::new(dims).map_err(|error| error.with_call(call))?;
    let (cells, ranks) = (layout.size(), comm.size());
    if cells > ranks as usize {
        let why = format!("the grid {layout} has {cells} cells, but the communicator only {ranks} ranks");
        return Err(Error::new(ErrorClass::Dims, call, why));
    }
    Ok(layout)
}

fn graph_layout(comm: &Comm, call: &'static str, index: &[usize], edges: &[usize]) -> Result<GraphLayout> {
    comm.check_not_freed(call)?;
    let layout = GraphLayout::new(index, edges).map_err(|error| error.with_call(call))?;
    let (nodes, ranks) = (layout.size(), comm.size());
    if nodes > ranks as usize {
        let why = format!("the graph has {nodes} nodes, but the communicator only {ranks} ranks");
        return Err(Error::new(ErrorClass::Topology, call, why));
    }
    Ok(layout)
}

pub(super) fn no_topology(call: &'static str, expected: &str) -> Error {
    Error::new(ErrorClass::Topology, call, format!("the communicator does not have {expected}"))
}

fn position(members: &[u32], rank: u32) -> Option<u32> {
    (0..).zip(members).find(|(_, member)| **member == rank).map(|(position, _)| position)
}

impl Comm {
    /// Checks that all ranks have passed the same words; `passed` describes those of this rank. Returns a new context id
    /// of each rank.
    fn agree(
        &self,
        blocking: &mut BlockingCall<'_>,
        (call, operation): (&'static str, Operation),
        words: impl Iterator<Item = u64>,
        passed: impl Fn() -> String,
    ) -> Result<Vec<u64>> {
        self.check_channel_limit(call)?;
        let mine = [hash(words), self.new_context_id()];
        let all = blocking.allgather_words(CallDigest::new(operation, 0), &mine)?;
        match all.chunks_exact(2).position(|theirs| theirs[0] != all[0]) {
            None => Ok(all.chunks_exact(2).map(|theirs| theirs[1]).collect()),
            Some(rank) => {
                let (me, passed) = (self.rank(), passed());
                let why = format!(
                    "ranks 0 and {rank} passed different arguments, expected the same on all ranks; rank {me} \
                     passed {passed}"
                );
                Err(Error::new(ErrorClass::Topology, call, why))
            }
        }
    }

    /// Creates a communicator of the ranks `members`, in this order, and attaches the topology that `topology` returns
    /// for the new rank.
    pub(super) fn create_with_topology(
        &self,
        call: &'static str,
        id: u64,
        members: &[u32],
        topology: impl FnOnce(u32) -> Result<VirtualTopology>,
    ) -> Result<Option<Comm>> {
        let Some(comm) = self.with_members(call, id, members)? else { return Ok(None) };
        let topology = topology(comm.rank())?;
        comm.set_topology(call, Arc::new(topology))?;
        Ok(Some(comm))
    }

    /// Returns the rank of each cell.
    fn cart_members(&self, layout: &CartLayout, reorder: bool) -> Vec<u32> {
        match self.hosts_of_ranks(reorder) {
            Some(hosts) => place_grid(layout, &hosts),
            None => (0..).take(layout.size()).collect(),
        }
    }

    /// Returns the rank of each node.
    fn graph_members(&self, layout: &GraphLayout, reorder: bool) -> Vec<u32> {
        let edges = || layout.pairs().map(|(from, to)| (from, to, 1)).collect::<Vec<_>>();
        self.node_members(layout.size(), edges, reorder)
    }

    /// Returns the rank of each node of a graph with weighted edges.
    pub(super) fn node_members(
        &self,
        nodes: usize,
        edges: impl FnOnce() -> Vec<(usize, usize, u32)>,
        reorder: bool,
    ) -> Vec<u32> {
        match self.hosts_of_ranks(reorder) {
            Some(hosts) => place_graph(nodes, &edges(), &hosts),
            None => (0..).take(nodes).collect(),
        }
    }

    /// Returns the host of each rank; `None` if an order by host is not wanted or all ranks are on one host.
    fn hosts_of_ranks(&self, reorder: bool) -> Option<Vec<u32>> {
        let host = |rank| self.host_of(rank).map_or(0, |HostId(host)| host);
        (reorder && self.host_count() > 1).then(|| (0..self.size()).map(host).collect())
    }
}

/// Returns the FNV-1a hash of words.
fn hash(words: impl Iterator<Item = u64>) -> u64 {
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
    words.flat_map(u64::to_le_bytes).fold(0xcbf2_9ce4_8422_2325, step)
}
