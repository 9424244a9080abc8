//! `MPJ_TIMEOUT` without a launcher: a thread that fails the ranks of this process after the time limit.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::watch::Watch;
use super::{Caller, print_last_error};
use crate::boot::control_plane::{TIMED_OUT, TIMEOUT_CODE};
use crate::config::{Config, Text};

/// The time limit of a job.
pub const TIMEOUT: Text = Text {
    name: "TIMEOUT",
    default: "",
    form: "a number of seconds above 0",
    accepts: |text| text.is_empty() || seconds(text).is_some(),
    help: "seconds after which the job is terminated, with a table of what each rank waits for; empty: no limit",
};

/// The time that the ranks of a program have to return after their calls fail.
const GRACE: Duration = Duration::from_secs(2);

/// The time after which the agent of a host has killed the processes of a failed job.
const KILL_LIMIT: Duration = Duration::from_secs(10);

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
    let waits = watch.job_table();
    let is_printed_here = waits.is_some() && caller == Caller::Program;
    let waits = waits.unwrap_or_else(|| " rank 0 prints what the ranks wait for".to_owned());
    let report = format!("timeout of {} s reached; the job was terminated:{waits}", limit.as_secs_f64());
    if is_printed_here {
        print_last_error(report.clone());
    }
    watch.fail_all(TIMED_OUT);
    if caller == Caller::Program && stopped.recv_timeout(GRACE) == Err(RecvTimeoutError::Timeout) {
        watch.end_trace();
        exit_process();
    }
    report
}

/// Calls `leave`. Exits the process if `leave` has not returned by the deadline, but lets it run for some seconds at
/// least: in a failed job, it needs time to kill processes that do not end.
pub(super) fn leave_before(deadline: Option<Instant>, has_failed: bool, leave: impl FnOnce()) {
    let Some(deadline) = deadline else { return leave() };
    let (stop, stopped) = mpsc::channel::<()>();
    let at_least = if has_failed { KILL_LIMIT } else { GRACE };
    let limit = deadline.saturating_duration_since(Instant::now()).max(at_least);
    let body = move || {
        if stopped.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
            let why =
                "the ranks of this process have returned, and wait for other processes of the job to end";
            print_last_error(format!("timeout reached (MPJ_TIMEOUT); the process was terminated: {why}"));
            exit_process();
        }
    };
    let thread = std::thread::Builder::new().name("timeout".into()).spawn(body);
    leave();
    drop(stop);
    let _ = thread.map(JoinHandle::join);
}

/// Exits although a rank or the job still runs. A rank that makes no call cannot be stopped in another way.
#[expect(
    clippy::disallowed_methods,
    reason = "only the program's entry calls it, and the user has set a limit"
)]
fn exit_process() -> ! {
    std::process::exit(TIMEOUT_CODE.into())
}
