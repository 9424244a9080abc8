//! Graphs of ranks without a communicator: the graph of MPI_Graph_create, and the neighbours of one node.

use crate::error::{Error, ErrorClass, Result};

/// A graph whose nodes are ranks, in the format of MPI_Graph_create: the neighbours of node `i` are
/// `edges[index[i - 1]..index[i]]`, and `index[-1]` stands for 0.
///
/// ```
/// use mpj::topology::GraphLayout;
///
/// // 0 ── 1 ── 2
/// let path = GraphLayout::new(&[1, 3, 4], &[1, 0, 2, 1])?;
/// assert_eq!(path.neighbors(1)?, [0, 2]);
/// # Ok::<(), mpj::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GraphLayout {
    index: Box<[usize]>,
    edges: Box<[usize]>,
}

impl GraphLayout {
    /// Creates a graph. A node can be its own neighbour, and can have a neighbour several times.
    ///
    /// # Errors
    /// [`ErrorClass::Topology`] if `index` decreases, its last value is not the number of edges, or an edge leads to a
    /// node that does not exist.
    pub fn new(index: &[usize], edges: &[usize]) -> Result<Self> {
        let fail = |why| Err(Error::new(ErrorClass::Topology, "graph", why));
        if let Some(at) = index.windows(2).position(|two| two[0] > two[1]) {
            return fail(format!("index[{}] is {}, below index[{at}], {}", at + 1, index[at + 1], index[at]));
        }
        let last = index.last().copied().unwrap_or(0);
        if last != edges.len() {
            return fail(format!("the last index is {last}, but the graph has {} edges", edges.len()));
        }
        if let Some(at) = edges.iter().position(|node| *node >= index.len()) {
            let (node, nodes) = (edges[at], index.len());
            return fail(format!("edge {at} leads to node {node}, but the graph has {nodes} nodes"));
        }
        Ok(GraphLayout { index: index.into(), edges: edges.into() })
    }

    /// Returns the number of nodes.
    pub fn size(&self) -> usize {
        self.index.len()
    }

    /// Returns the ends of the nodes' lists of neighbours.
    pub fn index(&self) -> &[usize] {
        &self.index
    }

    /// Returns the lists of neighbours, one after the other.
    pub fn edges(&self) -> &[usize] {
        &self.edges
    }

    /// Returns the neighbours of a node (MPI_Graph_neighbors).
    ///
    /// # Errors
    /// [`ErrorClass::Rank`] if the graph has no such node.
    pub fn neighbors(&self, node: usize) -> Result<&[usize]> {
        if node >= self.size() {
            let why = format!("rank {node} is out of range: the graph has {} nodes", self.size());
            return Err(Error::new(ErrorClass::Rank, "neighbors", why));
        }
        Ok(self.list(node))
    }

    fn list(&self, node: usize) -> &[usize] {
        let first = node.checked_sub(1).map_or(0, |before| self.index[before]);
        &self.edges[first..self.index[node]]
    }

    /// Returns the edges as pairs of nodes.
    pub(crate) fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        (0..self.size()).flat_map(|node| self.list(node).iter().map(move |to| (node, *to)))
    }

    /// Returns an edge that occurs more often than its reverse.
    pub(crate) fn one_way_edge(&self) -> Option<(usize, usize)> {
        let mut there: Vec<_> = self.pairs().collect();
        let mut back: Vec<_> = self.pairs().map(|(from, to)| (to, from)).collect();
        there.sort_unstable();
        back.sort_unstable();
        let (one, other) = there.into_iter().zip(back).find(|(one, other)| one != other)?;
        Some(if one < other { one } else { (other.1, other.0) })
    }
}

/// The neighbours of one node of a distributed graph, in the order of the blocks in neighbourhood collectives.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Adjacency {
    /// The nodes with an edge to this one.
    pub sources: Vec<usize>,
    /// The nodes to which this one has an edge.
    pub destinations: Vec<usize>,
    /// The weights of the edges; `None` if the graph is unweighted.
    pub weights: Option<EdgeWeights>,
}

/// The weights of the edges in an [`Adjacency`]. They guide the placement on hosts, and have no other effect.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct EdgeWeights {
    /// The weights of the edges from the sources.
    pub sources: Vec<u32>,
    /// The weights of the edges to the destinations.
    pub destinations: Vec<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_way_edges_are_found() {
        let one_way =
            |index: &[usize], edges: &[usize]| GraphLayout::new(index, edges).unwrap().one_way_edge();
        assert_eq!(one_way(&[], &[]), None);
        assert_eq!(
            one_way(&[2, 4, 5], &[1, 0, 0, 2, 1]),
            None,
            "the edge from 0 to itself is its own reverse"
        );
        assert_eq!(one_way(&[1, 1, 1], &[2]), Some((0, 2)));
        assert_eq!(one_way(&[0, 0, 1], &[0]), Some((2, 0)));
        assert_eq!(one_way(&[2, 3], &[1, 1, 0]), Some((0, 1)));
        assert_eq!(one_way(&[1, 3], &[1, 0, 0]), Some((1, 0)));
    }
}
