//! Start-up under a PMIx server: `mpirun` of Open MPI, `prterun`, `srun --mpi=pmix`.
//!
//! A client of PMIx chooses the encoding and the store in the handshake. With the encoding `v21` and the store `hash`,
//! which servers since PMIx 2.1 support, numbers have a fixed length, and all data is in the messages.
//!
//! | file | contents |
//! |---|---|
//! | `buffer`, `packer` | the encoding, without I/O |
//! | `frames` | the frames around the messages, without I/O |
//! | `job_info` | the map of ranks to hosts |
//! | `get_reply` | the values of other ranks |
//! | `server` | the variables with the address of the server |
//! | `client` | the connection of a process to the server of its host |
//!
//! ```text
//!   rank                                       PMIx server of the host
//!   identity, encoding, store                ─►
//!                                            ◄─  status, number of the client
//!   job info                                 ─►
//!                                            ◄─  keys and values of the job and of each rank
//!   commit: key, value                       ─►
//!                                            ◄─  status
//!   fence: all ranks, with their values      ─►
//!                                            ◄─  status                      when all ranks have sent this
//!   get: rank, key                           ─►
//!                                            ◄─  status, value
//!   finalize                                 ─►
//!                                            ◄─  status
//!   abort: exit code                         ─►                              the ranks are killed
//! ```

pub mod buffer;
mod client;
pub mod frames;
pub mod get_reply;
pub mod job_info;
pub mod packer;
mod server;
#[cfg(test)]
mod tests;

use std::sync::atomic::{AtomicBool, Ordering};

use super::detect::{Sign, Variables, variable};
use super::launched_boot::{JobEndFn, LaunchedBoot};
use super::managed::{self, ProcessManager};
use client::{PmixClient, REPLY_LIMIT};
use server::ServerAddress;
pub use server::parse_address;

/// Returns whether the variables are those of a PMIx server. The number of ranks is known only after a connection.
///
/// # Errors
/// A variable is missing or invalid, or the server requires what this client does not have.
pub(super) fn sign(get: Variables<'_>) -> Result<Sign, String> {
    Ok(ServerAddress::from_variables(get)?.map_or(Sign::Absent, |_| Sign::Present))
}

/// Joins the job for which a PMIx server has started this process. Returns `None` if no server has started it, and no
/// boots if it has started only this process. `on_job_end` is called when the agent of this host has ended early.
///
/// # Errors
/// The server or the agent of this host cannot be reached, or a variable or a reply is invalid.
pub(super) fn join(on_job_end: JobEndFn) -> Result<Option<Vec<LaunchedBoot>>, String> {
    static JOINED: AtomicBool = AtomicBool::new(false);
    let Some(server) = ServerAddress::from_variables(variable)? else {
        return Ok(None);
    };
    if JOINED.swap(true, Ordering::Relaxed) {
        return Err("mpj was already initialized in this process".into());
    }
    let mut client = PmixClient::connect(&server, REPLY_LIMIT)?;
    if client.size() == 1 {
        // Without this, the server reports the exit of a connected process as a failure.
        client.finalize()?;
        return Ok(Some(Vec::new()));
    }
    managed::join(Box::new(client), on_job_end).map(Some)
}
