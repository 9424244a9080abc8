//! Rank tests under plain `cargo test`: the functions that [`#[mpj::test]`](macro@crate::test) calls.

use std::fmt;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::config::{self, Text};
use crate::run::threads;
use crate::run::watch::Watch;
use crate::world::World;

/// The types that a test function may return.
pub trait TestResult {
    /// Turns it into a result with a printable error.
    ///
    /// # Errors
    /// The test's own.
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

/// The time limit of a test that does not set its own.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

/// Says it for all tests: `MPJ_TEST_TIMEOUT=10min cargo test`.
pub(crate) const TEST_TIMEOUT: Text = Text {
    name: "TEST_TIMEOUT",
    default: "60s",
    form: "a time, such as 500ms, 10s or 2min, or 0 for no limit",
    accepts: |text| text == "0" || parse(text).is_some(),
    help: "time that each #[mpj::test] may take, whatever the test says",
};

/// The time that the ranks of a terminated test have to return.
const GRACE: Duration = Duration::from_secs(5);

/// Parses a time such as `500ms`, `10s` or `2min`.
const fn parse(text: &str) -> Option<Duration> {
    let bytes = text.as_bytes();
    let (mut at, mut number) = (0, 0u64);
    while at < bytes.len() && bytes[at].is_ascii_digit() {
        // A longer number is not a reasonable time for a test.
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

/// Parses the argument `timeout` of the attribute.
///
/// # Panics
/// If it is not a valid time. The attribute evaluates it when the test is compiled.
pub const fn parse_timeout(text: &str) -> Duration {
    match parse(text) {
        Some(limit) if !limit.is_zero() => limit,
        _ => panic!("timeout: expected a time such as \"500ms\", \"10s\" or \"2min\""),
    }
}

/// Runs a test as `ranks` thread ranks; one such test at a time, since they share the machine's cores.
///
/// # Panics
/// If a rank panics or returns an error, or the test takes longer than `limit`: the test has failed. The panic is at
/// the line of the caller.
#[track_caller]
pub fn run<O: TestResult>(ranks: usize, limit: Duration, test: impl Fn(World) -> O + Send + Sync + 'static) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    let outcome = config::from_env().map_err(|error| error.to_string()).and_then(|config| {
        // `0`, which means no limit, does not parse.
        let limit =
            if config.is_set(&TEST_TIMEOUT) { parse(config.text(&TEST_TIMEOUT)) } else { Some(limit) };
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
        run_with_timeout(ranks, limit, test)
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
}

/// Runs a test on threads that can be abandoned: a rank that computes forever cannot be ended.
fn run_with_timeout<O: TestResult>(
    ranks: usize,
    limit: Option<Duration>,
    test: impl Fn(World) -> O + Send + Sync + 'static,
) -> Result<(), String> {
    let watch = Watch::new((0..ranks).filter_map(|rank| u32::try_from(rank).ok()));
    let (over, ended) = mpsc::channel();
    let body = {
        let watch = Arc::clone(&watch);
        move || {
            let result = threads::watched(ranks, &watch, |world| test(world).into_result());
            // Nobody listens if the test took too long.
            let _ = over.send(result.map(|_| ()).map_err(|error| error.to_string()));
        }
    };
    let name = std::thread::current().name().unwrap_or("test").to_owned();
    let spawned = std::thread::Builder::new().name(name).spawn(body);
    spawned.map_err(|e| format!("the test could not be started: {e}"))?;
    let Some(limit) = limit else {
        return ended.recv().unwrap_or_else(|_| Err("the test's thread panicked".into()));
    };
    match ended.recv_timeout(limit) {
        Ok(outcome) => return outcome,
        Err(RecvTimeoutError::Disconnected) => return Err("the test's thread panicked".into()),
        Err(RecvTimeoutError::Timeout) => {}
    }
    let mut report = format!("the test still ran after {limit:?}:{}", watch.table());
    watch.end("the test took too long");
    if ended.recv_timeout(GRACE).is_err() {
        report.push_str("\nranks that are not in a call cannot be ended: their threads go on");
    }
    Err(report)
}
