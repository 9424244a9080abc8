//! Tests with several ranks under plain `cargo test`: the functions that [`#[mpj::test]`](macro@crate::test) calls.

use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::config::{self, Text};
use crate::run::watch::Watch;
use crate::run::{TraceHandle, threads};
use crate::world::World;

/// A return type of test functions.
pub trait TestResult {
    /// # Errors
    /// The error that the test returned.
    fn into_result(self) -> Result<(), String>;
}

impl TestResult for () {
    fn into_result(self) -> Result<(), String> {
        Ok(())
    }
}

impl<E: fmt::Debug> TestResult for Result<(), E> {
    fn into_result(self) -> Result<(), String> {
        self.map_err(|e| format!("{e:?}"))
    }
}

/// The time limit of a test without the argument `timeout`.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

pub(crate) const TEST_TIMEOUT: Text = Text {
    name: "TEST_TIMEOUT",
    default: "60s",
    form: "a time, such as 500ms, 10s or 2min, or 0 for no limit",
    accepts: |text| text == "0" || parse(text).is_some(),
    help: "time limit of each #[mpj::test]; overrides the attribute",
};

/// The time that the ranks of a test have to return after it has timed out.
const GRACE: Duration = Duration::from_secs(5);

const fn parse(text: &str) -> Option<Duration> {
    let bytes = text.as_bytes();
    let (mut at, mut number) = (0, 0u64);
    while at < bytes.len() && bytes[at].is_ascii_digit() {
        if at == 9 {
            return None;
        }
        number = 10 * number + (bytes[at] - b'0') as u64;
        at += 1;
    }
    match (at, bytes.split_at(at).1) {
        (0, _) => None,
        (_, b"ms") => Some(Duration::from_millis(number)),
        (_, b"s") => Some(Duration::from_secs(number)),
        (_, b"min") => Some(Duration::from_secs(60 * number)),
        _ => None,
    }
}

/// Returns the limit that a value of the parameter sets: `None`, without limit, for `0` and for zero of any unit.
fn limit_of(text: &str) -> Option<Duration> {
    parse(text).filter(|limit| !limit.is_zero())
}

/// Parses the argument `timeout` of the attribute, at compile time.
///
/// # Panics
/// If it is not a valid time, or is zero.
pub const fn parse_timeout(text: &str) -> Duration {
    match parse(text) {
        Some(limit) if !limit.is_zero() => limit,
        _ => panic!("timeout: expected a time such as \"500ms\", \"10s\" or \"2min\""),
    }
}

/// Runs a test as `ranks` thread ranks. Tests run one at a time, because they share the machine's cores.
///
/// # Panics
/// If a rank panics, returns an error or aborts the job, a parameter is invalid, the ranks cannot start, or the test
/// exceeds its limit: `MPJ_TEST_TIMEOUT` if it is set, otherwise `limit`.
#[track_caller]
pub fn run<O: TestResult>(ranks: usize, limit: Duration, test: impl Fn(World) -> O + Send + Sync + 'static) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let outcome = config::from_env().map_err(|error| error.to_string()).and_then(|config| {
        let limit =
            if config.is_set(&TEST_TIMEOUT) { limit_of(config.text(&TEST_TIMEOUT)) } else { Some(limit) };
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        run_with_timeout(ranks, limit, test)
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// Runs a test on another thread. With a limit, returns even if a rank computes forever and cannot be stopped.
fn run_with_timeout<O: TestResult>(
    ranks: usize,
    limit: Option<Duration>,
    test: impl Fn(World) -> O + Send + Sync + 'static,
) -> Result<(), String> {
    let ids = (0..ranks).filter_map(|rank| u32::try_from(rank).ok());
    let watch = Watch::new(ids, TraceHandle::default());
    let (sender, outcome) = mpsc::channel();
    let body = {
        let watch = Arc::clone(&watch);
        move || {
            let result = threads::run_watched(ranks, &watch, |world| test(world).into_result());
            // The receiver no longer exists if the test exceeded its time limit and `GRACE`.
            let _ = sender.send(result.map(|_| ()).map_err(|error| error.to_string()));
        }
    };
    let name = std::thread::current().name().unwrap_or("test").to_owned();
    let spawned = std::thread::Builder::new().name(name).spawn(body);
    spawned.map_err(|e| format!("cannot start the test: {e}"))?;
    let Some(limit) = limit else {
        return outcome.recv().unwrap_or_else(|_| Err("the test's thread panicked".into()));
    };
    match outcome.recv_timeout(limit) {
        Ok(result) => return result,
        Err(RecvTimeoutError::Disconnected) => return Err("the test's thread panicked".into()),
        Err(RecvTimeoutError::Timeout) => {}
    }
    let mut report = format!("test timed out after {limit:?}:{}", watch.table());
    watch.fail_all("the test timed out");
    if outcome.recv_timeout(GRACE).is_err() {
        report.push_str("\nthreads that are in no mpj call cannot be stopped; they keep running");
    }
    Err(report)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_is_no_limit_in_every_unit() {
        assert_eq!(["0", "0ms", "0s", "00min"].map(limit_of), [None; 4]);
        assert_eq!(limit_of("2min"), Some(Duration::from_secs(120)));
    }
}
