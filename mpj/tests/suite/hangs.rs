//! A test that hangs fails, and its message names the waiting ranks, their calls and the ranks that they wait for.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use mpj::testing::{TestResult, parse_timeout, run};
use mpj::{ANY_SOURCE, ANY_TAG, Waitable, World};

/// Returns the message of a test that must fail because its ranks wait longer than the limit.
fn timeout_report<O: TestResult>(ranks: usize, test: impl Fn(World) -> O + Send + Sync + 'static) -> String {
    let outcome = catch_unwind(AssertUnwindSafe(|| run(ranks, Duration::from_secs(2), test)));
    let panic = outcome.expect_err("the test hangs");
    panic.downcast_ref::<String>().expect("a message").clone()
}

/// Asserts that the report has a line for this rank which begins with `what`.
#[track_caller]
fn assert_reported(report: &str, rank: usize, what: &str) {
    let start = format!("  rank {rank}: {what}");
    let line = report.lines().find(|line| line.starts_with(&start));
    assert!(line.is_some(), "{start:?} is not in {report}");
}

#[test]
fn report_names_blocking_calls_with_peer_and_tag() {
    let report = timeout_report(6, |world| {
        let sub = world.split(Some((world.rank() >= 4).into()), 0)?.expect("all have a color");
        match world.rank() {
            0 => world.recv(&mut [0u8; 4], 1, 7).map(|_| ()),
            1 => world.barrier(),
            2 => world.ssend(&[1u8], 3, 9),
            3 => world.probe(ANY_SOURCE, ANY_TAG).map(|_| ()).and_then(|()| world.barrier()),
            4 => sub.recv(&mut [0u8], 1, 3).map(|_| ()),
            _ => {
                std::thread::sleep(Duration::from_millis(2500));
                Ok(())
            }
        }
    });
    assert!(report.starts_with("test timed out after 2s:\n"), "{report}");
    assert_reported(&report, 0, "recv from rank 1 with tag 7, for ");
    assert!(report.contains("\n  ranks 1 and 3: barrier, for "), "{report}");
    assert!(report.contains("\n  ranks 0, 2, 4 and 5 have not entered: barrier"), "{report}");
    assert_reported(&report, 2, "ssend to rank 3 with tag 9, for ");
    assert_reported(
        &report,
        4,
        "recv from rank 1 with tag 3 in world.split 1 color 1, that is rank 5 of the world, for ",
    );
    assert_reported(&report, 5, "in no blocking call");
    assert!(!report.contains("keep running"), "all have ended: {report}");
}

#[test]
fn report_names_renamed_communicators_and_creations() {
    let report = timeout_report(2, |world| {
        let comm = world.dup()?;
        comm.set_name("halo");
        match world.rank() {
            0 => comm.create_group(&comm.group(), 3).map(drop),
            _ => comm.recv(&mut [0u8; 4], 0, 7).map(drop),
        }
    });
    assert_reported(&report, 0, "create_group from rank 1 with tag 3 in halo, for ");
    assert_reported(&report, 1, "recv from rank 0 with tag 7 in halo, for ");
}

#[test]
fn report_names_operations_of_requests_and_scopes() {
    let report = timeout_report(4, |world| {
        let never = world.irecv([0u8; 1], ANY_SOURCE, 5)?;
        let mut buf = [0u8; 2];
        match world.rank() {
            0 => never.wait().map(|_| ()).map_err(mpj::Error::from),
            1 => world.scope(|s| s.irecv(&mut buf, 2, ANY_TAG)?.wait().map(|_| ())),
            2 => world.scope(|s| {
                s.issend(&[1u8; 3], 3, 6)?;
                Ok(())
            }),
            _ => {
                let other = world.irecv([0u16; 2], 0, 8)?;
                mpj::wait_all(vec![never.request_ref(), other.request_ref()])
                    .into_iter()
                    .try_for_each(|o| o.map(|_| ()))
            }
        }
    });
    assert_reported(&report, 0, "irecv from any rank with tag 5, for ");
    assert_reported(&report, 1, "irecv from rank 2 with any tag, for ");
    assert_reported(&report, 2, "the end of a scope, for ");
    assert_reported(&report, 3, "irecv from any rank with tag 5, and one more, for ");
}

#[test]
fn report_distinguishes_exited_ranks_and_threads() {
    let report = timeout_report(3, |world| match world.rank() {
        0 => {}
        1 => std::thread::scope(|threads| {
            let waits = |tag| {
                let world = world.clone();
                move || world.recv(&mut [0u8], 1, tag).map(|_| ()).expect_err("no rank sends")
            };
            threads.spawn(waits(1));
            threads.spawn(waits(2));
        }),
        _ => {
            let _ = world.isend([1u8; 10], 1, 3).map(drop);
            let _ = world.issend([1u8; 10], 1, 4).map(drop);
        }
    });
    assert_reported(&report, 0, "has exited");
    assert_reported(&report, 1, "recv from rank 1 with tag 1, for ");
    assert_reported(&report, 1, "recv from rank 1 with tag 2, for ");
    assert_reported(&report, 2, "leaving the job: messages it sent have not been received, for ");
}

#[test]
fn single_rank_times_out() {
    let report = timeout_report(1, |world: World| world.recv(&mut [0u8], 0, 1).map(|_| ()));
    assert_reported(&report, 0, "recv from rank 0 with tag 1, for ");
    assert!(!report.contains("keep running"), "{report}");
}

#[test]
fn busy_rank_is_named_in_timeout_report() {
    let report = timeout_report(2, |world| {
        if world.rank() == 1 {
            loop {
                std::thread::sleep(Duration::from_secs(1000));
            }
        }
        world.barrier()
    });
    assert_reported(&report, 0, "barrier, for ");
    assert_reported(&report, 1, "in no blocking call");
    assert!(report.ends_with("they keep running"), "{report}");
}

#[mpj::test(ranks = 2, timeout = "2s")]
#[should_panic(expected = "rank 1: recv from rank 0 with tag 0, for ")]
fn attribute_accepts_a_timeout(world: World) -> mpj::Result<()> {
    if world.rank() == 1 {
        world.recv(&mut [0u8], 0, 0)?;
    }
    world.barrier()
}

#[test]
fn timeouts_have_a_number_and_a_unit() {
    let times = [("500ms", 500), ("10s", 10_000), ("2min", 120_000), ("999999999ms", 999_999_999)];
    for (text, millis) in times {
        assert_eq!(parse_timeout(text), Duration::from_millis(millis), "{text}");
    }
    for text in ["", "10", "s", "0s", "-1s", "1.5s", "10 s", "1h", "9999999999s", "soon"] {
        assert!(catch_unwind(|| parse_timeout(text)).is_err(), "{text:?}");
    }
}
