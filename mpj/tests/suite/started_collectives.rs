//! Started collectives with typed buffers: each returns the results of the blocking call.

use crate::common::{ranks, samples};
use mpj::coll::OwnedCollective;
use mpj::{Intracomm, Op, coll};

/// A gap that no message writes.
const GAP: u64 = u64::MAX;

fn sums(ranks: std::ops::Range<usize>, from: usize, len: usize) -> Vec<u64> {
    let all: Vec<Vec<u64>> = ranks.map(|rank| samples(rank, from, len)).collect();
    (0..len).map(|at| all.iter().map(|one| one[at]).sum()).collect()
}

/// Starts the call, waits for it, and returns its receive buffer. The send buffer must be unchanged.
fn run(
    comm: &Intracomm,
    call: impl FnOnce(Vec<u64>, Vec<u64>) -> OwnedCollective<(Vec<u64>, Vec<u64>)>,
    send: Vec<u64>,
    recv: usize,
) -> mpj::Result<Vec<u64>> {
    let ((sent, received), _) = comm.start(call(send.clone(), vec![GAP; recv]))?.wait()?;
    assert_eq!(sent, send);
    Ok(received)
}

#[test]
fn broadcasts_sums_and_barriers_can_be_started() {
    for size in [1, 2, 3, 5] {
        ranks(size, |world| {
            for len in [1, 100, 20_000] {
                for root in 0..size {
                    let mine = samples::<u64>(world.rank(), 0, len);
                    let (received, _) = world.start(coll::bcast(mine, root))?.wait()?;
                    assert_eq!(received, samples::<u64>(root, 0, len));
                }
                let mine = samples(world.rank(), 0, len);
                let sum = run(&world, |send, recv| coll::allreduce(send, recv, Op::Sum), mine, len)?;
                assert_eq!(sum, sums(0..size, 0, len));
            }
            world.start(coll::barrier())?.wait()?;
            Ok(())
        });
    }
}

#[test]
fn reductions_can_be_started() {
    for size in [1, 2, 3, 5] {
        ranks(size, |world| {
            let me = world.rank();
            for len in [0, 1, 100, 20_000] {
                let mine = || samples(me, 0, len);
                for root in [0, size - 1] {
                    let got = run(&world, |send, recv| coll::reduce(send, recv, Op::Sum, root), mine(), len)?;
                    let expected = if me == root { sums(0..size, 0, len) } else { vec![GAP; len] };
                    assert_eq!(got, expected);
                }
                let got = run(&world, |send, recv| coll::scan(send, recv, Op::Sum), mine(), len)?;
                assert_eq!(got, sums(0..me + 1, 0, len));
                let got = run(&world, |send, recv| coll::exscan(send, recv, Op::Sum), mine(), len)?;
                assert_eq!(got, if me == 0 { vec![GAP; len] } else { sums(0..me, 0, len) });
            }
            for len in [0, 1, 4000] {
                let mine = samples(me, 0, size * len);
                let got =
                    run(&world, |send, recv| coll::reduce_scatter_block(send, recv, Op::Sum), mine, len)?;
                assert_eq!(got, sums(0..size, me * len, len));
            }
            // Rank `r` gets `r` items.
            let counts: Vec<usize> = (0..size).collect();
            let before = me * (me + 1) / 2 - me;
            let mine = samples(me, 0, size * (size - 1) / 2);
            let got = run(&world, |send, recv| coll::reduce_scatter(send, recv, &counts, Op::Sum), mine, me)?;
            assert_eq!(got, sums(0..size, before, me));
            Ok(())
        });
    }
}

#[test]
fn gathers_and_scatters_of_equal_blocks_can_be_started() {
    for size in [1, 2, 3, 5] {
        ranks(size, |world| {
            let me = world.rank();
            for len in [0, 1, 4000] {
                let all = || (0..size).flat_map(|rank| samples::<u64>(rank, 0, len)).collect::<Vec<_>>();
                for root in [0, size - 1] {
                    let room = if me == root { size * len } else { 0 };
                    let got =
                        run(&world, |send, recv| coll::gather(send, recv, root), samples(me, 0, len), room)?;
                    assert_eq!(got, if me == root { all() } else { vec![] });
                    let mine = if me == root { samples(root, 0, size * len) } else { vec![] };
                    let got = run(&world, |send, recv| coll::scatter(send, recv, root), mine, len)?;
                    assert_eq!(got, samples::<u64>(root, me * len, len));
                }
                let got = run(&world, coll::allgather, samples(me, 0, len), size * len)?;
                assert_eq!(got, all());
                let got = run(&world, coll::alltoall, samples(me, 0, size * len), size * len)?;
                let expected = (0..size).flat_map(|from| samples::<u64>(from, me * len, len));
                assert_eq!(got, expected.collect::<Vec<_>>());
            }
            Ok(())
        });
    }
}

/// The number of items from one rank to another: 0 for some, and long enough for a rendezvous for one pair.
fn len(from: usize, to: usize) -> usize {
    if (from, to) == (0, 1) { 9000 } else { (from * 3 + to * 2) % 5 }
}

/// The items from one rank to another.
fn sent(from: usize, to: usize) -> Vec<u64> {
    samples(from, 10 * to, len(from, to))
}

/// Blocks in one vector, from the last one to the first, with a gap before each.
struct Blocks {
    counts: Vec<usize>,
    displacements: Vec<usize>,
    items: Vec<u64>,
}

impl Blocks {
    fn new(blocks: impl DoubleEndedIterator<Item = Vec<u64>>) -> Self {
        let mut new = Blocks { counts: vec![], displacements: vec![], items: vec![] };
        for block in blocks.rev() {
            new.items.push(GAP);
            new.counts.insert(0, block.len());
            new.displacements.insert(0, new.items.len());
            new.items.extend(block);
        }
        new
    }

    fn parts(&self) -> (&[usize], &[usize]) {
        (&self.counts, &self.displacements)
    }
}

#[test]
fn exchanges_of_different_blocks_can_be_started() {
    for size in [1, 2, 3, 5] {
        ranks(size, |world| {
            let me = world.rank();
            let gathered = Blocks::new((0..size).map(|from| sent(from, 1)));
            let (counts, places) = gathered.parts();
            for root in [0, size - 1] {
                let room = if me == root { gathered.items.len() } else { 0 };
                let call = |send, recv| coll::gatherv(send, recv, counts, places, root);
                let got = run(&world, call, sent(me, 1), room)?;
                assert_eq!(got, if me == root { &gathered.items[..] } else { &[] });
                let out = Blocks::new((0..size).map(|to| sent(root, to)));
                let (counts, places) = out.parts();
                let mine = if me == root { out.items.clone() } else { vec![] };
                let call = |send, recv| coll::scatterv(send, counts, places, recv, root);
                assert_eq!(run(&world, call, mine, len(root, me))?, sent(root, me));
            }
            let call = |send, recv| coll::allgatherv(send, recv, counts, places);
            assert_eq!(run(&world, call, sent(me, 1), gathered.items.len())?, gathered.items);
            let (out, back) = (
                Blocks::new((0..size).map(|to| sent(me, to))),
                Blocks::new((0..size).map(|from| sent(from, me))),
            );
            let call = |send, recv| coll::alltoallv(send, out.parts(), recv, back.parts());
            assert_eq!(run(&world, call, out.items.clone(), back.items.len())?, back.items);
            Ok(())
        });
    }
}
