//! Detection of the launcher that has started this process: [`DETECTORS`] has a function for `mpjrun`, and one that
//! rejects unsupported launchers, because under one of them every process would be a job of its own.

use std::sync::Arc;
use std::time::Duration;

use mpj_devices::config::{Choice, Config};
use rustix::process::Signal;

use super::{Boot, MpjrunBoot, unsupported};

/// The [`Boot`]s of the ranks of this process, in order of rank.
pub type LocalRanks = Vec<Arc<dyn Boot>>;

/// Returns the ranks that a launcher has assigned to this process, or `None` if this launcher did not start it.
type DetectFn = fn() -> Result<Option<LocalRanks>, String>;

/// The first function that returns ranks or an error decides.
const DETECTORS: [DetectFn; 2] = [mpjrun, unsupported::reject];

pub(crate) const LAUNCHER: Choice<bool> = Choice {
    name: "LAUNCHER",
    values: &[("auto", true), ("none", false)],
    help: "auto: use the launcher that started this process; none: run this process as a job of one rank",
};

/// Detects the launcher of this process. Returns the [`Boot`]s of its ranks, or `None` without a launcher. Under a
/// launcher it can succeed only once.
///
/// # Errors
/// `mpj` does not support the launcher, or could not join its job; or the process has joined its job already.
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

/// The time that a process has to report its errors after its launcher has died.
const ORPHAN_GRACE: Duration = Duration::from_secs(2);

/// Kills this process after its launcher has died. The kernel kills the processes that the launcher started directly,
/// so this function is for processes that were started through a shell or another wrapper.
fn on_launcher_exit() {
    std::thread::sleep(ORPHAN_GRACE);
    // The launcher has died, so an error cannot be reported.
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
}
