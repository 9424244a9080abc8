//! In-place forms of the collectives with blocks of different lengths. Those with equal blocks, and reductions, are
//! compared with the other forms in `collectives.rs` and by `common::reduction`.

use crate::common::{blanks, ranks, samples};
use mpj::{ErrorClass, Op, World, coll};

const SIZES: [usize; 6] = [1, 2, 3, 5, 8, 9];

/// Blocks in the reverse order of the ranks, with a gap of one item between them.
struct Blocks {
    counts: Vec<usize>,
    places: Vec<usize>,
    total: usize,
}

impl Blocks {
    fn new(counts: impl Iterator<Item = usize>) -> Self {
        let counts: Vec<usize> = counts.collect();
        let mut total = 0;
        let mut places = vec![0; counts.len()];
        for rank in (0..counts.len()).rev() {
            places[rank] = total;
            total += counts[rank] + 1;
        }
        Blocks { counts, places, total }
    }

    fn block<'a>(&self, items: &'a mut [u64], rank: usize) -> &'a mut [u64] {
        &mut items[self.places[rank]..][..self.counts[rank]]
    }

    /// Returns a buffer with the blocks of the given ranks, and blank items elsewhere.
    fn filled(
        &self,
        ranks: impl Iterator<Item = usize>,
        items: impl Fn(usize, usize) -> Vec<u64>,
    ) -> Vec<u64> {
        let mut all = blanks(self.total);
        for rank in ranks {
            self.block(&mut all, rank).copy_from_slice(&items(rank, self.counts[rank]));
        }
        all
    }
}

#[test]
fn gatherv_and_scatterv_keep_the_block_of_the_root() {
    for size in SIZES {
        ranks(size, |world| {
            let me = world.rank();
            for (root, each) in [(0, 1), (size - 1, 3000)] {
                let blocks = Blocks::new((0..size).map(|rank| rank % 3 * each));
                let items = |rank: usize, len: usize| samples::<u64>(rank, 0, len);
                let all = || blocks.filled(0..size, items);
                let only_mine = || blocks.filled(std::iter::once(me), items);
                let mut buf = if me == root { only_mine() } else { items(me, blocks.counts[me]) };
                world.gatherv_in_place(&mut buf, &blocks.counts, &blocks.places, root)?;
                assert_eq!(buf, if me == root { all() } else { items(me, blocks.counts[me]) });
                let mut buf = if me == root { all() } else { blanks(blocks.counts[me]) };
                world.scatterv_in_place(&mut buf, &blocks.counts, &blocks.places, root)?;
                assert_eq!(buf, if me == root { all() } else { items(me, blocks.counts[me]) });
            }
            Ok(())
        });
    }
}

#[test]
fn allgatherv_and_alltoallv_replace_the_blocks_of_other_ranks() {
    for size in SIZES {
        ranks(size, |world| {
            let me = world.rank();
            for each in [1, 3000] {
                let blocks = Blocks::new((0..size).map(|rank| rank % 3 * each));
                let items = |rank: usize, len: usize| samples::<u64>(rank, 0, len);
                let mut buf = blocks.filled(std::iter::once(me), items);
                world.allgatherv_in_place(&mut buf, &blocks.counts, &blocks.places)?;
                assert_eq!(buf, blocks.filled(0..size, items));

                let blocks = Blocks::new((0..size).map(|other| (me + other) % 3 * each));
                let pair = |from: usize, to: usize, len: usize| samples::<u64>(from, 100 * to, len);
                let mut buf = blocks.filled(0..size, |to, len| pair(me, to, len));
                world.alltoallv_in_place(&mut buf, &blocks.counts, &blocks.places)?;
                assert_eq!(buf, blocks.filled(0..size, |from, len| pair(from, me, len)));
            }
            Ok(())
        });
    }
}

#[test]
fn started_and_persistent_calls_work_in_place() {
    for size in SIZES {
        ranks(size, |world| {
            let (me, len) = (world.rank(), 300);
            let sums = |ranks: std::ops::Range<usize>, round: usize| -> Vec<u64> {
                (0..len * size)
                    .map(|at| ranks.clone().map(|rank| samples::<u64>(rank, round + at, 1)[0]).sum())
                    .collect()
            };
            let new = || vec![0u64; len * size];
            let counts = vec![len; size];
            let places: Vec<usize> = (0..size).map(|rank| rank * len).collect();
            let mut calls = [
                world.prepare(coll::allreduce_in_place(new(), Op::Sum))?,
                world.prepare(coll::scan_in_place(new(), Op::Sum))?,
                world.prepare(coll::exscan_in_place(new(), Op::Sum))?,
                world.prepare(coll::reduce_scatter_in_place(new(), &counts, Op::Sum))?,
                world.prepare(coll::reduce_scatter_block_in_place(new(), Op::Sum))?,
                world.prepare(coll::allgather_in_place(new()))?,
                world.prepare(coll::allgatherv_in_place(new(), &counts, &places))?,
                world.prepare(coll::alltoall_in_place(new()))?,
                world.prepare(coll::alltoallv_in_place(new(), &counts, &places))?,
            ];
            for round in 0..3 {
                let mine = samples::<u64>(me, round, len * size);
                // Other memory at each start.
                calls.iter_mut().for_each(|call| *call.buffers_mut() = mine.clone());
                let started = calls.iter_mut().map(|call| call.start()).collect::<mpj::Result<Vec<_>>>()?;
                let got = mpj::wait_all(started).into_iter().collect::<mpj::Result<Vec<_>>>()?;
                let total = sums(0..size, round);
                assert_eq!(*got[0], total);
                assert_eq!(*got[1], sums(0..me + 1, round));
                assert_eq!(*got[2], if me == 0 { mine.clone() } else { sums(0..me, round) });
                let reduced = [&total[me * len..][..len], &mine[len..]].concat();
                assert!(*got[3] == reduced && *got[4] == reduced);
                let part = |from: usize, at: usize| samples::<u64>(from, round + at * len, len);
                let gathered: Vec<u64> = (0..size).flat_map(|from| part(from, from)).collect();
                assert!(*got[5] == gathered && *got[6] == gathered);
                let exchanged: Vec<u64> = (0..size).flat_map(|from| part(from, me)).collect();
                assert!(*got[7] == exchanged && *got[8] == exchanged);
            }
            let (sum, _) = world.start(coll::allreduce_in_place([me], Op::Sum))?.wait()?;
            assert_eq!(sum, [size * (size - 1) / 2]);
            Ok(())
        });
    }
}

#[test]
fn started_and_persistent_calls_keep_the_items_of_the_root() {
    for size in SIZES {
        ranks(size, |world| {
            let me = world.rank();
            for root in [0, size - 1] {
                let is_root = me == root;
                let blocks = Blocks::new((0..size).map(|rank| rank % 3 * 10));
                let (counts, places) = (&blocks.counts[..], &blocks.places[..]);
                // The root has items for or of all ranks, the others have their own.
                let equal = || vec![0u64; if is_root { 4 * size } else { 4 }];
                let varying = || vec![0u64; if is_root { blocks.total } else { counts[me] }];
                let mut calls = [
                    world.prepare(coll::reduce_in_place(vec![0u64; 4], Op::Sum, root))?,
                    world.prepare(coll::gather_in_place(equal(), root))?,
                    world.prepare(coll::scatter_in_place(equal(), root))?,
                    world.prepare(coll::gatherv_in_place(varying(), counts, places, root))?,
                    world.prepare(coll::scatterv_in_place(varying(), counts, places, root))?,
                ];
                for round in 0..2 {
                    let items = |rank: usize, len: usize| samples::<u64>(rank, round, len);
                    let all: Vec<u64> = (0..size).flat_map(|rank| items(rank, 4)).collect();
                    let one = |at: usize| if at == me { items(at, 4) } else { vec![0; 4] };
                    let own: Vec<u64> = (0..size).flat_map(one).collect();
                    let all_blocks = || blocks.filled(0..size, items);
                    let own_block = || blocks.filled(std::iter::once(me), items);
                    let at_root =
                        |there: &Vec<u64>, here: Vec<u64>| if is_root { there.clone() } else { here };
                    *calls[0].buffers_mut() = items(me, 4);
                    *calls[1].buffers_mut() = at_root(&own, items(me, 4));
                    *calls[2].buffers_mut() = at_root(&all, vec![0; 4]);
                    *calls[3].buffers_mut() = at_root(&own_block(), items(me, counts[me]));
                    *calls[4].buffers_mut() = at_root(&all_blocks(), vec![0; counts[me]]);
                    let started =
                        calls.iter_mut().map(|call| call.start()).collect::<mpj::Result<Vec<_>>>()?;
                    let got = mpj::wait_all(started).into_iter().collect::<mpj::Result<Vec<_>>>()?;
                    let sum = |at: usize| (0..size).map(|rank| items(rank, 4)[at]).sum();
                    assert_eq!(*got[0], at_root(&(0..4).map(sum).collect(), items(me, 4)));
                    assert_eq!(*got[1], at_root(&all, items(me, 4)));
                    assert_eq!(*got[2], at_root(&all, items(me, 4)));
                    assert_eq!(*got[3], at_root(&all_blocks(), items(me, counts[me])));
                    assert_eq!(*got[4], at_root(&all_blocks(), items(me, counts[me])));
                }
            }
            Ok(())
        });
    }
}

#[mpj::test(ranks = 2)]
fn wrong_blocks_are_refused(world: World) -> mpj::Result<()> {
    let comm = || world.dup().expect("a communicator");
    let class = |refused: mpj::Result<()>| refused.expect_err("refused").class();
    let mut buf = [0u8; 4];
    assert_eq!(class(comm().allgatherv_in_place(&mut buf, &[2, 3], &[0, 2])), ErrorClass::Count);
    assert_eq!(class(comm().allgatherv_in_place(&mut buf, &[2, 2], &[0, 1])), ErrorClass::Arg);
    assert_eq!(class(comm().alltoallv_in_place(&mut buf, &[2], &[0, 2])), ErrorClass::Arg);
    assert_eq!(class(comm().gatherv_in_place(&mut buf, &[2, 2], &[0, 2], 2)), ErrorClass::Root);
    assert_eq!(class(comm().scatterv_in_place(&mut buf, &[2, 2], &[0, 2], 2)), ErrorClass::Root);
    world.barrier()
}
