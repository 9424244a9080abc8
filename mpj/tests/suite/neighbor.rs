//! Neighbourhood collectives on grids, graphs and distributed graphs: each call in each form, compared with a model of
//! the topology.

use mpj::coll::{self, OwnedCollective};
use mpj::topology::{Dim, TopologyComm};
use mpj::{Intracomm, Reorder, World};

use crate::alltoallw::{Received, boxed};
use crate::common::ranks;

/// The value of each item that no message may write.
const BLANK: u64 = u64::MAX;

/// The number of items in a block from outside an open dimension, at the receiver. No message arrives there.
const MISSING: usize = 4;

/// Returns the items of the block that rank `from` sends to its destination number `block` in a round.
fn items(from: usize, block: usize, round: usize, len: usize) -> Vec<u64> {
    (0..len).map(|at| (((from * 100 + block) * 10 + round) * 100_000 + at) as u64).collect()
}

/// Returns the number of items in the block, which varies. One block is long enough for a rendezvous.
fn len(from: usize, block: usize) -> usize {
    if (from, block) == (1, 0) { 9000 } else { (from * 5 + block * 3) % 7 }
}

/// The neighbourhood of a rank.
struct Around<'c> {
    comm: &'c TopologyComm,
    /// For each source, its rank and the number of its block for this rank; `None` outside an open dimension.
    sources: Vec<Option<(usize, usize)>>,
    destinations: usize,
}

impl<'c> Around<'c> {
    /// The neighbourhood in a grid: the rank before this one in a dimension sends its block for the rank after it.
    fn in_grid(comm: &'c TopologyComm, neighbors: Vec<Option<usize>>) -> Self {
        let destinations = neighbors.len();
        let sources = (0..).zip(neighbors).map(|(at, from): (usize, _)| Some((from?, at ^ 1))).collect();
        Around { comm, sources, destinations }
    }

    /// The neighbourhood in a graph, of which each rank knows its own lists: the `k`th block that a rank receives from
    /// another one is the `k`th block that the other one sends to it.
    fn in_graph(comm: &'c TopologyComm, sources: &[usize], destinations: &[usize]) -> mpj::Result<Self> {
        let all = comm.allgather_object(destinations.to_vec())?;
        let mut received = vec![0; comm.size()];
        let source = |from: &usize| {
            let to_me = all[*from].iter().enumerate().filter(|(_, to)| **to == comm.rank());
            let block = to_me.map(|(block, _)| block).nth(received[*from]).expect("an edge");
            received[*from] += 1;
            Some((*from, block))
        };
        Ok(Around { comm, sources: sources.iter().map(source).collect(), destinations: destinations.len() })
    }

    /// The blocks that this rank sends.
    fn sent(&self, round: usize, len: impl Fn(usize, usize) -> usize) -> Vec<Vec<u64>> {
        let me = self.comm.rank();
        (0..self.destinations).map(|block| items(me, block, round, len(me, block))).collect()
    }

    /// The blocks that this rank receives; `missing` is the length of one from outside an open dimension.
    fn received(&self, round: usize, missing: usize, len: impl Fn(usize, usize) -> usize) -> Vec<Vec<u64>> {
        let block = |source: &Option<(usize, usize)>| match *source {
            Some((from, block)) => items(from, block, round, len(from, block)),
            None => vec![BLANK; missing],
        };
        self.sources.iter().map(block).collect()
    }

    /// Returns the neighbourhood as if each source sent its block 0 to all its destinations.
    fn gathering(&self) -> Self {
        let sources = self.sources.iter().map(|source| source.map(|(from, _)| (from, 0))).collect();
        Around { sources, ..*self }
    }
}

/// The lengths and positions of blocks, from the last one to the first, with a gap before each.
#[derive(Debug)]
struct Places {
    counts: Vec<usize>,
    starts: Vec<usize>,
    end: usize,
}

impl Places {
    fn of(blocks: &[Vec<u64>]) -> Self {
        let counts: Vec<usize> = blocks.iter().map(Vec::len).collect();
        let mut end = 0;
        let mut starts = Vec::new();
        for count in counts.iter().rev() {
            starts.insert(0, end + 1);
            end += 1 + count;
        }
        Places { counts, starts, end }
    }

    fn blocks(&self) -> (&[usize], &[usize]) {
        (&self.counts, &self.starts)
    }

    fn fill(&self, blocks: &[Vec<u64>]) -> Vec<u64> {
        let mut all = vec![BLANK; self.end];
        for (at, block) in self.starts.iter().zip(blocks) {
            all[*at..][..block.len()].copy_from_slice(block);
        }
        all
    }
}

/// Runs a call in all forms: blocking, started, and prepared and started three times with different data.
fn all_forms<B: Send + Sync + 'static>(
    comm: &TopologyComm,
    bufs: impl Fn(usize) -> B,
    call: impl Fn(&mut B) -> mpj::Result<()>,
    owned: impl Fn(B) -> OwnedCollective<B>,
    check: impl Fn(usize, &B),
) -> mpj::Result<()> {
    let mut borrowed = bufs(0);
    call(&mut borrowed)?;
    check(0, &borrowed);
    check(1, &comm.start(owned(bufs(1)))?.wait()?.0);
    let mut prepared = comm.prepare(owned(bufs(0)))?;
    for round in 2..5 {
        *prepared.buffers_mut() = bufs(round);
        check(round, prepared.start()?.wait()?);
    }
    Ok(())
}

/// Runs a call with two buffers in all forms. `sent` and `expected` return their contents in a round.
fn two_buffers(
    comm: &TopologyComm,
    sent: impl Fn(usize) -> Vec<u64>,
    expected: impl Fn(usize) -> Vec<u64>,
    call: impl Fn(&[u64], &mut [u64]) -> mpj::Result<()>,
    owned: impl Fn(Vec<u64>, Vec<u64>) -> OwnedCollective<(Vec<u64>, Vec<u64>)>,
) -> mpj::Result<()> {
    all_forms(
        comm,
        |round| (sent(round), vec![BLANK; expected(round).len()]),
        |(send, recv)| call(send, recv),
        |(send, recv)| owned(send, recv),
        |round, (send, recv)| {
            assert_eq!(
                (send, recv),
                (&sent(round), &expected(round)),
                "round {round} on rank {}",
                comm.rank()
            );
        },
    )
}

fn equal_blocks(around: &Around<'_>, len: usize) -> mpj::Result<()> {
    let (comm, same) = (around.comm, |_: usize, _: usize| len);
    two_buffers(
        comm,
        |round| items(comm.rank(), 0, round, len),
        |round| around.gathering().received(round, len, same).concat(),
        |send, recv| comm.neighbor_allgather(send, recv),
        coll::neighbor_allgather,
    )?;
    two_buffers(
        comm,
        |round| around.sent(round, same).concat(),
        |round| around.received(round, len, same).concat(),
        |send, recv| comm.neighbor_alltoall(send, recv),
        coll::neighbor_alltoall,
    )
}

fn blocks_of_different_lengths(around: &Around<'_>) -> mpj::Result<()> {
    let (comm, me, gathering) = (around.comm, around.comm.rank(), around.gathering());
    let back = Places::of(&gathering.received(0, MISSING, len));
    two_buffers(
        comm,
        |round| items(me, 0, round, len(me, 0)),
        |round| back.fill(&gathering.received(round, MISSING, len)),
        |send, recv| comm.neighbor_allgatherv(send, recv, &back.counts, &back.starts),
        |send, recv| coll::neighbor_allgatherv(send, recv, &back.counts, &back.starts),
    )?;
    let (out, back) = (Places::of(&around.sent(0, len)), Places::of(&around.received(0, MISSING, len)));
    two_buffers(
        comm,
        |round| out.fill(&around.sent(round, len)),
        |round| back.fill(&around.received(round, MISSING, len)),
        |send, recv| comm.neighbor_alltoallv(send, out.blocks(), recv, back.blocks()),
        |send, recv| coll::neighbor_alltoallv(send, out.blocks(), recv, back.blocks()),
    )
}

/// Even ranks send `u64`s, odd ranks `[u32; 2]`s.
fn buffers_of_different_types(around: &Around<'_>) -> mpj::Result<()> {
    let (comm, me) = (around.comm, around.comm.rank());
    let place = |source: &Option<(usize, usize)>| match *source {
        Some((from, block)) => Received::new(from, len(from, block)),
        None => Received::new(0, MISSING),
    };
    let sent = |round| around.sent(round, len).into_iter().map(|block| boxed(me, block)).collect::<Vec<_>>();
    all_forms(
        comm,
        |round| (sent(round), around.sources.iter().map(place).collect::<Vec<_>>()),
        |(send, recv)| comm.neighbor_alltoallw(send, recv),
        |(send, recv)| coll::neighbor_alltoallw(send, recv),
        |round, (_, recv)| {
            let got: Vec<Vec<u64>> = recv.iter().map(Received::words).collect();
            for ((source, got), expected) in
                around.sources.iter().zip(got).zip(around.received(round, MISSING, len))
            {
                assert_eq!(got, if source.is_some() { expected } else { vec![0; MISSING] }, "{source:?}");
            }
        },
    )
}

fn all_calls_in_all_forms(around: &Around<'_>) -> mpj::Result<()> {
    for len in [0, 3000] {
        equal_blocks(around, len)?;
    }
    blocks_of_different_lengths(around)?;
    buffers_of_different_types(around)
}

/// Grids of one to four dimensions, some of which are periodic.
fn grids(ranks: usize) -> impl Iterator<Item = Vec<Dim>> {
    [[false; 4], [true, false, false, false], [true, false, true, false], [true; 4]].into_iter().zip(1..).map(
        move |(periodic, count)| {
            let sizes = mpj::dims(ranks, &vec![None; count]).expect("free sizes");
            sizes.into_iter().zip(periodic).map(|(size, periodic)| Dim { size, periodic }).collect()
        },
    )
}

#[test]
fn every_call_exchanges_blocks_with_the_neighbours_in_a_grid() {
    for size in [1, 2, 3, 6] {
        ranks(size, |world| {
            for dims in grids(size) {
                let grid = world.cart(&dims, Reorder::No)?.expect("a cell for each rank");
                let neighbors = grid.layout().neighbors(grid.rank())?;
                all_calls_in_all_forms(&Around::in_grid(&grid, neighbors))?;
            }
            Ok(())
        });
    }
}

/// A ring (two edges between two nodes), a star around node 0, and loops at node 0 and at each odd node.
fn ring_and_star(nodes: usize) -> Vec<Vec<usize>> {
    let mut lists = vec![Vec::new(); nodes];
    for node in 0..nodes {
        for other in [(node + 1) % nodes, 0] {
            lists[node].push(other);
            lists[other].push(node);
        }
        if node % 2 == 1 {
            lists[node].push(node);
        }
    }
    lists
}

#[test]
fn every_call_exchanges_blocks_with_the_neighbours_in_a_graph() {
    for nodes in [1, 2, 3, 5] {
        // The last rank is not a node.
        ranks(nodes + 1, |world| {
            let lists = ring_and_star(nodes);
            let ends = lists.iter().scan(0, |end, list| {
                *end += list.len();
                Some(*end)
            });
            let index: Vec<usize> = ends.collect();
            let Some(graph) = world.graph(&index, &lists.concat(), Reorder::No)? else {
                assert_eq!(world.rank(), nodes);
                return Ok(());
            };
            let neighbors = graph.neighbors(graph.rank())?;
            assert_eq!(neighbors, lists[graph.rank()]);
            all_calls_in_all_forms(&Around::in_graph(&graph, neighbors, neighbors)?)
        });
    }
}

/// Each rank sends to the next two, and `1 + rank % 2` times to itself.
fn next_two(world: &World) -> (Vec<usize>, Vec<usize>) {
    let (me, size) = (world.rank(), world.size());
    let own = vec![me; 1 + me % 2];
    let sources = [own.clone(), vec![(me + size - 1) % size, (me + size - 2 % size) % size]].concat();
    (sources, [vec![(me + 1) % size, (me + 2) % size], own].concat())
}

#[test]
fn every_call_exchanges_blocks_with_the_neighbours_in_a_distributed_graph() {
    for size in [1, 2, 3, 5, 8] {
        ranks(size, |world| {
            let (sources, destinations) = next_two(&world);
            let graph = world.dist_graph_adjacent(&sources, &destinations, None, Reorder::No)?;
            assert_eq!((graph.sources(), graph.destinations()), (&sources[..], &destinations[..]));
            all_calls_in_all_forms(&Around::in_graph(&graph, &sources, &destinations)?)?;
            // Each rank passes a part of an irregular list, with edges in one direction and repeated ones.
            let edges = (0..3 * size).map(|at| ((at * 7 + at / 3) % size, (at * 5 + 1) % size));
            let mine: Vec<_> = edges.skip(world.rank()).step_by(size).collect();
            let graph = world.dist_graph(&mine, None, Reorder::No)?;
            all_calls_in_all_forms(&Around::in_graph(&graph, graph.sources(), graph.destinations())?)
        });
    }
}

#[mpj::test(ranks = 3)]
fn ranks_without_neighbours_take_part(world: World) -> mpj::Result<()> {
    // 0 sends to 1; rank 2 has no neighbours.
    let edges: &[(usize, usize)] = if world.rank() == 2 { &[(0, 1)] } else { &[] };
    let graph = world.dist_graph(edges, None, Reorder::No)?;
    let mut recv = vec![0u8; graph.sources().len()];
    graph.neighbor_allgather(&[5u8, 6], &mut [0u8; 2][..2 * recv.len()])?;
    graph.neighbor_alltoall(&vec![7u8; graph.destinations().len()], &mut recv)?;
    assert_eq!(recv, [&[][..], &[7], &[]][graph.rank()]);
    // Two items for no destination.
    let outcome = graph.dup()?.neighbor_alltoall(&[1u8, 2], &mut [0u8; 0]);
    assert!(graph.rank() == 0 || outcome.is_err(), "rank {}", graph.rank());
    world.barrier()
}

/// Checks at compile time that a grid coerces to an intracommunicator.
fn assert_comm(_: &Intracomm) {}

#[mpj::test(ranks = 1)]
fn grid_is_a_communicator(world: World) -> mpj::Result<()> {
    let grid = world.cart(&[], Reorder::No)?.expect("one cell");
    assert_comm(&grid);
    grid.neighbor_alltoall(&[0u8; 0], &mut [0u8; 0])
}
