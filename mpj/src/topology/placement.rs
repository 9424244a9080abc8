//! The assignment of the cells of a grid, or the nodes of a graph, to ranks, so that few edges lead to another host.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, HashMap};

use super::cart_layout::CartLayout;

/// Returns the rank of each cell. `hosts` has the host of each rank, of which there are at least as many as cells. Keeps
/// the ranks in their order unless another order has fewer edges between hosts.
pub(crate) fn place_grid(grid: &CartLayout, hosts: &[u32]) -> Vec<u32> {
    let edges = || {
        let after =
            move |cell, dim| grid.shift(cell, dim, 1).ok().and_then(|(_, after)| Some((cell, after?, 1)));
        (0..grid.size()).flat_map(move |cell| (0..grid.dims().len()).filter_map(move |dim| after(cell, dim)))
    };
    let by_host = ranks_by_host(hosts);
    let ranks_per_host =
        by_host.iter().filter(|rank| hosts[**rank as usize] == hosts[by_host[0] as usize]).count();
    let mut in_blocks = vec![0; grid.size()];
    for (cell, rank) in cells_by_block(grid, &block_shape(grid, ranks_per_host)).into_iter().zip(&by_host) {
        in_blocks[cell] = *rank;
    }
    let in_rows = by_host[..grid.size()].to_vec();
    fewest_cuts([identity(grid.size()), in_rows, in_blocks], hosts, edges)
}

/// Returns the rank of each node of a graph with these edges: pairs of nodes, and a weight. Otherwise as
/// [`place_grid`].
pub(crate) fn place_graph(nodes: usize, edges: &[(usize, usize, u32)], hosts: &[u32]) -> Vec<u32> {
    let grown = grow_by_host(nodes, edges, hosts);
    fewest_cuts([identity(nodes), grown], hosts, || edges.iter().copied())
}

fn identity(nodes: usize) -> Vec<u32> {
    (0..).take(nodes).collect()
}

/// Returns the ranks, host by host.
fn ranks_by_host(hosts: &[u32]) -> Vec<u32> {
    let mut ranks = identity(hosts.len());
    ranks.sort_by_key(|rank| hosts[*rank as usize]);
    ranks
}

/// Returns the first placement with the smallest total weight of edges between hosts.
fn fewest_cuts<I: Iterator<Item = (usize, usize, u32)>>(
    placements: impl IntoIterator<Item = Vec<u32>>,
    hosts: &[u32],
    edges: impl Fn() -> I,
) -> Vec<u32> {
    let cut = |placement: &Vec<u32>| -> u64 {
        let host = |node: usize| hosts[placement[node] as usize];
        edges()
            .filter(|(one, other, _)| host(*one) != host(*other))
            .map(|(.., weight)| u64::from(weight))
            .sum()
    };
    placements.into_iter().min_by_key(cut).unwrap_or_default()
}

/// Returns the sizes of a block of `cells` cells, or fewer, that divides the grid and has a small surface.
fn block_shape(grid: &CartLayout, cells: usize) -> Vec<usize> {
    let mut block = vec![1; grid.dims().len()];
    for prime in super::dims::prime_factors(cells) {
        // A dimension in which the block is short gains most.
        let fits = |dim: &usize| grid.dims()[*dim].size.is_multiple_of(block[*dim] * prime);
        if let Some(dim) = (0..block.len()).filter(fits).min_by_key(|dim| block[*dim]) {
            block[dim] *= prime;
        }
    }
    block
}

/// Returns the cells block by block.
fn cells_by_block(grid: &CartLayout, block: &[usize]) -> Vec<usize> {
    let mut cells: Vec<usize> = (0..grid.size()).collect();
    cells.sort_by_cached_key(|cell| {
        let coords = grid.coords_of(*cell).unwrap_or_default();
        coords.iter().zip(block).map(|(at, size)| at / size).collect::<Vec<_>>()
    });
    cells
}

/// Fills one host after the other, each time with the node whose edges to the nodes already there have the most weight.
fn grow_by_host(nodes: usize, edges: &[(usize, usize, u32)], hosts: &[u32]) -> Vec<u32> {
    let mut neighbors = vec![Vec::new(); nodes];
    for (one, other, weight) in edges {
        neighbors[*one].push((*other, *weight));
        neighbors[*other].push((*one, *weight));
    }
    let mut ranks_of_hosts = BTreeMap::<u32, Vec<u32>>::new();
    for (rank, host) in (0..).zip(hosts) {
        ranks_of_hosts.entry(*host).or_default().push(rank);
    }
    let (mut placement, mut is_placed, mut seeds) = (vec![0; nodes], vec![false; nodes], 0..nodes);
    for ranks in ranks_of_hosts.values() {
        let (mut chosen, mut gains, mut frontier) = (Vec::new(), HashMap::new(), BinaryHeap::new());
        while chosen.len() < ranks.len() {
            // A node enters the frontier again when its gain grows. An old entry comes after the new one.
            let grown = std::iter::from_fn(|| frontier.pop().map(|(_, Reverse(node))| node))
                .find(|node: &usize| !is_placed[*node]);
            let Some(node) = grown.or_else(|| seeds.find(|node| !is_placed[*node])) else { break };
            is_placed[node] = true;
            chosen.push(node);
            for (neighbor, weight) in &neighbors[node] {
                let gain = gains.entry(*neighbor).or_insert(0u64);
                *gain += u64::from(*weight);
                frontier.push((*gain, Reverse(*neighbor)));
            }
        }
        chosen.sort_unstable();
        for (node, rank) in chosen.into_iter().zip(ranks) {
            placement[node] = *rank;
        }
    }
    placement
}

#[cfg(test)]
mod tests {
    use super::super::cart_layout::Dim;
    use super::*;

    fn cuts(grid: &CartLayout, placement: &[u32], hosts: &[u32]) -> usize {
        let host = |cell: usize| hosts[placement[cell] as usize];
        let neighbors = |cell| grid.neighbors(cell).expect("a cell").into_iter().flatten();
        (0..grid.size()).map(|cell| neighbors(cell).filter(|other| host(*other) != host(cell)).count()).sum()
    }

    fn is_permutation(placement: &[u32], ranks: usize) -> bool {
        let mut sorted = placement.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        sorted.len() == placement.len() && sorted.iter().all(|rank| (*rank as usize) < ranks)
    }

    #[test]
    fn grid_is_placed_in_blocks_of_hosts() {
        let grid = CartLayout::new(&[Dim::open(8), Dim::periodic(8)]).unwrap();
        for hosts in [
            (0..64).map(|rank| rank / 16).collect::<Vec<u32>>(),
            (0..64).map(|rank| rank % 4).collect::<Vec<u32>>(),
        ] {
            let placement = place_grid(&grid, &hosts);
            assert!(is_permutation(&placement, 64));
            // 4 hosts with a block of 4 × 4 cells each: 8 edges across the open middle, 16 across the two others.
            assert_eq!(cuts(&grid, &placement, &hosts), 2 * (8 + 16), "{hosts:?}");
        }
    }

    #[test]
    fn placement_never_has_more_edges_between_hosts_than_the_old_order() {
        for (sizes, hosts) in [
            (vec![3, 5], (0..15).map(|rank| rank / 4).collect::<Vec<u32>>()),
            (vec![7], vec![0, 1, 0, 1, 0, 1, 0]),
            (vec![2, 2, 2], vec![0, 0, 0, 1, 1, 1, 2, 2, 3, 3]),
            (vec![], vec![1, 0]),
        ] {
            let dims: Vec<Dim> = sizes.into_iter().map(Dim::periodic).collect();
            let grid = CartLayout::new(&dims).unwrap();
            let placement = place_grid(&grid, &hosts);
            assert!(is_permutation(&placement, hosts.len()));
            assert!(cuts(&grid, &placement, &hosts) <= cuts(&grid, &identity(grid.size()), &hosts));
        }
    }

    #[test]
    fn parts_of_a_graph_are_placed_on_one_host_each() {
        // Two rings of 4 nodes, whose nodes alternate; the ranks alternate between two hosts in pairs.
        let edges: Vec<_> = (0..8).map(|node| (node, (node + 2) % 8, 1)).collect();
        let hosts = [0, 0, 1, 1, 0, 0, 1, 1];
        let placement = place_graph(8, &edges, &hosts);
        assert!(is_permutation(&placement, 8));
        assert!((0..8).all(|node| hosts[placement[node] as usize] == hosts[placement[node % 2] as usize]));
        assert_eq!(place_graph(0, &[], &hosts), [0u32; 0]);
    }
}
