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

/// Returns the value of an environment variable.
pub(super) type Variables<'a> = &'a dyn Fn(&str) -> Option<String>;

/// A kind of launcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LauncherKind {
    Mpjrun,
    Pmi1,
    Pmix,
    Env,
}

/// The order of detection.
const ORDER: [LauncherKind; 4] =
    [LauncherKind::Mpjrun, LauncherKind::Pmi1, LauncherKind::Pmix, LauncherKind::Env];

/// The evidence that the variables of a process give of one kind of launcher.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sign {
    Absent,
    /// It has started this process alone.
    OneRank,
    /// It has started this process. If the variables do not state the number of ranks, this process might be alone.
    Present,
}

pub(crate) const LAUNCHER: Choice<Launcher> = Choice {
    name: "LAUNCHER",
    values: &[
        ("auto", Launcher::Auto),
        ("mpjrun", Launcher::Only(&[CONTROL_VAR], LauncherKind::Mpjrun)),
        ("pmi1", Launcher::Only(&["PMI_FD", "PMI_PORT"], LauncherKind::Pmi1)),
        ("pmix", Launcher::Only(&["PMIX_NAMESPACE"], LauncherKind::Pmix)),
        ("env", Launcher::Only(&[], LauncherKind::Env)),
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
    /// The variables of which this launcher sets at least one (empty: any process is accepted), and its kind.
    Only(&'static [&'static str], LauncherKind),
    None,
}

/// Returns the value of a variable. Invalid UTF-8 is replaced, so that the error for an invalid value shows it.
pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name).map(|value| value.to_string_lossy().into_owned())
}

/// Returns the [`Boot`]s of the ranks that a launcher has assigned to this process. Returns `None` without a launcher,
/// or if `MPJ_LAUNCHER=none`. Only one call can succeed in a job of `mpjrun` or of several ranks.
///
/// # Errors
/// A parameter is invalid, `mpj` does not support the launcher or could not join its job, or the process has joined its
/// job already.
pub fn detect() -> Result<Option<LocalRanks>, String> {
    let config = Config::from_env(&[&LAUNCHER]).map_err(|e| e.to_string())?;
    let joined = match config.choice(&LAUNCHER) {
        Launcher::Auto => choose(&variable, |kind| join(kind, false))?,
        Launcher::None => return Ok(None),
        Launcher::Only(variables, kind) => {
            if !variables.is_empty() && variables.iter().all(|name| variable(name).is_none()) {
                return Err(format!("MPJ_LAUNCHER: this launcher sets {}", variables.join(" or ")));
            }
            return Ok(join(kind, true)?.map(erase));
        }
    };
    if joined.is_none() {
        unsupported::reject(&variable)?;
    }
    Ok(joined.map(erase))
}

/// Joins the job of the first launcher that is `mpjrun` or has started several ranks, and returns the ranks of this
/// process. Returns no ranks if a launcher has started this process alone, and `None` if none has started it.
///
/// A launcher that has started one rank decides only if the later ones have started none: in a step of one rank, a
/// shell can start another launcher, whose processes inherit the variables of the step.
///
/// # Errors
/// A variable is invalid, or a launcher that has started this process cannot be joined.
fn choose<T>(
    get: Variables<'_>,
    mut join: impl FnMut(LauncherKind) -> Result<Option<Vec<T>>, String>,
) -> Result<Option<Vec<T>>, String> {
    let mut is_alone = false;
    for kind in ORDER {
        let sign = match kind {
            LauncherKind::Mpjrun => get(CONTROL_VAR).map_or(Sign::Absent, |_| Sign::Present),
            LauncherKind::Pmi1 => pmi::sign(get)?,
            LauncherKind::Pmix => pmix::sign(get)?,
            LauncherKind::Env => rendezvous::sign(get)?,
        };
        let joined = if sign == Sign::Present { join(kind)? } else { None };
        match joined {
            Some(ranks) if !ranks.is_empty() => return Ok(Some(ranks)),
            Some(_) => is_alone = true,
            None => is_alone |= sign == Sign::OneRank,
        }
    }
    Ok(is_alone.then(Vec::new))
}

/// Joins the job of one kind of launcher. Returns no boots if it has started this process alone.
fn join(kind: LauncherKind, is_requested: bool) -> Result<Option<Vec<LaunchedBoot>>, String> {
    match kind {
        LauncherKind::Mpjrun => LaunchedBoot::join(on_job_end),
        LauncherKind::Pmi1 => pmi::join(on_job_end),
        LauncherKind::Pmix => pmix::join(on_job_end),
        LauncherKind::Env => rendezvous::join(is_requested, on_job_end),
    }
}

/// Returns the boots of a job. A job without boots has one rank, which needs no launcher any more.
fn erase(boots: Vec<LaunchedBoot>) -> LocalRanks {
    if boots.is_empty() {
        return ThreadBoot::ranks(1);
    }
    boots.into_iter().map(|boot| Arc::new(boot) as Arc<dyn Boot>).collect()
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

/// The time that a process has to report its errors after it has lost its launcher.
const ORPHAN_GRACE: Duration = Duration::from_secs(2);

/// Ends this process in a failed job, or kills it after it has lost its launcher. If the launcher dies, the kernel
/// kills the processes that it started directly, but not those that were started through a shell or another wrapper.
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

#[cfg(test)]
mod tests;
