//! Start-up under a process manager that speaks PMI-1: Hydra (MPICH, Intel MPI), `srun --mpi=pmi2`, Flux.
//!
//! | file | contents |
//! |---|---|
//! | `message` | the lines of PMI-1, without I/O |
//! | `mapping` | the map of ranks to hosts |
//! | `client` | the connection of a process to its process manager |
//! | `session` | the part of a process in the job: it ends in order, or the process manager kills the job |

pub(super) mod client;
pub mod mapping;
pub mod message;
mod session;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use mpj_devices::{HostId, Hosts, JobKey, ShmDriver};
use rustix::rand::{GetRandomFlags, getrandom};

use super::agent::{self, AgentSetup, LocalListener, LocalNames, Peers, RootCard, RootListener};
use super::control_fd;
use super::control_plane::host_segment;
use super::launched_boot::LaunchedBoot;
use crate::config::{self, DEVICES};
use client::PmiClient;
pub(super) use session::{KILL_WAIT, OUTPUT_TIME, PmiSession};

/// The largest number of ranks, as for `mpjrun`.
const MAX_RANKS: u32 = 1 << 16;

/// The host of rank 0, whose agent is the root.
const FIRST_HOST: HostId = HostId(0);

/// The key of the root's card in the store of the process manager.
const ROOT_KEY: &str = "mpj-root";

/// Joins the job for which a process manager has started this process. Returns `None` if no process manager has started
/// it, or only this process. `on_launcher_exit` is called when the agent of this host has ended too early.
///
/// # Errors
/// The process manager or the agent of this host cannot be reached, or a variable or a reply is invalid.
pub(super) fn join(on_launcher_exit: fn()) -> Result<Option<Vec<LaunchedBoot>>, String> {
    from_env()?.map(|client| join_with(client, on_launcher_exit)).transpose()
}

fn join_with(mut client: PmiClient, on_launcher_exit: fn()) -> Result<Vec<LaunchedBoot>, String> {
    let rank = client.rank();
    let (names, setup) = match prepare(&mut client) {
        Ok(prepared) => prepared,
        Err(why) => return Err(session::end_job(client, why)),
    };
    let session = Arc::new(match setup {
        Some(setup) => PmiSession::agent(agent::start(setup, client)?),
        None => PmiSession::member(client),
    });
    let connect = |socket| LaunchedBoot::connect(socket, Some(Arc::clone(&session)), on_launcher_exit);
    agent::connect(&names, rank).and_then(connect).map_err(|why| session.fail(why))
}

/// Passes the barrier with all ranks, after which the agents have their addresses. Returns the names of the sockets of
/// this host and, for its first rank, the parts of the agent.
fn prepare(client: &mut PmiClient) -> Result<(LocalNames, Option<AgentSetup>), String> {
    let (rank, size) = (client.rank(), client.size());
    if size > MAX_RANKS {
        return Err(format!("the process manager started {size} ranks, but a job has at most {MAX_RANKS}"));
    }
    let runs = mapping::place(&client.mapping()?, size)?;
    let runs = runs.into_iter().map(|(host, ranks)| (HostId(host), ranks));
    let hosts = Hosts::from_runs(runs).map_err(|e| e.to_string())?;
    let host = hosts.host_of(rank).ok_or("the process manager's map has no host of this rank")?;
    let names = LocalNames::new(client.store(), host);
    if hosts.index_of(rank) == Some(0) {
        let setup = prepare_agent(client, hosts, host, names.clone())?;
        return Ok((names, Some(setup)));
    }
    client.barrier()?;
    Ok((names, None))
}

/// Connects to the process manager that the environment names.
fn from_env() -> Result<Option<PmiClient>, String> {
    let get = |name: &str| std::env::var(name).ok();
    let number = |name: &str| {
        let text = get(name).ok_or_else(|| format!("PMI_FD is set, but not {name}"))?;
        text.parse::<u32>().map_err(|_| format!("{name}={text} is not a number"))
    };
    if let Some(fd) = get("PMI_FD") {
        let (rank, size) = (number("PMI_RANK")?, number("PMI_SIZE")?);
        if size == 1 {
            return Ok(None);
        }
        return PmiClient::inherited(control_fd::pmi_socket(&fd)?, rank, size).map(Some);
    }
    let Some(port) = get("PMI_PORT") else { return Ok(None) };
    let id = get("PMI_ID").ok_or("PMI_PORT is set, but not PMI_ID")?;
    PmiClient::connect(&port, &id).map(Some)
}

fn prepare_agent(
    client: &mut PmiClient,
    hosts: Hosts,
    host: HostId,
    names: LocalNames,
) -> Result<AgentSetup, String> {
    let config = config::from_env().map_err(|e| e.to_string())?;
    let devices = config::devices(config.text(&DEVICES))?;
    let ranks = hosts.ranks_of(host).len();
    let shares = devices.as_ref().map_or(ranks > 1, |names| names.iter().any(|name| name == ShmDriver::NAME));
    let segment = shares.then(|| host_segment(ranks, &config, "", &mut 0)).transpose()?;
    let listener = LocalListener::bind(names)?;
    let (key, peers) = if host == FIRST_HOST {
        let key = random_key()?;
        let root =
            (hosts.count() > 1).then(|| RootListener::open(&key, hosts.count(), &config)).transpose()?;
        if let Some(root) = &root {
            client.put(ROOT_KEY, &root.card().to_text())?;
        }
        client.barrier()?;
        (key, Peers::Root(root))
    } else {
        client.barrier()?;
        let card = RootCard::parse(&client.get(ROOT_KEY)?)?;
        (card.key.clone(), Peers::Relay(agent::connect_to_root(card, host, hosts.count())?))
    };
    Ok(AgentSetup { hosts, host, key, devices, segment, listener, peers })
}

fn random_key() -> Result<JobKey, String> {
    let (mut job, mut secret) = ([0; 8], [0; 32]);
    for bytes in [&mut job[..], &mut secret[..]] {
        getrandom(bytes, GetRandomFlags::empty()).map_err(|e| format!("no random numbers: {e}"))?;
    }
    Ok(JobKey { job: u64::from_le_bytes(job), secret })
}
