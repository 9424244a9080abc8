//! Selects the root cause, the exit code and the message of a job.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use mpj::boot::control_plane::code_of_cause;
use mpj::boot::wire;
use mpj::report::ranks as format_ranks;
use rustix::process::Signal;

use crate::output::OutputStatus;
use crate::spawn::ExitStatus;

/// Why a job was not started or was stopped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct LaunchError {
    pub(crate) why: String,
    pub(crate) code: u8,
}

impl LaunchError {
    pub(crate) fn new(why: String) -> LaunchError {
        LaunchError { why, code: 1 }
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    pub(crate) code: u8,
    /// The message; it can have several lines.
    pub(crate) line: Option<String>,
    /// Whether a signal to `mpjrun` ended the job, and not a failure of a rank.
    pub(crate) is_interrupt: bool,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    pub(crate) process: usize,
    pub(crate) pid: u32,
    pub(crate) ranks: Range<u32>,
    pub(crate) kind: FailureKind,
    pub(crate) at: Instant,
    /// The rank whose failure caused this one, according to the failed call.
    pub(crate) caused_by: Option<u32>,
}

impl Failure {
    /// Returns whether this is a reported error which says that one of `ranks` has died.
    fn blames(&self, ranks: &Range<u32>) -> bool {
        let FailureKind::Reported(cause) = &self.kind else { return false };
        ranks.clone().any(|rank| cause.contains(&format!("rank {rank} has failed")))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FailureKind {
    /// A rank reported its own failure. The exit status is not known yet.
    Reported(String),
    /// A rank of another process reported the rank as lost. The exit status is not known yet.
    ReportedByPeer(String),
    Abort(i32, String),
    /// The process exited with code 0 and never joined, but others did.
    NeverJoined,
    /// The text says whether the process had joined or left the job.
    Exited(ExitStatus, String),
    /// The text says at which byte of a message the control connection was closed.
    ExitedMidMessage(ExitStatus, String),
    ProtocolError(String),
}

impl FailureKind {
    /// Returns the kind that replaces an earlier report of a peer. An exit with code 0 explains nothing. Another exit
    /// code explains less than the report, so the result contains both.
    pub(crate) fn after(self, earlier: &FailureKind) -> Option<FailureKind> {
        match (self, earlier) {
            (FailureKind::Exited(ExitStatus::Code(0), _), _) => None,
            (FailureKind::Exited(status @ ExitStatus::Code(_), when), FailureKind::ReportedByPeer(cause)) => {
                Some(FailureKind::Exited(status, format!("{when}; a peer had reported: {cause}")))
            }
            (kind, _) => Some(kind),
        }
    }

    pub(crate) fn is_abort_with_code_0(&self) -> bool {
        matches!(self, FailureKind::Abort(0, _))
    }

    /// Returns the text for the message. Other ranks get the same text, except for `ReportedByPeer`.
    pub(crate) fn text(&self) -> String {
        match self {
            FailureKind::Reported(cause) => cause.clone(),
            FailureKind::ReportedByPeer(cause) => format!("stopped responding to its peers: {cause}"),
            FailureKind::Abort(code, why) => format!("aborted the job with code {code}: {why}"),
            FailureKind::NeverJoined => {
                "exited with code 0 without joining the job: does the program call mpj::run?".into()
            }
            FailureKind::Exited(ExitStatus::Code(code), when) => format!("exited with code {code} {when}"),
            FailureKind::ExitedMidMessage(ExitStatus::Code(code), torn) => {
                format!("exited with code {code} before leaving the job, {torn}")
            }
            FailureKind::Exited(ExitStatus::Signal(signal), _)
            | FailureKind::ExitedMidMessage(ExitStatus::Signal(signal), _) => {
                format!("was killed by signal {}", signal_name(*signal))
            }
            FailureKind::ProtocolError(why) => format!("violated the control protocol and was killed: {why}"),
        }
    }
}

/// Returns a text such as "9 (SIGKILL)".
pub(crate) fn signal_name(signal: i32) -> String {
    let known = [
        (Signal::HUP, "HUP"),
        (Signal::INT, "INT"),
        (Signal::QUIT, "QUIT"),
        (Signal::ILL, "ILL"),
        (Signal::TRAP, "TRAP"),
        (Signal::ABORT, "ABRT"),
        (Signal::BUS, "BUS"),
        (Signal::FPE, "FPE"),
        (Signal::KILL, "KILL"),
        (Signal::USR1, "USR1"),
        (Signal::SEGV, "SEGV"),
        (Signal::USR2, "USR2"),
        (Signal::PIPE, "PIPE"),
        (Signal::ALARM, "ALRM"),
        (Signal::TERM, "TERM"),
        (Signal::XCPU, "XCPU"),
        (Signal::XFSZ, "XFSZ"),
        (Signal::SYS, "SYS"),
    ];
    match known.iter().find(|(known, _)| known.as_raw() == signal) {
        Some((_, name)) => format!("{signal} (SIG{name})"),
        None => signal.to_string(),
    }
}

const PIPE: i32 = Signal::PIPE.as_raw();

/// Failures within this time of the first count as simultaneous, because exits are detected in an arbitrary order.
pub(crate) const TIE: Duration = Duration::from_millis(50);

/// Returns the end of the chain of named causes. The chain begins with the earliest failure; among simultaneous ones
/// with an abort, or otherwise a death by signal. It ends before a failure whose error blames the preceding one.
///
/// An abort with code 0 must not hide another failure. So it has no precedence among simultaneous failures, and is the
/// result only if no other failure has a cause of its own.
fn root_cause(failures: &[Failure]) -> Option<&Failure> {
    let first = failures.first()?;
    let tied = || failures.iter().take_while(|failure| failure.at.duration_since(first.at) <= TIE);
    let is_abort = |kind: &FailureKind| matches!(kind, FailureKind::Abort(code, _) if *code != 0);
    let abort = tied().find(|failure| is_abort(&failure.kind));
    let signal =
        || tied().find(|failure| matches!(failure.kind, FailureKind::Exited(ExitStatus::Signal(_), _)));
    let mut cause = abort.or_else(signal).unwrap_or(first);
    let failure_of = |rank: u32| failures.iter().find(|failure| failure.ranks.contains(&rank));
    // Failures can name each other as cause.
    let mut visited = BTreeSet::new();
    while visited.insert(cause.process) {
        match cause.caused_by.and_then(failure_of) {
            Some(named_cause) if !named_cause.blames(&cause.ranks) => cause = named_cause,
            _ => break,
        }
    }
    let own = |other: &&Failure| !other.kind.is_abort_with_code_0() && other.has_own_cause(failures);
    let replacement = failures.iter().find(own).filter(|_| cause.kind.is_abort_with_code_0());
    Some(replacement.unwrap_or(cause))
}

const MAX_CAUSES: usize = 16;

impl Failure {
    /// Returns whether this failure is a peer's report, or names a failed rank of another process as its cause.
    pub(crate) fn follows(&self, failures: &[Failure]) -> bool {
        let has_failed = |first: u32| {
            failures.iter().any(|other| other.process != self.process && other.ranks.contains(&first))
        };
        matches!(self.kind, FailureKind::ReportedByPeer(_)) || self.caused_by.is_some_and(has_failed)
    }

    /// Returns whether this failure is not a known consequence. An exit with a code is presumed to be one: the process
    /// has probably printed an error.
    fn has_own_cause(&self, failures: &[Failure]) -> bool {
        let has_exit_code = matches!(self.kind, FailureKind::Exited(ExitStatus::Code(_), _));
        !self.follows(failures) && !has_exit_code
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&format_failures(&[self]))
    }
}

/// Formats failures with the same text as one sentence with all their ranks.
fn format_failures(same: &[&Failure]) -> String {
    let Some(first) = same.first() else { return String::new() };
    let more = if same.len() > 1 { format!(" and {} more", same.len() - 1) } else { String::new() };
    let is_one = same.iter().map(|failure| failure.ranks.len()).sum::<usize>() == 1;
    let text = first.kind.text();
    let text =
        text.strip_prefix("was ").filter(|_| !is_one).map_or(text.clone(), |rest| format!("were {rest}"));
    format!(
        "{} (pid {}{more}) {text}",
        format_ranks(same.iter().map(|failure| failure.ranks.clone())),
        first.pid
    )
}

/// Returns the verdict on a job. `failures` are in the order of detection, `failed` are all failed ranks, `status`
/// returns how a process exited, and `received` are the signals to `mpjrun`.
pub(crate) fn verdict(
    failures: &[Failure],
    failed: &BTreeSet<u32>,
    status: impl Fn(usize) -> Option<ExitStatus>,
    received: &[Signal],
    output: OutputStatus,
) -> Verdict {
    let Some(failure) = root_cause(failures) else {
        return Verdict { code: u8::from(output.write_failed), line: None, is_interrupt: false };
    };
    let code = match &failure.kind {
        FailureKind::Abort(code, _) => wire::exit_code(*code),
        FailureKind::Exited(status, _) | FailureKind::ExitedMidMessage(status, _) => exit_code(*status),
        FailureKind::ReportedByPeer(_) => status(failure.process).map_or(1, exit_code),
        FailureKind::Reported(cause) => match status(failure.process) {
            Some(status @ ExitStatus::Code(_)) => exit_code(status),
            // `mpjrun` may have killed a process that did not exit in time after its report.
            Some(ExitStatus::Signal(_)) | None => code_of_cause(cause),
        },
        FailureKind::ProtocolError(_) | FailureKind::NeverJoined => 1,
    };
    if let FailureKind::Exited(ExitStatus::Signal(signal), _) = failure.kind
        && received.iter().any(|received| received.as_raw() == signal)
    {
        let line =
            Some(format!("the job was ended by signal {}, which mpjrun received", signal_name(signal)));
        return Verdict { code, line, is_interrupt: true };
    }
    // Processes that fail with the same text, such as "no network", are named together.
    let text = failure.kind.text();
    let (mut same, others): (Vec<&Failure>, Vec<&Failure>) =
        failures.iter().partition(|other| other.process == failure.process || other.kind.text() == text);
    // The message contains the pid of the first failure.
    same.sort_by_key(|other| other.process != failure.process);
    let mut line = format_failures(&same);
    let own: Vec<&Failure> = others.into_iter().filter(|other| other.has_own_cause(failures)).collect();
    let is_named = |rank: &&u32| same.iter().chain(&own).any(|other| other.ranks.contains(rank));
    match failed.iter().filter(|rank| !is_named(rank)).count() {
        0 => {}
        1 => line += "; 1 rank failed because of it",
        count => line += &format!("; {count} ranks failed because of it"),
    }
    let mut texts: Vec<Vec<&Failure>> = Vec::new();
    for other in own {
        match texts.iter_mut().find(|known| known[0].kind.text() == other.kind.text()) {
            Some(known) => known.push(other),
            None => texts.push(vec![other]),
        }
    }
    for same in texts.iter().take(MAX_CAUSES) {
        line += &format!("\n  also: {}", format_failures(same));
    }
    if texts.len() > MAX_CAUSES {
        line += &format!("\n  and {} more causes", texts.len() - MAX_CAUSES);
    }
    // SIGPIPE after the reader of the output has exited is a normal end of a pipeline.
    let is_pipeline_end = output.reader_closed
        && matches!(failure.kind, FailureKind::Exited(ExitStatus::Signal(signal), _) if signal == PIPE);
    Verdict { code, line: (!is_pipeline_end).then_some(line), is_interrupt: false }
}

/// Returns the exit code for a failed process, which is never 0.
fn exit_code(status: ExitStatus) -> u8 {
    match status {
        ExitStatus::Code(code) => (code as u8).max(1),
        ExitStatus::Signal(signal) => 128u8.wrapping_add(signal as u8),
    }
}

#[cfg(test)]
mod tests {
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
            ..failure(
                rank,
                FailureKind::Exited(ExitStatus::Code(code), "before leaving the job".into()),
                after,
            )
        };
        let (dependent, cause) = (exited(1, 0, Some(2), 0), exited(7, 2, None, 900));
        assert_eq!(code(&[dependent.clone(), exited(3, 1, None, 10), cause.clone()]), 7);
        assert_eq!(
            code(&[exited(3, 1, Some(0), 0), dependent.clone(), cause]),
            7,
            "also through a chain of causes"
        );
        assert_eq!(code(&[dependent.clone(), exited(3, 1, None, 10)]), 1, "the named cause has not failed");
        assert_ne!(
            code(&[dependent.clone(), exited(7, 2, Some(0), 900)]),
            0,
            "each names the other as cause"
        );
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
        assert_eq!(
            judged(&[Signal::INT]),
            Verdict { code: 130, line: Some(line.into()), is_interrupt: true }
        );
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
        let mut two = failure(
            2,
            FailureKind::Exited(ExitStatus::Code(7), "after its ranks had left the job".into()),
            0,
        );
        two.ranks = 2..4;
        assert_eq!(
            line(&[two]),
            "ranks 2 and 3 (pid 100) exited with code 7 after its ranks had left the job"
        );
    }
}
