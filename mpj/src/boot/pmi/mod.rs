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
use super::detect::{Sign, Variables, variable};
use super::launched_boot::{JobEndFn, LaunchedBoot};
use super::managed::{self, ProcessManager};
use client::PmiClient;

/// Returns what the variables say about a process manager, without connecting to it.
///
/// # Errors
/// A variable is missing or invalid.
pub(super) fn sign(get: Variables<'_>) -> Result<Sign, String> {
    Ok(match named(get)? {
        None => Sign::Absent,
        Some(Named::Socket { size: 1, .. }) => Sign::OneRank,
        Some(_) => Sign::Present,
    })
}

/// Joins the job for which a process manager has started this process. Returns `None` if no process manager has started
/// it, and no boots if it has started this process alone. `on_job_end` is called when the agent of this host has ended
/// early.
///
/// # Errors
/// The process manager or the agent of this host cannot be reached, or a variable or a reply is invalid.
pub(super) fn join(on_job_end: JobEndFn) -> Result<Option<Vec<LaunchedBoot>>, String> {
    let client = match named(&variable)? {
        None => return Ok(None),
        Some(Named::Socket { size: 1, .. }) => return Ok(Some(Vec::new())),
        Some(Named::Socket { fd, rank, size }) => {
            PmiClient::inherited(control_fd::pmi_socket(&fd)?, rank, size)?
        }
        Some(Named::Port { address, id }) => {
            let mut client = PmiClient::connect(&address, &id)?;
            if client.size() == 1 {
                // Without this, the process manager reports the exit of a connected process as a failure.
                client.finalize()?;
                return Ok(Some(Vec::new()));
            }
            client
        }
    };
    managed::join(Box::new(client), on_job_end).map(Some)
}

/// The process manager that the environment names.
enum Named {
    Socket { fd: String, rank: u32, size: u32 },
    Port { address: String, id: String },
}

fn named(get: Variables<'_>) -> Result<Option<Named>, String> {
    let number = |name: &str| {
        let text = get(name).ok_or_else(|| format!("PMI_FD is set, but not {name}"))?;
        text.parse::<u32>().map_err(|_| format!("{name}={text} is not a number"))
    };
    if let Some(fd) = get("PMI_FD") {
        return Ok(Some(Named::Socket { fd, rank: number("PMI_RANK")?, size: number("PMI_SIZE")? }));
    }
    let Some(address) = get("PMI_PORT") else { return Ok(None) };
    let id = get("PMI_ID").ok_or("PMI_PORT is set, but not PMI_ID")?;
    Ok(Some(Named::Port { address, id }))
}
