//! Failures: ranks that exit, messages that do not fit, invalid arguments. No failure causes a hang.

use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use crate::common::{job, ranks};
use mpj::{ANY_SOURCE, ANY_TAG, Error, ErrorClass, Op, World};

/// A call that waits for other ranks.
type Wait = fn(&World) -> mpj::Result<()>;

/// Calls in which ranks 0, 1 and 3 can wait for rank 2.
const WAITS: &[(&str, Wait)] = &[
    ("recv", |w| w.recv(&mut [0u8], 2, 0).map(|_| ())),
    ("recv any", |w| w.recv(&mut [0u8], ANY_SOURCE, ANY_TAG).map(|_| ())),
    ("irecv", |w| w.irecv([0u8], 2, 0)?.wait().map(|_| ()).map_err(Error::from)),
    ("wait_any", |w| {
        mpj::wait_any(&mut vec![w.irecv([0u8], 2, 0)?]).expect("one").1.map(|_| ()).map_err(Error::from)
    }),
    ("scope", |w| {
        let mut room = [0u8];
        w.scope(|s| s.irecv(&mut room, 2, 0)?.wait().map(|_| ()))
    }),
    ("big send", |w| w.send(&vec![0u8; 1 << 20], 2, 0)),
    ("ssend", |w| w.ssend(&[0u8], 2, 0)),
    ("sendrecv", |w| w.sendrecv(&[0u8], 2, 0, &mut [0u8], 2, 0).map(|_| ())),
    ("probe", |w| w.probe(2, 0).map(|_| ())),
    ("probe any", |w| w.probe(ANY_SOURCE, ANY_TAG).map(|_| ())),
    ("mprobe", |w| w.mprobe(2, 0).map(|_| ())),
    ("iprobe", |w| {
        loop {
            w.iprobe(2, 0)?;
        }
    }),
    ("recv_object", |w| w.recv_object::<u8>(2, 0).map(|_| ())),
    ("barrier", |w| w.barrier()),
    ("bcast", |w| w.bcast(&mut [0u8; 4], 2)),
    ("big bcast", |w| w.bcast(&mut vec![0u8; 1 << 20], 2)),
    ("reduce", |w| w.reduce(&[0u8], &mut [0u8], Op::Sum, 0).and_then(|()| w.barrier())),
    ("allreduce", |w| w.allreduce(&[0u8], &mut [0u8], Op::Sum)),
    ("big allreduce", |w| w.allreduce(&vec![0u8; 1 << 20], &mut vec![0u8; 1 << 20], Op::Sum)),
    ("scan", |w| w.scan(&[0u8], &mut [0u8], Op::Sum).and_then(|()| w.barrier())),
    ("reduce_scatter", |w| {
        w.reduce_scatter(&vec![0u8; w.size()], &mut [0u8], &vec![1; w.size()], Op::Sum)
            .and_then(|()| w.barrier())
    }),
    ("gather", |w| w.gather(&[0u8], &mut vec![0u8; w.size()], 0).and_then(|()| w.barrier())),
    ("scatter", |w| w.scatter(&vec![0u8; w.size()], &mut [0u8], 2)),
    ("allgather", |w| w.allgather(&[0u8], &mut vec![0u8; w.size()])),
    ("big allgather", |w| w.allgather(&vec![0u8; 1 << 18], &mut vec![0u8; w.size() << 18])),
    ("alltoall", |w| w.alltoall(&vec![0u8; w.size()], &mut vec![0u8; w.size()])),
    ("big alltoall", |w| w.alltoall(&vec![0u8; w.size() << 18], &mut vec![0u8; w.size() << 18])),
    ("dup", |w| w.dup()?.barrier()),
    ("split", |w| w.split(Some(0), 0).map(|_| ())),
    ("bcast_object", |w| w.bcast_object(0u8, 2).map(|_| ())),
];

fn one_dies(name: &str, wait: Wait, die: fn() -> Result<(), String>) -> mpj::JobError {
    let outcome = job(4, |world| {
        if world.rank() == 2 {
            thread::sleep(Duration::from_millis(2));
            return die();
        }
        thread::sleep(Duration::from_millis(2 * world.rank() as u64));
        let error = wait(&world).expect_err("rank 2 does not take part");
        let class = (error.class(), error.failed_rank());
        assert_eq!(class, (ErrorClass::ProcAborted, Some(2)), "{name}: {error}");
        assert!(error.to_string().contains("rank 2 has failed: "), "{name}: {error}");
        // From now on every collective call on this communicator fails at once.
        let again = world.barrier().expect_err("a dead member");
        assert_eq!(again.failed_rank(), Some(2), "{name}: {again}");
        Ok(())
    });
    outcome.expect_err("rank 2 failed")
}

#[test]
fn panic_fails_all_waiting_ranks() {
    for (name, wait) in WAITS {
        let error = one_dies(name, *wait, || std::panic::resume_unwind(Box::new("on purpose")));
        assert_eq!((error.rank(), error.is_panic()), (2, true), "{name}");
        assert_eq!(error.to_string(), "rank 2 panicked: on purpose", "{name}");
    }
}

#[test]
fn returned_error_fails_all_waiting_ranks() {
    for (name, wait) in WAITS {
        let error = one_dies(name, *wait, || Err("out of luck".into()));
        assert_eq!((error.rank(), error.is_panic()), (2, false), "{name}");
        assert_eq!(error.to_string(), "rank 2 returned an error: out of luck", "{name}");
    }
}

#[test]
fn error_names_the_first_failure() {
    for _ in 0..20 {
        let outcome = job(6, |world| -> mpj::Result<()> {
            match world.rank() {
                1 => std::panic::resume_unwind(Box::new(String::from("the cause"))),
                5 => thread::sleep(Duration::from_millis(20)), // by then all others have failed
                _ => (),
            }
            world.barrier().inspect_err(|error| assert_eq!(error.failed_rank(), Some(1), "{error}"))
        });
        assert_eq!(outcome.expect_err("a rank failed").to_string(), "rank 1 panicked: the cause");
    }
}

#[test]
fn wait_for_a_finalized_rank_fails() {
    for (name, wait) in WAITS {
        let outcome = job(3, |world| {
            if world.rank() == 2 {
                return Ok(());
            }
            if name.ends_with("any") && world.rank() == 1 {
                return Ok(()); // a receive from any rank fails only after all other ranks have left
            }
            match wait(&world) {
                Err(error) if error.class() == ErrorClass::ProcAborted => Ok(()),
                other => Err(format!("{name}: {other:?}")),
            }
        });
        assert!(outcome.is_ok(), "{outcome:?}");
    }
}

/// A send that waits for its receive fails if the receiver leaves without having received the message, whether the
/// message arrived before or later. The same holds for messages to a rank that has freed the communicator.
#[test]
fn waiting_sends_fail_if_the_receiver_leaves() {
    for (late, frees) in [(false, false), (true, false), (false, true), (true, true)] {
        let outcome = job(3, |world| {
            let (comm, rank) = (world.dup()?, world.rank());
            if rank == 2 {
                world.barrier()?;
                thread::sleep(Duration::from_millis(if late { 0 } else { 30 }));
                drop(comm);
                return if frees {
                    world.recv(&mut [0u8], ANY_SOURCE, 9).and(world.recv(&mut [0u8], ANY_SOURCE, 9)).map(drop)
                } else {
                    Ok(())
                };
            }
            world.barrier()?;
            thread::sleep(Duration::from_millis(if late { 30 } else { 0 }));
            let sent = if rank == 0 {
                comm.ssend(&[1u8], 2, 0)
            } else {
                let sent = comm.isend(vec![7u8; 1 << 20], 2, 0);
                sent.and_then(|sent| sent.wait().map(drop).map_err(Error::from))
            };
            let error = sent.expect_err("the message was not received");
            assert_eq!((error.class(), error.failed_rank()), (ErrorClass::ProcAborted, Some(2)), "{error}");
            if frees { world.send(&[0u8], 2, 9) } else { Ok(()) }
        });
        assert!(outcome.is_ok(), "{late} {frees} {outcome:?}");
    }
}

#[test]
fn messages_of_a_finalized_rank_arrive() {
    ranks(2, |world| {
        if world.rank() == 0 {
            drop(world.isend(vec![5u8; 1 << 20], 1, 1)?);
            return world.send(&[6u8; 100], 1, 2);
        }
        thread::sleep(Duration::from_millis(10));
        let (mut big, mut small) = (vec![0u8; 1 << 20], [0u8; 100]);
        world.recv(&mut small, 0, 2)?;
        world.recv(&mut big, 0, 1)?;
        assert!(big.iter().all(|b| *b == 5) && small == [6; 100]);
        let error = world.recv(&mut small, 0, 0).expect_err("nothing more will come");
        assert_eq!((error.class(), error.failed_rank()), (ErrorClass::ProcAborted, Some(0)));
        assert!(error.to_string().contains("rank 0 has left the job"), "{error}");
        Ok(())
    });
}

#[test]
fn abort_fails_all_ranks() {
    for aborting in 0..3 {
        let outcome = job(3, |world| {
            if world.rank() == aborting {
                world.abort(17, "no way on");
                return Ok(());
            }
            let error = world.recv(&mut [0u8], ANY_SOURCE, ANY_TAG).expect_err("aborted");
            assert_eq!(error.failed_rank(), Some(aborting as u32));
            assert!(error.to_string().contains("aborted the job with code 17: no way on"), "{error}");
            if world.rank() == 2 { Err(error) } else { Ok(()) }
        });
        let error = outcome.expect_err("aborted");
        assert_eq!((error.rank(), error.is_panic()), (aborting, false));
        assert_eq!(error.to_string(), format!("rank {aborting} aborted the job with code 17: no way on"));
    }
}

#[test]
fn abort_fails_communicators_without_the_aborting_rank() {
    let outcome = job(3, |world| {
        let half = world.split(Some(u32::from(world.rank() > 0)), 0)?.expect("a part for each");
        if world.rank() == 0 {
            world.abort(17, "no way on");
            return Ok(());
        }
        let error = half.recv(&mut [0u8], ANY_SOURCE, ANY_TAG).expect_err("aborted");
        // The error names the death of rank 0, or that of the other member with rank 0 as its cause.
        let text = error.to_string();
        assert!(
            text.contains("rank 0") && text.contains("aborted the job with code 17: no way on"),
            "{text}"
        );
        Err(error)
    });
    let error = outcome.expect_err("aborted");
    assert_eq!((error.rank(), error.is_panic()), (0, false), "{error}");
}

/// Rank 0 calls `abort` on a handle of rank 1, which has left. Ranks 0 and 2 continue.
#[test]
fn abort_of_a_rank_that_has_left_has_no_effect() {
    let kept = Mutex::new(None);
    ranks(3, |world| {
        if world.rank() == 1 {
            *kept.lock().expect("no rank panics") = Some(world.comm().clone());
            return Ok(());
        }
        if world.rank() == 0 {
            while !world.boot().roster().has_left(1) {
                thread::sleep(Duration::from_millis(1));
            }
            let handle = kept.lock().expect("no rank panics").take();
            handle.expect("rank 1 has kept it").abort(42, "too late");
        }
        let (other, mut got) = (2 - world.rank(), [9]);
        world.sendrecv(&[world.rank()], other, 0, &mut got, other, 0)?;
        assert_eq!(got, [other]);
        Ok(())
    });
}

#[test]
fn jobs_of_invalid_size_are_rejected() {
    for n in [0, (1 << 16) + 1, usize::MAX] {
        let error = job(n, |_| Ok::<(), String>(())).expect_err("not a valid number of ranks");
        assert_eq!(error.to_string(), format!("rank 0 cannot start {n} ranks: expected 1 to 65536"));
    }
}

#[mpj::test(ranks = 2)]
fn truncated_messages_are_errors(world: World) -> mpj::Result<()> {
    let other = 1 - world.rank();
    let short = |error: &Error| (error.class(), error.call());
    for len in [100usize, 50_000] {
        for early in [true, false] {
            let posted = if early { None } else { Some(world.irecv(vec![9u32; len - 1], other, 0)?) };
            let wrong = if early { None } else { Some(world.irecv(vec![9i32; len], other, 1)?) };
            world.barrier()?;
            let sends = (0..6)
                .map(|tag| world.isend(vec![7u32; len], other, tag))
                .collect::<mpj::Result<Vec<_>>>()?;
            world.barrier()?;
            let late = |_| world.irecv(vec![9u32; len - 1], other, 0);
            let failed = posted.map_or_else(|| late(()), Ok)?.wait().expect_err("too short");
            assert_eq!(short(failed.error()), (ErrorClass::Truncate, "irecv"));
            let why = format!(
                "irecv: message truncated: rank {other} sent {} bytes with tag 0, the receive buffer holds {}",
                4 * len,
                4 * len - 4
            );
            assert_eq!(failed.error().to_string(), why);
            assert_eq!(failed.into_parts().1, Some(vec![9u32; len - 1]), "nothing was written");
            let late = |_| world.irecv(vec![9i32; len], other, 1);
            let failed = wrong.map_or_else(|| late(()), Ok)?.wait().expect_err("another type");
            assert_eq!(failed.error().class(), ErrorClass::Type);
            let why = format!(
                "irecv: type mismatch: rank {other} sent {len} × u32 with tag 1, the receive expects {len} × i32"
            );
            assert_eq!(failed.error().to_string(), why);
            assert_eq!(failed.into_parts().1, Some(vec![9i32; len]), "nothing was written");
            // Blocking, in a sendrecv, by a matched probe, and in a scope.
            let mut room = vec![0u32; len - 1];
            assert_eq!(
                short(&world.recv(&mut room, other, 2).expect_err("short")),
                (ErrorClass::Truncate, "recv")
            );
            let error = world.sendrecv(&[1u8], other, 9, &mut room, other, 3).expect_err("short");
            assert_eq!(short(&error), (ErrorClass::Truncate, "sendrecv"));
            world.recv(&mut [0u8], other, 9)?; // the send of the `sendrecv` succeeded
            assert_eq!(
                world.mprobe(other, 4)?.recv(&mut room).expect_err("short").class(),
                ErrorClass::Truncate
            );
            let error = world.scope(|s| s.irecv(&mut room, other, 5)?.wait().map(|_| ())).expect_err("short");
            assert_eq!(error.class(), ErrorClass::Truncate);
            assert!(room.iter().all(|x| *x == 0), "nothing was written");
            assert!(mpj::wait_all(sends).iter().all(Result::is_ok));
            world.barrier()?;
        }
    }
    Ok(())
}

#[test]
fn matched_messages_can_be_dropped() {
    ranks(2, |world| {
        if world.rank() == 0 {
            world.ssend(&[0u8; 0], 1, 5)?;
            world.ssend(&[1u8; 3], 1, 5)?;
            world.send(&vec![1u8; 1 << 20], 1, 5)?;
        } else {
            (0..3).try_for_each(|_| world.mprobe(0, 5).map(drop))?;
        }
        world.barrier()
    });
}

#[mpj::test(ranks = 2)]
fn out_of_range_arguments_are_rejected(world: World) {
    let class = |result: mpj::Result<()>| result.expect_err("refused").class();
    for tag in [-1, -2, i32::MIN] {
        assert_eq!(class(world.send(&[1u8], 1, tag)), ErrorClass::Tag);
        assert_eq!(class(world.isend([1u8], 1, tag).map(|_| ())), ErrorClass::Tag);
        assert_eq!(class(world.sendrecv(&[1u8], 1, tag, &mut [0u8], 1, 0).map(|_| ())), ErrorClass::Tag);
        assert_eq!(class(world.send_object(&1, 1, tag)), ErrorClass::Tag);
    }
    for tag in [-1, -3, i32::MIN] {
        assert_eq!(class(world.recv(&mut [1u8], 1, tag).map(|_| ())), ErrorClass::Tag);
        assert_eq!(class(world.probe(1, tag).map(|_| ())), ErrorClass::Tag);
        assert_eq!(class(world.sendrecv(&[1u8], 1, 0, &mut [0u8], 1, tag).map(|_| ())), ErrorClass::Tag);
    }
    for rank in [2, 1 << 31, usize::MAX] {
        assert_eq!(class(world.send(&[1u8], rank, 0)), ErrorClass::Rank);
        assert_eq!(class(world.ssend(&[1u8], rank, 0)), ErrorClass::Rank);
        assert_eq!(class(world.recv(&mut [1u8], rank, 0).map(|_| ())), ErrorClass::Rank);
        assert_eq!(class(world.irecv([1u8], rank, 0).map(|_| ())), ErrorClass::Rank);
        assert_eq!(class(world.iprobe(rank, 0).map(|_| ())), ErrorClass::Rank);
        assert_eq!(class(world.mprobe(rank, 0).map(|_| ())), ErrorClass::Rank);
        assert_eq!(class(world.sendrecv(&[1u8], rank, 0, &mut [0u8], 0, 0).map(|_| ())), ErrorClass::Rank);
    }
    let error = world.send(&[1u8], usize::MAX, 0).expect_err("refused");
    assert_eq!(
        error.to_string(),
        "send: rank 2147483647 (0 - 1?) is out of range: the communicator has ranks 0 to 1"
    );
    let error = world.mprobe(mpj::PROC_NULL, 0).expect_err("refused");
    assert_eq!(
        (error.class(), error.to_string().as_str()),
        (ErrorClass::Rank, "mprobe: PROC_NULL is not a valid rank here")
    );
    let error = world.send(&[1u8], 2, 0).expect_err("refused");
    assert_eq!(error.to_string(), "send: rank 2 is out of range: the communicator has ranks 0 to 1");
    assert_eq!(
        world.send(&[1u8], 0, -7).expect_err("refused").to_string(),
        "send: tag -7 is outside 0..=2147483647"
    );
    assert_eq!(world.iprobe(ANY_SOURCE, ANY_TAG).expect("probes"), None, "no call has sent a message");
    world.barrier().expect("both ranks arrive");
}

#[test]
fn rank_can_leave_before_its_message_is_received() {
    let outcome = job(2, |world| {
        if world.rank() == 0 {
            drop(world.isend(vec![1u8; 1 << 20], 1, 5)?);
            return Ok(());
        }
        let error = world.recv(&mut [0u8; 8], 0, 9).expect_err("rank 0 sends no such message");
        assert_eq!(error.failed_rank(), Some(0), "{error}");
        let error = world.probe(0, 9).expect_err("rank 0 sends no such message");
        assert_eq!(error.failed_rank(), Some(0), "{error}");
        Ok::<(), mpj::Error>(())
    });
    assert!(outcome.is_ok(), "{outcome:?}");
}

/// Runs this program again with a misspelt variable: no rank runs, and the error suggests the right name.
#[test]
fn misspelt_parameter_is_an_error_at_startup() {
    const NAME: &str = "MPJ_SPIN_SU";
    if std::env::var_os(NAME).is_some() {
        let error = mpj::threads(2, |_| -> Result<(), Error> { panic!("it has started") }).unwrap_err();
        assert!(error.to_string().contains("named MPJ_SPIN_SU: did you mean MPJ_SPIN_US?"), "{error}");
        return;
    }
    let mut again = std::process::Command::new(std::env::current_exe().expect("this test"));
    again.args(["--exact", "failures::misspelt_parameter_is_an_error_at_startup"]);
    let ended = again.env(NAME, "3").output().expect("it can be started");
    let said = String::from_utf8_lossy(&ended.stdout);
    assert!(ended.status.success() && said.contains("1 passed"), "{said}");
}

/// Rank 0 has more messages of later calls than it searches at once, and the rank that has failed leaves the job.
#[test]
fn cause_of_a_failed_collective_is_found_although_its_rank_has_left() {
    ranks(3, |world| {
        match world.rank() {
            0 => {
                world.recv(&mut [0u8], 2, 1)?;
                world.send(&[0u8], 1, 2)?;
                let error = world.gather(&[0u8], &mut [0u8; 3], 0).expect_err("rank 1 has failed");
                assert!(error.to_string().contains("root 7 is out of range"), "{error}");
            }
            1 => {
                world.recv(&mut [0u8], 0, 2)?;
                world.gather(&[1u8], &mut [0u8; 0], 7).expect_err("there is no such root");
            }
            _ => {
                let start = |_| world.start(mpj::coll::gather([2u8], vec![0u8; 3], 0));
                let started = (0..40).map(start).collect::<mpj::Result<Vec<_>>>()?;
                world.send(&[0u8], 0, 1)?;
                started.into_iter().for_each(|request| drop(request.wait()));
            }
        }
        Ok(())
    });
}
