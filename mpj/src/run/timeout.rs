//! `MPJ_TIMEOUT` without a launcher: a thread that ends the ranks of this process when the time is over.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::watch::Watch;
use super::{Caller, print_error};
use crate::config::{Config, Text};

/// How long a job may run.
pub const TIMEOUT: Text = Text {
    name: "TIMEOUT",
    default: "",
    form: "a number of seconds above 0",
    accepts: |text| text.is_empty() || seconds(text).is_some(),
    help: "seconds after which the job is ended, and a table says which rank waits for what; empty for no limit",
};

/// The exit code of a program that reached its time limit, as for timeout(1).
pub(super) const LATE: u8 = 124;

/// The time that the ranks of a program have to exit after their calls fail.
const GRACE: Duration = Duration::from_secs(2);

fn seconds(text: &str) -> Option<Duration> {
    text.parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|limit| !limit.is_zero())
}

/// Returns how long a job may run.
pub fn timeout(config: &Config) -> Option<Duration> {
    seconds(config.text(&TIMEOUT))
}

/// The thread that waits for the time limit while the ranks run.
#[derive(Debug)]
pub(super) struct Timer {
    over: mpsc::Sender<()>,
    thread: JoinHandle<Option<String>>,
}

impl Timer {
    /// Starts the thread if there is a limit. Returns `None` if there is no limit, or if no thread can be started.
    pub(super) fn start(config: &Config, watch: &Arc<Watch>, caller: Caller) -> Option<Self> {
        let (limit, watch) = (timeout(config)?, Arc::clone(watch));
        let (over, ended) = mpsc::channel();
        let body = move || match ended.recv_timeout(limit) {
            Err(RecvTimeoutError::Timeout) => Some(end(limit, &watch, caller, &ended)),
            _ => None,
        };
        let thread = std::thread::Builder::new().name("timeout".into()).spawn(body).ok()?;
        Some(Timer { over, thread })
    }

    /// Ends the thread; returns what the ranks waited for if the time was over before.
    pub(super) fn stop(self) -> Option<String> {
        drop(self.over);
        self.thread.join().ok().flatten()
    }
}

fn end(limit: Duration, watch: &Watch, caller: Caller, ended: &mpsc::Receiver<()>) -> String {
    let report =
        format!("the job was ended, since it still ran after {} s:{}", limit.as_secs_f64(), watch.table());
    if caller == Caller::Program {
        print_error(&report);
    }
    watch.end("ran out of time (MPJ_TIMEOUT)");
    if caller == Caller::Program && ended.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
        exit();
    }
    report
}

/// Ends a program one of whose ranks makes no call, and so cannot be ended in another way.
#[expect(clippy::disallowed_methods, reason = "the program's entry, and its user has set a limit")]
fn exit() -> ! {
    std::process::exit(LATE.into())
}
