//! How jobs end, and which failure the exit code and the message name.

use std::time::{Duration, Instant};

use crate::Test;
use crate::job::{kill, limit, pid, run, run_sh, start, start_sh, wait_for_exit};

pub(crate) const TESTS: &[Test] = &[
    ("successful_jobs_exit_with_0", successful_jobs_exit_with_0),
    ("recv_from_finalized_rank_fails", recv_from_finalized_rank_fails),
    ("test_learns_of_exits_under_traffic", test_learns_of_exits_under_traffic),
    ("exit_code_and_message_name_the_failure", exit_code_and_message_name_the_failure),
    ("exits_and_panics_are_named_with_every_device", exits_and_panics_are_named_with_every_device),
    (
        "failures_of_processes_with_several_ranks_are_reported",
        failures_of_processes_with_several_ranks_are_reported,
    ),
    ("killed_rank_is_named_in_errors_of_all_others", killed_rank_is_named_in_errors_of_all_others),
    ("root_cause_is_named_before_consequential_failures", root_cause_is_named_before_consequential_failures),
    ("on_failure_continue_keeps_other_ranks_running", on_failure_continue_keeps_other_ranks_running),
    (
        "dead_rank_with_unread_messages_does_not_block_others",
        dead_rank_with_unread_messages_does_not_block_others,
    ),
    ("processes_ignoring_sigterm_are_killed", processes_ignoring_sigterm_are_killed),
    ("timeout_terminates_the_job_and_prints_the_table", timeout_terminates_the_job_and_prints_the_table),
    ("abort_with_code_0_does_not_hide_a_panic", abort_with_code_0_does_not_hide_a_panic),
    ("error_of_a_helper_thread_names_its_cause", error_of_a_helper_thread_names_its_cause),
    ("failure_of_one_job_does_not_affect_another", failure_of_one_job_does_not_affect_another),
    ("grandchildren_are_killed", grandchildren_are_killed),
    ("garbage_on_the_control_socket_is_a_failure", garbage_on_the_control_socket_is_a_failure),
];

const DEVICES: &[&str] = &[
    "--devices auto",
    "--devices smdev",
    "--devices shmdev",
    "--devices niodev",
    "--ranks-per-process 2",
    "--devices shmdev --ranks-per-process 2",
    "--devices niodev --ranks-per-process 2",
    "--devices smdev,niodev --ranks-per-process 2",
];

fn successful_jobs_exit_with_0() {
    for how in DEVICES {
        for n in [1, 2, 5] {
            let ended = run(&format!("-n {n} {how}"), "fine");
            assert_eq!((ended.code, ended.out.len(), ended.err.len()), (Some(0), n, 0), "{how}: {ended:#?}");
        }
    }
    for role in ["never", "init"] {
        let ended = run("-n 3", role);
        assert_eq!((ended.code, ended.err.len()), (Some(0), 0), "{role}: {ended:#?}");
    }
}

fn recv_from_finalized_rank_fails() {
    for how in DEVICES {
        let ended = run(&format!("-n 5 {how}"), "left-behind");
        assert_eq!((ended.code, ended.out.len(), ended.err.len()), (Some(0), 4, 0), "{how}: {ended:#?}");
    }
}

fn test_learns_of_exits_under_traffic() {
    for device in ["shmdev", "niodev"] {
        let ended = run(&format!("-n 3 --devices {device}"), "test-under-traffic");
        assert_eq!((ended.code, ended.err.len()), (Some(0), 0), "{device}: {ended:#?}");
    }
}

fn exit_code_and_message_name_the_failure() {
    for (role, code, parts) in [
        ("exit7-before", 7, &["(pid ", "exited with code 7 before joining the job"][..]),
        ("exit7", 7, &["rank 1 (pid ", "exited with code 7 before leaving the job"]),
        ("exit0", 1, &["rank 1 (pid ", "exited with code 0 before leaving the job"]),
        ("exit5-after", 5, &["exited with code 5 after leaving the job"]),
        ("init-forgotten", 1, &["exited with code 0 before leaving the job"]),
        ("error", 1, &["rank 1 (pid ", "returned an error: recv"]),
        ("panic", 101, &["rank 1 (pid ", "panicked: an odd number"]),
        ("kill", 137, &["rank 1 (pid ", "killed by signal 9 (SIGKILL)"]),
        ("abrt", 134, &["rank 1 (pid ", "killed by signal 6 (SIGABRT)"]),
        ("abort", 42, &["rank 1 (pid ", "aborted the job with code 42: enough"]),
        (
            "abort-0",
            0,
            &["rank 1 (pid ", "aborted the job with code 0: found", "; 2 ranks failed because of it"],
        ),
    ] {
        run("-n 3", role).expect(code, parts);
    }
}

/// Without an option, the ranks use only the best device.
fn exits_and_panics_are_named_with_every_device() {
    for device in ["smdev", "shmdev", "niodev"] {
        // With `smdev`, all ranks are in the process that exits.
        let who = if device == "smdev" { "ranks 0 to 2 (pid " } else { "rank 1 (pid " };
        for (role, code, parts) in [
            ("exit7", 7, [who, "exited with code 7 before leaving the job"]),
            ("exit0", 1, [who, "exited with code 0 before leaving the job"]),
            ("panic", 101, ["rank 1 (pid ", "panicked: an odd number"]),
        ] {
            run(&format!("-n 3 --devices {device}"), role).expect(code, &parts);
        }
    }
}

fn failures_of_processes_with_several_ranks_are_reported() {
    run("-n 4 --ranks-per-process 2", "exit7").expect(7, &["ranks 0 and 1 (pid ", "exited with code 7"]);
    run("-n 4 --ranks-per-process 2", "panic").expect(101, &["rank 1 (pid ", "panicked: an odd number"]);
    run("-n 4 --devices smdev", "kill").expect(137, &["ranks 0 to 3 (pid ", "SIGKILL"]);
    run("-n 4 --devices smdev", "error").expect(1, &["rank 1 (pid ", "returned an error"]);
    run("-n 4 --devices smdev", "abort").expect(42, &["rank 1 (pid ", "aborted the job"]);
    run("-n 2 --devices smdev", "init").expect(101, &["(pid ", "this process hosts 2 ranks"]);
}

fn killed_rank_is_named_in_errors_of_all_others() {
    for (n, dev) in [(2, "shmdev"), (5, "shmdev"), (2, "niodev"), (5, "niodev")] {
        let job = start(&format!("-n {n} --devices {dev}"), "wait");
        let ranks = job.lines(n, " is ");
        let victim = ranks.iter().find(|line| line.contains("rank 1 ")).map(|line| pid(line)).unwrap();
        let at = Instant::now();
        kill(&[victim], "-KILL");
        let errors = job.lines(n - 1, "error: ");
        let took = at.elapsed();
        // The errors are expected within 2 s. A loaded machine gets three times that.
        assert!(took < limit(6), "{took:?}");
        assert!(errors.iter().all(|line| line.contains("rank 1 has failed")), "{errors:#?}");
        job.end().expect(137, &["rank 1 (pid ", &victim.to_string(), "SIGKILL"]);
    }
}

fn root_cause_is_named_before_consequential_failures() {
    for how in ["-n 4 --devices shmdev", "-n 4 --devices niodev"] {
        run(how, "root-cause")
            .expect(101, &["rank 2 (pid ", ") panicked: over bcast", "; 3 ranks failed because of it"]);
        run(how, "root-cause-exit")
            .expect(134, &["rank 2 (pid ", "SIGABRT", "; 3 ranks failed because of it"]);
    }
    // With all ranks in one process, the exit code is that of the process: the code of the rank that failed first.
    run("-n 4 --ranks-per-process 4", "root-cause").expect(1, &["rank 2 (pid ", ") panicked: over bcast"]);
}

/// The error handlers of the other ranks abort the job with code 0.
fn abort_with_code_0_does_not_hide_a_panic() {
    for how in ["-n 3", "-n 3 --on-failure continue", "-n 4 --ranks-per-process 2", "-n 3 --devices smdev"] {
        run(how, "panic-abort-0").expect(101, &["rank 1 (pid ", ") panicked: an odd number"]);
    }
}

fn error_of_a_helper_thread_names_its_cause() {
    let ended = run("-n 3", "helper");
    ended.expect(101, &["rank 1 (pid ", ") panicked: an odd number; 2 ranks failed because of it"]);
    assert!(!ended.err.iter().any(|line| line.contains("also:")), "{ended:#?}");
}

fn on_failure_continue_keeps_other_ranks_running() {
    for device in ["shmdev", "niodev"] {
        let how = format!("-n 3 --devices {device} --on-failure=continue --grace 0");
        let ended = run(&how, "on-failure-continue");
        ended.expect(9, &["rank 1 (pid ", "exited with code 9"]);
        let continued = ended.out.iter().filter(|line| line.contains("continues after"));
        assert_eq!(continued.count(), 2, "{ended:#?}");
    }
    let ended = run("-n 3 --on-failure=continue", "abort");
    ended.expect(42, &["rank 1 (pid ", "aborted the job with code 42: enough"]);
    assert!(!ended.err.iter().any(|line| line.ends_with("the other ranks continue")), "{ended:#?}");
}

fn dead_rank_with_unread_messages_does_not_block_others() {
    let ended = run("-n 3 --devices shmdev --on-failure=continue --grace 0", "credit");
    ended.expect(134, &["rank 1 (pid ", "SIGABRT"]);
    assert_eq!(ended.out.iter().filter(|line| line.contains("is done")).count(), 2, "{ended:#?}");
}

fn processes_ignoring_sigterm_are_killed() {
    let script = "trap '' TERM; [ $MPJ_RANK = 1 ] && exit 3; echo here $$; while :; do sleep 0.1; done";
    let job = start_sh("-n 3 --grace 0.1", script);
    let pids: Vec<u32> = job.lines(2, "here").iter().map(|line| pid(line)).collect();
    job.end().expect(3, &["rank 1 (pid ", "exited with code 3 before joining the job"]);
    pids.into_iter().for_each(|pid| wait_for_exit(pid, Duration::ZERO));
}

fn timeout_terminates_the_job_and_prints_the_table() {
    let start = Instant::now();
    run_sh("-n 2 --timeout 0.3", "sleep 100").expect(124, &["timeout of 0.3 s reached"]);
    let script = "[ $MPJ_RANK = 1 ] && exit 3; sleep 100";
    run_sh("-n 2 --timeout 2 --on-failure=continue", script).expect(124, &["timeout of 2 s reached"]);
    assert!(start.elapsed() >= Duration::from_millis(300));
    let hung = run("-n 4 --ranks-per-process 2 --timeout 5", "hang");
    hung.expect(124, &["timeout of 5 s reached; the job was terminated:"]);
    for line in [
        "  rank 0: recv from rank 3 with tag 7, for ",
        "  ranks 1 and 2: barrier, for ",
        "  rank 3: in no blocking call (running user code, or polling)",
        "  ranks 0 and 3 have not entered: barrier",
    ] {
        assert!(hung.err.iter().any(|err| err.starts_with(line)), "no '{line}' in {hung:#?}");
    }
    assert!(!hung.err.iter().any(|err| err.contains("cycle")), "{hung:#?}");
    for args in [
        "-n 4 -x MPJ_TIMEOUT=5",
        "-n 4 --timeout 5 -x MPJ_TIMEOUT=100",
        "-n 4 --devices smdev -x MPJ_TIMEOUT=5",
    ] {
        let hung = run(args, "ring");
        hung.expect(124, &["timeout of 5 s reached; the job was terminated:"]);
        let cycle = "  a cycle of waiting ranks: 0 → 1 → 2 → 3 → 0";
        assert_eq!(hung.err.iter().filter(|err| *err == cycle).count(), 1, "{hung:#?}");
    }
    assert_eq!(run_sh("-n 2 --timeout 0", "sleep 0.3; echo done").out, ["done"; 2], "0 is no limit");
    let ended = run("-n 2 --timeout 100", "fine");
    assert_eq!(ended.code, Some(0), "{ended:#?}");
}

fn failure_of_one_job_does_not_affect_another() {
    let (one, two) = (start("-n 2", "wait"), start("-n 3", "count"));
    let line = one.lines(2, " is ")[0].clone();
    kill(&[pid(&line)], "-KILL");
    one.end().expect(137, &["SIGKILL"]);
    let ended = two.end();
    assert_eq!((ended.code, ended.err.len()), (Some(0), 0), "{ended:#?}");
    assert_eq!(ended.out.iter().filter(|line| *line == "counted").count(), 3, "{ended:#?}");
}

fn grandchildren_are_killed() {
    let job = start_sh("-n 2", "sleep 1000 & echo here $!; $RANKS rank fine");
    let pids: Vec<u32> = job.lines(2, "here").iter().map(|line| pid(line)).collect();
    let ended = job.end();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    pids.into_iter().for_each(|pid| wait_for_exit(pid, Duration::from_secs(1)));
}

fn garbage_on_the_control_socket_is_a_failure() {
    let script = r#"[ $MPJ_RANK = 1 ] && { eval "printf '\377\377\377\377\377\377' >&${MPJ_CONTROL%%:*}"; sleep 100; }; $RANKS rank fine"#;
    let ended = run_sh("-n 2", script);
    ended.expect(1, &["rank 1 (pid ", "violated the control protocol", "the limit"]);
}
