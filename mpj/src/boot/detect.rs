//! Detection of the launcher that has started this process. Unsupported launchers are rejected, because under one of
//! them every process would be a job of its own.

use std::sync::Arc;
use std::time::Duration;

use mpj_devices::config::{Choice, Config};
use rustix::process::Signal;

use super::wire::CONTROL_VAR;
use super::{Boot, LaunchedBoot, pmi, pmix, unsupported};

/// The [`Boot`]s of the ranks of this process, in order of rank.
pub type LocalRanks = Vec<Arc<dyn Boot>>;

/// Returns the ranks of this process if one kind of launcher has started it, or `None`.
type DetectFn = fn() -> Result<Option<LocalRanks>, String>;

/// The first function that returns ranks or an error decides.
const DETECTORS: [DetectFn; 4] = [mpjrun, pmi1, pmix, unsupported::reject];

pub(crate) const LAUNCHER: Choice<Launcher> = Choice {
    name: "LAUNCHER",
    values: &[
        ("auto", Launcher::Auto),
        ("mpjrun", Launcher::Only(&[CONTROL_VAR], mpjrun)),
        ("pmi1", Launcher::Only(&["PMI_FD", "PMI_PORT"], pmi1)),
        ("pmix", Launcher::Only(&["PMIX_NAMESPACE"], pmix)),
        ("none", Launcher::None),
    ],
    help: "launcher that started this process: auto (found by its variables), mpjrun, pmi1 (Hydra, srun --mpi=pmi2), \
           pmix (Open MPI, srun --mpi=pmix), or none (this process is a job of its own)",
};

/// A value of [`LAUNCHER`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Launcher {
    Auto,
    /// The variables of this launcher, of which it sets one, and its function.
    Only(&'static [&'static str], DetectFn),
    None,
}

/// Returns the [`Boot`]s of the ranks that a launcher has assigned to this process. Returns `None` without a launcher,
/// or if `MPJ_LAUNCHER=none`. Under `mpjrun` only one call can succeed.
///
/// # Errors
/// A parameter is invalid, `mpj` does not support the launcher or could not join its job, or the process has joined its
/// job already.
pub fn detect() -> Result<Option<LocalRanks>, String> {
    let config = Config::from_env(&[&LAUNCHER]).map_err(|e| e.to_string())?;
    match config.choice(&LAUNCHER) {
        Launcher::Auto => {}
        Launcher::None => return Ok(None),
        Launcher::Only(variables, detect) => {
            let is_set = variables.iter().any(|name| std::env::var_os(name).is_some());
            let names = variables.join(" or ");
            return if is_set { detect() } else { Err(format!("MPJ_LAUNCHER: this launcher sets {names}")) };
        }
    }
    for detect in DETECTORS {
        if let Some(boots) = detect()? {
            return Ok(Some(boots));
        }
    }
    Ok(None)
}

fn erase(boots: Vec<LaunchedBoot>) -> LocalRanks {
    boots.into_iter().map(|boot| Arc::new(boot) as Arc<dyn Boot>).collect()
}

fn pmi1() -> Result<Option<LocalRanks>, String> {
    Ok(pmi::join(on_launcher_exit)?.map(erase))
}

fn pmix() -> Result<Option<LocalRanks>, String> {
    Ok(pmix::join(on_launcher_exit)?.map(erase))
}

fn mpjrun() -> Result<Option<LocalRanks>, String> {
    Ok(LaunchedBoot::join(on_launcher_exit)?.map(erase))
}

/// The time that a process has to report its errors after it has lost its launcher.
const ORPHAN_GRACE: Duration = Duration::from_secs(2);

/// Kills this process after it has lost its launcher. If the launcher dies, the kernel kills the processes that it
/// started directly, but not those that were started through a shell or another wrapper.
fn on_launcher_exit() {
    std::thread::sleep(ORPHAN_GRACE);
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
}
