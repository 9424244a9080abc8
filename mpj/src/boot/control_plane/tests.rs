//! Tests of the control plane and the monitor without processes.

use std::time::{Duration, Instant};

use super::monitor::{GRACE, JobEnd, JobMonitor, TIMED_OUT};
use super::*;
use crate::boot::wire::{DeathGroup, ProtocolVersion};

fn hello() -> ToLauncher {
    ToLauncher::Hello(ProtocolVersion::own())
}

fn joined(size: u32, now: Instant) -> JobMonitor {
    let mut monitor = JobMonitor::new(size);
    for rank in 0..size {
        assert_eq!(monitor.take(rank, hello(), now), Ok(vec![]));
    }
    monitor
}

fn died(rank: u32, cause: &str) -> ToLauncher {
    ToLauncher::Exited { rank, exit: WireExit::Died(cause.into()) }
}

fn death(rank: u32, cause: &str) -> Outgoing {
    Outgoing { to: To::Joined, message: ToProcess::Died(vec![DeathGroup::new(cause, [rank])]) }
}

fn failed(code: u8, line: &str) -> Option<JobEnd> {
    Some(JobEnd::Failed { code, line: line.into() })
}

#[test]
fn protocol_violations_are_errors() {
    let now = Instant::now();
    let mut monitor = JobMonitor::new(2);
    let put = |rank| ToLauncher::Put { rank, key: "k".into(), value: vec![] };
    assert_eq!(monitor.take(0, put(0), now).unwrap_err(), "it sent a message before hello");
    assert_eq!(monitor.take(2, hello(), now).unwrap_err(), "it is not a process of the job");
    let mut monitor = joined(2, now);
    for (message, why) in [
        (hello(), "it sent a second hello"),
        (put(1), "it sent a message for rank 1, which it does not host"),
        (died(1, ""), "it sent a message for rank 1, which it does not host"),
        (
            ToLauncher::PeerLost { rank: 2, cause: String::new() },
            "it reported the loss of rank 2, which it hosts itself or which does not exist",
        ),
        (
            ToLauncher::FailedDueTo { rank: 0, cause_rank: 2 },
            "it named rank 2, which does not exist, as the cause",
        ),
        (
            ToLauncher::Put { rank: 0, key: String::new(), value: vec![0; MAX_MESSAGE] },
            "it put a value of 1048576 bytes, which is too long",
        ),
    ] {
        assert_eq!(monitor.take(0, message, now).unwrap_err(), why);
    }
    assert_eq!(monitor.end(now + 2 * GRACE), None, "the caller decides what a violation means");
}

#[test]
fn values_and_fences_reach_the_processes_that_request_them() {
    let now = Instant::now();
    let mut monitor = joined(2, now);
    let get = ToLauncher::Get { id: 7, rank: 1, key: "k".into() };
    assert_eq!(monitor.take(0, get, now), Ok(vec![]));
    let put = ToLauncher::Put { rank: 1, key: "k".into(), value: vec![1, 2] };
    let value = ToProcess::Value { id: 7, value: Ok(vec![1, 2]) };
    assert_eq!(monitor.take(1, put, now), Ok(vec![Outgoing { to: To::Process(0), message: value }]));
    assert_eq!(monitor.take(1, ToLauncher::Fence { id: 1 }, now), Ok(vec![]));
    let done = monitor.take(0, ToLauncher::Fence { id: 9 }, now).unwrap();
    assert_eq!(done.iter().map(|reply| reply.to).collect::<Vec<_>>(), [To::Process(1), To::Process(0)]);
}

#[test]
fn job_ends_in_order_when_all_ranks_have_left() {
    let now = Instant::now();
    let mut monitor = joined(2, now);
    for rank in 0..2 {
        assert_eq!(monitor.end(now), None);
        for exit in [WireExit::Closing, WireExit::Left, WireExit::Left] {
            assert_eq!(monitor.take(rank, ToLauncher::Exited { rank, exit }, now), Ok(vec![]));
        }
        assert_eq!(monitor.closed(rank, "was killed", now), [], "a rank that has left cannot die");
    }
    assert_eq!(monitor.end(now), Some(JobEnd::Orderly));
}

#[test]
fn first_death_ends_the_job_after_the_grace_period() {
    let now = Instant::now();
    let mut monitor = joined(3, now);
    assert_eq!(monitor.take(1, died(1, "panicked: x"), now), Ok(vec![]));
    assert_eq!(monitor.due(), Some(now));
    assert_eq!(monitor.tick(now), [death(1, "panicked: x")]);
    assert_eq!(monitor.end(now + GRACE / 2), None);
    let line = "rank 1 panicked: x";
    assert_eq!(monitor.end(now + GRACE), failed(101, line));
    assert_eq!(monitor.due(), Some(now + GRACE));
    // The others fail as well, and end their connections: nothing remains to wait for.
    monitor.take(0, died(0, "returned an error"), now).unwrap();
    monitor.take(2, died(2, "returned an error"), now).unwrap();
    assert_eq!(monitor.end(now + GRACE / 2), None);
    (0..3).for_each(|rank| assert_eq!(monitor.closed(rank, "", now), []));
    assert_eq!(monitor.end(now), failed(101, "rank 1 panicked: x; 2 other ranks failed"));
}

#[test]
fn end_of_the_lost_ranks_connection_is_preferred_to_reports_of_peers() {
    let now = Instant::now();
    let lost = |rank| ToLauncher::PeerLost { rank, cause: "connection reset".into() };
    let mut monitor = joined(3, now);
    assert_eq!(monitor.take(0, lost(1), now), Ok(vec![]));
    assert_eq!(monitor.take(2, lost(1), now), Ok(vec![]));
    assert_eq!(monitor.closed(1, "was killed", now), []);
    assert_eq!(monitor.tick(now), [death(1, "was killed")]);
    let later = now + Duration::from_secs(1);
    assert_eq!(monitor.tick(later), []);
    let mut monitor = joined(3, now);
    monitor.take(0, lost(1), now).unwrap();
    assert_eq!(monitor.tick(now), []);
    assert_eq!(monitor.tick(later), [death(1, "stopped responding to its peers: connection reset")]);
    assert_eq!(monitor.closed(1, "was killed", later), [], "a death is final");
}

#[test]
fn timeout_of_a_rank_has_the_exit_code_of_a_timeout() {
    let now = Instant::now();
    let mut monitor = joined(2, now);
    monitor.take(1, died(1, TIMED_OUT), now).unwrap();
    assert_eq!(monitor.end(now + GRACE), failed(124, "rank 1 timed out (MPJ_TIMEOUT)"));
}

#[test]
fn failure_that_caused_the_first_one_is_the_root_cause() {
    let now = Instant::now();
    let mut monitor = joined(3, now);
    monitor.take(2, ToLauncher::FailedDueTo { rank: 2, cause_rank: 0 }, now).unwrap();
    monitor.take(2, died(2, "returned an error: rank 0 refused"), now).unwrap();
    assert_eq!(monitor.end(now + GRACE), failed(1, "rank 2 returned an error: rank 0 refused"));
    let abort = ToLauncher::Abort { rank: 0, code: 256 + 42, reason: "bad input".into() };
    monitor.take(0, abort, now).unwrap();
    let line = "rank 0 aborted the job with code 298: bad input; 1 other rank failed";
    assert_eq!(monitor.end(now + GRACE), failed(42, line));
    // Of ranks that blame each other, the one that has aborted is the cause.
    monitor.take(0, ToLauncher::FailedDueTo { rank: 0, cause_rank: 2 }, now).unwrap();
    assert!(matches!(monitor.end(now + GRACE), Some(JobEnd::Failed { code: 42, .. })));
}

#[test]
fn process_that_joins_late_learns_the_deaths() {
    let now = Instant::now();
    let mut monitor = JobMonitor::new(3);
    monitor.take(0, hello(), now).unwrap();
    assert_eq!(monitor.closed(1, "was killed", now), []);
    assert_eq!(monitor.tick(now), [death(1, "was killed")]);
    let known = monitor.take(2, hello(), now).unwrap();
    assert_eq!(known, [Outgoing { to: To::Process(2), ..death(1, "was killed") }]);
}

/// Rank 1 lacks descriptors, so it cannot reach rank 2, which fails because of that.
#[test]
fn rank_that_failed_first_is_named_if_two_ranks_name_each_other() {
    let now = Instant::now();
    let mut monitor = joined(3, now);
    let failures = [(1, 2, "cannot reach rank 2: Too many open files"), (2, 1, "rank 1 has failed")];
    for (rank, cause_rank, why) in failures {
        monitor.take(rank, ToLauncher::FailedDueTo { rank, cause_rank }, now).unwrap();
        monitor.take(rank, died(rank, why), now).unwrap();
    }
    let line = "rank 1 cannot reach rank 2: Too many open files; 1 other rank failed";
    assert_eq!(monitor.end(now + GRACE), failed(1, line));
}

#[test]
fn chain_of_causes_ends_where_it_returns_to_a_rank() {
    let now = Instant::now();
    // Ranks 1 and 2 name each other. Rank 3 has a cause of its own.
    for size in [3, 4] {
        let mut monitor = joined(size, now);
        for (rank, cause_rank) in [(0, 1), (1, 2), (2, 1)] {
            monitor.take(rank, ToLauncher::FailedDueTo { rank, cause_rank }, now).unwrap();
            monitor.take(rank, died(rank, "failed"), now).unwrap();
        }
        if size == 4 {
            monitor.take(3, died(3, "failed"), now).unwrap();
        }
        let line = format!("rank 1 failed; {} other ranks failed", size - 1);
        assert_eq!(monitor.end(now + GRACE), failed(1, &line));
    }
}

#[test]
fn abort_with_code_0_does_not_hide_a_panic() {
    let now = Instant::now();
    let abort = || ToLauncher::Abort { rank: 0, code: 0, reason: "enough".into() };
    let result = |messages: Vec<(u32, ToLauncher)>| {
        let mut monitor = joined(2, now);
        for (from, message) in messages {
            monitor.take(from, message, now).unwrap();
        }
        monitor.end(now + GRACE)
    };
    let aborted = "rank 0 aborted the job with code 0: enough";
    assert_eq!(result(vec![(0, abort())]), failed(0, aborted));
    let panicked = "rank 1 panicked: odd; 1 other rank failed";
    assert_eq!(result(vec![(0, abort()), (1, died(1, "panicked: odd"))]), failed(101, panicked));
    assert_eq!(result(vec![(1, died(1, "panicked: odd")), (0, abort())]), failed(101, panicked));
    let due = ToLauncher::FailedDueTo { rank: 1, cause_rank: 0 };
    let consequence = vec![(0, abort()), (1, due), (1, died(1, "panicked: odd"))];
    assert_eq!(result(consequence), failed(0, &format!("{aborted}; 1 other rank failed")));
}
