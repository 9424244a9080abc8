//! The watches of an agent over other hosts, and what it does if one of them is cut off or its agent never connects.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use mpj_devices::HostId;

use super::event_loop::{Agent, Role, Stage};
use super::host_watch::{HostState, HostWatch};
use super::messages::{FromRoot, ToRoot};

/// The maximum number of hosts, other than that of the root, that one agent watches. Otherwise, the number of watches
/// in an all-to-all would grow with the square of the number of hosts.
const MAX_PEER_WATCHES: usize = 64;

/// The pairs of other hosts whose ranks communicate, as the root knows them. In a pair, the host whose rank has
/// requested the card of a rank of the other host watches that host: it can be cut off from this host, but not from
/// the root.
#[derive(Default)]
pub(super) struct PeerWatches {
    /// The addresses for watches.
    announced: BTreeMap<HostId, SocketAddr>,
    /// Each pair: the host that watches, and the other one.
    pairs: BTreeSet<(HostId, HostId)>,
    /// Messages for the agents of hosts that watch.
    unsent: Vec<(HostId, FromRoot)>,
}

impl PeerWatches {
    /// Records the address for watches of a host.
    pub(super) fn announced(&mut self, host: HostId, at: SocketAddr) {
        self.announced.insert(host, at);
        let watching = self.pairs.iter().filter(|(_, peer)| *peer == host);
        self.unsent.extend(watching.map(|(from, _)| (*from, FromRoot::WatchPeer { host: host.0, at })));
    }

    /// Records that a rank of a host begins to communicate with one of another host.
    pub(super) fn communicates(&mut self, host: HostId, peer: Option<HostId>) {
        let Some(peer) = peer.filter(|peer| *peer != host && *peer != HostId(0)) else { return };
        let watched = self.pairs.range((host, HostId(0))..=(host, HostId(u32::MAX))).count();
        if watched < MAX_PEER_WATCHES
            && self.pairs.insert((host, peer))
            && let Some(at) = self.announced.get(&peer)
        {
            self.unsent.push((host, FromRoot::WatchPeer { host: peer.0, at: *at }));
        }
    }

    /// Returns the messages to send, and the hosts whose agents get them.
    pub(super) fn take(&mut self) -> Vec<(HostId, FromRoot)> {
        std::mem::take(&mut self.unsent)
    }
}

impl Agent {
    /// Reports the ranks of a host dead if its agent has not connected to the root in time.
    pub(super) fn check_relays(&mut self, now: Instant) {
        let Role::Root { relays, relays_due, .. } = &mut self.role else { return };
        if relays_due.is_none_or(|due| now < due) {
            return;
        }
        *relays_due = None;
        let own = self.hosts.host_of(0);
        let is_missing = |host: &HostId| Some(*host) != own && !relays.contains_key(host);
        let hosts = self.hosts.runs().map(|(host, _)| host);
        let missing: BTreeSet<HostId> = hosts.filter(is_missing).collect();
        let seconds = self.connect_limit.as_secs();
        for host in missing {
            self.on_host_lost(
                host,
                &format!("the agent of its host has not connected to rank 0 within {seconds} s"),
            );
        }
    }

    /// Returns the address at which the agent at the other end of a connection can watch this host.
    pub(super) fn watch_address(&self, connection: BorrowedFd<'_>) -> Option<SocketAddr> {
        self.watch_port.as_ref()?.address_for(connection)
    }

    /// Sends the root the address at which it can watch this host.
    pub(super) fn announce_watch_port(&mut self) {
        let Role::Relay(upstream) = &self.role else { return };
        let at = self.watch_address(upstream.as_fd());
        if let (Some(at), Role::Relay(upstream)) = (at, &mut self.role) {
            upstream.send(&ToRoot::Watch { at }, None);
        }
    }

    /// Begins to watch a host.
    pub(super) fn watch(&mut self, host: HostId, at: SocketAddr) {
        if self.watches.iter().all(|(watched, _)| *watched != host) {
            self.watches.push((host, HostWatch::new(at)));
        }
    }

    /// Checks the watched hosts. If a host is cut off, the root reports its ranks dead. An agent that is cut off from
    /// the root fails the job on its own host.
    pub(super) fn check_hosts(&mut self) {
        if let Some(port) = &mut self.watch_port {
            port.accept();
        }
        let now = Instant::now();
        let mut cut = Vec::new();
        self.watches.retain_mut(|(host, watch)| match watch.check(now) {
            HostState::Reachable => true,
            HostState::Unknown => false,
            HostState::Cut => {
                cut.push((*host, format!("its host {} does not answer", watch.ip())));
                false
            }
        });
        for (host, why) in cut {
            match &mut self.role {
                Role::Root { .. } => self.lose_relay(host, &why),
                Role::Relay(_) if host == HostId(0) => self.lose_root(&why),
                Role::Relay(upstream) => {
                    let first = self.ranks.iter().next().unwrap_or(0);
                    let cause = format!("{why} to the host of rank {first}");
                    upstream.send(&ToRoot::PeerCut { host: host.0, cause }, None);
                }
            }
        }
    }

    /// Ends the connection to the agent of a host that is cut off, and reports the ranks of that host dead.
    fn lose_relay(&mut self, host: HostId, why: &str) {
        let Role::Root { relays, .. } = &mut self.role else { return };
        let Some(relay) = relays.get_mut(&host).filter(|relay| !relay.ended) else { return };
        relay.connection.close();
        relay.ended = true;
        self.on_host_lost(host, why);
    }

    /// Fails the job on this host, because without the root the agents exchange no messages. If the job still runs,
    /// first reports all ranks of other hosts dead to the processes of this host.
    fn lose_root(&mut self, why: &str) {
        if self.stage == Stage::Running {
            let outbound = self.router.on_root_lost(why);
            self.send(outbound);
        }
        if matches!(self.stage, Stage::Running | Stage::Leaving) {
            self.fail(1, &format!("this host is cut off from rank 0: {why}"));
        }
    }
}

#[cfg(test)]
mod tests;
