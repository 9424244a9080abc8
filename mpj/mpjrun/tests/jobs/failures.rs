//! Tests which rank the message names when many ranks die, report or lie at once.

use crate::Test;
use crate::job::{Ended, mpjrun, run, watch};
use crate::raw_control::LOSSES;

pub(crate) const TESTS: &[Test] = &[
    ("losses_without_end", losses),
    ("what_a_rank_says_of_itself_comes_first", said_first),
    ("many_that_die_at_once", together),
    ("nobody_loses_itself", own_loss),
    ("one_that_talks_without_end_holds_nobody_up", talk),
    ("one_that_reads_no_answers_is_ended", unread),
    ("a_long_cause_reaches_everybody", long_cause),
    ("a_rank_that_ends_without_joining_is_named", without_joining),
    ("programs_that_never_join_are_fine", never),
    ("a_control_message_that_is_cut_off_is_named", torn),
];

fn bare(args: &str, role: &str) -> Ended {
    let mut command = mpjrun(&format!("{args} --dev niodev"));
    command.arg(std::env::current_exe().unwrap()).args(["bare", role]);
    watch(&mut command).0.end()
}

fn losses() {
    // 100,000 reports, most of them in sockets and queues at the same time.
    assert_eq!(2 * LOSSES, 100_000);
    let ended = bare("-n 3", "accuse");
    // Both reported ranks keep running, and finally exit with code 3.
    ended.expect(3, &["(pid ", "exited with code 3 before leaving the job"]);
}

fn said_first() {
    bare("-n 3", "said-first").expect(3, &["rank 2 (pid ", "returned an error: the cause"]);
}

fn together() {
    bare("-n 512", "together").expect(3, &["(pid ", "returned an error: together"]);
}

fn own_loss() {
    bare("-n 1", "own-loss").expect(1, &["rank 0 (pid ", "broke its control socket", "it lost rank 0"]);
}

fn talk() {
    bare("-n 2 --grace 0.1", "talk").expect(3, &["rank 0 (pid ", "returned an error: enough"]);
}

fn unread() {
    bare("-n 2", "unread").expect(1, &["rank 1 (pid ", "broke its control socket", "MiB of answers unread"]);
}

fn long_cause() {
    let ended = bare("-n 3", "long-cause");
    ended.expect(3, &["rank 1 (pid ", "long long"]);
    assert!(ended.message().len() < 10_000, "{} bytes", ended.message().len());
    assert_eq!(ended.out.iter().filter(|line| line.contains("heard of 4")).count(), 2, "{:?}", ended.out);
}

fn without_joining() {
    // The process exits before the others join, which wait for it, and while they join.
    for (n, role) in [(2, "without-1"), (4, "without-1"), (4, "late-without-1"), (4, "without-late-1")] {
        let ended = run(&format!("-n {n}"), role);
        ended.expect(1, &["rank 1 (pid ", "ended with code 0 without having joined the job", "mpj::run"]);
    }
    let ended = run("-n 4 --ranks-per-process 2", "late-without-2");
    ended.expect(1, &["ranks 2 and 3 (pid ", "without having joined the job"]);
}

fn never() {
    for command in ["-n 4 hostname", "-n 3 --ranks-per-process 2 true", "-n 3 --timeout 50 sleep 0.1"] {
        let ended = watch(&mut mpjrun(command)).0.end();
        assert_eq!((ended.code, ended.err.len()), (Some(0), 0), "{command}: {ended:#?}");
    }
}

fn torn() {
    let whole = crate::raw_control::torn_message().len();
    for cut in 0..whole {
        let at = match cut {
            0 => "before its ranks had left the job".to_owned(),
            1..4 => format!("in the middle of a control message, after {cut} bytes"),
            _ => format!("in the middle of a control message, after {cut} of {whole} bytes"),
        };
        let ended = bare("-n 2", &format!("torn:{cut}"));
        let killed = format!("broke its control socket and was killed: it closed it {at}");
        ended.expect(1, &["rank 1 (pid ", &killed]);
        assert!(ended.out.iter().any(|line| line.contains(&killed)), "rank 0 hears of it: {ended:#?}");
        let ended = bare("-n 2", &format!("torn-exit:{cut}"));
        let at = if cut == 0 { String::new() } else { format!(", {at}") };
        ended.expect(1, &["rank 1 (pid ", &format!("exited with code 0 before leaving the job{at}")]);
    }
    // If a rank is killed in the middle of a message, the signal explains more than the cut message.
    bare("-n 2", "torn-kill:5").expect(128 + 9, &["rank 1 (pid ", "was killed by signal 9"]);
    // Invalid bytes instead of the rest of a message, and an impossible length.
    bare("-n 2", "garbage:5").expect(1, &["rank 1 (pid ", "broke its control socket", "control message"]);
    bare("-n 2", "garbage:0").expect(1, &["rank 1 (pid ", "broke its control socket", "exceeds the limit"]);
}
