//! Persistent collectives with typed buffers: created once and started many times, with different data at each start.

use crate::common::{job, ranks, samples};
use mpj::{ErrorClass, Op, coll, wait_all};

const SIZES: [usize; 5] = [1, 2, 3, 4, 5];
/// Numbers of elements. With the default limits, only messages of the last length use rendezvous.
const LENGTHS: [usize; 4] = [0, 3, 500, 20_000];
const STARTS: usize = 4;

fn mine(rank: usize, start: usize, len: usize) -> Vec<u64> {
    samples(rank, 31 * start, len)
}

fn sum(ranks: usize, start: usize, len: usize) -> Vec<u64> {
    let all: Vec<Vec<u64>> = (0..ranks).map(|rank| mine(rank, start, len)).collect();
    (0..len).map(|at| all.iter().map(|one| one[at]).sum()).collect()
}

#[test]
fn each_start_uses_the_current_data() {
    for size in SIZES {
        ranks(size, |world| {
            let (me, last) = (world.rank(), size - 1);
            for len in LENGTHS {
                let new = || vec![0u64; len];
                let mut barrier = world.prepare(coll::barrier())?;
                let mut bcast = world.prepare(coll::bcast(new(), last))?;
                let mut reduce = world.prepare(coll::reduce(new(), new(), Op::Sum, last))?;
                let mut allreduce = world.prepare(coll::allreduce(new(), new(), Op::Sum))?;
                let mut scan = world.prepare(coll::scan(new(), new(), Op::Sum))?;
                let counts: Vec<usize> = (0..size).map(|rank| if rank == last { len } else { 0 }).collect();
                let part = vec![0; counts[me]];
                let mut reduce_scatter =
                    world.prepare(coll::reduce_scatter(new(), part, &counts, Op::Sum))?;
                for start in 0..STARTS {
                    let mine = mine(me, start, len);
                    bcast.buffers_mut().clone_from(&mine);
                    for reduction in [&mut reduce, &mut allreduce, &mut scan] {
                        *reduction.buffers_mut() = (mine.clone(), vec![9; len]);
                    }
                    reduce_scatter.buffers_mut().0.copy_from_slice(&mine);
                    let barrier_run = barrier.start()?;
                    let bcast_run = bcast.start()?;
                    let (reduce_run, allreduce_run) = (reduce.start()?, allreduce.start()?);
                    let (scan_run, reduce_scatter_run) = (scan.start()?, reduce_scatter.start()?);
                    let total = sum(size, start, len);
                    assert_eq!(reduce_scatter_run.wait()?.1, total[..counts[me]]);
                    assert_eq!(scan_run.wait()?.1, sum(me + 1, start, len));
                    assert_eq!(allreduce_run.wait()?.1, total);
                    assert_eq!(reduce_run.wait()?.1, if me == last { total } else { vec![9; len] });
                    assert_eq!(*bcast_run.wait()?, self::mine(last, start, len));
                    barrier_run.wait()?;
                }
                assert_eq!(bcast.into_buffers(), mine(last, STARTS - 1, len));
            }
            Ok(())
        });
    }
}

#[test]
fn each_start_uses_the_block_layouts() {
    for size in SIZES {
        ranks(size, |world| {
            let (me, last) = (world.rank(), size - 1);
            for len in LENGTHS {
                let (one, all) = (|| vec![0u64; len], || vec![0u64; len * size]);
                // In reverse order, with a gap after each block.
                let counts = vec![len; size];
                let places: Vec<usize> = (0..size).map(|rank| (last - rank) * (len + 1)).collect();
                let wide = || vec![0u64; (len + 1) * size];
                let mut gather = world.prepare(coll::gather(one(), all(), last))?;
                let mut gatherv = world.prepare(coll::gatherv(one(), wide(), &counts, &places, last))?;
                let mut scatter = world.prepare(coll::scatter(all(), one(), last))?;
                let mut scatterv = world.prepare(coll::scatterv(wide(), &counts, &places, one(), last))?;
                let mut allgather = world.prepare(coll::allgather(one(), all()))?;
                let mut allgatherv = world.prepare(coll::allgatherv(one(), wide(), &counts, &places))?;
                let mut alltoall = world.prepare(coll::alltoall(all(), all()))?;
                let parts = (&counts[..], &places[..]);
                let mut alltoallv = world.prepare(coll::alltoallv(wide(), parts, wide(), parts))?;
                let even = |rank: usize| len * rank..len * (rank + 1);
                let placed = |rank: usize| places[rank]..places[rank] + len;
                for start in 0..STARTS {
                    let mine = mine(me, start, len);
                    let to = |rank: usize| self::mine(me + 10 * rank, start, len);
                    gather.buffers_mut().0.clone_from(&mine);
                    gatherv.buffers_mut().0.clone_from(&mine);
                    allgather.buffers_mut().0.clone_from(&mine);
                    allgatherv.buffers_mut().0.clone_from(&mine);
                    for rank in 0..size {
                        scatter.buffers_mut().0[even(rank)].copy_from_slice(&to(rank));
                        scatterv.buffers_mut().0[placed(rank)].copy_from_slice(&to(rank));
                        alltoall.buffers_mut().0[even(rank)].copy_from_slice(&to(rank));
                        alltoallv.buffers_mut().0[placed(rank)].copy_from_slice(&to(rank));
                    }
                    let running = vec![
                        gather.start()?,
                        gatherv.start()?,
                        scatter.start()?,
                        scatterv.start()?,
                        allgather.start()?,
                        allgatherv.start()?,
                        alltoall.start()?,
                        alltoallv.start()?,
                    ];
                    let ended: mpj::Result<Vec<_>> = wait_all(running).into_iter().collect();
                    let [gather, gatherv, scatter, scatterv, allgather, allgatherv, alltoall, alltoallv] =
                        &ended?[..]
                    else {
                        panic!("all have ended");
                    };
                    for rank in 0..size {
                        let of = self::mine(rank, start, len);
                        assert_eq!(allgather.1[even(rank)], of);
                        assert_eq!(allgatherv.1[placed(rank)], of);
                        if me == last {
                            assert_eq!(gather.1[even(rank)], of);
                            assert_eq!(gatherv.1[placed(rank)], of);
                        }
                        let from = self::mine(rank + 10 * me, start, len);
                        assert_eq!(alltoall.1[even(rank)], from);
                        assert_eq!(alltoallv.1[placed(rank)], from);
                    }
                    let scattered = self::mine(last + 10 * me, start, len);
                    assert_eq!((&scatter.1, &scatterv.1), (&scattered, &scattered));
                }
            }
            Ok(())
        });
    }
}

#[test]
fn buffers_may_be_replaced_and_active_requests_dropped() {
    for size in SIZES {
        ranks(size, |world| {
            let mut total = world.prepare(coll::allreduce(vec![0u64; 1000], vec![0u64; 1000], Op::Sum))?;
            for start in 0..10 {
                *total.buffers_mut() = (mine(world.rank(), start, 1000), vec![0; 1000]);
                let running = total.start()?;
                if (start + world.rank()) % 3 == 0 {
                    drop(running);
                } else {
                    let mut running = running;
                    while running.test().transpose()?.is_none() {}
                    assert_eq!(running.test().unwrap().unwrap_err().class(), ErrorClass::Request);
                    assert_eq!(running.wait().unwrap_err().class(), ErrorClass::Request);
                }
                assert_eq!(total.buffers_mut().1, sum(size, start, 1000));
            }
            drop(total.start()?);
            drop(total);
            world.barrier()
        });
    }
}

#[test]
fn mismatched_start_fails_on_every_rank() {
    for size in &SIZES[1..] {
        let errors = job(*size, |world| {
            // If one rank rejects the arguments at creation, all ranks get the error, at the latest at the start.
            let refused = world.dup()?.prepare(coll::bcast([0u8; 3], if world.rank() == 0 { 99 } else { 0 }));
            let refused = refused.and_then(|mut bcast| bcast.start()?.wait().map(drop));
            let refused = refused.expect_err("rank 0 gave an invalid root");
            assert!(refused.to_string().contains("root 99"), "{refused}");
            // The last rank has a different length, which is detected at the start.
            let len = if world.rank() + 1 == *size { 7 } else { 8 };
            let mut sum = world.dup()?.prepare(coll::allreduce(vec![1u32; len], vec![0u32; len], Op::Sum))?;
            let mismatch = sum.start()?.wait().map(drop).expect_err("lengths differ");
            // On rank 0, the length differs from that at creation.
            let mut sum = world.dup()?.prepare(coll::allreduce(vec![1u32; 4], vec![0u32; 4], Op::Sum))?;
            sum.start()?.wait()?;
            if world.rank() == 0 {
                sum.buffers_mut().1.push(0);
            }
            let grown = match sum.start() {
                Ok(running) => running.wait().map(drop),
                Err(error) => Err(error),
            };
            // If a rank left before the others have their errors, an error could name that rank instead.
            world.barrier()?;
            Ok::<_, mpj::Error>((mismatch, grown.expect_err("one rank has an element more")))
        });
        for (mismatch, grown) in errors.expect("every rank returns `Ok`") {
            assert!(matches!(mismatch.class(), ErrorClass::Count | ErrorClass::Truncate), "{mismatch}");
            let why = "expected 4 × u32 as in the prepared call, found 5 × u32";
            assert!(grown.class() == ErrorClass::Buffer && grown.to_string().contains(why), "{grown}");
        }
    }
}
