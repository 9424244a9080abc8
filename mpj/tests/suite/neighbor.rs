//! Neighbourhood collectives on grids and graphs, blocking, started and prepared.

use mpj::topology::{Cart, Dim, DistGraph};
use mpj::{Datatype, Intracomm, RecvBuf, Reorder, SendBuf, SplitViews, ViewSpec, World, coll};

use crate::common::{Sample, blanks, ranks, samples};

/// The grids of the tests for a number of ranks: up to four dimensions, of which each can be periodic.
fn grids(ranks: usize) -> Vec<Vec<Dim>> {
    let mut grids = Vec::new();
    for count in 1..=4 {
        let sizes = mpj::dims(ranks, &vec![None; count]).expect("free sizes");
        for periodic in [0, 1, 5, 15] {
            let dim = |(at, size): (usize, &usize)| Dim { size: *size, periodic: periodic >> at & 1 == 1 };
            grids.push(sizes.iter().enumerate().map(dim).collect());
        }
    }
    grids.dedup();
    grids
}

fn each_grid(sizes: impl IntoIterator<Item = usize>, test: impl Fn(&Cart) -> mpj::Result<()> + Sync) {
    for size in sizes {
        ranks(size, |world| {
            for dims in grids(size) {
                test(&world.cart(&dims, Reorder::No)?.expect("a cell for each rank"))?;
            }
            Ok(())
        });
    }
}

/// The block that rank `from` sends to its destination number `block`.
fn sent(from: usize, block: usize, len: usize) -> Vec<u32> {
    samples(from, 100 * block, len)
}

/// The number of items in the block: different for each rank and direction.
fn len(from: usize, block: usize) -> usize {
    (from * 5 + block * 3) % 7
}

/// Returns the blocks that arrive: each neighbour sends its block for the opposite direction.
fn expected(grid: &Cart, len: impl Fn(usize, usize) -> usize) -> Vec<Option<Vec<u32>>> {
    let neighbors = grid.layout().neighbors(grid.rank()).expect("its own rank");
    let block =
        |(block, from): (usize, Option<usize>)| from.map(|from| sent(from, block ^ 1, len(from, block ^ 1)));
    neighbors.into_iter().enumerate().map(block).collect()
}

/// The counts and displacements of blocks of these lengths, with a gap before each.
fn places(lens: &[usize]) -> (Vec<usize>, Vec<usize>) {
    let starts = lens.iter().scan(1, |at, len| Some(std::mem::replace(at, *at + len + 1)));
    (lens.to_vec(), starts.collect())
}

#[test]
fn alltoall_exchanges_blocks_with_the_neighbours_of_a_grid() {
    each_grid([1, 2, 3, 4, 6, 8, 12], |grid| {
        let blocks = 2 * grid.dims().len();
        for len in [0, 1, 3000] {
            let send: Vec<u32> = (0..blocks).flat_map(|block| sent(grid.rank(), block, len)).collect();
            let mut recv = blanks::<u32>(blocks * len);
            grid.neighbor_alltoall(&send, &mut recv)?;
            let expected = expected(grid, |_, _| len);
            let expected: Vec<u32> = expected.into_iter().flat_map(|it| it.unwrap_or(blanks(len))).collect();
            assert_eq!(recv, expected, "{} on rank {}", grid.layout(), grid.rank());
        }
        Ok(())
    });
}

#[test]
fn alltoallv_exchanges_blocks_of_different_lengths() {
    each_grid([1, 2, 5, 6, 12], |grid| {
        let neighbors = grid.layout().neighbors(grid.rank())?;
        let out: Vec<usize> = (0..neighbors.len()).map(|block| len(grid.rank(), block)).collect();
        let back =
            neighbors.iter().enumerate().map(|(block, from)| from.map_or(4, |from| len(from, block ^ 1)));
        let (out, back) = (places(&out), places(&back.collect::<Vec<_>>()));
        let size = |(counts, starts): &(Vec<usize>, Vec<usize>)| {
            starts.last().unwrap_or(&0) + counts.last().unwrap_or(&0)
        };
        let (mut send, mut model) = (blanks::<u32>(size(&out)), blanks::<u32>(size(&back)));
        for (block, (count, at)) in out.0.iter().zip(&out.1).enumerate() {
            send[*at..at + count].copy_from_slice(&sent(grid.rank(), block, *count));
        }
        for ((from, items), at) in neighbors.iter().zip(expected(grid, len)).zip(&back.1) {
            assert_eq!(from.is_some(), items.is_some());
            let items = items.unwrap_or_default();
            model[*at..at + items.len()].copy_from_slice(&items);
        }
        let mut recv = blanks::<u32>(model.len());
        grid.neighbor_alltoallv(&send, (&out.0, &out.1), &mut recv, (&back.0, &back.1))?;
        assert_eq!(recv, model, "{}", grid.layout());
        let started =
            coll::neighbor_alltoallv(send, (&out.0, &out.1), blanks::<u32>(model.len()), (&back.0, &back.1));
        assert_eq!(grid.start(started)?.wait()?.0.1, model);
        Ok(())
    });
}

#[test]
fn allgather_collects_the_items_of_the_neighbours() {
    each_grid([1, 2, 3, 8, 12], |grid| {
        let neighbors = grid.layout().neighbors(grid.rank())?;
        let from = |from: Option<usize>, len| from.map_or(blanks(len), |from| samples::<u32>(from, 0, len));
        for len in [0, 2, 4000] {
            let model: Vec<u32> = neighbors.iter().flat_map(|rank| from(*rank, len)).collect();
            let (send, mut recv) = (samples::<u32>(grid.rank(), 0, len), blanks::<u32>(model.len()));
            grid.neighbor_allgather(&send, &mut recv)?;
            assert_eq!(recv, model, "{}", grid.layout());
            let started = coll::neighbor_allgather(send, blanks::<u32>(model.len()));
            assert_eq!(grid.start(started)?.wait()?.0.1, model);
        }
        // Each rank has its own length; the blocks are in reverse order.
        let lens = neighbors.iter().rev().map(|rank| rank.map_or(1, |rank| 1 + rank % 4));
        let (mut counts, mut starts) = places(&lens.collect::<Vec<_>>());
        let mut model = blanks::<u32>(counts.iter().map(|count| count + 1).sum());
        counts.reverse();
        starts.reverse();
        for ((rank, count), at) in neighbors.iter().zip(&counts).zip(&starts) {
            model[*at..at + count].copy_from_slice(&from(*rank, *count));
        }
        let (send, mut recv) =
            (samples::<u32>(grid.rank(), 0, 1 + grid.rank() % 4), blanks::<u32>(model.len()));
        grid.neighbor_allgatherv(&send, &mut recv, &counts, &starts)?;
        assert_eq!(recv, model, "{}", grid.layout());
        let started = coll::neighbor_allgatherv(send, blanks::<u32>(model.len()), &counts, &starts);
        assert_eq!(grid.start(started)?.wait()?.0.1, model);
        Ok(())
    });
}

#[test]
fn alltoallw_exchanges_buffers_of_different_types() {
    for size in [1, 2, 3, 4] {
        ranks(size, |world| {
            let ring = world.cart(&[Dim::periodic(size)], Reorder::No)?.expect("a cell for each rank");
            let (before, after) = ((ring.rank() + size - 1) % size, (ring.rank() + 1) % size);
            // Numbers to the rank before, characters to the rank after.
            let send: [Box<dyn SendBuf>; 2] =
                [Box::new(samples::<f64>(ring.rank(), 0, 5)), Box::new(samples::<char>(ring.rank(), 0, 3))];
            let (mut chars, mut numbers) = (blanks::<char>(3), blanks::<f64>(5));
            let mut recv: [Box<dyn RecvBuf + '_>; 2] = [Box::new(&mut chars), Box::new(&mut numbers)];
            ring.neighbor_alltoallw(&send, &mut recv)?;
            drop(recv);
            assert_eq!((chars, numbers), (samples(before, 0, 3), samples(after, 0, 5)));
            // Started, and prepared and started with other values. The lengths differ by direction.
            let parts = |rank: usize| vec![samples::<u32>(rank, 0, 2), samples(rank, 50, 900)];
            let places = || vec![blanks::<u32>(900), blanks(2)];
            let model = |round: usize| [parts(before + round).remove(1), parts(after + round).remove(0)];
            let started = ring.start(coll::neighbor_alltoallw(parts(ring.rank()), places()))?;
            assert_eq!(started.wait()?.0.1, model(0));
            let mut exchange = ring.prepare(coll::neighbor_alltoallw(parts(0), places()))?;
            for round in 0..3 {
                *exchange.buffers_mut() = (parts(ring.rank() + round), places());
                assert_eq!(exchange.start()?.wait()?.1, model(round));
            }
            Ok(())
        });
    }
}

/// Prepared once, started with different data each time.
#[test]
fn prepared_exchange_sends_the_current_buffers() {
    each_grid([1, 4, 6], |grid| {
        let blocks = 2 * grid.dims().len();
        let mut halo = grid.prepare(coll::neighbor_alltoall(blanks::<u32>(blocks), blanks::<u32>(blocks)))?;
        let neighbors = grid.layout().neighbors(grid.rank())?;
        for round in 0..5 {
            let item = |rank, block| u32::sample(rank, block + 10 * round);
            for block in 0..blocks {
                halo.buffers_mut().0[block] = item(grid.rank(), block);
            }
            let (_, got) = halo.start()?.wait()?;
            let expected =
                neighbors.iter().enumerate().map(|(at, from)| from.map_or(127, |from| item(from, at ^ 1)));
            assert!(got.iter().copied().eq(expected), "{}", grid.layout());
        }
        Ok(())
    });
}

/// One step of the average over a cell and its four neighbours; the grid is periodic in both directions.
fn average(cells: &[f64], (rows, columns): (usize, usize)) -> Vec<f64> {
    let at = |row: usize, column: usize| cells[row % rows * columns + column % columns];
    let cell = |row: usize, column: usize| {
        let around = [
            at(row + rows - 1, column),
            at(row + 1, column),
            at(row, column + columns - 1),
            at(row, column + 1),
        ];
        (at(row, column) + around.into_iter().sum::<f64>()) / 5.0
    };
    (0..rows * columns).map(|at| cell(at / columns, at % columns)).collect()
}

/// Several steps on blocks with a halo give the same bits as on one whole grid.
#[test]
fn stencil_with_halos_equals_the_sequential_one() {
    const TILE: (usize, usize) = (3, 4);
    const STRIDE: usize = TILE.1 + 2;
    for size in [1, 2, 3, 4, 6, 12] {
        ranks(size, |world| {
            let sizes = mpj::dims(size, &[None, None])?;
            let dims = [Dim::periodic(sizes[0]), Dim::periodic(sizes[1])];
            let grid = world.cart(&dims, Reorder::ByHost)?.expect("a cell for each rank");
            let (rows, columns) = (sizes[0] * TILE.0, sizes[1] * TILE.1);
            let first = (grid.coords()[0] * TILE.0, grid.coords()[1] * TILE.1);
            let mut whole: Vec<f64> = (0..rows * columns).map(|at| f64::sample(at, at / 7)).collect();
            let row = Datatype::of::<f64>().contiguous(TILE.1)?;
            let column = Datatype::of::<f64>().vector(TILE.0, 1, STRIDE as isize)?;
            let place = |row: usize, column: usize| row * STRIDE + column;
            let views = |top, bottom, left, right| {
                [
                    ViewSpec::new(place(top, 1), &row, 1),
                    ViewSpec::new(place(bottom, 1), &row, 1),
                    ViewSpec::new(place(1, left), &column, 1),
                    ViewSpec::new(place(1, right), &column, 1),
                ]
            };
            let ghosts = views(0, TILE.0 + 1, 0, TILE.1 + 1);
            let halo = SplitViews::<f64>::new((TILE.0 + 2) * STRIDE, &ghosts, &views(1, TILE.0, 1, TILE.1))?;
            let mut tile = vec![0.0; (TILE.0 + 2) * STRIDE];
            let cells = || (0..TILE.0).flat_map(|row| (0..TILE.1).map(move |column| (row, column)));
            for (row, column) in cells() {
                tile[place(row + 1, column + 1)] = whole[(first.0 + row) * columns + first.1 + column];
            }
            for _ in 0..4 {
                let (mut ghosts, edges) = halo.split(&mut tile)?;
                grid.neighbor_alltoallw(&edges, &mut ghosts)?;
                drop((ghosts, edges));
                let old = tile.clone();
                for (row, column) in cells() {
                    let at = place(row + 1, column + 1);
                    let around = [old[at - STRIDE], old[at + STRIDE], old[at - 1], old[at + 1]];
                    tile[at] = (old[at] + around.into_iter().sum::<f64>()) / 5.0;
                }
                whole = average(&whole, (rows, columns));
                for (row, column) in cells() {
                    let expected = whole[(first.0 + row) * columns + first.1 + column];
                    assert_eq!(tile[place(row + 1, column + 1)].to_bits(), expected.to_bits());
                }
            }
            Ok(())
        });
    }
}

/// Every rank sends to the next two, and `1 + rank % 2` times to itself.
fn some_graph(world: &World, reorder: Reorder) -> mpj::Result<DistGraph> {
    let (me, size) = (world.rank(), world.size());
    let own = vec![me; 1 + me % 2];
    let sources = [own.clone(), vec![(me + size - 1) % size, (me + size - 2 % size) % size]].concat();
    let destinations = [vec![(me + 1) % size, (me + 2) % size], own].concat();
    world.dist_graph_adjacent(&sources, &destinations, None, reorder)
}

#[test]
fn repeated_edges_of_a_graph_match_in_order() {
    for size in [1, 2, 3, 5, 8] {
        ranks(size, |world| {
            let graph = some_graph(&world, Reorder::No)?;
            let send: Vec<[usize; 2]> =
                (0..graph.destinations().len()).map(|block| [graph.rank(), block]).collect();
            let mut recv = vec![[usize::MAX; 2]; graph.sources().len()];
            graph.neighbor_alltoall(&send, &mut recv)?;
            // The destinations of each rank, from its position in the graph.
            let destinations =
                |rank: usize| [vec![(rank + 1) % size, (rank + 2) % size], vec![rank; 1 + rank % 2]].concat();
            let mut seen = vec![0; size];
            for (from, got) in graph.sources().iter().zip(&recv) {
                let to_me = destinations(*from).into_iter().enumerate().filter(|(_, to)| *to == graph.rank());
                let block = to_me.map(|(block, _)| block).nth(seen[*from]).expect("an edge");
                assert_eq!(*got, [*from, block], "rank {} of {size}", graph.rank());
                seen[*from] += 1;
            }
            Ok(())
        });
    }
}

#[test]
fn blocks_of_one_rank_arrive_in_order() {
    for size in [1, 2, 4, 9] {
        ranks(size, |world| {
            // Repeated edges, of which each rank passes a part.
            let edge = |at: usize| ((at * 7 + at / 3) % size, (at * 5 + at / 2) % size);
            let edges: Vec<_> = (0..6 * size).filter(|at| at % size == world.rank()).map(edge).collect();
            let graph = world.dist_graph(&edges, None, Reorder::No)?;
            let send: Vec<[usize; 2]> =
                (0..graph.destinations().len()).map(|at| [graph.rank(), at]).collect();
            let mut recv = vec![[usize::MAX; 2]; graph.sources().len()];
            graph.neighbor_alltoall(&send, &mut recv)?;
            assert!(recv.iter().map(|[from, _]| from).eq(graph.sources()));
            for from in 0..size {
                let blocks = recv.iter().filter(|got| got[0] == from).map(|[_, block]| *block);
                assert!(blocks.is_sorted_by(|one, next| one < next), "from {from} of {size}: {recv:?}");
            }
            Ok(())
        });
    }
}

#[mpj::test(ranks = 5)]
fn graph_exchanges_blocks_with_its_neighbours(world: World) -> mpj::Result<()> {
    // A star: 0 is the neighbour of all others; rank 4 is not a node.
    let Some(star) = world.graph(&[3, 4, 5, 6], &[1, 2, 3, 0, 0, 0], Reorder::No)? else {
        assert_eq!(world.rank(), 4);
        return Ok(());
    };
    let me = star.rank();
    let neighbors = star.neighbors(me)?;
    let send: Vec<usize> = neighbors.iter().map(|to| 10 * me + to).collect();
    let mut recv = vec![0; neighbors.len()];
    star.neighbor_alltoall(&send, &mut recv)?;
    assert!(recv.iter().zip(neighbors).all(|(got, from)| *got == 10 * from + me));
    let started = star.start(coll::neighbor_allgather([me], vec![9; neighbors.len()]))?;
    assert_eq!(started.wait()?.0.1, neighbors);
    Ok(())
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
