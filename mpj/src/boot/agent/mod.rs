//! One agent per host, on a thread of the host's first rank. `README.md` in this folder describes what it does.

mod event_loop;
pub mod fuzzing;
mod host_watch;
mod local;
mod messages;
mod peers;
mod reports;
mod root_card;
mod router;
mod routing;
#[cfg(test)]
mod simulation;
mod watching;

use std::fmt;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use mpj_devices::{HostId, Hosts, JobKey};

pub(super) use host_watch::WatchPort;
pub(super) use local::{LocalListener, LocalNames, RankSocket, check_user, process_descriptor};
pub(super) use peers::{ROOT_LIMIT, RootListener, Upstream, connect_to_root};
pub(super) use root_card::RootCard;

use super::managed::ProcessManager;

/// The parts of an agent that exist before it starts.
pub(super) struct AgentSetup {
    pub(super) hosts: Hosts,
    pub(super) host: HostId,
    pub(super) key: JobKey,
    /// The names of the devices to use; `None` for all available devices.
    pub(super) devices: Option<Vec<String>>,
    /// The memory that the ranks of this host share, if any.
    pub(super) segment: Option<std::os::fd::OwnedFd>,
    pub(super) listener: LocalListener,
    pub(super) peers: PeerSetup,
    /// The sockets to which the watches of other agents connect; `None` if there is one host.
    pub(super) watch_port: Option<WatchPort>,
    /// The user's limit for the start of the job. The agents must connect to the root within this time.
    pub(super) start_limit: Duration,
}

/// The connections of an agent to the other agents.
pub(super) enum PeerSetup {
    /// This is the agent of the first host, to which the others connect, if there are others.
    Root(Option<RootListener>),
    /// The connection to the agent of the first host.
    Relay(Upstream),
}

/// A running agent.
pub(super) struct AgentHandle {
    ended: Mutex<Receiver<()>>,
}

impl fmt::Debug for AgentHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AgentHandle")
    }
}

impl AgentHandle {
    /// Waits until the agent has ended: its processes have left (on the first host, all of the job), or the job failed.
    pub(super) fn wait(&self) {
        let ended = self.ended.lock().unwrap_or_else(PoisonError::into_inner);
        // The agent sends nothing: the receiver returns an error when the sender is dropped.
        let _ = ended.recv();
    }
}

/// Starts the agent of this host on a new thread. When all processes have left, it calls [`ProcessManager::finalize`].
///
/// # Errors
/// The thread cannot be started.
pub(super) fn start(setup: AgentSetup, manager: Box<dyn ProcessManager>) -> Result<AgentHandle, String> {
    let (sender, ended) = channel();
    let body = move || {
        let _running: Sender<()> = sender;
        event_loop::run(setup, manager);
    };
    let spawned = std::thread::Builder::new().name("agent".into()).spawn(body);
    spawned.map_err(|e| format!("cannot start the agent of this host: {e}"))?;
    Ok(AgentHandle { ended: Mutex::new(ended) })
}
