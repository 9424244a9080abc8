//! Graphs of ranks, and communicators with a graph topology.

use proptest::prelude::*;

use mpj::topology::{EdgeWeights, GraphLayout};
use mpj::{ErrorClass, Reorder, World};

use crate::common::{ranks, text_of};

proptest! {
    #[test]
    fn graph_returns_the_lists_of_its_nodes(lists in prop::collection::vec(prop::collection::vec(0usize..6, 0..5), 6)) {
        let ends = lists.iter().scan(0, |end, list| { *end += list.len(); Some(*end) });
        let index: Vec<usize> = ends.collect();
        let graph = GraphLayout::new(&index, &lists.concat()).expect("a valid graph");
        prop_assert_eq!((graph.size(), graph.index(), graph.edges()), (6, &index[..], &lists.concat()[..]));
        for (node, list) in lists.iter().enumerate() {
            prop_assert_eq!(graph.neighbors(node).expect("a node"), &list[..]);
        }
    }
}

#[test]
fn invalid_graphs_are_refused() {
    for (index, edges, why) in [
        (vec![2, 1], vec![0, 1], "index[1] is 1, below index[0], 2"),
        (vec![1, 2], vec![0], "the last index is 2, but the graph has 1 edges"),
        (vec![], vec![0], "the last index is 0, but the graph has 1 edges"),
        (vec![1, 2], vec![0, 2], "edge 1 leads to node 2, but the graph has 2 nodes"),
    ] {
        let error = GraphLayout::new(&index, &edges).expect_err("not a graph");
        assert_eq!((error.class(), error.to_string()), (ErrorClass::Topology, format!("graph: {why}")));
    }
    let graph = GraphLayout::new(&[0], &[]).expect("one node without edges");
    let error = graph.neighbors(1).expect_err("no such node");
    assert_eq!(error.to_string(), "neighbors: rank 1 is out of range: the graph has 1 nodes");
}

/// Returns the edges of a directed graph of `nodes` nodes in a fixed but irregular order, with repeated edges.
fn some_edges(nodes: usize) -> Vec<(usize, usize)> {
    (0..3 * nodes).map(|at| ((at * 7 + at / 3) % nodes, (at * 5 + 1) % nodes)).collect()
}

fn weight((from, to): (usize, usize)) -> u32 {
    (10 * from + to) as u32
}

#[test]
fn every_rank_gets_the_edges_of_its_node() {
    for size in [1, 2, 3, 7, 12] {
        ranks(size, |world| {
            let all = some_edges(size);
            for (distribution, weighted) in [(0, false), (1, true), (2, false)] {
                // All edges from rank 0, those of the rank's own node, or a part of them from each rank.
                let is_mine = |(at, (from, _)): &(usize, (usize, usize))| match distribution {
                    0 => world.rank() == 0,
                    1 => *from == world.rank(),
                    _ => at % size == world.rank(),
                };
                let mine =
                    |from: usize| all.iter().copied().enumerate().filter(move |it| is_mine(it)).skip(from);
                let edges: Vec<_> = mine(0).map(|(_, edge)| edge).collect();
                let weights: Vec<u32> = edges.iter().map(|edge| weight(*edge)).collect();
                let graph = world.dist_graph(&edges, weighted.then_some(&weights[..]), Reorder::No)?;
                let me = graph.rank();
                let sorted = |edges: &mut dyn Iterator<Item = usize>| {
                    let mut edges: Vec<usize> = edges.collect();
                    edges.sort_unstable();
                    edges
                };
                let sources = sorted(&mut all.iter().filter(|(_, to)| *to == me).map(|(from, _)| *from));
                let destinations = sorted(&mut all.iter().filter(|(from, _)| *from == me).map(|(_, to)| *to));
                assert_eq!(sorted(&mut graph.sources().iter().copied()), sources);
                assert_eq!(sorted(&mut graph.destinations().iter().copied()), destinations);
                let expected = weighted.then(|| EdgeWeights {
                    sources: graph.sources().iter().map(|from| weight((*from, me))).collect(),
                    destinations: graph.destinations().iter().map(|to| weight((me, *to))).collect(),
                });
                assert_eq!(graph.adjacency().weights, expected);
                // The same graph by its neighbours, in the order in which they were returned.
                let (from, to) = (graph.sources(), graph.destinations());
                let weights = expected.as_ref().map(|it| (&it.sources[..], &it.destinations[..]));
                let again = world.dist_graph_adjacent(from, to, weights, Reorder::ByHost)?;
                assert_eq!(again.adjacency(), graph.adjacency());
                assert_eq!(again.dup()?.adjacency(), graph.adjacency());
                assert!(again.as_cart().is_none() && again.as_dist_graph().is_some());
            }
            Ok(())
        });
    }
}

#[mpj::test(ranks = 5)]
fn graph_has_its_nodes_and_edges_on_every_rank(world: World) -> mpj::Result<()> {
    // MPI's example of MPI_Graph_create.
    let (index, edges) = ([2, 3, 4, 6], [1, 3, 0, 3, 0, 2]);
    let graph = world.graph(&index, &edges, Reorder::ByHost)?;
    assert_eq!(graph.is_some(), world.rank() < 4);
    assert_eq!(world.graph_map(&index, &edges)?, (world.rank() < 4).then(|| world.rank()));
    if let Some(graph) = graph {
        assert_eq!((graph.layout().index(), graph.layout().edges()), (&index[..], &edges[..]));
        let lists: [&[usize]; 4] = [&[1, 3], &[0], &[3], &[0, 2]];
        for (node, list) in lists.into_iter().enumerate() {
            assert_eq!(graph.neighbors(node)?, list);
        }
        assert_eq!(graph.neighbors(4).expect_err("4 nodes").class(), ErrorClass::Rank);
        assert_eq!(graph.dup()?.layout(), graph.layout());
    }
    assert!(world.graph(&[], &[], Reorder::No)?.is_none(), "an empty graph has no ranks");
    world.barrier()
}

#[mpj::test(ranks = 3)]
fn edges_that_only_one_end_has_are_an_error_on_every_rank(world: World) -> mpj::Result<()> {
    let me = world.rank();
    for (sources, destinations, why) in [
        // 0 → 1 is only at 0; 0 → 2 is only at 2; 0 → 1 is twice at 0 and once at 1; 0 → 2 is only at 0, and 0 → 1 is
        // only at 1.
        (
            [vec![], vec![], vec![]],
            [vec![1], vec![], vec![]],
            "found 1 edges to rank 1 at rank 0, and 0 from rank 0 at rank 1",
        ),
        (
            [vec![], vec![], vec![0]],
            [vec![], vec![], vec![]],
            "found 0 edges to rank 2 at rank 0, and 1 from rank 0 at rank 2",
        ),
        (
            [vec![], vec![0], vec![]],
            [vec![1, 1], vec![], vec![]],
            "found 2 edges to rank 1 at rank 0, and 1 from rank 0 at rank 1",
        ),
        (
            [vec![], vec![0], vec![]],
            [vec![2], vec![], vec![]],
            "found 0 edges to rank 1 at rank 0, and 1 from rank 0 at rank 1",
        ),
    ] {
        let comm = world.dup()?;
        let error = comm.dist_graph_adjacent(&sources[me], &destinations[me], None, Reorder::No);
        let error = error.expect_err("the ends differ");
        assert_eq!(error.class(), ErrorClass::Topology);
        let expected = format!("dist_graph_adjacent: expected each edge at both ends, {why}");
        assert_eq!(text_of(&error), expected);
    }
    world.barrier()
}

#[mpj::test(ranks = 3)]
fn arguments_that_differ_between_ranks_fail(world: World) -> mpj::Result<()> {
    let odd = world.rank() == 1;
    let fails = |why: &str, outcome: mpj::Result<()>| {
        let error = outcome.expect_err(why).to_string();
        assert!(error.contains(why), "{error}");
    };
    let different = "passed different arguments, expected the same on all ranks";
    let comm = || world.dup();
    fails(different, comm()?.graph(if odd { &[0, 1] } else { &[1, 1] }, &[0], Reorder::No).map(drop));
    fails(different, comm()?.graph(&[1], &[0], if odd { Reorder::No } else { Reorder::ByHost }).map(drop));
    let differs = "called the other dist_graph call, or differs in weights or reorder";
    fails(differs, comm()?.dist_graph(&[], odd.then_some(&[]), Reorder::No).map(drop));
    fails(differs, comm()?.dist_graph(&[], None, if odd { Reorder::No } else { Reorder::ByHost }).map(drop));
    let mixed = comm()?;
    fails(
        differs,
        match odd {
            true => mixed.dist_graph(&[], None, Reorder::No).map(drop),
            false => mixed.dist_graph_adjacent(&[], &[], None, Reorder::No).map(drop),
        },
    );
    // One rank's arguments are refused, and the others fail in the same call.
    let at = if odd { 3 } else { 2 };
    fails("rank 3 is out of range", comm()?.dist_graph(&[(at, 0)], None, Reorder::No).map(drop));
    fails("rank 3 is out of range", comm()?.dist_graph_adjacent(&[at], &[], None, Reorder::No).map(drop));
    fails("edge 0 leads to node 3", comm()?.graph(&[1, 1, 1], &[at], Reorder::No).map(drop));
    let weights: &[u32] = if odd { &[1, 2] } else { &[1] };
    fails("2 weights for 1 edges", comm()?.dist_graph(&[(0, 1)], Some(weights), Reorder::No).map(drop));
    let four = "the graph has 4 nodes, but the communicator only 3 ranks";
    fails(four, comm()?.graph(&[0; 4], &[], Reorder::No).map(drop));
    fails(four, comm()?.graph_map(&[0; 4], &[]).map(drop));
    world.barrier()
}
