//! Intercommunicators: messages name ranks of the remote group, and failures in one group reach the other.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::common::{LONG, job, ranks, samples, text_of};
use mpj::{ANY_SOURCE, ANY_TAG, ErrorClass, Fault, Intercomm, Intracomm, World, raw};

/// The number of ranks of the first group, and of the job.
pub(crate) const SHAPES: [(usize, usize); 5] = [(1, 2), (2, 3), (1, 4), (2, 5), (4, 6)];

const TAG: i32 = 9;

/// Splits the ranks into the first `first` ones and the others, which have the reverse order.
fn split(world: &World, first: usize) -> mpj::Result<Intracomm> {
    let is_first = world.rank() < first;
    let key = if is_first { 0 } else { -(world.rank() as i32) };
    Ok(world.split(Some(is_first.into()), key)?.expect("every rank has a color"))
}

/// Connects the groups of [`split`]. The last rank of each group is its leader.
pub(crate) fn connect(world: &World, first: usize) -> mpj::Result<Intercomm> {
    let group = split(world, first)?;
    let remote_leader = if world.rank() < first { first } else { first - 1 };
    group.create_intercomm(group.size() - 1, world, remote_leader, TAG)
}

/// Returns the world rank of a rank of the remote group of [`connect`].
fn remote_rank(world: &World, first: usize, remote: usize) -> usize {
    if world.rank() < first { world.size() - 1 - remote } else { remote }
}

#[test]
fn messages_go_to_the_remote_group() {
    for (first, size) in SHAPES {
        ranks(size, |world| {
            let me = world.rank();
            let inter = connect(&world, first)?;
            let (own, other) = if me < first { (first, size - first) } else { (size - first, first) };
            assert_eq!((inter.size(), inter.remote_size()), (own, other));
            assert_eq!(inter.rank(), if me < first { me } else { size - 1 - me });
            let sends = (0..other)
                .flat_map(|to| [3, LONG].map(|len| inter.isend(samples::<u32>(me, to, len), to, len as i32)))
                .collect::<mpj::Result<Vec<_>>>()?;
            let mut seen = vec![0; other];
            for at in 0..2 * other {
                let mut got = vec![0u32; LONG];
                let status = if at % 2 == 0 {
                    inter.recv(&mut got, ANY_SOURCE, ANY_TAG)?
                } else {
                    let found = inter.mprobe(ANY_SOURCE, ANY_TAG)?;
                    found.recv(&mut got)?
                };
                let (from, len) = (status.source_rank(), status.tag() as usize);
                assert_eq!(got[..len], samples::<u32>(remote_rank(&world, first, from), inter.rank(), len));
                seen[from] += 1;
            }
            assert_eq!(seen, vec![2; other]);
            mpj::wait_all(sends).into_iter().try_for_each(|sent| sent.map(|_| ()))?;
            assert_eq!(inter.iprobe(ANY_SOURCE, ANY_TAG)?, None);
            world.barrier()
        });
    }
}

#[mpj::test(ranks = 4)]
fn blocking_scoped_and_object_messages_work(world: World) -> mpj::Result<()> {
    let inter = connect(&world, 2)?;
    // Both groups have two ranks: exchange with the remote rank of the same number.
    let (me, peer) = (world.rank(), inter.rank());
    let theirs = remote_rank(&world, 2, peer);
    let mut got = [0usize];
    let status = inter.sendrecv(&[me], peer, 1, &mut got, peer, 1)?;
    assert_eq!((got, status.source_rank(), status.tag()), ([theirs], peer, 1));
    let (mine, mut scoped) = (vec![me; LONG], vec![0; LONG]);
    inter.scope(|s| {
        let receiving = s.irecv(&mut scoped, peer, 2)?;
        s.issend(&mine, peer, 2)?;
        receiving.wait().map(|_| ())
    })?;
    assert_eq!(scoped, vec![theirs; LONG]);
    if me < 2 {
        inter.send_object(&format!("from {me}"), peer, 3)?;
        assert_eq!(inter.probe(peer, 4)?.bytes(), 8);
        let (block, status) = inter.with_path(mpj::DataPath::Buffered).recv_block(peer, 4)?;
        assert_eq!((block.try_as_slice::<usize>()?, status.source_rank()), (&[theirs][..], peer));
    } else {
        assert_eq!(inter.recv_object::<String>(ANY_SOURCE, 3)?.0, format!("from {theirs}"));
        inter.ssend(&[me], peer, 4)?;
    }
    inter.send(&[0u8], mpj::PROC_NULL, 0)
}

#[mpj::test(ranks = 3)]
fn messages_of_duplicates_and_of_other_communicators_do_not_mix(world: World) -> mpj::Result<()> {
    let inter = connect(&world, 1)?;
    let twin = inter.dup()?;
    assert_eq!(
        (twin.rank(), twin.size(), twin.remote_size()),
        (inter.rank(), inter.size(), inter.remote_size())
    );
    if world.rank() == 0 {
        for to in 0..2 {
            twin.isend([2u8], to, 0)?.wait()?;
            inter.isend([1u8], to, 0)?.wait()?;
            world.isend([3u8], 2 - to, 0)?.wait()?;
        }
        return Ok(());
    }
    let mut got = [0u8; 3];
    inter.recv(&mut got[..1], ANY_SOURCE, ANY_TAG)?;
    twin.recv(&mut got[1..2], ANY_SOURCE, ANY_TAG)?;
    world.recv(&mut got[2..], ANY_SOURCE, ANY_TAG)?;
    assert_eq!(got, [1, 2, 3]);
    Ok(())
}

#[test]
fn merge_puts_the_low_group_first() {
    for (first, size) in SHAPES {
        for (first_is_high, other_is_high) in [(false, true), (true, false), (false, false), (true, true)] {
            ranks(size, |world| {
                let is_first = world.rank() < first;
                let inter = connect(&world, first)?;
                let merged = inter.merge(if is_first { first_is_high } else { other_is_high })?;
                let groups = [(0..first).collect::<Vec<_>>(), (first..size).rev().collect()];
                // If both values are equal, the group of world rank 0 is the first one.
                let order = if first_is_high && !other_is_high { [1, 0] } else { [0, 1] };
                let expected = order.map(|at| groups[at].clone()).concat();
                let mut members = vec![0; size];
                merged.allgather(&[world.rank()], &mut members)?;
                assert_eq!(members, expected, "high: {first_is_high} and {other_is_high}");
                assert_eq!(expected[merged.rank()], world.rank());
                Ok(())
            });
        }
    }
}

#[mpj::test(ranks = 4)]
fn merge_with_different_values_in_a_group_fails_on_all_ranks(world: World) -> mpj::Result<()> {
    let inter = connect(&world, 2)?;
    let error = inter.merge(world.rank() == 3).expect_err("ranks 2 and 3 disagree");
    assert_eq!(error.class(), ErrorClass::Arg, "{error}");
    assert!(error.to_string().contains("another value of `high`"), "{error}");
    Ok(())
}

#[mpj::test(ranks = 5)]
fn intercommunicator_can_be_a_bridge(world: World) -> mpj::Result<()> {
    let (group, inter) = (split(&world, 2)?, connect(&world, 2)?);
    let second = group.create_intercomm(0, &inter, 0, 3)?;
    let sum = |comm: &Intercomm| -> mpj::Result<usize> {
        let sends = (0..comm.remote_size()).map(|to| comm.isend([world.rank()], to, 0));
        let sends = sends.collect::<mpj::Result<Vec<_>>>()?;
        let mut total = 0;
        for from in 0..comm.remote_size() {
            let mut got = [0];
            comm.recv(&mut got, from, 0)?;
            total += got[0];
        }
        mpj::wait_all(sends).into_iter().try_for_each(|sent| sent.map(|_| ()))?;
        Ok(total)
    };
    let expected = if world.rank() < 2 { 2 + 3 + 4 } else { 1 };
    assert_eq!((sum(&inter)?, sum(&second)?), (expected, expected));
    Ok(())
}

#[mpj::test(ranks = 4)]
fn threads_use_intercommunicators_at_once(world: World) -> mpj::Result<()> {
    let inter = connect(&world, 1)?;
    let comms = [inter.dup()?, inter.dup()?, inter];
    thread::scope(|scope| {
        let threads = comms.each_ref().map(|comm| {
            scope.spawn(|| {
                for round in 0..200u32 {
                    for to in 0..comm.remote_size() {
                        comm.send(&[round, world.rank() as u32], to, 0)?;
                    }
                    for from in 0..comm.remote_size() {
                        let mut got = [0; 2];
                        comm.recv(&mut got, from, 0)?;
                        assert_eq!(got, [round, remote_rank(&world, 1, from) as u32]);
                    }
                }
                comm.dup().map(|_| ())
            })
        });
        threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
    })
}

#[mpj::test(ranks = 3)]
fn ranks_outside_the_remote_group_are_refused(world: World) -> mpj::Result<()> {
    let inter = connect(&world, 1)?;
    let beyond = inter.remote_size();
    let error = inter.send(&[0u8], beyond, 0).expect_err("no such remote rank");
    let ranks = if beyond == 1 { "only rank 0" } else { "ranks 0 to 1" };
    assert_eq!(error.class(), ErrorClass::Rank);
    let text =
        format!("send: rank {beyond} is out of range: the remote group of the communicator has {ranks}");
    assert_eq!(text_of(&error), text);
    assert_eq!(inter.recv(&mut [0u8], beyond, 0).expect_err("no such source").class(), ErrorClass::Rank);
    Ok(())
}

/// The dead rank is in the second group. The ranks of both groups fail, even those that wait for living ranks.
#[test]
fn death_fails_both_groups() {
    let outcome = job(5, |world| {
        let inter = connect(&world, 2).map_err(|error| error.to_string())?;
        if world.rank() == 3 {
            thread::sleep(Duration::from_millis(5));
            return Err("on purpose".to_owned());
        }
        let living = if world.rank() < 2 { 0 } else { 1 };
        for source in [mpj::Source::Rank(living), ANY_SOURCE] {
            let error = inter.recv(&mut [0u8], source, 0).expect_err("rank 3 dies");
            assert_eq!((error.class(), error.failed_rank()), (ErrorClass::ProcAborted, Some(3)), "{error}");
        }
        assert_eq!(inter.send(&[0u8], living, 0).expect_err("broken").failed_rank(), Some(3));
        assert!(inter.dup().is_err() && inter.merge(false).is_err());
        Ok(())
    });
    assert_eq!(outcome.expect_err("rank 3 failed").rank(), 3);
}

/// A death during the creation fails the ranks of both groups, including those that exchange no message with that rank.
#[test]
fn death_during_creation_fails_both_groups() {
    for dead in [0, 1, 2, 4] {
        let outcome = job(5, |world| {
            let group = split(&world, 2).map_err(|error| error.to_string())?;
            if world.rank() == dead {
                thread::sleep(Duration::from_millis(5));
                return Err("on purpose".to_owned());
            }
            let remote_leader = if world.rank() < 2 { 4 } else { 0 };
            let error = group.create_intercomm(0, &world, remote_leader, TAG).expect_err("a rank dies");
            assert_eq!(error.class(), ErrorClass::ProcAborted, "{error}");
            assert!(error.to_string().contains(&format!("rank {dead} has failed")), "{error}");
            Ok(())
        });
        assert_eq!(outcome.expect_err("a rank failed").rank(), dead);
    }
}

#[mpj::test(ranks = 4)]
fn exit_of_the_remote_group_ends_receives(world: World) -> mpj::Result<()> {
    let inter = connect(&world, 2)?;
    if world.rank() < 2 {
        inter.send(&[world.rank()], 0, 0)?;
        return Ok(());
    }
    if inter.rank() == 0 {
        let mut got = [9usize; 2];
        for at in 0..2 {
            inter.recv(&mut got[at..=at], at, 0)?;
        }
        assert_eq!(got, [0, 1]);
    }
    let error = inter.recv(&mut [0usize], ANY_SOURCE, ANY_TAG).expect_err("no sender is left");
    assert_eq!(error.as_fault(), Some(&Fault::Left { rank: None }));
    Ok(())
}

#[mpj::test(ranks = 3)]
fn pending_operations_survive_a_free(world: World) -> mpj::Result<()> {
    let inter = connect(&world, 1)?;
    let receives = (0..inter.remote_size())
        .map(|from| inter.irecv(vec![0usize; LONG], from, 0))
        .collect::<mpj::Result<Vec<_>>>()?;
    world.barrier()?;
    let sends = (0..inter.remote_size())
        .map(|to| inter.isend(vec![world.rank(); LONG], to, 0))
        .collect::<mpj::Result<Vec<_>>>()?;
    inter.free()?;
    assert_eq!(inter.send(&[0u8], 0, 0).expect_err("freed").class(), ErrorClass::Comm);
    assert_eq!(inter.merge(false).expect_err("freed").class(), ErrorClass::Comm);
    drop(inter);
    for (from, received) in mpj::wait_all(receives).into_iter().enumerate() {
        assert_eq!(received?.0, vec![remote_rank(&world, 1, from); LONG]);
    }
    mpj::wait_all(sends).into_iter().try_for_each(|sent| sent.map(|_| ()))?;
    world.barrier()
}

#[mpj::test(ranks = 3)]
fn failing_copy_hook_fails_the_duplicate_in_both_groups(world: World) -> mpj::Result<()> {
    let inter = connect(&world, 1)?;
    let comm = inter.as_raw();
    let outcome = if world.rank() == 2 {
        let key = raw::AttributeKey::with_copy(|_, _| panic!("wanted"));
        comm.set_attribute(&key, Arc::new(1u8))?;
        comm.dup()
    } else {
        // The failure reaches the other ranks in the next collective of the duplicate.
        let twin = comm.dup()?;
        raw::barrier(&twin).map(|()| twin)
    };
    let error = outcome.expect_err("the hook of rank 2 panics").to_string();
    assert!(error.contains("the copy hook of an attribute panicked"), "{error}");
    inter.barrier()
}

#[mpj::test(ranks = 3)]
fn groups_that_overlap_are_refused_on_all_ranks(world: World) -> mpj::Result<()> {
    let same = world.dup()?.create_intercomm(1, &world, 1, TAG).expect_err("the same group");
    assert_eq!(same.class(), ErrorClass::Comm, "{same}");
    assert!(same.to_string().contains("rank 0 of the world is in both"), "{same}");
    // Rank 1 is in both groups, and calls from two threads.
    let parts =
        [world.split((world.rank() < 2).then_some(0), 0)?, world.split((world.rank() > 0).then_some(0), 0)?];
    thread::scope(|scope| {
        for (at, part) in parts.iter().enumerate() {
            let Some(part) = part else { continue };
            let world = &world;
            scope.spawn(move || {
                // The leaders are ranks 0 and 2.
                let (leader, remote) = [(0, 2), (1, 0)][at];
                let error = part.create_intercomm(leader, world, remote, TAG).expect_err("overlap");
                assert!(error.to_string().contains("rank 1 of the world is in both"), "{error}");
            });
        }
    });
    world.barrier()
}

/// If the arguments of a rank are refused, the call fails on both groups. If that rank is the leader of its group, the
/// other group does not call.
#[test]
fn refused_call_fails_both_groups() {
    for wrong in [0, 1, 2, 4] {
        ranks(5, |world| {
            let group = split(&world, 2)?;
            let leader = if world.rank() == wrong { 7 } else { group.size() - 1 };
            // The leaders are ranks 1 and 2 of the world. A refused leader sends nothing over the bridge, so the other
            // group would get no error.
            let remote_leader = if world.rank() < 2 { 2 } else { 1 };
            let is_leader_group = [1, 2].contains(&wrong);
            let same_group = (wrong < 2) == (world.rank() < 2);
            if is_leader_group && !same_group {
                return world.barrier();
            }
            let error =
                group.create_intercomm(leader, &world, remote_leader, TAG).expect_err("a wrong leader");
            assert_eq!(error.class(), ErrorClass::Root, "{error}");
            assert!(error.to_string().contains("leader 7 is out of range"), "{error}");
            // The leaders' messages do not remain in the bridge.
            if !is_leader_group {
                connect(&world, 2)?;
            }
            world.barrier()
        });
    }
}

#[mpj::test(ranks = 2)]
fn invalid_bridges_are_refused(world: World) -> mpj::Result<()> {
    let alone = || Ok::<_, mpj::Error>(world.split(Some(world.rank() as u32), 0)?.expect("has a color"));
    let freed = world.dup()?;
    freed.free()?;
    let other = 1 - world.rank();
    let error = alone()?.create_intercomm(0, &freed, other, TAG).expect_err("a freed bridge");
    assert_eq!(text_of(&error), "create_intercomm: the communicator was freed");
    let class = |error: mpj::Error| error.class();
    assert_eq!(alone()?.create_intercomm(0, &world, 2, TAG).map_err(class).err(), Some(ErrorClass::Rank));
    assert_eq!(alone()?.create_intercomm(0, &world, other, -1).map_err(class).err(), Some(ErrorClass::Tag));
    let none = alone()?.as_raw().create_intercomm(0, None, other as i32, TAG).expect_err("no bridge");
    assert_eq!(text_of(&none), "create_intercomm: the leader needs a bridge communicator");
    // Messages of the user with the same tag stay in the bridge.
    let group = alone()?;
    let sending = world.isend([9u8; 8], other, TAG)?;
    let inter = group.create_intercomm(0, &world, other, TAG)?;
    assert_eq!(inter.remote_group().translate(&[0], &world.group())?, [Some(other)]);
    world.recv(&mut [0u8; 8], ANY_SOURCE, ANY_TAG)?;
    sending.wait()?;
    Ok(())
}

#[mpj::test(ranks = 3)]
fn raw_handles_know_their_kind(world: World) -> mpj::Result<()> {
    let inter = connect(&world, 1)?;
    let (comm, intra) = (inter.as_raw(), world.as_raw());
    assert!(comm.is_inter() && !intra.is_inter());
    assert_eq!((intra.remote_group(), intra.remote_size()), (None, None));
    let groups: [raw::Group; 2] = [[0].into_iter().collect(), [2, 1].into_iter().collect()];
    let (own, remote) = if world.rank() == 0 { (0, 1) } else { (1, 0) };
    assert_eq!((comm.group(), comm.remote_group()), (&groups[own], Some(&groups[remote])));
    assert_eq!(comm.compare(&comm.dup()?), raw::Comparison::Congruent);
    assert_eq!(comm.compare(&split(&world, 1)?.as_raw().clone()), raw::Comparison::Unequal);
    assert!(comm.create_group(&groups[own], 0).is_err());
    for error in [intra.merge(false).err(), comm.create_intercomm(0, Some(intra), 0, 0).err()] {
        assert_eq!(error.expect("not defined for this kind").class(), ErrorClass::Comm);
    }
    // The refused calls have not sent anything.
    inter.dup()?.free()
}
