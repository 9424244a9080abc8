//! Partitioned messages: parts that many threads fill, and that are used as they arrive.
#![expect(clippy::forget_non_drop, reason = "a handle might get a `Drop`")]

use std::thread;
use std::time::Duration;

use crate::common::{forget, job, ranks, samples};
use mpj::{ANY_SOURCE, ANY_TAG, ErrorClass, PROC_NULL, Waitable, World};

/// Items of a message: none, eager parts, and parts that use rendezvous.
const LENS: [usize; 3] = [0, 240, 600_000];

/// Fills the parts of one round in threads, in an order that differs by round.
fn fill(filling: &mpj::FillingRequest<'_, u64>, data: &[u64], parts: usize, round: usize) {
    let len = data.len() / parts;
    thread::scope(|scope| {
        for at in 0..parts {
            let part = (at * 7 + round) % parts;
            let mut items = filling.part(part).expect("free");
            scope.spawn(move || {
                items.copy_from_slice(&data[part * len..][..len]);
                items.ready().expect("alive");
            });
        }
    });
}

#[test]
fn parts_of_many_threads_arrive() {
    for (size, send_parts, recv_parts) in
        [(1, 3, 3), (2, 1, 1), (2, 4, 4), (3, 8, 3), (2, 3, 8), (2, 1, 6), (2, 6, 1)]
    {
        ranks(size, |world| {
            let me = world.rank();
            let (right, left) = ((me + 1) % size, (me + size - 1) % size);
            for len in LENS {
                let mut send = world.psend_init(vec![0u64; len], send_parts, right, 5)?;
                let mut recv = world.precv_init(vec![0u64; len], recv_parts, left, 5)?;
                for round in 0..4 {
                    let (data, expected) = (samples(me, round, len), samples::<u64>(left, round, len));
                    let arriving = recv.start()?;
                    let filling = send.start()?;
                    fill(&filling, &data, send_parts, round);
                    for part in 0..recv_parts {
                        let items = loop {
                            if let Some(items) = arriving.part(part)? {
                                break items;
                            }
                        };
                        let part_len = len / recv_parts;
                        assert_eq!(items, &expected[part * part_len..][..part_len]);
                    }
                    filling.wait()?;
                    assert_eq!(arriving.wait()?, expected);
                    let status = recv.status();
                    assert_eq!((status.source(), status.tag(), status.bytes()), (Some(left), 5, 8 * len));
                }
            }
            Ok(())
        });
    }
}

/// The descriptions of the parts arrive while each rank waits for its own send, and not for its receive.
#[test]
fn ranks_that_wait_for_their_sends_receive_the_parts() {
    ranks(3, |world| {
        let me = world.rank();
        let (right, left) = ((me + 1) % 3, (me + 2) % 3);
        let len = 600_000;
        let mut recv = world.precv_init(vec![0u64; len], 4, left, 5)?;
        let arriving = recv.start()?;
        world.barrier()?;
        let mut send = world.psend_init(samples::<u64>(me, 0, len), 4, right, 5)?;
        let filling = send.start()?;
        for part in 0..4 {
            filling.part(part)?.ready()?;
        }
        filling.wait()?;
        world.barrier()?;
        assert_eq!(arriving.wait()?, samples::<u64>(left, 0, len));
        Ok(())
    });
}

#[test]
fn receive_that_is_dropped_after_the_match_completes() {
    for is_forgotten in [false, true] {
        ranks(2, |world| {
            let len = 600_000;
            if world.rank() == 0 {
                let mut recv = world.precv_init(vec![0u64; len], 4, 1, 5)?;
                drop(recv.start()?);
                // The description of the parts has arrived before this message.
                world.recv(&mut [0u8], 1, 2)?;
                if is_forgotten {
                    forget(recv);
                }
            } else {
                let mut send = world.psend_init(vec![7u64; len], 4, 0, 5)?;
                world.send(&[1u8], 0, 2)?;
                let filling = send.start()?;
                for part in 0..4 {
                    filling.part(part)?.ready()?;
                }
                filling.wait()?;
            }
            world.barrier()
        });
    }
}

/// The receiver leaves although no send has matched: neither rank waits for the other.
#[test]
fn ranks_leave_with_unmatched_receives() {
    ranks(2, |world| {
        let mut recv = world.precv_init(vec![0u64; 100], 4, 1 - world.rank(), 5)?;
        drop(recv.start()?);
        forget(recv);
        Ok(())
    });
}

#[test]
fn part_arrives_before_the_others_are_ready() {
    ranks(2, |world| {
        if world.rank() == 0 {
            let mut send = world.psend_init([1u8, 2, 3, 4], 4, 1, 0)?;
            let filling = send.start()?;
            filling.part(2)?.ready()?;
            world.recv(&mut [0u8; 0], 1, 9)?; // the receiver has part 2
            for part in [0, 1, 3] {
                filling.part(part)?.ready()?;
            }
            return filling.wait();
        }
        let mut recv = world.precv_init([0u8; 4], 4, 0, 0)?;
        let arriving = recv.start()?;
        while !arriving.has_arrived(2)? {}
        assert_eq!(arriving.part(2)?, Some(&[3u8][..]));
        assert_eq!((arriving.part(0)?, arriving.has_arrived(3)?), (None, false));
        world.send(&[0u8; 0], 0, 9)?;
        assert_eq!(arriving.wait()?, [1, 2, 3, 4]);
        Ok(())
    });
}

#[test]
fn requests_match_by_tag_in_the_order_of_creation() {
    ranks(2, |world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        let new = || vec![0usize; 6];
        let mut sends = Vec::new();
        for (tag, parts) in [(0, 2), (1, 3), (0, 6)] {
            sends.push(world.psend_init(new(), parts, other, tag)?);
        }
        let mut recvs = Vec::new();
        for (tag, parts) in [(1, 3), (0, 2), (0, 2)] {
            recvs.push(world.precv_init(new(), parts, other, tag)?);
        }
        for round in 0..5 {
            for (at, (send, parts)) in sends.iter_mut().zip([2, 3, 6]).enumerate().rev() {
                let filling = send.start()?;
                for part in 0..parts {
                    let mut items = filling.part(part)?;
                    items.fill(100 * round + 10 * at + me);
                    items.ready()?;
                }
                filling.wait()?;
            }
            let mut arriving = Vec::new();
            for recv in recvs.iter_mut().rev() {
                arriving.push(recv.start()?);
            }
            for (items, at) in mpj::wait_all(arriving).into_iter().zip([2, 0, 1]) {
                assert_eq!(items?, [100 * round + 10 * at + other; 6]);
            }
        }
        Ok(())
    });
}

/// Wildcard receives and probes of the program must not get a part.
#[test]
fn ordinary_receives_do_not_match_parts() {
    ranks(2, |world| {
        let other = 1 - world.rank();
        let mut send = world.psend_init([world.rank(); 8], 4, other, 0)?;
        let filling = send.start()?;
        for part in 0..4 {
            filling.part(part)?.ready()?;
        }
        world.barrier()?;
        for _ in 0..100 {
            assert_eq!(world.iprobe(ANY_SOURCE, ANY_TAG)?, None);
        }
        world.barrier()?;
        let sending = world.isend([77usize], other, 0)?;
        assert_eq!(world.recv_vec::<usize>(ANY_SOURCE, ANY_TAG)?.0, [77]);
        sending.wait()?;
        let mut recv = world.precv_init([9usize; 8], 2, other, 0)?;
        assert_eq!(recv.start()?.wait()?, [other; 8]);
        filling.wait()
    });
}

#[test]
fn part_marked_ready_twice_is_an_error() {
    ranks(1, |world| {
        let mut send = world.psend_init([0u8; 4], 2, 0, 0)?;
        let mut recv = world.precv_init([9u8; 4], 2, 0, 0)?;
        let arriving = recv.start()?;
        let filling = send.start()?;
        let held = filling.part(0)?;
        assert_eq!(filling.part(0).expect_err("another holder").class(), ErrorClass::Request);
        drop(held);
        filling.part(0)?.ready()?;
        let twice = filling.part(0).expect_err("it is ready");
        assert!(twice.class() == ErrorClass::Request && twice.to_string().contains("part 0"), "{twice}");
        assert_eq!(filling.part(2).expect_err("2 parts").class(), ErrorClass::Arg);
        assert_eq!(filling.part(usize::MAX).expect_err("2 parts").class(), ErrorClass::Arg);
        assert_eq!(arriving.has_arrived(usize::MAX).expect_err("2 parts").class(), ErrorClass::Arg);
        let missing = filling.wait().expect_err("part 1 is not ready");
        assert!(missing.class() == ErrorClass::Request && missing.to_string().contains("[1]"), "{missing}");
        assert_eq!(send.start().expect_err("the round is active").class(), ErrorClass::Request);
        let filling = send.resume().expect("the round is active");
        assert_eq!(filling.part(0).expect_err("it is ready").class(), ErrorClass::Request);
        filling.part(1)?.ready()?;
        filling.wait()?;
        assert_eq!(arriving.wait()?, [0; 4]);
        assert!(send.resume().is_none() && recv.resume().is_none());
        Ok(())
    });
}

#[test]
fn forgotten_handles_are_harmless() {
    ranks(2, |world| {
        let (me, other) = (world.rank(), 1 - world.rank());
        let mut send = world.psend_init(vec![me; 4000], 4, other, 0)?;
        let mut recv = world.precv_init(vec![9; 4000], 4, other, 0)?;
        std::mem::forget(recv.start()?);
        let unfinished = recv.start().expect_err("the round is active");
        assert_eq!(unfinished.class(), ErrorClass::Request);
        world.barrier()?;
        let filling = send.start()?;
        std::mem::forget(filling.part(0)?);
        std::mem::forget(filling);
        let filling = send.resume().expect("active");
        for part in 0..4 {
            let mut items = filling.part(part)?;
            items[0] = 100 + part;
            items.ready()?;
        }
        drop(filling);
        assert_eq!(recv.resume().expect("active").wait()?[..2], [100, other]);
        // The last round of both requests continues after they are dropped.
        drop(recv.start()?);
        let filling = send.start()?;
        (0..4).try_for_each(|part| filling.part(part)?.ready())?;
        drop(filling);
        drop((send, recv));
        forget(world.psend_init([0u8; 8], 8, other, 3)?);
        forget(world.precv_init([0u8; 8], 8, other, 3)?);
        world.barrier()
    });
}

#[test]
fn panic_of_a_filling_thread_leaves_the_part_unready() {
    ranks(1, |world| {
        let mut send = world.psend_init([1u8; 4], 2, 0, 0)?;
        let mut recv = world.precv_init([0u8; 4], 2, 0, 0)?;
        let arriving = recv.start()?;
        let filling = send.start()?;
        let thrown = thread::scope(|scope| {
            let part = filling.part(1).expect("free");
            scope
                .spawn(move || {
                    let _held = part;
                    std::panic::resume_unwind(Box::new("on purpose"));
                })
                .join()
        });
        thrown.expect_err("it panics");
        filling.part(1)?.ready()?;
        filling.part(0)?.ready()?;
        filling.wait()?;
        assert_eq!(arriving.wait()?, [1; 4]);
        Ok(())
    });
}

#[test]
fn other_lengths_and_types_fail_the_receive() {
    ranks(2, |world| {
        if world.rank() == 0 {
            // Long enough for a rendezvous: the refusal completes the send.
            for (tag, len) in [(0, 200_000), (1, 400_000)] {
                let mut send = world.psend_init(vec![1u32; len], 2, 1, tag)?;
                let filling = send.start()?;
                (0..2).try_for_each(|part| filling.part(part)?.ready())?;
                filling.wait()?;
            }
            let mut send = world.psend_init([1.5f32; 8], 2, 1, 2)?;
            let filling = send.start()?;
            (0..2).try_for_each(|part| filling.part(part)?.ready())?;
            filling.wait()?;
            let mut send = world.psend_init([1u32; 6], 6, 1, 3)?;
            let filling = send.start()?;
            (0..6).try_for_each(|part| filling.part(part)?.ready())?;
            return filling.wait();
        }
        for tag in [0, 1] {
            let mut recv = world.precv_init(vec![0u32; 300_000], 3, 0, tag)?;
            let error = recv.start()?.wait().expect_err("another length");
            assert_eq!(error.class(), ErrorClass::Truncate, "{error}");
            assert!(error.to_string().contains("rank 0 sends 2 parts of"), "{error}");
        }
        let mut recv = world.precv_init([0u32; 8], 2, 0, 2)?;
        let arriving = recv.start()?;
        let error = loop {
            match arriving.has_arrived(1) {
                Ok(arrived) => assert!(!arrived),
                Err(error) => break error,
            }
        };
        assert_eq!(error.class(), ErrorClass::Type, "{error}");
        assert_eq!(arriving.wait().expect_err("f32").class(), ErrorClass::Type);
        let mut recv = world.precv_init([[0u32; 2]; 3], 3, 0, 3)?;
        let error = recv.start()?.wait().expect_err("half an item in each part");
        assert!(error.class() == ErrorClass::Type && error.to_string().contains("whole items"), "{error}");
        Ok(())
    });
}

#[test]
fn invalid_arguments_fail_at_creation() {
    ranks(1, |world| {
        let send = |parts, dest, tag| world.psend_init([0u8; 6], parts, dest, tag).expect_err("invalid");
        for (error, class) in [
            (send(0, 0, 0), ErrorClass::Arg),
            (send(usize::MAX, 0, 0), ErrorClass::Arg),
            (send(4, 0, 0), ErrorClass::Count),
            (send(2, 1, 0), ErrorClass::Rank),
            (send(2, 0, -1), ErrorClass::Tag),
            (world.precv_init([0u8; 6], 4, 0, 0).expect_err("6 items"), ErrorClass::Count),
            (world.precv_init([0u8; 6], 2, ANY_SOURCE, 0).expect_err("wildcard"), ErrorClass::Rank),
            (world.precv_init([0u8; 6], 2, 3, 0).expect_err("1 rank"), ErrorClass::Rank),
            (world.precv_init([0u8; 6], 2, 0, -2).expect_err("negative"), ErrorClass::Tag),
        ] {
            assert_eq!(error.class(), class, "{error}");
            assert!(["psend_init", "precv_init"].contains(&error.call()), "{error}");
        }
        let mut send = world.psend_init([1u8; 6], 2, PROC_NULL, 0)?;
        let filling = send.start()?;
        (0..2).try_for_each(|part| filling.part(part)?.ready())?;
        filling.wait()?;
        let mut recv = world.precv_init([3u8; 6], 2, PROC_NULL, 0)?;
        let arriving = recv.start()?;
        assert!(arriving.has_arrived(1)?);
        assert_eq!(arriving.wait()?, [3; 6]);
        let comm = world.dup()?;
        let (mut send, mut recv) = (comm.psend_init([0u8], 1, 0, 0)?, comm.precv_init([0u8], 1, 0, 0)?);
        comm.free()?;
        assert_eq!(send.start().expect_err("freed").class(), ErrorClass::Comm);
        assert_eq!(recv.start().expect_err("freed").class(), ErrorClass::Comm);
        assert_eq!(comm.psend_init([0u8], 1, 0, 0).expect_err("freed").class(), ErrorClass::Comm);
        Ok(())
    });
}

#[test]
fn dead_peer_fails_the_round() {
    fn peer(world: &World) -> mpj::Result<()> {
        let mut recv = world.precv_init([0u8; 2], 2, 0, 0)?;
        let arriving = recv.start()?;
        let error = mpj::wait_any(&mut vec![arriving.request_ref()]).expect("one").1.expect_err("dead");
        assert_eq!((error.class(), error.failed_rank()), (ErrorClass::ProcAborted, Some(0)), "{error}");
        assert_eq!(arriving.wait().expect_err("dead").failed_rank(), Some(0));
        Ok(())
    }
    for late in [false, true] {
        let outcome = job(2, |world| {
            if world.rank() == 0 {
                let mut send = world.psend_init([0u8; 2], 2, 1, 0).map_err(|error| error.to_string())?;
                let filling = send.start().map_err(|error| error.to_string())?;
                if late {
                    filling.part(1).and_then(mpj::PartMut::ready).map_err(|error| error.to_string())?;
                }
                thread::sleep(Duration::from_millis(5));
                return Err("on purpose".to_owned());
            }
            peer(&world).map_err(|error| error.to_string())
        });
        assert_eq!(outcome.expect_err("rank 0 failed").rank(), 0);
    }
}

#[mpj::test(ranks = 2)]
fn rank_that_has_freed_the_communicator_refuses_parts(world: World) -> mpj::Result<()> {
    let comm = world.dup()?;
    if world.rank() == 1 {
        // This rank has never made a partitioned request on the communicator.
        drop(comm);
        world.barrier()?;
        return world.recv(&mut [0u8], 0, 1).map(drop);
    }
    world.barrier()?;
    let mut send = comm.psend_init(vec![1u64; 600_000], 1, 1, 0)?;
    let filling = send.start()?;
    filling.part(0)?.ready()?;
    let error = filling.wait().expect_err("no receiver");
    assert_eq!(error.as_fault(), Some(&mpj::Fault::Refused { rank: 1 }), "{error}");
    world.send(&[0u8], 1, 1)
}
