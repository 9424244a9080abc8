//! Detection of the launcher that has started this process. Unsupported launchers are rejected, because under one of
//! them every process would be a job of its own.

use std::sync::Arc;
use std::time::Duration;

use mpj_devices::config::{Choice, Config};
use rustix::process::Signal;

use super::wire::CONTROL_VAR;
use super::{Boot, LaunchedBoot, ThreadBoot, pmi, pmix, rendezvous, unsupported};
use crate::run::print_last_error;

/// The [`Boot`]s of the ranks of this process, in order of rank.
pub type LocalRanks = Vec<Arc<dyn Boot>>;

/// Returns the ranks of this process if one kind of launcher has started it, or `None`.
type DetectFn = fn() -> Result<Option<LocalRanks>, String>;

/// The first function that returns ranks or an error decides.
const DETECTORS: [DetectFn; 5] = [mpjrun, pmi1, pmix, || env(false), unsupported::reject];

pub(crate) const LAUNCHER: Choice<Launcher> = Choice {
    name: "LAUNCHER",
    values: &[
        ("auto", Launcher::Auto),
        ("mpjrun", Launcher::Only(&[CONTROL_VAR], mpjrun)),
        ("pmi1", Launcher::Only(&["PMI_FD", "PMI_PORT"], pmi1)),
        ("pmix", Launcher::Only(&["PMIX_NAMESPACE"], pmix)),
        ("env", Launcher::Only(&[], || env(true))),
        ("none", Launcher::None),
    ],
    help: "launcher that started this process: auto (found by its variables), mpjrun, pmi1 (Hydra, srun --mpi=pmi2), \
           pmix (Open MPI, srun --mpi=pmix), env (no launcher: variables state its rank and where rank 0 listens), \
           or none (this process is a job of its own)",
};

/// A value of [`LAUNCHER`].
#[derive(Clone, Copy, Debug)]
pub(crate) enum Launcher {
    Auto,
    /// The variables of which this launcher sets at least one (empty: any process is accepted), and its function.
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
            let is_set = |name: &&str| std::env::var_os(name).is_some();
            let is_set = variables.is_empty() || variables.iter().any(is_set);
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

/// Returns the boots of a job. A job without boots has one rank, which needs no launcher any more.
fn erase(boots: Vec<LaunchedBoot>) -> LocalRanks {
    if boots.is_empty() {
        return ThreadBoot::ranks(1);
    }
    boots.into_iter().map(|boot| Arc::new(boot) as Arc<dyn Boot>).collect()
}

fn pmi1() -> Result<Option<LocalRanks>, String> {
    Ok(pmi::join(on_job_end)?.map(erase))
}

fn env(is_requested: bool) -> Result<Option<LocalRanks>, String> {
    Ok(rendezvous::join(is_requested, on_job_end)?.map(erase))
}

/// Joins a job for a caller that knows its rank.
///
/// # Errors
/// An argument is invalid, the ranks do not meet within the time limit, or they do not form a job.
pub(crate) fn connect(rank: u32, size: u32, address: &str, secret: &[u8]) -> Result<Arc<dyn Boot>, String> {
    match rendezvous::connect(rank, size, address, secret)? {
        None => Ok(Arc::new(ThreadBoot::singleton())),
        Some(boot) => Ok(Arc::new(boot)),
    }
}

fn pmix() -> Result<Option<LocalRanks>, String> {
    Ok(pmix::join(on_job_end)?.map(erase))
}

fn mpjrun() -> Result<Option<LocalRanks>, String> {
    Ok(LaunchedBoot::join(on_job_end)?.map(erase))
}

/// The time that a process has to report its errors after it has lost its launcher.
const ORPHAN_GRACE: Duration = Duration::from_secs(2);

/// Ends this process in a failed job, or kills it after it has lost its launcher. If the launcher dies, the kernel kills
/// the processes that it started directly, but not those that were started through a shell or another wrapper.
fn on_job_end(code: Option<u8>) {
    if let Some(code) = code {
        rendezvous::exit_process(code);
    }
    std::thread::sleep(ORPHAN_GRACE);
    print_last_error(
        "the launcher, or the first rank of this host, has exited: this process is killed".into(),
    );
    let _ = rustix::process::kill_process(rustix::process::getpid(), Signal::KILL);
}
