//! Detection of the launcher that has started this process.
//!
//! For each launcher there is a function that returns the [`Boot`]s of this process's ranks if that launcher has
//! started the process. The functions are called in turn. The last one rejects unsupported launchers: under one of them
//! every process would be a job of its own.

use std::sync::Arc;
use std::time::Duration;

use mpj_devices::config::{Choice, Config};
use rustix::process::Signal;

use super::{Boot, MpjrunBoot, unsupported};

/// The [`Boot`]s of the ranks of this process, in order of rank.
pub type LocalRanks = Vec<Arc<dyn Boot>>;

/// Returns the ranks that a launcher has assigned to this process, or `None` if this launcher did not start it.
type DetectFn = fn() -> Result<Option<LocalRanks>, String>;

/// The detection functions, in the order in which they are called.
const DETECTORS: [DetectFn; 2] = [mpjrun, unsupported::refuse];

/// Whether launchers are detected.
pub(crate) const LAUNCHER: Choice<bool> = Choice {
    name: "LAUNCHER",
    values: &[("auto", true), ("none", false)],
    help: "what starts the ranks: a launcher if there is one, or none, so that a process is a job of its own",
};

/// Detects the launcher of this process. Returns the [`Boot`]s of its ranks, or `None` without a launcher. It can
/// succeed only once.
///
/// # Errors
/// `mpj` does not support the launcher, or could not join its job; or the process has joined its job already.
pub fn detect() -> Result<Option<LocalRanks>, String> {
    if !Config::from_env(&[&LAUNCHER]).map_err(|e| e.to_string())?.choice(&LAUNCHER) {
        return Ok(None);
    }
    for engine in DETECTORS {
        if let Some(faces) = engine()? {
            return Ok(Some(faces));
        }
    }
    Ok(None)
}

fn mpjrun() -> Result<Option<LocalRanks>, String> {
    let face = |control| Arc::new(control) as Arc<dyn Boot>;
    Ok(MpjrunBoot::join(orphaned)?.map(|faces| faces.into_iter().map(face).collect()))
}

/// How long a process whose launcher is gone may take to report its errors.
const ORPHANED: Duration = Duration::from_secs(2);

/// Kills this process after its launcher has died. The kernel kills the processes that the launcher started directly;
/// this is for those behind a shell or another wrapper.
fn orphaned() {
    std::thread::sleep(ORPHANED);
    // If even this fails, the error cannot be reported.
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
}
