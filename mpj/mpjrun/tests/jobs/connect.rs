//! Processes that join a job by `mpj::connect`.

use std::process::ExitCode;
use std::time::Duration;

use super::Test;
use super::env::{SECRET, free_port, start};
use super::job::{Ended, Job, kill};
use super::program::say;

pub(crate) const TESTS: &[Test] = &[
    ("processes_connect_as_ranks", processes_connect_as_ranks),
    ("jobs_of_a_process_leave_nothing_open", jobs_of_a_process_leave_nothing_open),
];

/// The role of [`processes_connect_as_ranks`]: `RANK SIZE ADDRESS ACTION`.
pub(crate) fn run_connected(arguments: &str) -> ExitCode {
    let words: Vec<&str> = arguments.split(' ').collect();
    let [rank, size, at, action] = words[..] else { panic!("{arguments}") };
    if action == "again" {
        connect_again(rank.parse().unwrap(), size.parse().unwrap(), at);
        return ExitCode::SUCCESS;
    }
    let world = match mpj::connect(rank.parse().unwrap(), size.parse().unwrap(), at, SECRET.as_bytes()) {
        Ok(world) => world,
        Err(error) => {
            say(&format!("error: {error}"));
            return ExitCode::SUCCESS;
        }
    };
    let mut sum = [0usize];
    world.allreduce(&[world.rank() + 1], &mut sum, mpj::Op::Sum).unwrap();
    say(&format!("sum {}", sum[0]));
    if action == "kill" {
        // The allreduce must have completed on all ranks: a death would fail it.
        if world.rank() == 1 {
            for other in [0, 2] {
                world.recv(&mut [0u8; 0], other, 0).unwrap();
            }
            kill(&[std::process::id()], "-KILL");
        }
        world.send(&[0u8; 0], 1, 0).unwrap();
        let failed = world.barrier().and_then(|()| world.barrier()).unwrap_err();
        say(&format!("error: {failed}"));
    }
    ExitCode::SUCCESS
}

/// Connects repeatedly, and prints the number of descriptors and threads after the first job and the last one.
fn connect_again(rank: usize, size: usize, at: &str) {
    for round in 0..20 {
        let world = mpj::connect(rank, size, at, SECRET.as_bytes()).unwrap();
        let mut sum = [0];
        world.allreduce(&[rank + round], &mut sum, mpj::Op::Sum).unwrap();
        assert_eq!(sum[0], (0..size).map(|rank| rank + round).sum::<usize>());
        drop(world);
        // Threads may end a moment later.
        std::thread::sleep(Duration::from_millis(if round == 0 || round == 19 { 2000 } else { 0 }));
        if round == 0 || round == 19 {
            let count = |kind| std::fs::read_dir(format!("/proc/self/{kind}")).unwrap().count();
            say(&format!("{} descriptors, {} threads", count("fd"), count("task")));
        }
    }
}

fn jobs_of_a_process_leave_nothing_open() {
    let at = format!("localhost:{}", free_port());
    let start = |(rank, host)| {
        start(&format!("connect:{rank} 3 {at} again"), &[("MPJ_HOST", host), ("MPJ_NIO_INTERFACES", "lo")])
    };
    for ended in [(0, "a"), (1, "a"), (2, "b")].map(start).map(Job::end) {
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert!(ended.out.len() == 2 && ended.out[0] == ended.out[1], "{ended:#?}");
    }
}

fn processes_connect_as_ranks() {
    let run = |ranks: &[(usize, usize)], action: &str| {
        let at = format!("localhost:{}", free_port());
        let role = |(rank, size): &(usize, usize)| format!("connect:{rank} {size} {at} {action}");
        let jobs: Vec<Job> =
            ranks.iter().map(|of| start(&role(of), &[("MPJ_RENDEZVOUS_TIMEOUT", "60")])).collect();
        jobs.into_iter().map(Job::end).collect::<Vec<Ended>>()
    };
    for ended in run(&[(0, 3), (1, 3), (2, 3)], "sum") {
        assert!(ended.code == Some(0) && ended.out == ["sum 6"] && ended.err.is_empty(), "{ended:#?}");
    }
    // The library prints nothing, and ends no process.
    let ended = run(&[(0, 3), (1, 3), (2, 3)], "kill");
    assert_eq!(ended[1].signal, Some(9), "{ended:#?}");
    for ended in [&ended[0], &ended[2]] {
        let is_error =
            ended.out.len() == 2 && ended.out[1].starts_with("error: ") && ended.out[1].contains("rank 1");
        assert!(ended.code == Some(0) && is_error && ended.err.is_empty(), "{ended:#?}");
    }
    for ended in run(&[(0, 2), (1, 3)], "sum") {
        assert!(ended.code == Some(0) && ended.out[0].contains("connect: rank 1 ("), "{ended:#?}");
    }
    for ended in run(&[(3, 3)], "sum") {
        assert_eq!(ended.out, ["error: connect: rank 3 is not one of 3 ranks"]);
    }
}
