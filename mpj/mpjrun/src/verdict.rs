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
mod tests;
