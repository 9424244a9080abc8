//! The message when many ranks die at once, send false reports, violate the control protocol or do not join.

use crate::Test;
use crate::job::{Ended, mpjrun, run, watch};

pub(crate) const TESTS: &[Test] = &[
    ("contradicting_peer_reports_end_the_job", contradicting_peer_reports_end_the_job),
    ("exit_code_0_does_not_replace_a_peer_report", exit_code_0_does_not_replace_a_peer_report),
    ("own_failure_report_wins_over_peer_reports", own_failure_report_wins_over_peer_reports),
    ("simultaneous_deaths_are_reported", simultaneous_deaths_are_reported),
    ("process_cannot_report_its_own_loss", process_cannot_report_its_own_loss),
    ("flooding_process_does_not_block_others", flooding_process_does_not_block_others),
    ("process_that_never_reads_is_killed", process_that_never_reads_is_killed),
    ("long_cause_is_truncated_and_reaches_all_ranks", long_cause_is_truncated_and_reaches_all_ranks),
    ("process_that_exits_without_joining_is_named", process_that_exits_without_joining_is_named),
    ("programs_that_never_join_succeed", programs_that_never_join_succeed),
    ("truncated_control_message_is_named", truncated_control_message_is_named),
    ("error_of_a_rank_in_a_process_of_several_is_named", error_of_a_rank_in_a_process_of_several_is_named),
];

fn raw(args: &str, role: &str) -> Ended {
    let mut command = mpjrun(&format!("{args} --devices niodev"));
    command.arg(std::env::current_exe().unwrap()).args(["raw", role]);
    watch(&mut command).0.end()
}

fn contradicting_peer_reports_end_the_job() {
    let ended = raw("-n 3", "accuse");
    // Both reported ranks finally exit with code 3.
    let texts = ["(pid ", "exited with code 3 before leaving the job; a peer had reported: false report"];
    ended.expect(3, &texts);
}

fn exit_code_0_does_not_replace_a_peer_report() {
    raw("-n 2", "lost-and-left")
        .expect(1, &["rank 1 (pid ", "stopped responding to its peers: false report"]);
}

fn own_failure_report_wins_over_peer_reports() {
    raw("-n 3", "own-report").expect(3, &["rank 2 (pid ", "returned an error: the cause"]);
}

fn simultaneous_deaths_are_reported() {
    raw("-n 512", "simultaneous").expect(3, &["(pid ", "returned an error: simultaneous"]);
}

fn process_cannot_report_its_own_loss() {
    raw("-n 1", "own-loss")
        .expect(1, &["rank 0 (pid ", "violated the control protocol", "it reported the loss of rank 0"]);
}

fn flooding_process_does_not_block_others() {
    raw("-n 2 --grace 2", "flood").expect(3, &["rank 0 (pid ", "returned an error: enough"]);
}

fn process_that_never_reads_is_killed() {
    raw("-n 2", "unread").expect(1, &["rank 1 (pid ", "violated the control protocol", "MiB pending"]);
}

fn long_cause_is_truncated_and_reaches_all_ranks() {
    let ended = raw("-n 3", "long-cause");
    ended.expect(3, &["rank 1 (pid ", "long long"]);
    assert!(ended.message().len() < 10_000, "{} bytes", ended.message().len());
    assert_eq!(
        ended.out.iter().filter(|line| line.contains("got a death of 4")).count(),
        2,
        "expected a death of 4… bytes, with a cause of 4096 bytes: {:?}",
        ended.out
    );
}

fn process_that_exits_without_joining_is_named() {
    // The process exits before, while or after the others join.
    for (n, role) in [(2, "without-1"), (4, "without-1"), (4, "late-without-1"), (4, "without-late-1")] {
        let ended = run(&format!("-n {n}"), role);
        ended.expect(1, &["rank 1 (pid ", "exited with code 0 without joining the job", "mpj::run"]);
    }
    let ended = run("-n 4 --ranks-per-process 2", "late-without-2");
    ended.expect(1, &["ranks 2 and 3 (pid ", "without joining the job"]);
}

fn programs_that_never_join_succeed() {
    for command in ["-n 4 hostname", "-n 3 --ranks-per-process 2 true", "-n 3 --timeout 50 sleep 0.1"] {
        let ended = watch(&mut mpjrun(command)).0.end();
        assert_eq!((ended.code, ended.err.len()), (Some(0), 0), "{command}: {ended:#?}");
    }
}

fn error_of_a_rank_in_a_process_of_several_is_named() {
    for args in ["-n 4", "-n 4 --ranks-per-process 2", "-n 4 --devices smdev"] {
        let ended = run(args, "recv-from-left");
        ended.expect(1, &["rank 0 (pid ", "returned an error: recv: rank 1 has left"]);
        let ended = run(args, "late-error");
        ended.expect(1, &["rank 2 (pid ", "returned an error: recv: rank 9 is out of range"]);
        assert!(!ended.message().contains("because of it"), "the others had returned: {ended:#?}");
    }
}

fn truncated_control_message_is_named() {
    let whole = crate::raw_control::torn_message().len();
    for cut in 0..whole {
        let at = match cut {
            0 => "before its ranks had left the job".to_owned(),
            1..4 => format!("in the middle of a control message, after {cut} bytes"),
            _ => format!("in the middle of a control message, after {cut} of {whole} bytes"),
        };
        let ended = raw("-n 2", &format!("torn:{cut}"));
        let killed = format!("violated the control protocol and was killed: it closed the socket {at}");
        ended.expect(1, &["rank 1 (pid ", &killed]);
        assert!(ended.out.iter().any(|line| line.contains(&killed)), "rank 0 gets the cause: {ended:#?}");
        let ended = raw("-n 2", &format!("torn-exit:{cut}"));
        let at = if cut == 0 { String::new() } else { format!(", {at}") };
        ended.expect(1, &["rank 1 (pid ", &format!("exited with code 0 before leaving the job{at}")]);
    }
    // If the process was killed, the message of `mpjrun` names the signal and not the truncated control message.
    raw("-n 2", "torn-kill:5").expect(128 + 9, &["rank 1 (pid ", "was killed by signal 9"]);
    // Invalid bytes in place of the rest of a message, and an impossible length.
    raw("-n 2", "garbage:5").expect(1, &["rank 1 (pid ", "violated the control protocol", "control message"]);
    raw("-n 2", "garbage:0")
        .expect(1, &["rank 1 (pid ", "violated the control protocol", "exceeds the limit"]);
}
