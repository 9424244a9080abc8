//! Non-blocking collectives, and persistent ones of the raw interface.
#![allow(unsafe_code, reason = "the raw calls take pointers")]

use std::sync::Arc;

use crate::common::{forget, ranks, samples};
use mpj::raw::{self, BlockLayout, Buf, Collective};
use mpj::{ErrorClass, Intracomm, Op, Waitable, World, coll};

const SIZES: [usize; 3] = [2, 3, 5];

fn sums(size: usize, from: usize, len: usize) -> Vec<u64> {
    let all: Vec<Vec<u64>> = (0..size).map(|rank| samples(rank, from, len)).collect();
    (0..len).map(|at| all.iter().map(|one| one[at]).sum()).collect()
}

/// Starts ten kinds of collectives on this rank, and checks the results after `wait`.
fn start_all(
    world: &World,
    layouts: bool,
    wait: impl Fn(Vec<raw::Request>) -> mpj::Result<()>,
) -> mpj::Result<()> {
    let (me, size, comm, op) = (world.rank(), world.size(), world.as_raw(), Op::Sum);
    let counts = vec![2usize; size];
    let displacements: Vec<usize> = (0..size).map(|r| 2 * (size - 1 - r)).collect();
    let even = BlockLayout::EvenSplit;
    let layout =
        if layouts { BlockLayout::Varying { counts: &counts, displacements: &displacements } } else { even };
    let part = |of: usize| if layouts { 2 * (size - 1 - of) } else { 2 * of };
    let mine = samples::<u64>(me, 0, 2 * size);
    let whole = Buf::slice(&mine);
    let two = Buf::slice(&mine[..2]);
    let mut into: Vec<Vec<u64>> = (0..8).map(|_| vec![0; 2 * size]).collect();
    let mut words = samples::<u64>(me, 50, 3);
    let root = (size - 1) as i32;
    let bufs: Vec<Buf> = into.iter_mut().map(|one| Buf::slice_mut(one)).collect();
    let recv = |i: usize| &bufs[i];
    let shorts: Vec<Buf> = [3, 5].map(|i| recv(i).part(0, 2)).into();
    let bcast = Buf::slice_mut(&mut words);
    let calls = [
        Collective::barrier(),
        Collective::bcast(&bcast, root),
        Collective::reduce(&whole, recv(0), &op, root),
        Collective::allreduce(&whole, recv(1), &op),
        Collective::scan(&whole, recv(2), &op),
        Collective::reduce_scatter(&whole, &shorts[0], &counts, &op),
        Collective::gather(&two, recv(4), layout, root),
        Collective::scatter(&whole, layout, &shorts[1], root),
        Collective::allgather(&two, recv(6), layout),
        Collective::alltoall(&whole, layout, recv(7), layout),
    ];
    // SAFETY: the buffers live until all requests have completed.
    let started = calls.map(|call| unsafe { raw::start(comm, call, None) });
    wait(started.into_iter().collect::<mpj::Result<_>>()?)?;
    let sum = sums(size, 0, 2 * size);
    let is_root = me == size - 1;
    assert_eq!(words, samples::<u64>(size - 1, 50, 3));
    assert_eq!(into[0], if is_root { sum.clone() } else { vec![0; 2 * size] });
    assert_eq!(into[1], sum);
    assert_eq!(into[2], sums(me + 1, 0, 2 * size));
    assert_eq!(into[3][..2], sum[2 * me..][..2]);
    assert_eq!(into[5][..2], samples::<u64>(size - 1, part(me), 2));
    for other in 0..size {
        let at = part(other);
        if is_root {
            assert_eq!(into[4][at..][..2], samples::<u64>(other, 0, 2));
        }
        assert_eq!(into[6][at..][..2], samples::<u64>(other, 0, 2));
        assert_eq!(into[7][at..][..2], samples::<u64>(other, part(me), 2));
    }
    Ok(())
}

#[test]
fn ranks_may_wait_in_different_orders() {
    for size in SIZES {
        ranks(size, |world| {
            for round in 0..4 {
                start_all(&world, round % 2 == 1, |mut started| match (world.rank() + round) % 3 {
                    0 => started.into_iter().try_for_each(|one| one.wait().map(drop)),
                    1 => started.into_iter().rev().try_for_each(|one| one.wait().map(drop)),
                    _ => {
                        let mid = started.len() / 2;
                        started.rotate_left(mid);
                        let mut open: Vec<_> = started.into_iter().map(Some).collect();
                        raw::wait_all(&mut open).into_iter().try_for_each(|one| one.map(drop))
                    }
                })?;
            }
            Ok(())
        });
    }
}

#[test]
fn blocking_calls_may_run_while_nonblocking_ones_are_pending() {
    for size in SIZES {
        ranks(size, |world| {
            let first = world.start(coll::allreduce(vec![world.rank(); 20_000], vec![0; 20_000], Op::Sum))?;
            let mut all = vec![0; size];
            world.allgather(&[world.rank()], &mut all)?;
            assert!(all.iter().copied().eq(0..size));
            let second = world.start(coll::bcast(vec![world.rank(); 5000], 1))?;
            world.barrier()?;
            assert_eq!(second.wait()?.0, vec![1; 5000]);
            world.barrier()?;
            let sum = size * (size - 1) / 2;
            assert_eq!(first.wait()?.0.1, vec![sum; 20_000]);
            Ok(())
        });
    }
}

#[test]
fn recv_progresses_collectives() {
    for size in SIZES {
        ranks(size, |world| {
            let data = vec![world.rank() as u64; 30_000];
            let bcast = world.start(coll::bcast(data, 0))?;
            let sum = world.start(coll::allreduce([1u32], [0u32], Op::Sum))?;
            if world.rank() == 1 {
                // Rank 1 makes progress only in these receives, until all other ranks have completed their collectives.
                for _ in 0..size - 1 {
                    world.recv(&mut [0u8], mpj::ANY_SOURCE, 0)?;
                }
                assert!(sum.request_ref().poll_complete() && bcast.request_ref().poll_complete());
                assert_eq!(sum.wait()?.0.1, [size as u32]);
                assert_eq!(bcast.wait()?.0, vec![0; 30_000]);
            } else {
                assert_eq!(sum.wait()?.0.1, [size as u32]);
                assert_eq!(bcast.wait()?.0, vec![0; 30_000]);
                world.send(&[1u8], 1, 0)?;
            }
            Ok(())
        });
    }
}

#[test]
fn test_progresses_collectives() {
    ranks(3, |world| {
        let mut sum = world.start(coll::allreduce(vec![1u64; 10_000], vec![0u64; 10_000], Op::Sum))?;
        let ((_, sums), _) = loop {
            if let Some(outcome) = sum.test() {
                break outcome?;
            }
        };
        assert_eq!(sums, vec![3; 10_000]);
        Ok(())
    });
}

#[test]
fn dropped_requests_still_complete() {
    for size in SIZES {
        ranks(size, |world| {
            for round in 0..5u64 {
                let sum = world.start(coll::allreduce(vec![round; 10_000], vec![0u64; 10_000], Op::Sum))?;
                let bcast = world.start(coll::bcast(vec![round; 10_000], 0))?;
                match (world.rank() + round as usize) % 3 {
                    0 => drop((sum, bcast)),
                    1 => forget((sum, bcast)),
                    _ => {
                        assert_eq!(bcast.wait()?.0, vec![round; 10_000]);
                        assert_eq!(sum.wait()?.0.1, vec![round * size as u64; 10_000]);
                    }
                }
            }
            world.barrier()?;
            Ok(())
        });
    }
}

#[test]
fn finalize_waits_for_started_collectives() {
    for size in SIZES {
        ranks(size, |world| {
            let apart = world.dup()?;
            let late = || std::thread::sleep(std::time::Duration::from_millis(30));
            let start = || {
                let sum = world.start(coll::allreduce(vec![1u32; 10_000], vec![0u32; 10_000], Op::Sum))?;
                Ok::<_, mpj::Error>((sum, world.start(coll::bcast(vec![world.rank(); 10_000], 0))?))
            };
            if world.rank() == 1 {
                drop(start()?);
                return Ok(());
            }
            // All other operations with rank 1 fail instead of waiting forever.
            late();
            let gone =
                |error: mpj::Error| assert!(error.to_string().contains("rank 1 has left the job"), "{error}");
            gone(world.recv(&mut [0u8], 1, 0).expect_err("it sends nothing"));
            gone(world.send(&[0u8], 1, 0).expect_err("it receives nothing"));
            apart.barrier().expect_err("it takes no part");
            let (sum, bcast) = start()?;
            assert_eq!(sum.wait()?.0.1, vec![size as u32; 10_000]);
            assert_eq!(bcast.wait()?.0, vec![0; 10_000]);
            world.barrier().expect_err("it takes no part");
            Ok(())
        });
    }
}

#[test]
fn rank_may_leave_with_a_collective_that_some_ranks_did_not_start() {
    for size in SIZES {
        ranks(size, |world| {
            // Even and odd ranks start a collective on different communicators, and leave.
            let (even, odd) = (world.dup()?, world.dup()?);
            let comm = if world.rank() % 2 == 0 { even } else { odd };
            drop(comm.start(coll::allreduce(vec![1u32; 10_000], vec![0u32; 10_000], Op::Sum))?);
            Ok(())
        });
    }
}

#[test]
fn collective_completes_after_communicator_is_freed() {
    let drop_it = |dup| {
        drop(dup);
        Ok(())
    };
    let ends: [fn(Intracomm) -> mpj::Result<()>; 2] = [drop_it, |dup| dup.free()];
    for (size, end) in SIZES.into_iter().flat_map(|size| ends.map(|end| (size, end))) {
        ranks(size, |world| {
            let (me, dup) = (world.rank(), world.dup()?);
            if me > 0 {
                world.recv(&mut [0u8], 0, 0)?;
            }
            let sum = dup.start(coll::allreduce([me as u32], [0], Op::Sum))?;
            end(dup)?;
            // The others start the collective after rank 0 has dropped or freed its communicator.
            let others = if me == 0 { 1..size } else { 0..0 };
            others.into_iter().try_for_each(|other| world.send(&[0u8], other, 0))?;
            assert_eq!(sum.wait()?.0.1, [(size * (size - 1) / 2) as u32]);
            Ok(())
        });
    }
}

#[test]
fn threads_of_one_rank_may_wait_for_collectives() {
    ranks(3, |world| {
        let started: Vec<_> =
            (0..6u32).map(|i| world.start(coll::allreduce([i], [0], Op::Sum))).collect::<mpj::Result<_>>()?;
        std::thread::scope(|scope| {
            let waiting: Vec<_> = started.into_iter().rev().map(|one| scope.spawn(|| one.wait())).collect();
            for (i, one) in waiting.into_iter().rev().enumerate() {
                assert_eq!(one.join().expect("no panic")?.0.1, [3 * i as u32]);
            }
            Ok(())
        })
    });
}

#[test]
fn user_op_may_wait_for_messages() {
    ranks(2, |world| {
        let other = 1 - world.rank();
        let inner = world.comm().clone();
        let op = Op::user(true, move |a: &u32, b: &u32| {
            let mut received = [0u32];
            inner.sendrecv(&[7u32], other, 3, &mut received, other, 3).expect("both fold");
            a + b + received[0]
        });
        let sum = world.start(coll::allreduce([1u32], [0u32], op))?;
        let barrier = world.start(coll::barrier())?;
        barrier.wait()?;
        assert_eq!(sum.wait()?.0.1, [9]);
        Ok(())
    });
}

/// A probe in a user function makes progress on the other collectives, and so calls their functions, which also probe.
#[test]
fn user_ops_of_several_collectives_may_probe() {
    ranks(2, |world| {
        let apart = world.dup()?;
        let probe_and_add = move |a: &u64, b: &u64| {
            for _ in 0..10 {
                assert!(apart.iprobe(mpj::Source::Any, 7).is_ok_and(|found| found.is_none()));
            }
            a + b
        };
        let op = Op::user(true, probe_and_add);
        // All collectives have started on rank 0 before their messages arrive.
        if world.rank() == 1 {
            world.recv(&mut [0u8], 0, 0)?;
        }
        let started = (0..1000u64).map(|i| world.start(coll::allreduce([i], [0u64], op.clone())));
        let started: Vec<_> = started.collect::<mpj::Result<_>>()?;
        if world.rank() == 0 {
            world.send(&[0u8], 1, 0)?;
        }
        for (i, one) in (0..).zip(started) {
            assert_eq!(one.wait()?.0.1, [2 * i]);
        }
        world.barrier()
    });
}

#[test]
fn rank_may_leave_with_collectives_that_no_other_rank_started() {
    ranks(3, |world| {
        if world.rank() == 2 {
            drop((world.start(coll::allreduce([1], [0], Op::Sum))?, world.start(coll::barrier())?));
        }
        Ok(())
    });
}

#[test]
fn persistent_collectives_restart_with_new_data() {
    for size in SIZES {
        ranks(size, |world| {
            let (me, len, op) = (world.rank(), 100, Op::Sum);
            let (mut mine, mut sum, mut shared) = (vec![0u64; len], vec![0u64; len], vec![0u64; 3]);
            let (send, recv, items) =
                (Buf::slice_mut(&mut mine), Buf::slice_mut(&mut sum), Buf::slice_mut(&mut shared));
            let comm = world.as_raw();
            let mut reduced = raw::collective_init(comm, Collective::allreduce(&send, &recv, &op), None)?;
            let mut spread = raw::collective_init(comm, Collective::bcast(&items, 1), None)?;
            let mut barrier = raw::collective_init(comm, Collective::barrier(), None)?;
            reduced.wait()?;
            for round in 0..100 {
                mine.copy_from_slice(&samples::<u64>(me, round, len));
                shared.copy_from_slice(&samples::<u64>(me, 7 * round, 3));
                // SAFETY: the buffers are accessed only between the rounds, and outlive the requests.
                unsafe { reduced.start()? };
                // SAFETY: as above.
                unsafe { spread.start()? };
                // SAFETY: a barrier has no buffers.
                unsafe { barrier.start()? };
                // SAFETY: as above.
                let twice = unsafe { barrier.start() };
                assert_eq!(twice.expect_err("it is active").class(), ErrorClass::Request);
                if (me + round) % 2 == 0 {
                    reduced.wait()?;
                    spread.wait()?;
                } else {
                    while spread.test()?.is_none() {}
                    reduced.wait()?;
                }
                barrier.wait()?;
                assert_eq!(sum, sums(size, round, len));
                assert_eq!(shared, samples::<u64>(1, 7 * round, 3));
            }
            Ok(())
        });
    }
}

#[test]
fn dropped_requests_free_their_buffers() {
    let memory = Arc::new(());
    let kept = Arc::clone(&memory);
    ranks(3, move |world| {
        for _ in 0..10 {
            // SAFETY: a barrier has no buffers.
            let barrier = unsafe { raw::start(world.as_raw(), Collective::barrier(), Some(kept.clone()))? };
            drop(barrier);
        }
        drop(raw::collective_init(world.as_raw(), Collective::barrier(), Some(kept.clone()))?);
        world.barrier()?;
        Ok(())
    });
    assert_eq!(Arc::strong_count(&memory), 1, "every operation has dropped its reference");
}
