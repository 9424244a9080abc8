//! Collectives of intercommunicators: the items of each group go to the other one, and errors reach both.
#![allow(unsafe_code, reason = "untyped calls")]

use crate::common::{LONG, job, ranks, samples};
use crate::intercomm::{SHAPES, connect};
use mpj::{ErrorClass, Intercomm, IntercommRoot, Op, SendBuf, World, coll, raw};

/// One rank of a job whose two groups are connected by [`connect`].
struct Side {
    inter: Intercomm,
    me: usize,
    first: usize,
    size: usize,
}

impl Side {
    fn new(world: &World, first: usize) -> mpj::Result<Self> {
        Ok(Side { inter: connect(world, first)?, me: world.rank(), first, size: world.size() })
    }

    /// Returns the world ranks of the group of a world rank, in order of rank.
    fn group_of(&self, world_rank: usize) -> Vec<usize> {
        if world_rank < self.first {
            (0..self.first).collect()
        } else {
            (self.first..self.size).rev().collect()
        }
    }

    fn own(&self) -> Vec<usize> {
        self.group_of(self.me)
    }

    fn remote(&self) -> Vec<usize> {
        self.group_of(if self.me < self.first { self.first } else { 0 })
    }

    /// Returns the argument of this rank if world rank `root` is the root.
    fn root(&self, root: usize) -> IntercommRoot {
        match self.remote().iter().position(|rank| *rank == root) {
            Some(rank) => IntercommRoot::Remote(rank),
            None if root == self.me => IntercommRoot::This,
            None => IntercommRoot::Null,
        }
    }
}

/// Runs `test` with groups of each size.
fn each_shape(test: impl Fn(&Side) -> mpj::Result<()> + Send + Sync) {
    for (first, size) in SHAPES {
        ranks(size, |world| test(&Side::new(&world, first)?));
    }
}

/// Runs `test` with groups of each size and with each root.
fn each_root(test: impl Fn(&Side, usize, IntercommRoot) -> mpj::Result<()> + Send + Sync) {
    each_shape(|side| (0..side.size).try_for_each(|root| test(side, root, side.root(root))));
}

fn sum(ranks: &[usize], at: usize, len: usize) -> Vec<u64> {
    (at..at + len).map(|at| ranks.iter().map(|rank| samples::<u64>(*rank, at, 1)[0]).sum()).collect()
}

/// Returns the offset of each block if blocks of these counts are contiguous.
fn starts(counts: &[usize]) -> Vec<usize> {
    counts.iter().scan(0, |sum, count| Some(std::mem::replace(sum, *sum + count))).collect()
}

#[test]
fn bcast_sends_the_roots_items_to_the_other_group() {
    each_root(|side, root, argument| {
        side.inter.barrier()?;
        for len in [0, 3, LONG] {
            let mut items = samples::<u64>(side.me, 0, len);
            side.inter.bcast(&mut items, argument)?;
            let from = if let IntercommRoot::Remote(_) = argument { root } else { side.me };
            assert_eq!(items, samples::<u64>(from, 0, len), "root {root}");
        }
        Ok(())
    });
}

#[test]
fn gather_and_scatter_move_blocks_between_the_root_and_the_other_group() {
    each_root(|side, root, argument| {
        let is_root = argument == IntercommRoot::This;
        let others = side.remote();
        let mut all = vec![0u64; if is_root { 2 * others.len() } else { 0 }];
        side.inter.gather(&samples::<u64>(side.me, 0, 2), &mut all, argument)?;
        if is_root {
            assert_eq!(all, others.iter().flat_map(|rank| samples(*rank, 0, 2)).collect::<Vec<u64>>());
        }
        let mut part = [0u64; 2];
        side.inter.scatter(&samples::<u64>(side.me, 0, 2 * others.len()), &mut part, argument)?;
        if let IntercommRoot::Remote(_) = argument {
            assert_eq!(part[..], samples::<u64>(root, 2 * side.inter.rank(), 2));
        }
        // Blocks of rank % 3 items, in reverse order.
        let counts: Vec<usize> = (0..others.len()).map(|rank| rank % 3).collect();
        let total: usize = counts.iter().sum();
        let places: Vec<usize> = starts(&counts).iter().zip(&counts).map(|(at, n)| total - at - n).collect();
        let own = side.inter.rank() % 3;
        let mut all = vec![0u64; if is_root { total } else { 0 }];
        side.inter.gatherv(&samples::<u64>(side.me, 5, own), &mut all, &counts, &places, argument)?;
        let (table, mut part) = (samples::<u64>(side.me, 0, total), vec![0u64; own]);
        side.inter.scatterv(&table, &counts, &places, &mut part, argument)?;
        if is_root {
            for (rank, (at, count)) in places.iter().zip(&counts).enumerate() {
                assert_eq!(all[*at..at + count], samples::<u64>(others[rank], 5, *count));
            }
        } else if let IntercommRoot::Remote(_) = argument {
            let counts: Vec<usize> = (0..side.own().len()).map(|rank| rank % 3).collect();
            let (total, start) = (counts.iter().sum::<usize>(), starts(&counts)[side.inter.rank()]);
            assert_eq!(part, samples::<u64>(root, total - start - own, own));
        }
        Ok(())
    });
}

#[test]
fn reductions_combine_the_other_group() {
    each_root(|side, root, argument| {
        for len in [0, 5, LONG] {
            let mut result = vec![0u64; if argument == IntercommRoot::This { len } else { 0 }];
            side.inter.reduce(&samples::<u64>(side.me, 0, len), &mut result, Op::Sum, argument)?;
            if argument == IntercommRoot::This {
                assert_eq!(result, sum(&side.remote(), 0, len), "root {root}");
            }
        }
        Ok(())
    });
    each_shape(|side| {
        for len in [0, 5, LONG] {
            let mut result = vec![0u64; len];
            side.inter.allreduce(&samples::<u64>(side.me, 0, len), &mut result, Op::Sum)?;
            assert_eq!(result, sum(&side.remote(), 0, len));
        }
        // Rank r gets r items, and the last one the rest of 30.
        let mut counts: Vec<usize> = (0..side.inter.size()).collect();
        let last = counts.len() - 1;
        counts[last] = 30 - counts[..last].iter().sum::<usize>();
        let (at, count) = (starts(&counts)[side.inter.rank()], counts[side.inter.rank()]);
        let mut part = vec![0u64; count];
        side.inter.reduce_scatter(&samples::<u64>(side.me, 0, 30), &mut part, &counts, Op::Sum)?;
        assert_eq!(part, sum(&side.remote(), at, count));
        // Both groups reduce the same number of items, a multiple of both sizes.
        let len = side.own().len() * side.remote().len();
        let mut part = vec![0u64; side.remote().len()];
        side.inter.reduce_scatter_block(&samples::<u64>(side.me, 3, len), &mut part, Op::Sum)?;
        let at = 3 + side.inter.rank() * part.len();
        assert_eq!(part, sum(&side.remote(), at, part.len()));
        Ok(())
    });
}

#[test]
fn operations_combine_in_order_of_rank() {
    // [a, b] stands for the function that maps x to a·x + b.
    let compose =
        |f: &[u64; 2], g: &[u64; 2]| [f[0].wrapping_mul(g[0]), f[0].wrapping_mul(g[1]).wrapping_add(f[1])];
    let function = |rank: usize| [3 + rank as u64, 7 * rank as u64 + 1];
    each_root(|side, root, argument| {
        let op = Op::user(false, compose);
        let expected =
            side.remote().into_iter().map(function).reduce(|f, g| compose(&f, &g)).expect("not empty");
        let mut got = [[0; 2]];
        side.inter.reduce(&[function(side.me)], &mut got, op.clone(), argument)?;
        assert_eq!(got[0], if argument == IntercommRoot::This { expected } else { [0; 2] }, "root {root}");
        side.inter.allreduce(&[function(side.me)], &mut got, op)?;
        assert_eq!(got[0], expected);
        Ok(())
    });
}

#[test]
fn allgather_and_alltoall_exchange_blocks() {
    each_shape(|side| {
        let (me, own, remote) = (side.me, side.own(), side.remote());
        // The blocks of the group of rank 0 have two items, those of the other group three.
        let (mine, theirs) = if me < side.first { (2, 3) } else { (3, 2) };
        let mut all = vec![0u64; theirs * remote.len()];
        side.inter.allgather(&samples::<u64>(me, 0, mine), &mut all)?;
        assert_eq!(all, remote.iter().flat_map(|rank| samples(*rank, 0, theirs)).collect::<Vec<u64>>());
        let counts: Vec<usize> = (0..remote.len()).map(|rank| rank + 1).collect();
        let total = counts.iter().sum();
        let mut all = vec![0u64; total];
        side.inter.allgatherv(
            &samples::<u64>(me, 1, side.inter.rank() + 1),
            &mut all,
            &counts,
            &starts(&counts),
        )?;
        let expected = remote.iter().zip(&counts).flat_map(|(rank, count)| samples(*rank, 1, *count));
        assert_eq!(all, expected.collect::<Vec<u64>>());

        let block = |from: usize, to: usize| samples::<u64>(from, 10 * to, 2);
        let mut got = vec![0u64; 2 * remote.len()];
        let send: Vec<u64> = remote.iter().flat_map(|to| block(me, *to)).collect();
        side.inter.alltoall(&send, &mut got)?;
        assert_eq!(got, remote.iter().flat_map(|from| block(*from, me)).collect::<Vec<u64>>());

        // Rank r of a group sends r + s items to rank s of the other one.
        let rank = side.inter.rank();
        let counts: Vec<usize> = (0..remote.len()).map(|other| rank + other).collect();
        let parts = (&*counts, &*starts(&counts));
        let send: Vec<u64> =
            remote.iter().zip(&counts).flat_map(|(to, count)| samples(me, 10 * to, *count)).collect();
        let mut got = vec![0u64; counts.iter().sum()];
        side.inter.alltoallv(&send, parts, &mut got, parts)?;
        let expected = remote.iter().zip(&counts).flat_map(|(from, count)| samples(*from, 10 * me, *count));
        assert_eq!(got, expected.collect::<Vec<u64>>());
        assert_eq!(own[rank], me);
        Ok(())
    });
}

/// Starts two calls and waits for them in the reverse order, and then starts a prepared call.
#[test]
fn started_and_prepared_collectives_work() {
    each_shape(|side| {
        let comm = side.inter.as_raw();
        let (mine, mut theirs) = ([side.me as u64], vec![0u64; side.remote().len()]);
        let (send, recv) = (raw::Buf::slice(&mine), raw::Buf::slice_mut(&mut theirs));
        let allgather = raw::Collective::allgather(&send, &recv, raw::BlockLayout::EvenSplit);
        let barrier = raw::Collective::barrier();
        for _ in 0..3 {
            // SAFETY: the call has no buffers.
            let barrier = unsafe { raw::start(comm, barrier, None) }?;
            // SAFETY: the buffers are not accessed before the calls have completed.
            let allgather_request = unsafe { raw::start(comm, allgather, None) }?;
            for request in [allgather_request, barrier] {
                request.wait()?;
            }
            let mut prepared = raw::collective_init(comm, allgather, None)?;
            // SAFETY: as above.
            unsafe { prepared.start() }?;
            prepared.wait()?;
        }
        assert!(theirs.iter().map(|rank| *rank as usize).eq(side.remote()));
        Ok(())
    });
}

#[test]
fn owned_collectives_are_started_and_prepared() {
    each_root(|side, root, argument| {
        let is_root = argument == IntercommRoot::This;
        let (mine, others) = (samples::<u64>(side.me, 0, 4), side.remote());
        let bcast = side.inter.start(coll::bcast(mine.clone(), argument))?;
        let all = vec![0u64; if is_root { 4 * others.len() } else { 0 }];
        let gather = side.inter.start(coll::gather(mine.clone(), all, argument))?;
        let mut total = side.inter.prepare(coll::allreduce(mine.clone(), vec![0u64; 4], Op::Sum))?;
        let ((_, all), _) = gather.wait()?;
        if is_root {
            assert_eq!(all, others.iter().flat_map(|rank| samples(*rank, 0, 4)).collect::<Vec<u64>>());
        }
        let (items, _) = bcast.wait()?;
        let is_remote = matches!(argument, IntercommRoot::Remote(_));
        assert_eq!(items, samples::<u64>(if is_remote { root } else { side.me }, 0, 4));
        for round in 0..2 {
            total.buffers_mut().0 = samples(side.me, round, 4);
            assert_eq!(total.start()?.wait()?.1, sum(&others, round, 4));
        }
        let twin = side.inter.idup()?.wait()?;
        let mut word = [if is_root { root } else { usize::MAX }];
        twin.bcast(&mut word, argument)?;
        assert_eq!(word[0], if is_root || is_remote { root } else { usize::MAX });
        Ok(())
    });
}

#[mpj::test(ranks = 2)]
fn root_of_an_intercommunicator_is_refused_by_an_intracommunicator(world: World) -> mpj::Result<()> {
    for root in [IntercommRoot::This, IntercommRoot::Null] {
        let comm = world.dup()?;
        let error = comm.start(coll::bcast([0u8], root)).expect_err("not a rank");
        assert_eq!(error.class(), ErrorClass::Root, "{error}");
    }
    let (items, _) = world.start(coll::bcast([world.rank()], IntercommRoot::Remote(1)))?.wait()?;
    assert_eq!(items, [1]);
    Ok(())
}

#[test]
fn alltoallw_exchanges_buffers_of_different_types() {
    each_shape(|side| {
        // Even ranks get bytes, odd ones words.
        let remote = side.remote();
        let bytes: Vec<[u8; 3]> = remote.iter().map(|to| [side.me as u8, *to as u8, 7]).collect();
        let words: Vec<[u64; 2]> = remote.iter().map(|to| [side.me as u64, *to as u64]).collect();
        let (mut got_bytes, mut got_words) = (vec![[0u8; 3]; remote.len()], vec![[0u64; 2]; remote.len()]);
        let send: Vec<Box<dyn SendBuf>> = (remote.iter().enumerate())
            .map(|(at, to)| -> Box<dyn SendBuf> {
                if to % 2 == 0 { Box::new(bytes[at]) } else { Box::new(words[at]) }
            })
            .collect();
        if side.me.is_multiple_of(2) {
            side.inter.alltoallw(&send, &mut got_bytes)?;
        } else {
            side.inter.alltoallw(&send, &mut got_words)?;
        }
        let is_even = side.me.is_multiple_of(2);
        for (at, from) in remote.iter().enumerate() {
            let (bytes, words) = ([*from as u8, side.me as u8, 7], [*from as u64, side.me as u64]);
            let expected = if is_even { (bytes, [0; 2]) } else { ([0; 3], words) };
            assert_eq!((got_bytes[at], got_words[at]), expected);
        }
        Ok(())
    });
}

/// An error of one rank fails the call, or a later one, on all ranks of both groups.
#[track_caller]
fn assert_fails_on_all(class: ErrorClass, call: impl Fn(&Side) -> mpj::Result<()> + Send + Sync) {
    ranks(5, |world| {
        let side = Side::new(&world, 2)?;
        let error = call(&side).and_then(|()| side.inter.barrier()).expect_err("a rank fails");
        assert_eq!(error.class(), class, "{error}");
        // Messages and other communicators continue to work.
        if side.inter.rank() == 0 {
            let mut got = [0];
            side.inter.sendrecv(&[side.me], 0, 0, &mut got, 0, 0)?;
            assert_eq!(got, [side.remote()[0]]);
        }
        world.barrier()
    });
}

#[test]
fn wrong_calls_fail_on_both_groups() {
    let long_on_3 = |side: &Side| vec![1u64; if side.me == 3 { 3 } else { 2 }];
    assert_fails_on_all(ErrorClass::Truncate, |side| {
        let len = if side.me == 0 { 3 } else { 2 };
        side.inter.bcast(&mut vec![1u8; len], side.root(0))
    });
    assert_fails_on_all(ErrorClass::Truncate, |side| {
        side.inter.allreduce(&long_on_3(side), &mut long_on_3(side), Op::Sum)
    });
    assert_fails_on_all(ErrorClass::Root, |side| {
        let root = if side.me == 4 { IntercommRoot::Remote(2) } else { side.root(1) };
        side.inter.bcast(&mut [0u8], root)
    });
    assert_fails_on_all(ErrorClass::Op, |side| {
        let mut result = [0.0];
        side.inter.reduce(&[1.0], &mut result, if side.me == 0 { Op::Band } else { Op::Sum }, side.root(4))
    });
    assert_fails_on_all(ErrorClass::Buffer, |side| {
        let items = raw::Buf::slice(&[1u64]);
        let send = if side.me == 2 { raw::Buf::in_place() } else { items };
        // SAFETY: the buffers are borrowed for the call.
        unsafe { raw::allreduce(side.inter.as_raw(), &send, &raw::Buf::slice_mut(&mut [0u64]), &Op::Sum) }
    });
}

/// The root is rank 1, which exists in both groups, so the root argument itself is valid on every rank.
#[test]
fn calls_in_place_at_the_root_are_refused_on_all_ranks() {
    let calls: [fn() -> coll::OwnedCollective<Vec<u64>>; 5] = [
        || coll::reduce_in_place(vec![1; 6], Op::Sum, 1),
        || coll::gather_in_place(vec![1; 6], 1),
        || coll::gatherv_in_place(vec![1; 6], &[2; 3], &[0, 2, 4], 1),
        || coll::scatter_in_place(vec![1; 6], 1),
        || coll::scatterv_in_place(vec![1; 6], &[2; 3], &[0, 2, 4], 1),
    ];
    for call in calls {
        assert_fails_on_all(ErrorClass::Buffer, |side| {
            Err(side.inter.start(call()).map(drop).expect_err("it is in place"))
        });
        assert_fails_on_all(ErrorClass::Buffer, |side| {
            Err(side.inter.prepare(call()).map(drop).expect_err("it is in place"))
        });
    }
}

/// Each group expects the root in the other group, so no rank sends. The library must detect that all ranks wait.
#[test]
fn call_without_a_root_fails_on_all_ranks() {
    assert_fails_on_all(ErrorClass::Other, |side| side.inter.bcast(&mut [0u8], IntercommRoot::Remote(0)));
}

#[test]
fn prefix_reductions_are_refused() {
    ranks(3, |world| {
        let side = Side::new(&world, 1)?;
        let (send, mut result) = ([1u64], [0u64]);
        let recv = raw::Buf::slice_mut(&mut result);
        // SAFETY: the buffers are borrowed for the call.
        let error = unsafe { raw::scan(side.inter.as_raw(), &raw::Buf::slice(&send), &recv, &Op::Sum) };
        assert_eq!(error.expect_err("no scan").class(), ErrorClass::Comm);
        Ok(())
    });
}

#[test]
fn death_fails_collectives_of_both_groups() {
    for dead in [0, 4] {
        let outcome = job(5, |world| {
            let side = Side::new(&world, 2).map_err(|error| error.to_string())?;
            if side.me == dead {
                return Err("on purpose".to_owned());
            }
            // The members of the dead rank's group do not need its items.
            let mut all = vec![0u8; side.remote().len()];
            let gathered = side.inter.allgather(&[1u8], &mut all);
            let error = gathered.and_then(|()| side.inter.barrier()).expect_err("a rank died");
            assert_eq!((error.class(), error.failed_rank()), (ErrorClass::ProcAborted, Some(dead as u32)));
            Ok(())
        });
        assert_eq!(outcome.expect_err("a rank failed").rank(), dead);
    }
}
