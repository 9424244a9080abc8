//! Selects the failure that counts, the exit code, and the message.

use std::collections::BTreeSet;
use std::fmt;
use std::ops::Range;
use std::time::{Duration, Instant};

use mpj::boot::wire;
use mpj::report::ranks;
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

/// How a job ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    pub(crate) code: u8,
    pub(crate) line: Option<String>,
    /// Whether the job was ended by a signal that `mpjrun` received, and not by a failure of a rank.
    pub(crate) is_interrupt: bool,
}

/// The first failure that was detected in a process.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    /// The index of the process.
    pub(crate) process: usize,
    pub(crate) pid: u32,
    pub(crate) format_ranks: Range<u32>,
    pub(crate) how: FailureKind,
    pub(crate) at: Instant,
    /// The rank whose failure caused this one, according to the failed call.
    pub(crate) caused_by: Option<u32>,
}

impl Failure {
    /// Returns whether the reported error names the death of one of these ranks as its cause.
    fn blames(&self, ranks: &Range<u32>) -> bool {
        let FailureKind::Reported(cause) = &self.how else { return false };
        ranks.clone().any(|rank| cause.contains(&format!("rank {rank} has died")))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum FailureKind {
    /// A rank reported its own failure; the process is about to exit.
    Reported(String),
    /// Another process reported the rank's death; its exit status is not known yet.
    ReportedByPeer(String),
    /// A rank called abort.
    Abort(i32, String),
    /// The process exited with code 0 and never joined, but others did.
    NeverJoined,
    /// The process exited; the text says in which phase of its life.
    Exited(ExitStatus, &'static str),
    /// The process exited with a code; the text says where its control connection ended.
    Torn(ExitStatus, String),
    /// The process violated the protocol.
    ProtocolError(String),
}

impl FailureKind {
    /// Returns the text that the other ranks get.
    pub(crate) fn text(&self) -> String {
        match self {
            FailureKind::Reported(cause) => cause.clone(),
            FailureKind::ReportedByPeer(cause) => format!("was lost: {cause}"),
            FailureKind::Abort(code, why) => format!("aborted the job with code {code}: {why}"),
            FailureKind::NeverJoined => {
                "ended with code 0 without having joined the job: does the program call mpj::run?".into()
            }
            FailureKind::Exited(ExitStatus::Code(code), when) => format!("exited with code {code} {when}"),
            FailureKind::Torn(ExitStatus::Code(code), torn) => {
                format!("exited with code {code} before leaving the job, {torn}")
            }
            FailureKind::Exited(ExitStatus::Signal(signal), _)
            | FailureKind::Torn(ExitStatus::Signal(signal), _) => {
                format!("was killed by signal {}", name(*signal))
            }
            FailureKind::ProtocolError(why) => format!("broke its control socket and was killed: {why}"),
        }
    }
}

/// Returns a signal's number and name.
pub(crate) fn name(signal: i32) -> String {
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

/// Failures within this time count as simultaneous, because the order in which exits are seen is arbitrary.
pub(crate) const TIE: Duration = Duration::from_millis(50);

/// Returns the failure that counts. It is the earliest; among simultaneous failures an abort, or otherwise a death by
/// signal, wins. If the failure was caused by another recorded failure, that one counts.
fn cause(failures: &[Failure]) -> Option<&Failure> {
    let first = failures.first()?;
    let tied = || failures.iter().take_while(|failure| failure.at.duration_since(first.at) <= TIE);
    let abort = tied().find(|failure| matches!(failure.how, FailureKind::Abort(..)));
    let signal =
        || tied().find(|failure| matches!(failure.how, FailureKind::Exited(ExitStatus::Signal(_), _)));
    let mut cause = abort.or_else(signal).unwrap_or(first);
    // At most one step per failure, because two failures may name each other.
    for _ in failures {
        let first = |told: u32| failures.iter().find(|failure| failure.format_ranks.contains(&told));
        match cause.caused_by.and_then(first) {
            Some(before) if !before.blames(&cause.format_ranks) => cause = before,
            _ => break,
        }
    }
    Some(cause)
}

/// Maximum number of further causes in the message.
const TOLD: usize = 16;

impl Failure {
    /// Returns whether this failure follows from one of `failures`.
    pub(crate) fn follows(&self, failures: &[Failure]) -> bool {
        let is_told_of = |first: u32| {
            failures.iter().any(|other| other.process != self.process && other.format_ranks.contains(&first))
        };
        matches!(self.how, FailureKind::ReportedByPeer(_)) || self.caused_by.is_some_and(is_told_of)
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&told(&[self]))
    }
}

/// Formats failures that have the same text as one sentence with all their ranks.
fn told(same: &[&Failure]) -> String {
    let Some(first) = same.first() else { return String::new() };
    let more = if same.len() > 1 { format!(" and {} more", same.len() - 1) } else { String::new() };
    let is_one = same.iter().map(|failure| failure.format_ranks.len()).sum::<usize>() == 1;
    let text = first.how.text();
    let text =
        text.strip_prefix("was ").filter(|_| !is_one).map_or(text.clone(), |rest| format!("were {rest}"));
    format!(
        "{} (pid {}{more}) {text}",
        ranks(same.iter().map(|failure| failure.format_ranks.clone())),
        first.pid
    )
}

/// Returns the verdict on a job. `failures` are in the order of detection, `failed` are all ranks that have failed, and
/// `status` returns how a process exited.
pub(crate) fn verdict(
    failures: &[Failure],
    failed: &BTreeSet<u32>,
    status: impl Fn(usize) -> Option<ExitStatus>,
    passed: &[Signal],
    written: OutputStatus,
) -> Verdict {
    let Some(failure) = cause(failures) else {
        return Verdict { code: u8::from(written.write_failed), line: None, is_interrupt: false };
    };
    let code = match &failure.how {
        FailureKind::Abort(code, _) => wire::exit_code(*code),
        FailureKind::Exited(status, _) | FailureKind::Torn(status, _) => exit_code(*status),
        FailureKind::Reported(_) | FailureKind::ReportedByPeer(_) => {
            status(failure.process).map_or(1, exit_code)
        }
        FailureKind::ProtocolError(_) | FailureKind::NeverJoined => 1,
    };
    if let FailureKind::Exited(ExitStatus::Signal(signal), _) = failure.how
        && passed.iter().any(|passed| passed.as_raw() == signal)
    {
        let line = Some(format!("the job was ended by signal {}, which mpjrun was sent", name(signal)));
        return Verdict { code, line, is_interrupt: true };
    }
    // Processes that fail with the same text, such as "no network", are named together: none caused the others.
    let text = failure.how.text();
    let (mut same, others): (Vec<&Failure>, Vec<&Failure>) =
        failures.iter().partition(|other| other.process == failure.process || other.how.text() == text);
    // The message contains the pid of the cause.
    same.sort_by_key(|other| other.process != failure.process);
    let mut line = told(&same);
    // A process that exited by itself has already printed its own error.
    let has_left = |other: &Failure| matches!(other.how, FailureKind::Exited(ExitStatus::Code(_), _));
    let has_own_cause = |other: &&Failure| !other.follows(failures) && !has_left(other);
    let own: Vec<&Failure> = others.into_iter().filter(has_own_cause).collect();
    let is_named = |rank: &&u32| same.iter().chain(&own).any(|other| other.format_ranks.contains(rank));
    match failed.iter().filter(|rank| !is_named(rank)).count() {
        0 => {}
        1 => line += "; 1 rank failed because of it",
        count => line += &format!("; {count} ranks failed because of it"),
    }
    // Report the failures with other causes, too, once for each text.
    let mut texts: Vec<Vec<&Failure>> = Vec::new();
    for other in own {
        match texts.iter_mut().find(|known| known[0].how.text() == other.how.text()) {
            Some(known) => known.push(other),
            None => texts.push(vec![other]),
        }
    }
    for same in texts.iter().take(TOLD) {
        line += &format!("\n  also: {}", told(same));
    }
    if texts.len() > TOLD {
        line += &format!("\n  and {} more causes", texts.len() - TOLD);
    }
    // SIGPIPE after the reader of the output has exited, as in `mpjrun … | head`, is a normal end and prints no line.
    let unread = written.reader_closed
        && matches!(failure.how, FailureKind::Exited(ExitStatus::Signal(signal), _) if signal == PIPE);
    Verdict { code, line: (!unread).then_some(line), is_interrupt: false }
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

    fn failure(process: usize, how: FailureKind, after: u64) -> Failure {
        let at = *START.get_or_init(Instant::now) + Duration::from_millis(after);
        Failure {
            process,
            pid: 100,
            format_ranks: process as u32..process as u32 + 1,
            how,
            at,
            caused_by: None,
        }
    }

    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();

    fn judged(failures: &[Failure], written: OutputStatus) -> Verdict {
        let failed = failures.iter().flat_map(|failure| failure.format_ranks.clone()).collect();
        verdict(failures, &failed, |_| Some(ExitStatus::Code(101)), &[], written)
    }

    fn code(failures: &[Failure]) -> u8 {
        judged(failures, OutputStatus::default()).code
    }

    fn line(failures: &[Failure]) -> String {
        judged(failures, OutputStatus::default()).line.unwrap_or_default()
    }

    #[test]
    fn the_earliest_counts_and_signals_win_ties() {
        let said = || FailureKind::Reported("returned an error: rank 1 is dead".into());
        let killed = || FailureKind::Exited(ExitStatus::Signal(9), "");
        assert_eq!(code(&[]), 0);
        assert_eq!(code(&[failure(0, said(), 0)]), 101);
        assert_eq!(code(&[failure(0, said(), 0), failure(1, killed(), 10)]), 137);
        assert_eq!(code(&[failure(0, said(), 0), failure(1, killed(), 100)]), 101);
        let exited = FailureKind::Exited(ExitStatus::Code(7), "before joining the job");
        assert_eq!(code(&[failure(2, exited.clone(), 0), failure(0, said(), 1)]), 7);
        let abort = |code| FailureKind::Abort(code, "enough".into());
        assert_eq!(code(&[failure(0, abort(42), 0), failure(0, killed(), 1)]), 42);
        for (asked, told) in [(0, 0), (-1, 255), (257, 1), (256, 1), (i32::MIN, 1)] {
            assert_eq!(code(&[failure(0, abort(asked), 0)]), told, "{asked}");
        }
        assert_eq!(code(&[failure(0, FailureKind::Exited(ExitStatus::Code(0), "early"), 0)]), 1);
    }

    #[test]
    fn who_was_told_of_a_failure_is_not_its_cause() {
        let exited = |code, rank, told_of, after| Failure {
            caused_by: told_of,
            ..failure(rank, FailureKind::Exited(ExitStatus::Code(code), "before leaving the job"), after)
        };
        let (told, over) = (exited(1, 0, Some(2), 0), exited(7, 2, None, 900));
        assert_eq!(code(&[told.clone(), exited(3, 1, None, 10), over.clone()]), 7);
        assert_eq!(code(&[exited(3, 1, Some(0), 0), told.clone(), over]), 7, "by another that was told");
        assert_eq!(
            code(&[told.clone(), exited(3, 1, None, 10)]),
            1,
            "the one that it was told of has not failed"
        );
        assert_ne!(code(&[told.clone(), exited(7, 2, Some(0), 900)]), 0, "each was told of the other");
        let said = |why: &str| [told.clone(), failure(2, FailureKind::Reported(why.into()), 900)];
        let line =
            |why| verdict(&said(why), &BTreeSet::new(), |_| None, &[], OutputStatus::default()).line.unwrap();
        assert!(line("returned an error: of its own").starts_with("rank 2 "));
        assert!(line("returned an error: recv: rank 0 has died: exited").starts_with("rank 0 "));
    }

    #[test]
    fn one_cause_is_told_once_and_what_follows_is_counted() {
        let said = |rank, text: &str, told_of| Failure {
            caused_by: told_of,
            ..failure(rank, FailureKind::Reported(text.into()), 1)
        };
        let killed = |rank| failure(rank, FailureKind::Exited(ExitStatus::Signal(9), ""), 1);
        let failures =
            [said(4, "returned an error: a", Some(1)), killed(1), said(0, "returned an error: b", Some(4))];
        assert_eq!(
            line(&failures),
            "rank 1 (pid 100) was killed by signal 9 (SIGKILL); 2 ranks failed because of it"
        );
        let exited = failure(3, FailureKind::Exited(ExitStatus::Code(1), "before leaving the job"), 1);
        assert_eq!(
            line(&[killed(1), exited]),
            "rank 1 (pid 100) was killed by signal 9 (SIGKILL); 1 rank failed because of it"
        );
        let same = [
            said(1, "no network", None),
            said(0, "no network", None),
            failure(3, FailureKind::ReportedByPeer(String::new()), 3),
        ];
        assert_eq!(line(&same), "ranks 0 and 1 (pid 100 and 1 more) no network; 1 rank failed because of it");
        let mut both = killed(0);
        both.format_ranks = 0..2;
        assert_eq!(line(&[both]), "ranks 0 and 1 (pid 100) were killed by signal 9 (SIGKILL)");
    }

    #[test]
    fn causes_of_their_own_are_told_too() {
        let said = |rank, text: &str, told_of| Failure {
            caused_by: told_of,
            ..failure(rank, FailureKind::Reported(text.into()), 1)
        };
        let failures = [
            said(1, "no luck", None),
            said(0, "no file", Some(7)),
            said(2, "no file", None),
            said(3, "no", Some(1)),
        ];
        assert_eq!(
            line(&failures),
            "rank 1 (pid 100) no luck; 1 rank failed because of it\n  also: ranks 0 and 2 (pid 100 and 1 more) no file"
        );
        let many: Vec<Failure> = (0..20).map(|rank| said(rank, &format!("{rank}"), None)).collect();
        assert!(line(&many).ends_with("\n  and 3 more causes"), "{}", line(&many));
    }

    #[test]
    fn a_signal_that_mpjrun_was_sent_is_no_fault_of_a_rank() {
        let interrupted = [failure(0, FailureKind::Exited(ExitStatus::Signal(2), ""), 0)];
        let judged = |passed: &[Signal]| {
            verdict(&interrupted, &BTreeSet::new(), |_| None, passed, OutputStatus::default())
        };
        let line = "the job was ended by signal 2 (SIGINT), which mpjrun was sent";
        assert_eq!(
            judged(&[Signal::INT]),
            Verdict { code: 130, line: Some(line.into()), is_interrupt: true }
        );
        assert!(!judged(&[Signal::TERM]).is_interrupt);
    }

    #[test]
    fn lost_output_is_a_failure_and_a_reader_that_leaves_is_none() {
        let (lost, unread) = (
            OutputStatus { write_failed: true, reader_closed: false },
            OutputStatus { write_failed: false, reader_closed: true },
        );
        assert_eq!(judged(&[], lost), Verdict { code: 1, line: None, is_interrupt: false });
        assert_eq!(judged(&[], unread), Verdict { code: 0, line: None, is_interrupt: false });
        let ended = |status| [failure(0, FailureKind::Exited(status, ""), 0)];
        assert_eq!(
            judged(&ended(ExitStatus::Signal(PIPE)), unread),
            Verdict { code: 141, line: None, is_interrupt: false }
        );
        assert!(judged(&ended(ExitStatus::Signal(PIPE)), OutputStatus::default()).line.is_some());
        assert!(judged(&ended(ExitStatus::Code(7)), unread).line.is_some());
        assert_eq!(judged(&ended(ExitStatus::Code(7)), lost).code, 7);
    }

    #[test]
    fn the_message_names_rank_pid_and_cause() {
        let killed = failure(3, FailureKind::Exited(ExitStatus::Signal(9), ""), 0);
        assert_eq!(line(&[killed]), "rank 3 (pid 100) was killed by signal 9 (SIGKILL)");
        let mut two =
            failure(2, FailureKind::Exited(ExitStatus::Code(7), "after its ranks had left the job"), 0);
        two.format_ranks = 2..4;
        assert_eq!(
            line(&[two]),
            "ranks 2 and 3 (pid 100) exited with code 7 after its ranks had left the job"
        );
    }
}
