//! `MPJ_TIMEOUT` without a launcher: a thread that fails the ranks of this process after the time limit.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::watch::Watch;
use super::{Caller, print_last_error};
use crate::config::{Config, Text};

/// The time limit of a job.
pub const TIMEOUT: Text = Text {
    name: "TIMEOUT",
    default: "",
    form: "a number of seconds above 0",
    accepts: |text| text.is_empty() || seconds(text).is_some(),
    help: "seconds after which the job is terminated, with a table of what each rank waits for; empty: no limit",
};

/// The exit code of a program that reached its time limit, as for timeout(1).
pub(super) const TIMEOUT_CODE: u8 = 124;

/// The time that the ranks of a program have to return after their calls fail.
const GRACE: Duration = Duration::from_secs(2);

fn seconds(text: &str) -> Option<Duration> {
    text.parse()
        .ok()
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .filter(|limit| !limit.is_zero())
}

/// Returns the time limit of the job; `None` for no limit.
pub fn timeout(config: &Config) -> Option<Duration> {
    seconds(config.text(&TIMEOUT))
}

#[derive(Debug)]
pub(super) struct Timer {
    stop: mpsc::Sender<()>,
    thread: JoinHandle<Option<String>>,
}

impl Timer {
    /// Starts the thread; returns `None` without a limit, or if the thread cannot be started.
    pub(super) fn start(config: &Config, watch: &Arc<Watch>, caller: Caller) -> Option<Self> {
        let (limit, watch) = (timeout(config)?, Arc::clone(watch));
        let (stop, stopped) = mpsc::channel();
        let body = move || match stopped.recv_timeout(limit) {
            Err(RecvTimeoutError::Timeout) => Some(on_timeout(limit, &watch, caller, &stopped)),
            _ => None,
        };
        let thread = std::thread::Builder::new().name("timeout".into()).spawn(body).ok()?;
        Some(Timer { stop, thread })
    }

    /// Stops the thread; returns what the ranks waited for if the job has timed out.
    pub(super) fn stop(self) -> Option<String> {
        drop(self.stop);
        self.thread.join().ok().flatten()
    }
}

fn on_timeout(limit: Duration, watch: &Watch, caller: Caller, stopped: &mpsc::Receiver<()>) -> String {
    let report =
        format!("timeout of {} s reached; the job was terminated:{}", limit.as_secs_f64(), watch.table());
    if caller == Caller::Program {
        print_last_error(report.clone());
    }
    watch.fail_all("timed out (MPJ_TIMEOUT)");
    if caller == Caller::Program && stopped.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
        watch.end_trace();
        exit_process();
    }
    report
}

/// Exits although a rank still runs. A rank that makes no call cannot be stopped in another way.
#[expect(
    clippy::disallowed_methods,
    reason = "only the program's entry calls it, and the user has set a limit"
)]
fn exit_process() -> ! {
    std::process::exit(TIMEOUT_CODE.into())
}
