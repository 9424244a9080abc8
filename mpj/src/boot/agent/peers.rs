//! The connections between the agents of a job: a star with the agent of the first host, the root, in the middle.
//!
//! An agent connects to one of the root's addresses. Both prove that they have the job's key, with the handshake of
//! `niodev`, which gets hosts in place of ranks.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpj_devices::config::Config;
use mpj_devices::handshake::Identity;
use mpj_devices::network::{connect_order, listen};
use mpj_devices::{HostId, JobKey};

use super::messages::FromRoot;
use crate::boot::backoff::Backoff;
use crate::boot::control_plane::ControlConnection;
use crate::boot::proven::{ConnectError, ProvenListener, connect_with_proof};

/// The label of the proofs. Those of other protocols with the same key are invalid here.
const PURPOSE: &[u8] = b"mpj agent";

/// How long an agent tries to reach the root, because a route can appear late. The root waits longer for the agent.
pub(in crate::boot) const ROOT_LIMIT: Duration = Duration::from_secs(60);

/// The connection of an agent to the root.
pub(in crate::boot) type Upstream = ControlConnection<FromRoot>;

fn identity(key: &JobKey, host: HostId, hosts: u32) -> Arc<Identity> {
    Arc::new(Identity { key: Arc::new(key.clone()), rank: host.0, size: hosts, purpose: PURPOSE })
}

/// Connects the agent of `host` to the root, which might be unreachable at first.
///
/// # Errors
/// No address leads to the root within `limit`, or another process is the agent of `host`. The text names the last
/// address and its error.
pub(in crate::boot) fn connect_to_root(
    key: &JobKey,
    mut addresses: Vec<SocketAddr>,
    host: HostId,
    hosts: u32,
    limit: Duration,
) -> Result<Upstream, String> {
    connect_order(&mut addresses);
    let id = identity(key, host, hosts);
    let deadline = Instant::now() + limit;
    let mut backoff = Backoff::new(host.0, deadline);
    let mut failure = "it has no address".to_owned();
    'attempts: loop {
        for at in &addresses {
            match connect_with_proof(*at, Arc::clone(&id), deadline) {
                Ok(stream) => return Ok(ControlConnection::new(stream)),
                Err(why) => {
                    failure = format!("{at}: {why}");
                    if matches!(why, ConnectError::Duplicate) {
                        break 'attempts;
                    }
                }
            }
        }
        if !backoff.sleep() {
            break;
        }
    }
    Err(format!(
        "cannot connect to the host of rank 0 at {failure}; MPJ_NIO_INTERFACES selects networks, MPJ_NIO_PORTS ports"
    ))
}

/// The sockets at which the root listens for the agents of the other hosts.
#[derive(Debug)]
pub(in crate::boot) struct RootListener {
    listener: ProvenListener,
    addresses: Vec<SocketAddr>,
}

impl RootListener {
    /// Listens for the agents of the other hosts.
    ///
    /// # Errors
    /// No address or port can be used.
    pub(in crate::boot) fn open(key: &JobKey, hosts: u32, config: &Config) -> Result<RootListener, String> {
        let (sockets, addresses) = listen(config, true)?.into_iter().unzip();
        let id = identity(key, HostId(0), hosts);
        Ok(RootListener { listener: ProvenListener::new(sockets, id, hosts), addresses })
    }

    /// Returns the addresses to publish.
    pub(in crate::boot) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Returns the sockets to poll.
    pub(super) fn to_poll(&self) -> impl Iterator<Item = &OwnedFd> {
        self.listener.to_poll()
    }

    /// Returns the time at which [`arrivals`](Self::arrivals) must be called even without input.
    pub(super) fn due(&self) -> Option<Instant> {
        self.listener.due()
    }

    /// Accepts connections, and returns those that have proved to be the agent of a host. `is_known` returns whether
    /// the agent of a host has connected before.
    pub(super) fn arrivals(&mut self, is_known: impl Fn(HostId) -> bool) -> Vec<(HostId, OwnedFd)> {
        let arrivals = self.listener.arrivals(|host| is_known(HostId(host)));
        arrivals.into_iter().map(|(host, socket)| (HostId(host), socket)).collect()
    }
}

#[cfg(test)]
mod tests;
