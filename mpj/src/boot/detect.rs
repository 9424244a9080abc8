//! Detection of the launcher that has started this process. Unsupported launchers are rejected, because under one of
//! them every process would be a job of its own.

use std::sync::Arc;
use std::time::Duration;

use mpj_devices::config::{Choice, Config};
use rustix::process::Signal;

use super::{Boot, MpjrunBoot, unsupported};

/// The [`Boot`]s of the ranks of this process, in order of rank.
pub type LocalRanks = Vec<Arc<dyn Boot>>;

/// Returns the ranks of this process if one kind of launcher has started it, or `None`.
type DetectFn = fn() -> Result<Option<LocalRanks>, String>;

/// The first function that returns ranks or an error decides.
const DETECTORS: [DetectFn; 2] = [mpjrun, unsupported::reject];

pub(crate) const LAUNCHER: Choice<bool> = Choice {
    name: "LAUNCHER",
    values: &[("auto", true), ("none", false)],
    help: "auto: use the launcher that started this process; none: run this process as a job of its own",
};

/// Returns the [`Boot`]s of the ranks that a launcher has assigned to this process. Returns `None` without a launcher,
/// or if `MPJ_LAUNCHER=none`. Under `mpjrun` only one call can succeed.
///
/// # Errors
/// A parameter is invalid, `mpj` does not support the launcher or could not join its job, or the process has joined its
/// job already.
pub fn detect() -> Result<Option<LocalRanks>, String> {
    if !Config::from_env(&[&LAUNCHER]).map_err(|e| e.to_string())?.choice(&LAUNCHER) {
        return Ok(None);
    }
    for detect in DETECTORS {
        if let Some(boots) = detect()? {
            return Ok(Some(boots));
        }
    }
    Ok(None)
}

fn mpjrun() -> Result<Option<LocalRanks>, String> {
    let erase = |boot| Arc::new(boot) as Arc<dyn Boot>;
    Ok(MpjrunBoot::join(on_launcher_exit)?.map(|boots| boots.into_iter().map(erase).collect()))
}

/// The time that a process has to report its errors after it has lost its launcher.
const ORPHAN_GRACE: Duration = Duration::from_secs(2);

/// Kills this process after it has lost its launcher. If the launcher dies, the kernel kills the processes that it
/// started directly, but not those that were started through a shell or another wrapper.
fn on_launcher_exit() {
    std::thread::sleep(ORPHAN_GRACE);
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
}
