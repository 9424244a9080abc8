//! Tests of the verdict on a job.

use super::*;

fn failure(process: usize, kind: FailureKind, after: u64) -> Failure {
    let at = *START.get_or_init(Instant::now) + Duration::from_millis(after);
    Failure { process, pid: 100, ranks: process as u32..process as u32 + 1, kind, at, caused_by: None }
}

static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();

fn judged(failures: &[Failure], output: OutputStatus) -> Verdict {
    let failed = failures.iter().flat_map(|failure| failure.ranks.clone()).collect();
    verdict(failures, &failed, |_| Some(ExitStatus::Code(101)), &[], output)
}

fn code(failures: &[Failure]) -> u8 {
    judged(failures, OutputStatus::default()).code
}

fn line(failures: &[Failure]) -> String {
    judged(failures, OutputStatus::default()).line.unwrap_or_default()
}

#[test]
fn earliest_failure_counts_but_aborts_and_signals_win_ties() {
    let said = || FailureKind::Reported("returned an error: rank 1 is dead".into());
    let killed = || FailureKind::Exited(ExitStatus::Signal(9), "".into());
    assert_eq!(code(&[]), 0);
    assert_eq!(code(&[failure(0, said(), 0)]), 101);
    assert_eq!(code(&[failure(0, said(), 0), failure(1, killed(), 10)]), 137);
    assert_eq!(code(&[failure(0, said(), 0), failure(1, killed(), 100)]), 101);
    let exited = FailureKind::Exited(ExitStatus::Code(7), "before joining the job".into());
    assert_eq!(code(&[failure(2, exited.clone(), 0), failure(0, said(), 1)]), 7);
    let abort = |code| FailureKind::Abort(code, "enough".into());
    assert_eq!(code(&[failure(0, abort(42), 0), failure(0, killed(), 1)]), 42);
    for (requested, code_of_job) in [(0, 0), (-1, 255), (257, 1), (256, 1), (i32::MIN, 1)] {
        assert_eq!(code(&[failure(0, abort(requested), 0)]), code_of_job, "{requested}");
    }
    assert_eq!(code(&[failure(0, FailureKind::Exited(ExitStatus::Code(0), "early".into()), 0)]), 1);
}

#[test]
fn chain_of_causes_ends_where_it_returns_to_a_rank() {
    let due_to = |process, rank| {
        let kind = FailureKind::Reported(format!("returned an error: {process}"));
        Failure { caused_by: Some(rank), ..failure(process, kind, 0) }
    };
    let mut failures = vec![due_to(0, 1), due_to(1, 2), due_to(2, 1)];
    assert!(line(&failures).starts_with("rank 1 (pid 100) returned an error: 1"));
    failures.push(failure(3, FailureKind::Reported("returned an error: 3".into()), 0));
    assert!(line(&failures).starts_with("rank 1 (pid 100) returned an error: 1"));
}

#[test]
fn report_of_a_rank_explains_more_than_the_signal_that_ended_its_process() {
    let killed = |cause: &str| {
        let failures = [failure(0, FailureKind::Reported(cause.into()), 0)];
        let status = |_| Some(ExitStatus::Signal(15));
        verdict(&failures, &BTreeSet::from([0]), status, &[], OutputStatus::default()).code
    };
    assert_eq!(killed("returned an error: enough"), 1);
    assert_eq!(killed("panicked: odd"), 101);
    let lost = [failure(0, FailureKind::ReportedByPeer("connection closed".into()), 0)];
    let status = |_| Some(ExitStatus::Signal(9));
    assert_eq!(verdict(&lost, &BTreeSet::from([0]), status, &[], OutputStatus::default()).code, 137);
}

#[test]
fn abort_with_code_0_is_root_cause_only_if_no_other_failure_has_its_own_cause() {
    let abort = |code, after| failure(0, FailureKind::Abort(code, "enough".into()), after);
    let panicked = |after| failure(1, FailureKind::Reported("panicked: odd".into()), after);
    let exited = |after| failure(1, FailureKind::Exited(ExitStatus::Code(7), "".into()), after);
    let dependent = || Failure { caused_by: Some(0), ..panicked(0) };
    for (failures, code_of_job) in [
        ([panicked(0), abort(0, 10)], 101),
        ([panicked(0), abort(0, 400)], 101),
        ([abort(0, 0), panicked(10)], 101),
        ([abort(0, 0), panicked(400)], 101),
        ([panicked(0), abort(3, 10)], 3),
        ([dependent(), abort(0, 10)], 0),
        ([exited(0), abort(0, 10)], 7),
        // The exit is probably a consequence of the abort.
        ([abort(0, 0), exited(10)], 0),
    ] {
        assert_eq!(code(&failures), code_of_job, "{failures:?}");
    }
    assert_eq!(
        line(&[abort(0, 0), panicked(10)]),
        "rank 1 (pid 100) panicked: odd\n  also: rank 0 (pid 100) aborted the job with code 0: enough"
    );
}

#[test]
fn consequential_failure_is_not_root_cause() {
    let exited = |code, rank, caused_by, after| Failure {
        caused_by,
        ..failure(rank, FailureKind::Exited(ExitStatus::Code(code), "before leaving the job".into()), after)
    };
    let (dependent, cause) = (exited(1, 0, Some(2), 0), exited(7, 2, None, 900));
    assert_eq!(code(&[dependent.clone(), exited(3, 1, None, 10), cause.clone()]), 7);
    assert_eq!(
        code(&[exited(3, 1, Some(0), 0), dependent.clone(), cause]),
        7,
        "also through a chain of causes"
    );
    assert_eq!(code(&[dependent.clone(), exited(3, 1, None, 10)]), 1, "the named cause has not failed");
    assert_ne!(code(&[dependent.clone(), exited(7, 2, Some(0), 900)]), 0, "each names the other as cause");
    let said = |why: &str| [dependent.clone(), failure(2, FailureKind::Reported(why.into()), 900)];
    let line =
        |why| verdict(&said(why), &BTreeSet::new(), |_| None, &[], OutputStatus::default()).line.unwrap();
    assert!(line("returned an error: of its own").starts_with("rank 2 "));
    assert!(line("returned an error: recv: rank 0 has failed: exited").starts_with("rank 0 "));
}

#[test]
fn root_cause_is_named_and_consequential_failures_are_counted() {
    let reported = |rank, text: &str, caused_by| Failure {
        caused_by,
        ..failure(rank, FailureKind::Reported(text.into()), 1)
    };
    let killed = |rank| failure(rank, FailureKind::Exited(ExitStatus::Signal(9), "".into()), 1);
    let failures = [
        reported(4, "returned an error: a", Some(1)),
        killed(1),
        reported(0, "returned an error: b", Some(4)),
    ];
    assert_eq!(
        line(&failures),
        "rank 1 (pid 100) was killed by signal 9 (SIGKILL); 2 ranks failed because of it"
    );
    let exited = failure(3, FailureKind::Exited(ExitStatus::Code(1), "before leaving the job".into()), 1);
    assert_eq!(
        line(&[killed(1), exited]),
        "rank 1 (pid 100) was killed by signal 9 (SIGKILL); 1 rank failed because of it"
    );
    let same = [
        reported(1, "no network", None),
        reported(0, "no network", None),
        failure(3, FailureKind::ReportedByPeer(String::new()), 3),
    ];
    assert_eq!(line(&same), "ranks 0 and 1 (pid 100 and 1 more) no network; 1 rank failed because of it");
    let mut both = killed(0);
    both.ranks = 0..2;
    assert_eq!(line(&[both]), "ranks 0 and 1 (pid 100) were killed by signal 9 (SIGKILL)");
}

#[test]
fn independent_causes_are_listed() {
    let reported = |rank, text: &str, caused_by| Failure {
        caused_by,
        ..failure(rank, FailureKind::Reported(text.into()), 1)
    };
    let failures = [
        reported(1, "no luck", None),
        reported(0, "no file", Some(7)),
        reported(2, "no file", None),
        reported(3, "no", Some(1)),
    ];
    assert_eq!(
        line(&failures),
        "rank 1 (pid 100) no luck; 1 rank failed because of it\n  also: ranks 0 and 2 (pid 100 and 1 more) no file"
    );
    let many: Vec<Failure> = (0..20).map(|rank| reported(rank, &format!("{rank}"), None)).collect();
    assert!(line(&many).ends_with("\n  and 3 more causes"), "{}", line(&many));
}

#[test]
fn signal_to_mpjrun_is_not_a_failure_of_a_rank() {
    let interrupted = [failure(0, FailureKind::Exited(ExitStatus::Signal(2), "".into()), 0)];
    let judged = |received: &[Signal]| {
        verdict(&interrupted, &BTreeSet::new(), |_| None, received, OutputStatus::default())
    };
    let line = "the job was ended by signal 2 (SIGINT), which mpjrun received";
    assert_eq!(judged(&[Signal::INT]), Verdict { code: 130, line: Some(line.into()), is_interrupt: true });
    assert!(!judged(&[Signal::TERM]).is_interrupt);
}

#[test]
fn failed_write_is_a_failure_but_closed_reader_is_not() {
    let (lost, unread) = (
        OutputStatus { write_failed: true, reader_closed: false },
        OutputStatus { write_failed: false, reader_closed: true },
    );
    assert_eq!(judged(&[], lost), Verdict { code: 1, line: None, is_interrupt: false });
    assert_eq!(judged(&[], unread), Verdict { code: 0, line: None, is_interrupt: false });
    let ended = |status| [failure(0, FailureKind::Exited(status, "".into()), 0)];
    assert_eq!(
        judged(&ended(ExitStatus::Signal(PIPE)), unread),
        Verdict { code: 141, line: None, is_interrupt: false }
    );
    assert!(judged(&ended(ExitStatus::Signal(PIPE)), OutputStatus::default()).line.is_some());
    assert!(judged(&ended(ExitStatus::Code(7)), unread).line.is_some());
    assert_eq!(judged(&ended(ExitStatus::Code(7)), lost).code, 7);
}

#[test]
fn message_names_rank_pid_and_cause() {
    let killed = failure(3, FailureKind::Exited(ExitStatus::Signal(9), "".into()), 0);
    assert_eq!(line(&[killed]), "rank 3 (pid 100) was killed by signal 9 (SIGKILL)");
    let mut two =
        failure(2, FailureKind::Exited(ExitStatus::Code(7), "after its ranks had left the job".into()), 0);
    two.ranks = 2..4;
    assert_eq!(line(&[two]), "ranks 2 and 3 (pid 100) exited with code 7 after its ranks had left the job");
}
