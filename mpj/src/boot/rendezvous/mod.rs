//! Start-up without a process manager: the variables of a process state its rank, the number of ranks, and the address
//! of rank 0, at which all ranks meet.
//!
//! | file | contents |
//! |---|---|
//! | `sources` | the variables of launchers and schedulers, one entry for each |
//! | `hostlist` | lists of hosts in the form of Slurm |
//! | `secret` | the secret, and the keys that are derived from it |
//! | `messages` | the protocol between rank 0 and the others |
//! | `gathering` | the ranks that have come, without I/O |
//! | `server`, `client` | the I/O of rank 0 and of the others |
//! | `manager` | the rendezvous as a `ProcessManager` of `managed` |

mod client;
#[doc(hidden)]
pub mod gathering;
#[doc(hidden)]
pub mod hostlist;
mod manager;
#[doc(hidden)]
pub mod messages;
mod secret;
mod server;
#[doc(hidden)]
pub mod sources;
#[cfg(test)]
mod tests;

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use mpj_devices::JobKey;

use super::detect::{Sign, Variables, variable};
use super::launched_boot::{JobEndFn, LaunchedBoot};
use super::managed;
use crate::config;
use crate::run::Caller;
use manager::RendezvousManager;
pub(super) use manager::exit_process;
use sources::{RENDEZVOUS, RendezvousAddress};

/// The variable of the time limit, for messages.
const TIMEOUT_NAME: &str = "MPJ_RENDEZVOUS_TIMEOUT";

/// The variable with the identity of this host.
const HOST: &str = "MPJ_HOST";

/// The label of the proofs. Those of other protocols with the same key are invalid here.
const PURPOSE: &[u8] = b"mpj rendezvous";

/// The runs of ranks on each host, and the nonce of the job.
type Placement = (Vec<(u32, u32)>, [u8; 32]);

/// The time limit of a process whose rank is reserved by another process of its host, which might belong to an earlier
/// job that is about to end.
const TAKEN_RANK_LIMIT: Duration = Duration::from_secs(5);

/// The part of one process in a rendezvous.
#[derive(Debug)]
pub(super) struct Rendezvous {
    rank: u32,
    size: u32,
    address: RendezvousAddress,
    key: Arc<JobKey>,
    /// The identity of the host: equal on processes that share abstract Unix sockets.
    host: String,
    timeout: Duration,
    caller: Caller,
}

/// Returns whether the variables describe a job, if the user has not requested this way of starting.
///
/// # Errors
/// A variable is missing or invalid.
pub(super) fn sign(get: Variables<'_>) -> Result<Sign, String> {
    let get = |name: &str| get(name).filter(|value| !value.is_empty());
    Ok(match sources::find(&get, false)? {
        None => Sign::Absent,
        Some(found) if found.address.is_none() => Sign::OneRank,
        Some(_) => Sign::Present,
    })
}

/// Joins the job that the variables of this process describe. Returns `None` if there are no such variables, and no
/// boots if the job has one rank. `is_requested` is whether the user has requested this way of starting. `on_job_end`
/// is called when the job has failed, or the agent of this host has ended too early.
///
/// # Errors
/// A variable is missing or invalid, the process has joined before, the ranks do not meet within the time limit, or
/// they do not form a job.
pub(super) fn join(is_requested: bool, on_job_end: JobEndFn) -> Result<Option<Vec<LaunchedBoot>>, String> {
    static TAKEN: AtomicBool = AtomicBool::new(false);
    let get = |name: &str| variable(name).filter(|value| !value.is_empty());
    let Some(found) = sources::find(&get, is_requested)? else { return Ok(None) };
    let Some(address) = found.address else { return Ok(Some(Vec::new())) };
    let config = config::from_env().map_err(|e| e.to_string())?;
    let secret = secret::from_env(&config)?;
    if TAKEN.swap(true, Ordering::Relaxed) {
        return Err("mpj was already initialized in this process".into());
    }
    let mut rendezvous = Rendezvous {
        rank: found.rank,
        size: found.size,
        address,
        key: Arc::new(secret::rendezvous_key(&secret, &found.job)),
        host: host_identity(),
        timeout: managed::start_limit(&config),
        caller: Caller::Program,
    };
    let rank = rendezvous.rank;
    if reserve_rank(&rendezvous) {
        return start(rendezvous, on_job_end).map(Some);
    }
    rendezvous.timeout = rendezvous.timeout.min(TAKEN_RANK_LIMIT);
    start(rendezvous, on_job_end).map(Some).map_err(|why| {
        format!(
            "{why}; another process of this host has rank {rank}: a program that a rank starts must not inherit \
             {RENDEZVOUS} and its rank (set MPJ_LAUNCHER=none)"
        )
    })
}

/// Reserves the rank of this process on this host until the process exits. Returns whether no other process has it.
fn reserve_rank(rendezvous: &Rendezvous) -> bool {
    static RESERVED: OnceLock<UnixListener> = OnceLock::new();
    let Rendezvous { rank, address, key, .. } = rendezvous;
    let user = rustix::process::getuid().as_raw();
    let job = JobKey::derive(&key.secret, &[b"mpj rank", address.to_string().as_bytes()]).job;
    let name = SocketAddr::from_abstract_name(format!("mpj-{user}-{job:016x}-rank-{rank}"));
    match name.and_then(|name| UnixListener::bind_addr(&name)) {
        Ok(reserved) => RESERVED.set(reserved).is_ok(),
        Err(error) => error.kind() != ErrorKind::AddrInUse,
    }
}

/// Joins a job for a caller that knows its rank. Returns `None` if the job has one rank.
///
/// # Errors
/// An argument or a parameter is invalid, the ranks do not meet within the time limit, or they do not form a job.
pub(super) fn connect(
    rank: u32,
    size: u32,
    address: &str,
    secret: &[u8],
) -> Result<Option<LaunchedBoot>, String> {
    if rank >= size {
        return Err(format!("rank {rank} is not one of {size} ranks"));
    }
    secret::check(secret)?;
    if size == 1 {
        return Ok(None);
    }
    let config = config::from_env().map_err(|e| e.to_string())?;
    let rendezvous = Rendezvous {
        rank,
        size,
        address: RendezvousAddress::parse(address)
            .map_err(|why| format!("the rendezvous '{}' {why}", address.escape_debug()))?,
        key: Arc::new(secret::rendezvous_key(secret, "")),
        host: host_identity(),
        timeout: managed::start_limit(&config),
        caller: Caller::Library,
    };
    start(rendezvous, |_| ()).map(|mut boots| boots.pop())
}

fn start(rendezvous: Rendezvous, on_job_end: JobEndFn) -> Result<Vec<LaunchedBoot>, String> {
    let size = rendezvous.size;
    if size > managed::MAX_RANKS {
        return Err(format!("{size} ranks were requested, but a job has at most {}", managed::MAX_RANKS));
    }
    let config = config::from_env().map_err(|e| e.to_string())?;
    let manager = RendezvousManager::new(rendezvous, &config)?;
    managed::join(Box::new(manager), on_job_end)
}

/// Returns the identity of this host. Processes with equal identities can reach each other by abstract Unix sockets,
/// which belong to a network namespace.
fn host_identity() -> String {
    if let Some(name) = variable(HOST) {
        return name;
    }
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let network = std::fs::read_link("/proc/self/ns/net").unwrap_or_default();
    format!("{} {} {}", boot.trim(), network.display(), host_name())
}

fn host_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Returns the name of this host and the process id, for messages.
fn own_place() -> String {
    format!("{}, pid {}", host_name(), std::process::id())
}

/// The hash of FNV-1a: the same in every build, because the programs of a job can differ.
pub(super) fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}
