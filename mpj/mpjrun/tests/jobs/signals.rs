//! Signals to `mpjrun` and to ranks.

use std::time::{Duration, Instant};

use crate::Test;
use crate::job::{kill, limit, pid, start, start_sh, wait_for_exit};

pub(crate) const TESTS: &[Test] = &[
    ("nothing_survives_a_killed_mpjrun", nothing_survives_a_killed_mpjrun),
    ("signals_are_forwarded", signals_are_forwarded),
    ("interrupt_ends_a_job", interrupt_ends_a_job),
    ("interrupt_prints_what_ranks_wait_for", interrupt_prints_what_ranks_wait_for),
    (
        "sigquit_prints_what_ranks_wait_for_and_the_job_continues",
        sigquit_prints_what_ranks_wait_for_and_the_job_continues,
    ),
    ("the_second_interrupt_kills", the_second_interrupt_kills),
    ("duplicate_interrupt_counts_once", duplicate_interrupt_counts_once),
    ("ignored_interrupt_prints_a_notice", ignored_interrupt_prints_a_notice),
    ("sigstop_is_not_a_failure", sigstop_is_not_a_failure),
    ("stopped_job_continues", stopped_job_continues),
];

fn nothing_survives_a_killed_mpjrun() {
    for args in ["-n 4", "-n 4 --ranks-per-process 2", "-n 4 --devices smdev"] {
        let job = start(args, "wait");
        let pids: Vec<u32> = job.lines(4, " is ").iter().map(|line| pid(line)).collect();
        job.signal("-KILL");
        pids.into_iter().for_each(|pid| wait_for_exit(pid, Duration::from_secs(6)));
        assert_eq!(job.end().signal, Some(9));
    }
    // The ranks are children of a shell. If `mpjrun` dies, the kernel kills only the shell.
    let job = start_sh("-n 2", "$RANKS rank wait; true");
    let pids: Vec<u32> = job.lines(2, " is ").iter().map(|line| pid(line)).collect();
    job.signal("-KILL");
    pids.into_iter().for_each(|pid| wait_for_exit(pid, Duration::from_secs(6)));
    job.end();
}

fn signals_are_forwarded() {
    let script = "for s in HUP USR1 USR2; do trap \"echo got $s\" $s; done; trap 'echo got TERM; exit 0' TERM; \
                  echo ready; while :; do sleep 0.01; done";
    let job = start_sh("-n 2", script);
    job.lines(2, "ready");
    for signal in ["HUP", "USR1", "USR2", "TERM"] {
        job.signal(&format!("-{signal}"));
        job.lines(2, &format!("got {signal}"));
    }
    let ended = job.end();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
}

fn interrupt_ends_a_job() {
    for (signal, code) in [("INT", 130), ("TERM", 143), ("HUP", 129)] {
        let job = start("-n 3", "wait");
        let pids: Vec<u32> = job.lines(3, " is ").iter().map(|line| pid(line)).collect();
        job.signal(&format!("-{signal}"));
        let ended = job.end();
        assert_eq!(ended.code, Some(code), "{ended:#?}");
        let expected = if signal == "INT" {
            "mpjrun: interrupted; what the ranks wait for:".to_owned()
        } else {
            format!("mpjrun: the job was ended by signal {} (SIG{signal}), which mpjrun received", code - 128)
        };
        assert_eq!(
            ended.err.iter().filter(|line| line.starts_with("mpjrun: ")).collect::<Vec<_>>(),
            [&expected],
            "{ended:#?}"
        );
        pids.into_iter().for_each(|pid| wait_for_exit(pid, Duration::ZERO));
    }
}

fn interrupt_prints_what_ranks_wait_for() {
    for args in ["-n 4", "-n 4 --ranks-per-process 3"] {
        let job = start(args, "wait");
        job.lines(4, " is ");
        job.query_until("cycle of waiting ranks");
        job.signal("-INT");
        let ended = job.end();
        assert_eq!(ended.code, Some(130), "{ended:#?}");
        let at = ended.err.iter().position(|line| line == "mpjrun: interrupted; what the ranks wait for:");
        let table = &ended.err[at.expect("a table") + 1..];
        assert!(table[0].starts_with("  rank 0: recv from rank 1 with tag 0, for "), "{ended:#?}");
        assert_eq!(table[4..], ["  a cycle of waiting ranks: 0 → 1 → 2 → 3 → 0"], "{ended:#?}");
    }
    // A program that does not use mpj.
    let job = start_sh("-n 2", "echo here; exec sleep 100");
    job.lines(2, "here");
    job.signal("-INT");
    let ended = job.end();
    assert_eq!(ended.code, Some(130));
    assert_eq!(ended.err, ["mpjrun: the job was ended by signal 2 (SIGINT), which mpjrun received"]);
}

fn sigquit_prints_what_ranks_wait_for_and_the_job_continues() {
    let gate = std::env::temp_dir().join(format!("mpj-gate-{}", std::process::id()));
    let job = start(&format!("-n 3 -x GATE={}", gate.display()), "wait-for-file");
    job.lines(1, "waits");
    let expected = "  ranks 1 and 2: barrier in world.dup 1.split 1 color 0, for ";
    job.query_until(expected);
    job.signal("-QUIT");
    job.errors(2, "  rank 0 has not entered: barrier in world.dup 1.split 1 color 0");
    std::fs::write(&gate, "").unwrap();
    let ended = job.end();
    std::fs::remove_file(&gate).unwrap();
    assert_eq!(
        (ended.code, ended.out.iter().filter(|line| *line == "continued").count()),
        (Some(0), 3),
        "{ended:#?}"
    );
    assert_eq!(ended.err[0], "mpjrun: SIGQUIT; what the ranks wait for:");
}

fn the_second_interrupt_kills() {
    let job = start_sh("-n 2", "trap 'echo got INT' INT; echo here $$; while :; do sleep 0.01; done");
    let pids: Vec<u32> = job.lines(2, "here").iter().map(|line| pid(line)).collect();
    job.signal("-INT");
    job.lines(2, "got INT");
    // The same signal within 100 ms would be a duplicate.
    std::thread::sleep(Duration::from_millis(300));
    job.signal("-INT");
    job.end().expect(130, &["the second signal 2 (SIGINT)"]);
    pids.into_iter().for_each(|pid| wait_for_exit(pid, Duration::ZERO));
}

fn duplicate_interrupt_counts_once() {
    let job =
        start_sh("-n 2", "trap 'sleep 0.2; echo done; exit 0' TERM; echo here; while :; do sleep 0.01; done");
    job.lines(2, "here");
    job.signal_twice("-TERM");
    job.lines(2, "done");
    assert_eq!(job.end().code, Some(0));
}

fn ignored_interrupt_prints_a_notice() {
    let job = start_sh(
        "-n 4 -l",
        "trap '' INT; echo here; [ $MPJ_RANK = 2 ] && exit; while :; do sleep 0.01; done",
    );
    job.lines(4, "here");
    job.signal("-INT");
    let expected =
        "mpjrun: interrupted: waiting for ranks 0, 1 and 3 to exit; press Ctrl-C again to kill them";
    assert_eq!(job.errors(1, "interrupt"), [expected]);
    job.signal("-INT");
    let ended = job.end();
    ended.expect(130, &["the second signal 2 (SIGINT)"]);
    assert_eq!(ended.err.len(), 2, "{ended:#?}");
}

fn sigstop_is_not_a_failure() {
    let job = start("-n 3", "count");
    let rank = pid(&job.lines(3, "counting")[0]);
    let at = Instant::now();
    kill(&[rank], "-STOP");
    std::thread::sleep(Duration::from_secs(3));
    kill(&[rank], "-CONT");
    let ended = job.end();
    assert!(at.elapsed() > Duration::from_secs(3));
    assert_eq!((ended.code, ended.out.len(), ended.err.len()), (Some(0), 6, 0), "{ended:#?}");
}

fn stopped_job_continues() {
    let job = start("-n 2", "count");
    let rank = pid(&job.lines(2, "counting")[0]);
    job.signal("-TSTP");
    wait_for_state(rank, 'T');
    wait_for_state(job.pid(), 'T');
    job.signal("-CONT");
    let ended = job.end();
    assert_eq!((ended.code, ended.out.len(), ended.err.len()), (Some(0), 4, 0), "{ended:#?}");
}

fn wait_for_state(pid: u32, state: char) {
    let start = Instant::now();
    let is = || {
        let text = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        text.rsplit(") ").next().is_some_and(|rest| rest.starts_with(state))
    };
    while !is() {
        assert!(start.elapsed() < limit(6), "process {pid} does not get to {state}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
