//! Communicators: their messages are separate, they can be created and freed, and many threads can use them at once.

use std::thread;

use crate::common::{blanks, job, ranks, samples};
use mpj::{ANY_SOURCE, ANY_TAG, ErrorClass, Intracomm, Op, World};

#[mpj::test(ranks = 3)]
fn messages_of_communicators_do_not_mix(world: World) -> mpj::Result<()> {
    let (me, n) = (world.rank(), world.size());
    let (twin, third) = (world.dup()?, world.dup()?);
    assert_eq!((twin.rank(), twin.size()), (me, n));
    let comms: [&Intracomm; 3] = [&world, &twin, &third];
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    // The messages have the same destination and tag, and are received in a different order, partly with wildcards.
    let sends = comms
        .iter()
        .enumerate()
        .map(|(at, comm)| comm.isend([at, me], right, 5))
        .collect::<mpj::Result<Vec<_>>>()?;
    for at in [2, 0, 1] {
        let mut got = [9usize; 2];
        let status = if at == 0 {
            comms[at].recv(&mut got, left, 5)?
        } else {
            comms[at].recv(&mut got, ANY_SOURCE, ANY_TAG)?
        };
        assert_eq!((got, status.source_rank(), status.tag()), ([at, left], left, 5));
    }
    assert!(mpj::wait_all(sends).into_iter().all(|sent| sent.is_ok()));
    // A collective does not receive a point-to-point message, nor the reverse.
    let early = twin.isend([7u8], right, 0)?;
    let mut sum = [0usize];
    twin.allreduce(&[me], &mut sum, Op::Sum)?;
    assert_eq!((sum[0], third.iprobe(ANY_SOURCE, ANY_TAG)?), (3, None));
    twin.recv(&mut [0u8], ANY_SOURCE, ANY_TAG)?;
    early.wait()?;
    twin.barrier()
}

#[mpj::test(ranks = 8)]
fn split_groups_by_color_and_orders_by_key(world: World) -> mpj::Result<()> {
    let me = world.rank();
    // The even ranks reverse their order, the odd ranks keep it (equal keys), and rank 5 takes no part.
    let color = (me != 5).then_some((me % 2) as u32 * 1_000_000_007);
    let part = world.split(color, if me.is_multiple_of(2) { -(me as i32) } else { 4 })?;
    let members: &[usize] = if me.is_multiple_of(2) { &[6, 4, 2, 0] } else { &[1, 3, 7] };
    assert_eq!(part.is_some(), me != 5);
    if let Some(part) = &part {
        let mut all = vec![0usize; part.size()];
        part.allgather(&[me], &mut all)?;
        assert_eq!(all, members);
        assert_eq!(members[part.rank()], me);
        let status =
            part.sendrecv(&[me], (part.rank() + 1) % part.size(), 0, &mut all[..1], ANY_SOURCE, 0)?;
        assert_eq!(members[status.source_rank()], all[0]);
        let half = part.split(Some((part.rank() / 2) as u32), 0)?.expect("has a color");
        let mut sum = [0usize];
        half.allreduce(&[me], &mut sum, Op::Sum)?;
        let expected: usize = members.chunks(2).nth(part.rank() / 2).expect("a pair").iter().sum();
        assert_eq!(sum[0], expected);
        let alone = half.split(Some(me as u32), 0)?.expect("has a color");
        alone.barrier()?;
        assert_eq!((alone.rank(), alone.size()), (0, 1));
    }
    assert!(world.split(None, 0)?.is_none(), "no rank takes part");
    let refused = world.dup()?.split(Some(1 << 31), 0).expect_err("no color");
    assert_eq!(refused.class(), ErrorClass::Arg);
    world.barrier()
}

#[test]
fn communicators_can_be_created_and_dropped_repeatedly() {
    ranks(3, |world| {
        for round in 0..300u32 {
            let comm = world.dup()?;
            let mut got = [0u32];
            let (right, left) = ((world.rank() + 1) % 3, (world.rank() + 2) % 3);
            comm.sendrecv(&[round * 3 + world.rank() as u32], right, 1, &mut got, left, 1)?;
            assert_eq!(got[0], round * 3 + left as u32);
            if round % 2 == 0 {
                comm.barrier()?; // in the other rounds, the ranks free it without waiting for each other
            }
            comm.free()?;
        }
        // Many communicators at once, used in the reverse order of their creation, and dropped.
        let many = (0..100).map(|_| world.dup()).collect::<mpj::Result<Vec<_>>>()?;
        for (at, comm) in many.iter().enumerate().rev() {
            let mut all = [0usize; 3];
            comm.allgather(&[world.rank() + at], &mut all)?;
            assert_eq!(all, [at, at + 1, at + 2]);
        }
        Ok(())
    });
}

#[mpj::test(ranks = 2)]
fn message_can_arrive_before_its_communicator_exists(world: World) -> mpj::Result<()> {
    for len in [1usize, 100_000] {
        if world.rank() == 0 {
            let comm = world.dup()?;
            comm.isend(samples::<u8>(0, 0, len), 1, 3)?.wait()?;
            comm.barrier()?;
        } else {
            thread::sleep(std::time::Duration::from_millis(2));
            let comm = world.dup()?;
            let mut got = blanks::<u8>(len);
            comm.recv(&mut got, 0, 3)?;
            assert_eq!(got, samples::<u8>(0, 0, len));
            comm.barrier()?;
        }
    }
    Ok(())
}

/// MPI_THREAD_MULTIPLE: 2 ranks × 3 threads, each thread with its own communicator.
#[test]
fn threads_can_have_their_own_communicators() {
    let outcome = job(2, |world| {
        let comms = (0..3).map(|_| world.dup()).collect::<mpj::Result<Vec<_>>>()?;
        let (me, other) = (world.rank(), 1 - world.rank());
        let worker = |(at, comm): (usize, Intracomm)| {
            move || -> mpj::Result<()> {
                for round in 0..200 {
                    let len = [0usize, 3, 900, 40_000][round % 4];
                    let mut got = blanks::<u32>(len);
                    comm.sendrecv(&samples::<u32>(me, at + round, len), other, 0, &mut got, other, 0)?;
                    assert_eq!(got, samples::<u32>(other, at + round, len));
                    let mut sum = [0usize; 2];
                    comm.allreduce(&[me + round, at], &mut sum, Op::Sum)?;
                    assert_eq!(sum, [1 + 2 * round, 2 * at]);
                    comm.barrier()?;
                }
                Ok(())
            }
        };
        let threads: Vec<_> = comms.into_iter().enumerate().map(|c| thread::spawn(worker(c))).collect();
        threads.into_iter().try_for_each(|t| t.join().expect("does not panic"))
    });
    outcome.expect("no rank fails");
}

/// 2 ranks × 3 threads that share one communicator and use different tags; every third receive is from any source.
#[test]
fn threads_can_share_a_communicator() {
    let outcome = job(2, |world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        thread::scope(|scope| {
            let worker = |tag: i32| {
                let world = &world;
                move || -> mpj::Result<()> {
                    for round in 0..300 {
                        let len = [1usize, 0, 2000, 30_000][(round + tag as usize) % 4];
                        let send = world.isend(samples::<u64>(me, round, len), other, tag)?;
                        let mut got = blanks::<u64>(len);
                        let status = match round % 3 {
                            0 => world.recv(&mut got, ANY_SOURCE, tag)?,
                            1 => world.mprobe(other, tag)?.recv(&mut got)?,
                            _ => {
                                let (all, status) = world.irecv(got, other, tag)?.wait()?;
                                got = all;
                                status
                            }
                        };
                        assert_eq!(
                            (status.source_rank(), status.tag(), status.bytes()),
                            (other, tag, 8 * len)
                        );
                        assert_eq!(got, samples::<u64>(other, round, len));
                        send.wait()?;
                    }
                    Ok(())
                }
            };
            let threads: Vec<_> = (0..3).map(|tag| scope.spawn(worker(tag))).collect();
            threads.into_iter().try_for_each(|t| t.join().expect("does not panic"))
        })
    });
    outcome.expect("no rank fails");
}

/// A send completes after its request is dropped, even if the communicator is dropped next.
#[test]
fn dropped_send_completes_after_its_communicator_is_dropped() {
    for (len, connected) in [(10usize, false), (1 << 20, false), (1 << 20, true)] {
        job(2, move |world| {
            let sub = world.dup()?;
            if connected {
                if world.rank() == 1 {
                    sub.send(&[1u8], 0, 9)?
                } else {
                    sub.recv(&mut [0u8], 1, 9).map(drop)?
                }
            }
            if world.rank() == 0 {
                drop(sub.isend(vec![7u8; len], 1, 0)?);
                drop(sub);
                world.barrier()?;
                // Rank 0 does not leave before rank 1 has received the message.
                return world.recv(&mut [0u8], 1, 5).map(drop);
            }
            world.barrier()?;
            let mut got = vec![0u8; len];
            assert_eq!(sub.recv(&mut got, 0, 0)?.bytes(), len);
            assert!(got.iter().all(|byte| *byte == 7));
            world.send(&[1u8], 0, 5)
        })
        .expect("the message arrives");
    }
}
