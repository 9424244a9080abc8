//! Start-up under a process manager or at a rendezvous. The processes join through a [`ProcessManager`], and an agent
//! on each host (`agent`) then does what `mpjrun` does for processes that it has started.
//!
//! | file | contents |
//! |---|---|
//! | `mod` | the interface to process managers, and the steps to join a job |
//! | `session` | the part of a process in the job: it ends in order, or the process manager kills the job |

mod session;
#[cfg(test)]
pub(super) mod test_jobs;

use std::fmt;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpj_devices::{HostId, HostRanks, Hosts, JobKey, ShmDriver};

use super::agent::{
    self, AgentSetup, LocalListener, LocalNames, PeerSetup, ROOT_LIMIT, RankSocket, RootCard, RootListener,
    WatchPort,
};
use super::control_plane::host_segment;
use super::launched_boot::{JobEndFn, LaunchedBoot};
use super::proven::random_bytes;
use super::rendezvous::gathering::list_ranks;
use crate::config::{self, Config, DEVICES, Number};
use crate::run::Caller;
pub(super) use session::{KILL_WAIT, ManagedSession, OUTPUT_TIME};

/// The largest number of ranks, as for `mpjrun`.
pub(super) const MAX_RANKS: u32 = 1 << 16;

/// The host of rank 0, whose agent is the root.
const FIRST_HOST: HostId = HostId(0);

pub(crate) const RENDEZVOUS_TIMEOUT: Number = Number {
    name: "RENDEZVOUS_TIMEOUT",
    default: 600,
    range: (1, 1_000_000),
    help: "seconds that ranks that were not started by mpjrun wait for each other at the start",
};

/// Explains why a fence takes too long.
pub(super) const RANK_MISSING: &str = "a rank has not called mpj::run or mpj::init in this time, because it exited or \
                                       waits for something else; MPJ_RENDEZVOUS_TIMEOUT is the limit";

/// The key of the root's card in the store of the process manager.
const ROOT_KEY: &str = "mpj-root";

/// The connection of one process to the service that has started the processes of its job.
///
/// Only this module and the agent of a host call these functions. Every process calls [`hosts`](Self::hosts) and then
/// [`fence`](Self::fence) once. Rank 0 may put a value before the fence, and the first rank of another host may get it
/// after the fence.
pub(super) trait ProcessManager: Send + fmt::Debug {
    fn rank(&self) -> u32;

    fn size(&self) -> u32;

    /// Returns the name of the job. No other job on these hosts has it at the same time.
    fn job(&self) -> &str;

    /// Returns the map of ranks to hosts, which is the same in all processes.
    ///
    /// # Errors
    /// The process manager provides no valid map, or fails.
    fn hosts(&mut self) -> Result<Hosts, String>;

    /// Publishes a value of rank 0, a word of ASCII characters. Other ranks can read it after the fence.
    ///
    /// # Errors
    /// The value is too long, or the process manager fails.
    fn put(&mut self, key: &str, value: &str) -> Result<(), String>;

    /// Waits until all ranks have called this, but not longer than `limit`: not every process manager ends a job after
    /// a process has exited.
    ///
    /// # Errors
    /// The time has passed, or the process manager fails or has exited.
    fn fence(&mut self, limit: Duration) -> Result<(), String>;

    /// Returns a value that rank 0 has put before the fence.
    ///
    /// # Errors
    /// Rank 0 has not put it, or the process manager fails.
    fn get(&mut self, key: &str) -> Result<String, String>;

    /// Leaves the job: after that, the process may exit.
    ///
    /// # Errors
    /// The process manager fails or has exited.
    fn finalize(&mut self) -> Result<(), String>;

    /// Requests the end of all processes of the job, with the exit code `code`.
    ///
    /// # Errors
    /// The process manager has exited.
    fn abort(&mut self, code: u8) -> Result<(), String>;

    /// Returns the sockets that become readable without a request, for example when the process manager exits.
    fn sockets(&self) -> Vec<BorrowedFd<'_>>;

    /// Reads the [`sockets`](Self::sockets), without blocking. Returns the ranks that have died, with the causes.
    ///
    /// # Errors
    /// The process manager has exited, or has ended its connection.
    fn poll(&mut self) -> Result<Vec<(u32, String)>, String>;

    /// Returns the key of the job, after [`hosts`](Self::hosts), if every process can derive it. Otherwise, rank 0
    /// chooses a key and puts it.
    fn shared_key(&self) -> Option<JobKey> {
        None
    }

    /// Called when this process has connected to the agent of its host, or runs it. From then on, the agents detect its
    /// end.
    fn joined(&mut self) {}

    /// Called when this process cannot join the job, unless it runs an agent, or the process manager
    /// [kills](Self::kills_processes) the job.
    fn failed(&mut self, why: &str) {
        let _ = why;
    }

    /// Returns whether [`abort`](Self::abort) kills the processes of all hosts. If not, the agents end the processes of
    /// their hosts, and `abort` ends this one.
    fn kills_processes(&self) -> bool {
        true
    }

    /// Returns the kind of call that has joined. For a library, nothing is printed, and no process is ended.
    fn caller(&self) -> Caller {
        Caller::Program
    }
}

/// Joins the job of a process manager. `on_job_end` is called when the job has failed, or the agent of this host has
/// ended too early.
///
/// # Errors
/// The process manager or the agent of this host cannot be reached, or a reply is invalid.
pub(super) fn join(
    mut manager: Box<dyn ProcessManager>,
    on_job_end: JobEndFn,
) -> Result<Vec<LaunchedBoot>, String> {
    let (socket, setup) = match prepare(&mut *manager) {
        Ok(prepared) => prepared,
        Err(why) => return Err(session::end_job(manager, why)),
    };
    let session = Arc::new(match setup {
        Some(setup) => {
            let has_own_exit_code = !manager.kills_processes();
            ManagedSession::agent(agent::start(setup, manager)?, has_own_exit_code)
        }
        None => ManagedSession::member(manager),
    });
    let connect = |socket| LaunchedBoot::connect(socket, Some(Arc::clone(&session)), on_job_end);
    let boots = socket.connect().and_then(connect).map_err(|why| session.fail(why))?;
    session.joined();
    Ok(boots)
}

/// Passes the fence with all ranks. Returns the socket of this rank and, for the first rank of a host, the parts of its
/// agent, which is connected to the root.
fn prepare(manager: &mut dyn ProcessManager) -> Result<(RankSocket, Option<AgentSetup>), String> {
    let (rank, size) = (manager.rank(), manager.size());
    if size > MAX_RANKS {
        return Err(format!("the process manager started {size} ranks, but a job has at most {MAX_RANKS}"));
    }
    let config = config::from_env().map_err(|e| e.to_string())?;
    let hosts = manager.hosts()?;
    let host = hosts.host_of(rank).ok_or("the process manager's map has no host of this rank")?;
    let names = LocalNames::new(manager.job(), host);
    // After the fence, the agent can tell a process that has exited from one that has not connected yet.
    let socket = RankSocket::bind(&names, rank)?;
    if hosts.index_of(rank) == Some(0) {
        let setup = prepare_agent(manager, hosts, host, names, &config)?;
        return Ok((socket, Some(setup)));
    }
    fence(manager, &names, &hosts.ranks_of(host), &config)?;
    Ok((socket, None))
}

/// Waits for all ranks. If the time has passed, the error also lists the missing ranks of this host: a process manager
/// does not state which ranks are missing.
fn fence(
    manager: &mut dyn ProcessManager,
    names: &LocalNames,
    ranks: &HostRanks,
    config: &Config,
) -> Result<(), String> {
    let (begun, limit) = (Instant::now(), start_limit(config));
    manager.fence(limit).map_err(|why| {
        if begun.elapsed() < limit || !manager.kills_processes() {
            return why;
        }
        let missing: Vec<u32> = ranks.iter().filter(|rank| names.is_free(*rank)).collect();
        let missing = if missing.is_empty() { "none".into() } else { list_ranks(missing.into_iter()) };
        format!("{why}; missing on this host: {missing}")
    })
}

fn prepare_agent(
    manager: &mut dyn ProcessManager,
    hosts: Hosts,
    host: HostId,
    names: LocalNames,
    config: &Config,
) -> Result<AgentSetup, String> {
    let devices = config::devices(config.text(&DEVICES))?;
    let ranks = hosts.ranks_of(host);
    let shares =
        devices.as_ref().map_or(ranks.len() > 1, |names| names.iter().any(|name| name == ShmDriver::NAME));
    let segment = shares.then(|| host_segment(ranks.len(), config, "", &mut 0)).transpose()?;
    let listener = LocalListener::bind(names.clone())?;
    let (key, peers) = if host == FIRST_HOST {
        let shared = manager.shared_key();
        let key = shared.clone().map_or_else(random_key, Ok)?;
        let root =
            (hosts.count() > 1).then(|| RootListener::open(&key, hosts.count(), config)).transpose()?;
        if let Some(root) = &root {
            let key = shared.is_none().then(|| key.clone());
            manager.put(ROOT_KEY, &RootCard { key, addresses: root.addresses().to_vec() }.to_text())?;
        }
        fence(manager, &names, &ranks, config)?;
        (key, PeerSetup::Root(root))
    } else {
        fence(manager, &names, &ranks, config)?;
        let card = RootCard::parse(&manager.get(ROOT_KEY)?)?;
        let key = manager.shared_key().or(card.key).ok_or("the first rank has put no key of the job")?;
        let upstream = agent::connect_to_root(&key, card.addresses, host, hosts.count(), ROOT_LIMIT)?;
        (key, PeerSetup::Relay(upstream))
    };
    let watch_port = (hosts.count() > 1).then(|| WatchPort::open(hosts.count(), config)).transpose()?;
    let start_limit = start_limit(config);
    Ok(AgentSetup { hosts, host, key, devices, segment, listener, peers, watch_port, start_limit })
}

/// Returns how long the ranks wait for each other.
pub(super) fn start_limit(config: &Config) -> Duration {
    Duration::from_secs(config.number(&RENDEZVOUS_TIMEOUT))
}

fn random_key() -> Result<JobKey, String> {
    Ok(JobKey { job: u64::from_le_bytes(random_bytes()?), secret: random_bytes()? })
}
