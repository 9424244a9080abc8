//! Ranks call different collectives, or a collective fails on one rank. The other ranks get an error as well, no rank
//! hangs, and no rank returns `Ok` with wrong data.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use crate::common::mismatch::{Program, lengths, operations, play, refusals, roots};
use crate::common::{job, ranks};
use mpj::{ErrorClass, Op, World};

/// Runs programs, one after the other, on 2, 3 and 5 ranks.
#[track_caller]
fn play_on_all_sizes(programs: fn(usize) -> Vec<Program>) {
    for size in [2, 3, 5] {
        let outcome = job(size, |world| programs(size).iter().try_for_each(|program| play(&world, program)));
        if let Err(error) = outcome {
            panic!("{error}");
        }
    }
}

#[test]
fn different_lengths_fail_on_every_rank() {
    play_on_all_sizes(lengths);
}

#[test]
fn different_collectives_fail_on_every_rank() {
    play_on_all_sizes(operations);
}

#[test]
fn different_roots_fail_on_every_rank() {
    play_on_all_sizes(roots);
}

#[test]
fn invalid_arguments_on_one_rank_fail_on_every_rank() {
    play_on_all_sizes(refusals);
}

/// Returns the errors of all ranks, from the call or from the barrier after it, as texts.
#[track_caller]
fn errors_of_all(size: usize, call: impl Fn(&World) -> mpj::Result<()> + Send + Sync) -> Vec<String> {
    let outcome = job(size, |world| {
        let comm = world.dup()?;
        let failed = call(&world).and_then(|()| world.barrier());
        comm.barrier()?;
        Ok::<_, mpj::Error>(failed.expect_err("an error on every rank").to_string())
    });
    outcome.expect("every rank returns `Ok`")
}

/// Returns an error without the name of the call: a rank that only sends gets the error from this call or from the
/// barrier.
fn cause_in(error: &str) -> &str {
    error.split_once(": ").expect("a call and why").1
}

/// If the lengths are on either side of a limit, ranks choose different algorithms.
#[test]
fn different_algorithms_fail_on_every_rank() {
    // An operation that is not commutative excludes the ring algorithm.
    let ordered = Op::user(false, |a: &u64, b: &u64| a + b);
    for (size, op) in [3, 4, 8].into_iter().flat_map(|size| [(size, &Op::Sum), (size, &ordered)]) {
        for (odd, counts) in [0, size - 1].into_iter().flat_map(|odd| {
            // The limit is 32 KiB, 4096 items.
            let pairs = [[4095, 4111], [4111, 4095], [1, 4125], [4125, 1], [4095, 20_000], [20_000, 1]];
            pairs.map(|counts| (odd, counts))
        }) {
            let errors = errors_of_all(size, |world| {
                let len = counts[usize::from(world.rank() == odd)];
                world.allreduce(&vec![1u64; len], &mut vec![0u64; len], op.clone())
            });
            assert!(errors.iter().all(|error| error.contains("allreduce")), "{size} {counts:?}: {errors:?}");
        }
    }
}

#[test]
fn length_error_names_rank_call_and_lengths() {
    let errors = errors_of_all(2, |world| {
        let len = [1000, 10][world.rank()];
        world.allreduce(&vec![1u32; len], &mut vec![0u32; len], Op::Sum)
    });
    // Each rank receives the other's message, but it might receive the other's error first.
    let short = "rank 1 sent 40 bytes, expected 4000";
    let long = "rank 0 sent 4000 bytes, expected 40";
    let says = |error: &str, own: &str, other: &str| {
        error == format!("allreduce: {own}") || error == format!("allreduce: {other}")
    };
    assert!(says(&errors[0], short, &format!("rank 1 failed in allreduce: {long}")), "{errors:?}");
    assert!(says(&errors[1], long, &format!("rank 0 failed in allreduce: {short}")), "{errors:?}");

    let errors = errors_of_all(3, |world| world.gather(&vec![1u8; 2 - world.rank() / 2], &mut [0u8; 6], 0));
    assert_eq!(errors[0], "gather: rank 2 sent 1 bytes, expected 2");
    let other = "rank 0 failed in gather: rank 2 sent 1 bytes, expected 2";
    assert_eq!([cause_in(&errors[1]), cause_in(&errors[2])], [other, other]);

    let errors = errors_of_all(2, |world| match world.rank() {
        0 => world.bcast(&mut [1u32; 4], 0),
        _ => world.bcast(&mut [1i32; 4], 0),
    });
    assert_eq!(errors[1], "bcast: rank 0 sent 4 × u32, expected 4 × i32");
    let other = "rank 1 failed in bcast: rank 0 sent 4 × u32, expected 4 × i32";
    assert_eq!(cause_in(&errors[0]), other);

    let errors = errors_of_all(2, |world| match world.rank() {
        0 => world.bcast(&mut [1u32; 4], 0),
        _ => world.alltoallv(&[0u8; 2], (&[1; 2], &[0, 1]), &mut [0u8; 2], (&[1; 2], &[0, 1])),
    });
    assert_eq!(errors[1], "alltoallv: rank 0 called bcast instead");
}

#[test]
fn user_op_is_not_called_with_a_message_of_wrong_length() {
    let outcome = job(3, |world| {
        let (comm, len) = (world.dup()?, [1000, 10, 1000][world.rank()]);
        let mut seen = Vec::new();
        for commutative in [true, false] {
            let wrong = Arc::new(AtomicUsize::new(0));
            let counted = Arc::clone(&wrong);
            let op = Op::user(commutative, move |a: &char, b: &char| {
                counted.fetch_add(usize::from((*a, *b) != ('b', 'b')), Ordering::Relaxed);
                *a
            });
            let comm = comm.dup()?;
            comm.allreduce(&vec!['b'; len], &mut vec!['b'; len], op).expect_err("lengths differ");
            seen.push(wrong.load(Ordering::Relaxed));
        }
        Ok::<_, mpj::Error>(seen)
    });
    assert_eq!(outcome.expect("every rank returns `Ok`"), vec![vec![0, 0]; 3]);
}

/// In the first round, only the root has an error: its buffer is too short. Later results are right or errors.
#[test]
fn failed_call_does_not_mix_with_later_calls() {
    let outcome = job(3, |world| {
        let me = world.rank() as u32;
        for round in 0..3u32 {
            let mut all = vec![0u32; if round == 0 { 2 } else { 3 }];
            let outcome = world.gather(&[100 * round + me], &mut all, 0);
            if me == 0 {
                assert!(
                    outcome.is_err() || all == [100 * round, 100 * round + 1, 100 * round + 2],
                    "{all:?}"
                );
                assert!(outcome.is_err() || round > 0);
            }
        }
        Ok::<_, mpj::Error>(())
    });
    outcome.expect("every rank returns `Ok`");
}

/// Every rank gets the error of its own arguments, even if another rank's failure has arrived before.
#[test]
fn refused_arguments_disable_collectives_on_all_ranks() {
    ranks(4, |world| {
        for _ in 0..20 {
            let comm = world.dup()?;
            let refused = match world.rank() {
                0 => comm.bcast(&mut [0u8], 4),
                1 => comm.allgather(&[0u8; 2], &mut [0u8; 7]),
                2 => comm.split(Some(u32::MAX), 0).map(drop),
                _ => comm.bcast_object((), 9),
            };
            let class =
                [ErrorClass::Root, ErrorClass::Count, ErrorClass::Arg, ErrorClass::Root][world.rank()];
            assert_eq!(refused.expect_err("invalid arguments").class(), class);
            let error = comm.barrier().expect_err("disabled").to_string();
            assert!(error.contains("collectives on this communicator are disabled since rank "), "{error}");
            // Point-to-point messages continue to work.
            let (right, left) = ((world.rank() + 1) % 4, (world.rank() + 3) % 4);
            let mut got = [0usize];
            comm.sendrecv(&[world.rank()], right, 0, &mut got, left, 0)?;
            assert_eq!(got, [left]);
        }
        Ok(())
    });
}

#[test]
fn barrier_fails_if_a_rank_has_exited_or_its_call_was_refused() {
    for (is_refused, returns_error) in [(false, false), (false, true), (true, false), (true, true)] {
        let outcome = job(3, |world| {
            match world.rank() {
                2 if returns_error => return Err("gave up".to_string()),
                2 => return Ok(()),
                1 if is_refused => drop(world.bcast(&mut [0u8], 7).expect_err("no such root")),
                _ => (),
            };
            let error = world.barrier().expect_err("rank 2 takes no part, or rank 1 was refused");
            let is_refusal = error.to_string().contains("root 7 is out of range");
            assert!(error.failed_rank() == Some(2) || is_refused && is_refusal, "{error}");
            Ok(())
        });
        assert_eq!(outcome.is_err(), returns_error, "{outcome:?}");
    }
}

#[test]
fn failure_reaches_all_ranks_without_another_call() {
    let outcome = job(4, |world| {
        let rest = world.dup()?;
        let outcome = match world.rank() {
            0 => world.gather(&[0u8; 3], &mut [0u8; 12], 0),
            3 => world.gather(&[0u8; 2], &mut [0u8; 0], 0).and_then(|()| world.barrier()),
            _ => world.gather(&[0u8; 3], &mut [0u8; 0], 0).and_then(|()| world.barrier()),
        };
        let error = outcome.expect_err("rank 3 sends less");
        assert!(error.to_string().contains("rank 3 sent 2 bytes, expected 3"), "{error}");
        if world.rank() == 0 {
            // The others must return although this rank makes no call.
            std::thread::sleep(Duration::from_millis(1000));
            for rank in 1..4 {
                assert!(rest.iprobe(rank, 1)?.is_some(), "rank {rank} is still waiting");
            }
        } else {
            rest.send(&[1u8], 0, 1)?;
        }
        rest.barrier()
    });
    outcome.expect("every rank returns `Ok`");
}

/// A value cannot be serialized, or a user's function panics. No other rank waits for that rank, which continues.
#[test]
fn failing_user_code_on_one_rank_fails_on_every_rank() {
    #[derive(serde::Deserialize)]
    struct Odd(bool);
    impl serde::Serialize for Odd {
        fn serialize<S: serde::Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
            if self.0 { Err(serde::ser::Error::custom("not today")) } else { s.serialize_bool(true) }
        }
    }
    let errors = errors_of_all(3, |world| {
        world.bcast_object(Odd(world.rank() == 0), 0).map(|odd| assert!(!odd.0, "another value arrived"))
    });
    let refused = "bcast_object: the Serialize or Deserialize implementation returned an error";
    let other = format!("bcast_object: rank 0 failed in {refused}");
    assert_eq!(errors, [refused, &other, &other]);
    // By default, short vectors are combined at rank 0, longer ones on every rank.
    for (who, count) in [(0, 1), (2, 20_000)] {
        let errors = errors_of_all(3, |world| {
            let me = world.rank();
            let op =
                Op::user(true, move |a: &u32, b: &u32| if me == who { panic!("on purpose") } else { a + b });
            let calls = || world.allreduce(&vec![1u32; count], &mut vec![0u32; count], op.clone());
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(calls)).unwrap_or(Ok(()))
        });
        let why = format!("rank {who} failed in allreduce: a user function panicked");
        for error in errors {
            // A rank that gets the failure notice cancels its messages. The others might detect that before the notice.
            let is_consequence = error.ends_with("cancelled its send after the match: the call failed there");
            assert!(error.contains(&why) || is_consequence, "{error}");
        }
    }
}

/// Rank 0 imitates an object broadcast with plain broadcasts, and sends fewer bytes than it announces.
#[test]
fn imitated_object_broadcast_is_rejected() {
    let errors = errors_of_all(2, |world| {
        if world.rank() == 0 {
            world.bcast(&mut [4000usize], 0)?;
            world.bcast(&mut [0u8; 16], 0)
        } else {
            world.bcast_object(Vec::<u8>::new(), 0).map(drop)
        }
    });
    assert_eq!(errors[1], "bcast_object: rank 0 called bcast instead");
}

#[test]
fn dup_failure_on_one_rank_fails_everywhere() {
    let errors = errors_of_all(2, |world| {
        let alone = world.split(Some(world.rank() as u32), 0)?.expect("has a color");
        let mut many = Vec::new();
        if world.rank() == 1 {
            while let Ok(one) = alone.dup() {
                many.push(one);
            }
        }
        world.dup().map(drop)
    });
    assert!(errors[1].starts_with("dup: too many communicators"), "{errors:?}");
    assert!(errors[0].contains(": rank 1 failed in dup: too many communicators"), "{errors:?}");
}

#[test]
fn dropping_a_communicator_after_a_failure_keeps_the_cause() {
    let outcome = job(3, |world| {
        let (comm, rank) = (world.dup()?, world.rank());
        let root = if rank == 2 { 7 } else { 0 };
        let failed = comm.bcast(&mut vec![0u8; 1 << 20], root).and_then(|()| comm.barrier());
        drop(comm);
        world.barrier()?;
        Ok::<_, mpj::Error>(failed.expect_err("one rank has failed").to_string())
    });
    let errors = outcome.expect("every rank returns `Ok`");
    assert!(errors[..2].iter().all(|error| error.contains("rank 2 failed in bcast")), "{errors:?}");
}
