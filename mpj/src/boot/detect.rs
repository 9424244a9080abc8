//! Who has started this process.
//!
//! Each launcher that can start ranks is an engine: a function that says whether it has started this process, and then
//! gives the faces of its ranks. They are asked in turn. Last come the launchers that nothing here speaks to: under one of
//! them every process would be a job of its own, and so the program refuses.

use std::sync::Arc;
use std::time::Duration;

use mpj_devices::config::{Choice, Config};
use rustix::process::Signal;

use super::{Boot, MpjrunBoot, foreign};

/// The ranks of this process, in order.
pub type LocalRanks = Vec<Arc<dyn Boot>>;

/// Returns the ranks that a launcher has given to this process, or nothing if it is none of this launcher's.
type DetectFn = fn() -> Result<Option<LocalRanks>, String>;

/// Who is asked, in this order.
const ENGINES: [DetectFn; 2] = [mpjrun, foreign::refuse];

/// Whether launchers are asked.
pub(crate) const LAUNCHER: Choice<bool> = Choice {
    name: "LAUNCHER",
    values: &[("auto", true), ("none", false)],
    help: "what starts the ranks: a launcher if there is one, or none, so that a process is a job of its own",
};

/// Finds out who has started this process: the faces of its ranks, or `None` if nobody has; once.
///
/// # Errors
/// The launcher is one that `mpj` does not speak, or could not be joined; the process has joined its job already.
pub fn detect() -> Result<Option<LocalRanks>, String> {
    if !Config::from_env(&[&LAUNCHER]).map_err(|e| e.to_string())?.choice(&LAUNCHER) {
        return Ok(None);
    }
    for engine in ENGINES {
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

/// How long a process whose launcher has gone may report its errors.
const ORPHANED: Duration = Duration::from_secs(2);

/// Ends a process that its launcher can no longer end. The kernel does so at once for those that the launcher started
/// itself; this is for those behind a shell or another wrapper.
fn orphaned() {
    std::thread::sleep(ORPHANED);
    // Nothing is left to tell anybody if even this fails.
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
}
