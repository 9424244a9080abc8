//! The creation of communicators: from groups, by hardware, as requests, and of single ranks.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use crate::common::{job, ranks};
use mpj::{ANY_SOURCE, ANY_TAG, Comparison, ErrorClass, Group, Intracomm, Op, Session, SplitType, World};

/// Returns the world ranks of the members, which each member contributes.
fn members(comm: &Intracomm, world: &World) -> mpj::Result<Vec<usize>> {
    let mut all = vec![usize::MAX; comm.size()];
    comm.allgather(&[world.rank()], &mut all)?;
    Ok(all)
}

#[mpj::test(ranks = 6)]
fn create_makes_one_communicator_for_each_group(world: World) -> mpj::Result<()> {
    let me = world.rank();
    let all = world.group();
    let groups = [all.include(&[4, 0])?, all.include(&[1, 2, 5])?];
    let mine = groups.iter().find(|group| group.rank().is_some());
    // Rank 3 is in no group.
    let created = world.create(mine.unwrap_or(&Group::empty()))?;
    assert_eq!(created.is_some(), me != 3);
    if let (Some(comm), Some(group)) = (&created, mine) {
        assert_eq!((comm.rank(), &comm.group()), (group.rank().expect("a member"), group));
        let expected: &[usize] = if me.is_multiple_of(4) { &[4, 0] } else { &[1, 2, 5] };
        assert_eq!(members(comm, &world)?, expected);
        assert_eq!(&*comm.name(), "world.create 1");
        // A child of a child.
        let one = comm.create(&comm.group().include(&[1])?)?;
        assert_eq!(one.map(|one| one.size()), (comm.rank() == 1).then_some(1));
    }
    // Ranks outside of the group may pass it, too.
    let pair = world.create(&all.include(&[5, 3])?)?;
    assert_eq!(pair.map(|pair| pair.rank()), [None, None, None, Some(1), None, Some(0)][me]);
    assert!(world.create(&Group::empty())?.is_none());
    world.barrier()
}

#[mpj::test(ranks = 4)]
fn different_groups_fail_create_on_all_ranks(world: World) -> mpj::Result<()> {
    let me = world.rank();
    let include = |ranks: &[usize]| world.group().include(ranks);
    let cases: [[&[usize]; 4]; 4] = [
        // Another order.
        [&[0, 1], &[1, 0], &[], &[]],
        // Rank 2 is in both groups.
        [&[0, 1, 2], &[0, 1, 2], &[2, 3], &[2, 3]],
        // Only one rank of the group passes it.
        [&[], &[], &[], &[2, 3]],
        // A rank outside of the group passes one that its members do not.
        [&[1, 2], &[], &[], &[]],
    ];
    let comm = world.dup()?;
    for case in cases {
        let error = comm.create(&include(case[me])?).expect_err("the groups differ");
        assert_eq!((error.class(), error.call()), (ErrorClass::Group, "create"), "{error}");
        assert!(error.to_string().contains("all members of a new group must pass it"), "{error}");
        let mut sum = [0usize];
        comm.allreduce(&[me], &mut sum, Op::Sum)?;
        assert_eq!(sum, [6], "the ranks are still in step");
    }
    world.barrier()
}

#[mpj::test(ranks = 3)]
fn group_with_a_foreign_process_is_refused_on_all_ranks(world: World) -> mpj::Result<()> {
    let pair = world.create(&world.group().include(&[2, 0])?)?;
    let foreign = world.group().include(&[0, 1])?;
    if let Some(pair) = &pair {
        let error = pair.create(&foreign).expect_err("rank 1 is not in the pair");
        let text = "rank 1 of the group of 2 ranks (world rank 1) is not in the communicator";
        assert_eq!(error.class(), ErrorClass::Group, "{error}");
        assert!(error.to_string().contains(text), "{error}");
        let error = pair.create_group(&foreign, 4).expect_err("rank 1 is not in the pair");
        assert_eq!(error.class(), ErrorClass::Group, "{error}");
        // Both members call. The messages of the failed call do not match those of the next one.
        for _ in 0..2 {
            let error = pair.create_group(&world.group(), 4).expect_err("rank 1 is not in the pair");
            assert!(
                error.to_string().contains(text.trim_start_matches("rank 1 of the group of 2")),
                "{error}"
            );
        }
        assert_eq!(members(&pair.create_group(&pair.group(), 4)?, &world)?, [2, 0]);
    }
    let error = world.create_group(&world.group().exclude(&[world.rank()])?, 4).expect_err("not a member");
    assert_eq!(error.to_string(), "create_group: this process is not in the group of 2 ranks");
    let error = world.create_group(&world.group(), -1).expect_err("a negative tag");
    assert_eq!(error.class(), ErrorClass::Tag);
    world.barrier()
}

#[mpj::test(ranks = 4)]
fn create_group_involves_only_its_members(world: World) -> mpj::Result<()> {
    let me = world.rank();
    let group = world.group().include(&[3, 1])?;
    if group.rank().is_some() {
        // No receive of the user matches a message of the creation.
        let any = world.irecv([0usize; 2], ANY_SOURCE, ANY_TAG)?;
        for round in (0..50).chain([mpj::TAG_UB]) {
            let comm = world.create_group(&group, round)?;
            assert_eq!((comm.rank(), members(&comm, &world)?), (group.rank().expect("a member"), vec![3, 1]));
            assert_eq!(*comm.name(), *format!("world.create_group tag {round}"));
        }
        assert_eq!(any.wait()?.0, [me - 1, 77]);
    } else {
        // Ranks 0 and 2 create their own group with the same tag as ranks 1 and 3 in the first round.
        let pair = world.create_group(&world.group().include(&[0, 2])?, 0)?;
        pair.barrier()?;
        world.send(&[me, 77], me + 1, 5)?;
    }
    // `create_group` is not counted as a collective call of the parent: the barrier matches on all ranks.
    world.barrier()
}

#[mpj::test(ranks = 4)]
fn overlapping_groups_can_be_created_with_one_tag(world: World) -> mpj::Result<()> {
    for first in 0..4 {
        for second in (first + 1)..4 {
            let group = world.group().include(&[second, first])?;
            if group.rank().is_some() {
                assert_eq!(members(&world.create_group(&group, 9)?, &world)?, [second, first]);
            }
        }
    }
    Ok(())
}

#[test]
fn different_groups_fail_create_group_on_all_ranks() {
    let cases: [[&[usize]; 4]; 5] = [
        [&[0, 1], &[1, 0], &[], &[]],
        [&[0, 1], &[0, 1, 2], &[0, 1, 2], &[]],
        [&[0, 1, 2, 3], &[0, 1], &[0, 1, 2, 3], &[0, 1, 2, 3]],
        [&[0, 1], &[0, 1, 2, 3], &[0, 1, 2, 3], &[0, 1, 2, 3]],
        [&[0, 3], &[], &[], &[3, 0]],
    ];
    ranks(4, |world| {
        let me = world.rank();
        for case in cases {
            if !case[me].is_empty() {
                let group = world.group().include(case[me])?;
                let error = world.create_group(&group, 7).expect_err("the groups differ");
                assert_eq!((error.class(), error.call()), (ErrorClass::Group, "create_group"), "{error}");
                assert!(error.to_string().contains("passed another group than rank 0"), "{error}");
            }
            // With the same tag: messages of the failed call must not match.
            for ranks in [&[0, 1, 2][..], &[0, 1], &[3, 0], &[1, 0, 2, 3]] {
                if ranks.contains(&me) {
                    let comm = world.create_group(&world.group().include(ranks)?, 7)?;
                    assert_eq!(members(&comm, &world)?, ranks);
                }
            }
        }
        Ok(())
    });
}

/// 3 ranks × 4 threads.
#[test]
fn threads_create_concurrently_with_different_tags() {
    ranks(3, |world| {
        let worker = |tag: usize| {
            let world = &world;
            move || -> mpj::Result<()> {
                for round in 0..20 {
                    let ranks: &[usize] = [&[0, 1, 2][..], &[2, 0], &[1, 2], &[1, 0]][(tag + round) % 4];
                    let group = world.group().include(ranks)?;
                    if group.rank().is_none() {
                        continue;
                    }
                    let comm = world.create_group(&group, tag as i32)?;
                    let mut sum = [0usize];
                    comm.allreduce(&[world.rank() + tag], &mut sum, Op::Sum)?;
                    assert_eq!(sum[0], ranks.iter().sum::<usize>() + ranks.len() * tag);
                }
                Ok(())
            }
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|tag| scope.spawn(worker(tag))).collect();
            threads.into_iter().try_for_each(|thread| thread.join().expect("does not panic"))
        })
    });
}

#[test]
fn communicators_of_groups_can_be_created_and_freed_repeatedly() {
    ranks(3, |world| {
        let me = world.rank();
        let all = world.group();
        for round in 0..300usize {
            let pair = all.include(&[round % 3, (round + 1) % 3])?;
            let comm = match (round % 2, pair.rank()) {
                (0, _) => world.create(&pair)?,
                (_, Some(_)) => Some(world.create_group(&pair, 3)?),
                _ => None,
            };
            let Some(comm) = comm else { continue };
            let mut got = [0usize];
            comm.sendrecv(&[10 * round + me], 1 - comm.rank(), 0, &mut got, 1 - comm.rank(), 0)?;
            assert_eq!(got[0] / 10, round);
            if round % 5 == 0 {
                comm.free()?;
            }
        }
        Ok(())
    });
}

/// Rank 0 drops its communicator before it has joined the control channel, to which rank 1 then sends.
#[test]
fn create_group_with_a_rank_that_has_freed_the_parent_fails_when_that_rank_exits() {
    job(2, |world| {
        let parent = world.dup()?;
        if world.rank() == 0 {
            drop(parent);
            world.barrier()?;
            return Ok(());
        }
        world.barrier()?;
        let error = parent.create_group(&parent.group(), 1).expect_err("rank 0 takes no part");
        assert_eq!((error.class(), error.failed_rank()), (ErrorClass::ProcAborted, Some(0)), "{error}");
        Ok::<(), mpj::Error>(())
    })
    .expect("rank 1 expects the error");
}

#[test]
fn death_of_a_member_fails_the_creation() {
    for dead in 0..3 {
        let error = job(3, |world| {
            world.barrier().map_err(|error| error.to_string())?;
            if world.rank() == dead {
                thread::sleep(Duration::from_millis(20));
                return Err("no input".to_owned());
            }
            let create_group = world.create_group(&world.group(), 5).expect_err("a member has died");
            let create = world.create(&world.group()).expect_err("a member has died");
            for error in [create_group, create] {
                assert_eq!(error.failed_rank(), Some(dead as u32), "{error}");
            }
            Ok(())
        })
        .expect_err("a rank fails");
        assert_eq!(error.to_string(), format!("rank {dead} returned an error: no input"));
    }
}

#[test]
fn member_that_has_left_fails_create_group() {
    ranks(2, |world| {
        if world.rank() == 1 {
            return Ok(());
        }
        let error = world.create_group(&world.group(), 5).expect_err("rank 1 has left");
        assert_eq!((error.class(), error.failed_rank()), (ErrorClass::ProcAborted, Some(1)), "{error}");
        Ok(())
    });
}

#[mpj::test(ranks = 5)]
fn split_type_groups_ranks_of_a_host(world: World) -> mpj::Result<()> {
    let me = world.rank();
    let local = world.split_type(SplitType::Host, -(me as i32))?.expect("a host for each");
    assert_eq!(members(&local, &world)?, [4, 3, 2, 1, 0]);
    assert_eq!(&*local.name(), "world.split_type 1 host 0");
    // Rank 2 does not take part.
    let some = world.split_type((me != 2).then_some(SplitType::Host), 0)?;
    assert_eq!(some.map(|some| some.size()), (me != 2).then_some(4));
    for part in [SplitType::NumaNode, SplitType::Socket, SplitType::Cache, SplitType::Core] {
        // All ranks are threads of this process, which may run on the same processors.
        let comm = world.split_type(part, 0)?;
        assert!(comm.is_none_or(|comm| comm.size() == 5), "{part:?}");
    }
    let twin = world.dup()?;
    let part = if me == 1 { SplitType::Socket } else { SplitType::Host };
    let bound = world.split_type(SplitType::Socket, 0)?.is_some();
    let mixed = twin.split_type(part, 0);
    if bound {
        let error = mixed.expect_err("rank 1 passes another type");
        assert!(error.to_string().contains("some ranks split by host, others by socket"), "{error}");
        twin.barrier()?;
    }
    world.barrier()
}

#[mpj::test(ranks = 3)]
fn self_communicator_has_only_this_rank(world: World) -> mpj::Result<()> {
    let me = world.rank();
    let alone = world.self_comm()?;
    assert_eq!(
        (alone.rank(), alone.size(), alone.group().translate(&[0], &world.group())?),
        (0, 1, vec![Some(me)])
    );
    let send = alone.isend([me], 0, 3)?;
    let mut got = [9usize];
    assert_eq!(alone.recv(&mut got, ANY_SOURCE, ANY_TAG)?.source_rank(), 0);
    send.wait()?;
    assert_eq!((got, world.iprobe(ANY_SOURCE, ANY_TAG)?), ([me], None));
    assert_eq!(alone.compare(world.clone().self_comm()?), Comparison::Identical);
    let error = alone.free().expect_err("predefined");
    assert_eq!(error.to_string(), "free: the communicator of this rank alone cannot be freed");
    assert_eq!(alone.dup()?.create_group(&alone.group(), 1)?.size(), 1);
    world.barrier()
}

#[mpj::test(ranks = 4)]
fn comparison_distinguishes_four_relations(world: World) -> mpj::Result<()> {
    let part = world.create(&world.group().include(&[0, 1])?)?;
    let twin = world.dup()?;
    let back = world.split(Some(0), -(world.rank() as i32))?.expect("has a color");
    assert_eq!(world.compare(&world.with_path(mpj::DataPath::ZeroCopy)), Comparison::Identical);
    assert_eq!(world.compare(&twin), Comparison::Congruent);
    assert_eq!(twin.compare(&back), Comparison::Similar);
    assert!(part.is_none_or(|part| part.compare(&world) == Comparison::Unequal));
    assert_eq!(Comparison::Identical as i32, 201);
    Ok(())
}

#[mpj::test(ranks = 3)]
fn sessions_create_communicators_of_process_sets(world: World) -> mpj::Result<()> {
    let session = Session::new(&world);
    let sizes = session.psets().map(|name| session.group_from_pset(name).map(|group| group.size()));
    assert_eq!(sizes, [Ok(3), Ok(1), Ok(3)]);
    let error = session.group_from_pset("mpi://MOON").expect_err("unknown");
    assert!(error.to_string().contains("known: mpi://WORLD, mpi://SELF, mpj://host"), "{error}");
    let group = session.group_from_pset("mpi://WORLD")?;
    let comms = [session.comm_from_group(&group, "one")?, session.comm_from_group(&group, "two")?];
    for (comm, number) in comms.iter().zip(5..) {
        let mut got = [0usize];
        comm.sendrecv(
            &[number * world.rank()],
            (comm.rank() + 1) % 3,
            0,
            &mut got,
            (comm.rank() + 2) % 3,
            0,
        )?;
        assert_eq!(got[0], number * ((comm.rank() + 2) % 3));
    }
    let alone = session.comm_from_group(&session.group_from_pset("mpi://SELF")?, "")?;
    assert_eq!(alone.size(), 1);
    // A session and its communicators do not disturb the collectives of the world.
    world.barrier()
}

#[test]
fn abort_on_a_communicator_ends_the_job() {
    let reached = AtomicUsize::new(0);
    let error = job(3, |world| {
        let pair = world.split(Some(u32::from(world.rank() > 0)), 0)?.expect("a color for each");
        if world.rank() == 1 {
            pair.abort(3, "wrong");
            return Ok(());
        }
        let error = world.recv(&mut [0u8], ANY_SOURCE, ANY_TAG).expect_err("aborted");
        reached.fetch_add(1, Ordering::Relaxed);
        Err(error)
    })
    .expect_err("aborted");
    assert_eq!(error.to_string(), "rank 1 aborted the job with code 3: wrong");
    assert_eq!(reached.into_inner(), 2);
}

/// A duplication by a broadcast alone would succeed on rank 0, whose duplicate would then wait for rank 1.
#[test]
fn duplication_that_a_rank_refuses_fails_on_the_others() {
    for non_blocking in [false, true] {
        ranks(2, |world| {
            let comm = world.dup()?;
            let duplicate = || if non_blocking { comm.idup()?.wait() } else { comm.dup() };
            if world.rank() == 0 {
                comm.bcast(&mut [1u8], 0)?;
                duplicate().expect_err("rank 1 refuses it");
                return world.send(&[0u8; 0], 1, 0);
            }
            thread::sleep(Duration::from_millis(100));
            comm.bcast(&mut [1u8], 7).expect_err("an invalid root");
            duplicate().expect_err("collectives of `comm` are disabled");
            world.recv(&mut [0u8; 0], 0, 0).map(drop)
        });
    }
}
