//! Which failure counts, the exit code, and the one message.

use std::ops::Range;
use std::time::{Duration, Instant};

use mpj::boot::wire;
use mpj::report::ranks;
use rustix::process::Signal;

use crate::output::Written;
use crate::spawn::Status;

/// Why no job was started.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Refused {
    pub(crate) why: String,
    pub(crate) code: u8,
}

impl Refused {
    pub(crate) fn new(why: String) -> Refused {
        Refused { why, code: 1 }
    }
}

/// How a job ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Verdict {
    pub(crate) code: u8,
    pub(crate) line: Option<String>,
    /// Whether the job ended by a signal that it was sent, which is no fault of a rank.
    pub(crate) is_interrupt: bool,
}

/// One process's failure: the first thing that was heard of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Failure {
    /// The process, by its index.
    pub(crate) process: usize,
    pub(crate) pid: u32,
    pub(crate) ranks: Range<u32>,
    pub(crate) how: How,
    pub(crate) at: Instant,
    /// Who had failed before it, as it was told in the call that it failed in.
    pub(crate) told_of: Option<u32>,
}

impl Failure {
    /// Whether its own account says that it follows from the death of one of these ranks.
    fn follows(&self, ranks: &Range<u32>) -> bool {
        let How::Said(cause) = &self.how else { return false };
        ranks.clone().any(|rank| cause.contains(&format!("rank {rank} has died")))
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// A rank said so itself; the process is about to end.
    Said(String),
    /// Another process found it dead; how it ended is not known yet.
    Lost(String),
    /// A rank ended the job.
    Abort(i32, String),
    /// The process ended with 0, never joined, and others did.
    Absent,
    /// The process ended: the text says when in its life.
    Ended(Status, &'static str),
    /// The process ended with a code, and its control connection where the text says.
    Torn(Status, String),
    /// It does not keep to the protocol.
    Broken(String),
}

impl How {
    /// What the other ranks are told.
    pub(crate) fn text(&self) -> String {
        match self {
            How::Said(cause) => cause.clone(),
            How::Lost(cause) => format!("was lost: {cause}"),
            How::Abort(code, why) => format!("aborted the job with code {code}: {why}"),
            How::Absent => {
                "ended with code 0 without having joined the job: does the program call mpj::run?".into()
            }
            How::Ended(Status::Code(code), when) => format!("exited with code {code} {when}"),
            How::Torn(Status::Code(code), torn) => {
                format!("exited with code {code} before leaving the job, {torn}")
            }
            How::Ended(Status::Signal(signal), _) | How::Torn(Status::Signal(signal), _) => {
                format!("was killed by signal {}", name(*signal))
            }
            How::Broken(why) => format!("broke its control socket and was killed: {why}"),
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

/// Failures closer together than this count as one: whose end is seen first is chance.
pub(crate) const TIE: Duration = Duration::from_millis(50);

/// Returns the failure that counts: the earliest; among those that tie with it an abort, else a death by signal; but if its
/// rank was told of one that has failed, too, that one's.
fn cause(failures: &[Failure]) -> Option<&Failure> {
    let first = failures.first()?;
    let tied = || failures.iter().take_while(|failure| failure.at.duration_since(first.at) <= TIE);
    let abort = tied().find(|failure| matches!(failure.how, How::Abort(..)));
    let signal = || tied().find(|failure| matches!(failure.how, How::Ended(Status::Signal(_), _)));
    let mut cause = abort.or_else(signal).unwrap_or(first);
    // As often as there are failures: two may name each other.
    for _ in failures {
        let first = |told: u32| failures.iter().find(|failure| failure.ranks.contains(&told));
        match cause.told_of.and_then(first) {
            Some(before) if !before.follows(&cause.ranks) => cause = before,
            _ => break,
        }
    }
    Some(cause)
}

/// Judges a job by its failures, in order, by how each process has ended, and by what became of the output.
pub(crate) fn judge(
    failures: &[Failure],
    status: impl Fn(usize) -> Option<Status>,
    passed: &[Signal],
    written: Written,
) -> Verdict {
    let Some(failure) = cause(failures) else {
        return Verdict { code: u8::from(written.lost), line: None, is_interrupt: false };
    };
    let code = match &failure.how {
        How::Abort(code, _) => wire::exit_code(*code),
        How::Ended(status, _) | How::Torn(status, _) => exit_code(*status),
        How::Said(_) | How::Lost(_) => status(failure.process).map_or(1, exit_code),
        How::Broken(_) | How::Absent => 1,
    };
    if let How::Ended(Status::Signal(signal), _) = failure.how
        && passed.iter().any(|passed| passed.as_raw() == signal)
    {
        let line = Some(format!("the job was ended by signal {}, which mpjrun was sent", name(signal)));
        return Verdict { code, line, is_interrupt: true };
    }
    // Processes that fail with the same text, such as "no network", are named together: none of them is the cause.
    let text = failure.how.text();
    let (same, others): (Vec<&Failure>, Vec<&Failure>) =
        failures.iter().partition(|other| other.process == failure.process || other.how.text() == text);
    let named = |failures: &[&Failure]| ranks(failures.iter().map(|failure| failure.ranks.clone()));
    let more = if same.len() > 1 { format!(" and {} more", same.len() - 1) } else { String::new() };
    let is_one = same.iter().map(|failure| failure.ranks.len()).sum::<usize>() == 1;
    let text =
        text.strip_prefix("was ").filter(|_| !is_one).map_or(text.clone(), |rest| format!("were {rest}"));
    let mut line = format!("{} (pid {}{more}) {text}", named(&same), failure.pid);
    if !others.is_empty() {
        line += &format!("; {} failed too", named(&others));
    }
    // SIGPIPE after the reader of the output has gone, as in `mpjrun … | head`, is a normal end: no line tells it.
    let unread =
        written.unread && matches!(failure.how, How::Ended(Status::Signal(signal), _) if signal == PIPE);
    Verdict { code, line: (!unread).then_some(line), is_interrupt: false }
}

/// A code other than 0, since this is a failure's.
fn exit_code(status: Status) -> u8 {
    match status {
        Status::Code(code) => (code as u8).max(1),
        Status::Signal(signal) => 128u8.wrapping_add(signal as u8),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failure(process: usize, how: How, after: u64) -> Failure {
        let at = *START.get_or_init(Instant::now) + Duration::from_millis(after);
        Failure { process, pid: 100, ranks: process as u32..process as u32 + 1, how, at, told_of: None }
    }

    static START: std::sync::OnceLock<Instant> = std::sync::OnceLock::new();

    fn code(failures: &[Failure]) -> u8 {
        judge(failures, |_| Some(Status::Code(101)), &[], Written::default()).code
    }

    #[test]
    fn the_earliest_counts_and_signals_win_ties() {
        let said = || How::Said("returned an error: rank 1 is dead".into());
        let killed = || How::Ended(Status::Signal(9), "");
        assert_eq!(code(&[]), 0);
        assert_eq!(code(&[failure(0, said(), 0)]), 101);
        assert_eq!(code(&[failure(0, said(), 0), failure(1, killed(), 10)]), 137);
        assert_eq!(code(&[failure(0, said(), 0), failure(1, killed(), 100)]), 101);
        let exited = How::Ended(Status::Code(7), "before joining the job");
        assert_eq!(code(&[failure(2, exited.clone(), 0), failure(0, said(), 1)]), 7);
        let abort = |code| How::Abort(code, "enough".into());
        assert_eq!(code(&[failure(0, abort(42), 0), failure(0, killed(), 1)]), 42);
        for (asked, told) in [(0, 0), (-1, 255), (257, 1), (256, 1), (i32::MIN, 1)] {
            assert_eq!(code(&[failure(0, abort(asked), 0)]), told, "{asked}");
        }
        assert_eq!(code(&[failure(0, How::Ended(Status::Code(0), "early"), 0)]), 1);
    }

    #[test]
    fn who_was_told_of_a_failure_is_not_its_cause() {
        let exited = |code, rank, told_of, after| Failure {
            told_of,
            ..failure(rank, How::Ended(Status::Code(code), "before leaving the job"), after)
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
        let said = |why: &str| [told.clone(), failure(2, How::Said(why.into()), 900)];
        let line = |why| judge(&said(why), |_| None, &[], Written::default()).line.unwrap();
        assert!(line("returned an error: of its own").starts_with("rank 2 "));
        assert!(line("returned an error: recv: rank 0 has died: exited").starts_with("rank 0 "));
    }

    #[test]
    fn everybody_who_failed_is_named() {
        let said = || How::Said("returned an error".into());
        let killed = How::Ended(Status::Signal(9), "");
        let failures =
            [failure(4, said(), 0), failure(1, killed, 1), failure(0, said(), 2), failure(3, said(), 3)];
        let line = judge(&failures, |_| None, &[], Written::default()).line.unwrap();
        assert_eq!(line, "rank 1 (pid 100) was killed by signal 9 (SIGKILL); ranks 0, 3 and 4 failed too");
        let same = [failure(1, said(), 0), failure(0, said(), 2), failure(3, How::Lost(String::new()), 3)];
        let line = judge(&same, |_| None, &[], Written::default()).line.unwrap();
        assert_eq!(line, "ranks 0 and 1 (pid 100 and 1 more) returned an error; rank 3 failed too");
        let mut both = failure(0, How::Ended(Status::Signal(9), ""), 0);
        both.ranks = 0..2;
        let line = judge(&[both], |_| None, &[], Written::default()).line.unwrap();
        assert_eq!(line, "ranks 0 and 1 (pid 100) were killed by signal 9 (SIGKILL)");
    }

    #[test]
    fn lost_output_is_a_failure_and_a_reader_that_leaves_is_none() {
        let (lost, unread) = (Written { lost: true, unread: false }, Written { lost: false, unread: true });
        let verdict = |failures: &[Failure], written| judge(failures, |_| None, &[], written);
        assert_eq!(verdict(&[], lost), Verdict { code: 1, line: None, is_interrupt: false });
        assert_eq!(verdict(&[], unread), Verdict { code: 0, line: None, is_interrupt: false });
        let ended = |status| [failure(0, How::Ended(status, ""), 0)];
        assert_eq!(
            verdict(&ended(Status::Signal(PIPE)), unread),
            Verdict { code: 141, line: None, is_interrupt: false }
        );
        assert!(verdict(&ended(Status::Signal(PIPE)), Written::default()).line.is_some());
        assert!(verdict(&ended(Status::Code(7)), unread).line.is_some());
        assert_eq!(verdict(&ended(Status::Code(7)), lost).code, 7);
    }

    #[test]
    fn the_message_names_rank_pid_and_cause() {
        let line =
            judge(&[failure(3, How::Ended(Status::Signal(9), ""), 0)], |_| None, &[], Written::default())
                .line;
        assert_eq!(line.as_deref(), Some("rank 3 (pid 100) was killed by signal 9 (SIGKILL)"));
        let mut two = failure(2, How::Ended(Status::Code(7), "after its ranks had left the job"), 0);
        two.ranks = 2..4;
        let line = judge(&[two], |_| None, &[], Written::default()).line;
        assert_eq!(
            line.as_deref(),
            Some("ranks 2 and 3 (pid 100) exited with code 7 after its ranks had left the job")
        );
    }
}
