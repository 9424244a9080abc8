//! Start-up under a process manager that speaks PMI-1: Hydra (MPICH, Intel MPI), `srun --mpi=pmi2`, Flux.
//!
//! | file | contents |
//! |---|---|
//! | `message` | the lines of PMI-1, without I/O |
//! | `mapping` | the map of ranks to hosts |
//! | `client` | the connection of a process to its process manager |

mod client;
pub mod mapping;
pub mod message;
#[cfg(test)]
mod tests;

use super::control_fd;
use super::launched_boot::{JobEndFn, LaunchedBoot};
use super::managed;
use client::PmiClient;

/// Joins the job for which a process manager has started this process. Returns `None` if no process manager has started
/// it, and no boots if `PMI_FD` is set and `PMI_SIZE` is 1. `on_job_end` is called when the agent of this host has ended
/// early.
///
/// # Errors
/// The process manager or the agent of this host cannot be reached, or a variable or a reply is invalid.
pub(super) fn join(on_job_end: JobEndFn) -> Result<Option<Vec<LaunchedBoot>>, String> {
    match from_env()? {
        Found::Nothing => Ok(None),
        Found::OnlyRank => Ok(Some(Vec::new())),
        Found::Manager(client) => managed::join(Box::new(client), on_job_end).map(Some),
    }
}

/// The process manager that the environment names.
enum Found {
    Nothing,
    OnlyRank,
    Manager(PmiClient),
}

/// Connects to the process manager that the environment names.
fn from_env() -> Result<Found, String> {
    let get = |name: &str| std::env::var(name).ok();
    let number = |name: &str| {
        let text = get(name).ok_or_else(|| format!("PMI_FD is set, but not {name}"))?;
        text.parse::<u32>().map_err(|_| format!("{name}={text} is not a number"))
    };
    if let Some(fd) = get("PMI_FD") {
        let (rank, size) = (number("PMI_RANK")?, number("PMI_SIZE")?);
        if size == 1 {
            return Ok(Found::OnlyRank);
        }
        return PmiClient::inherited(control_fd::pmi_socket(&fd)?, rank, size).map(Found::Manager);
    }
    let Some(port) = get("PMI_PORT") else { return Ok(Found::Nothing) };
    let id = get("PMI_ID").ok_or("PMI_PORT is set, but not PMI_ID")?;
    PmiClient::connect(&port, &id).map(Found::Manager)
}
