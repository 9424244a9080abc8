//! The watches of an agent over other hosts, and what it does if one of them is cut off.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Instant;

use mpj_devices::HostId;

use super::event_loop::{Agent, Role, Stage};
use super::host_watch::{HostState, HostWatch};
use super::peers::ToRoot;
use crate::boot::control_plane::To;
use crate::boot::wire::{ToProcess, WireExit};

impl Agent {
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

    /// Checks the watched hosts. If one is cut off, its ranks are dead.
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
                Role::Relay(_) => self.lose_root(&why),
            }
        }
    }

    /// Ends the connection to the agent of a host, whose ranks are dead.
    fn lose_relay(&mut self, host: HostId, why: &str) {
        let Role::Root { relays, .. } = &mut self.role else { return };
        let Some(relay) = relays.iter_mut().find(|relay| relay.host == host && !relay.ended) else { return };
        relay.connection.close();
        relay.ended = true;
        for rank in self.hosts.ranks_of(host).iter() {
            self.on_closed(rank, format!("was lost: {why}"));
        }
    }

    /// Reports all ranks of other hosts dead to the processes of this host: without the root, the agents exchange no
    /// messages, and deaths have no order.
    fn lose_root(&mut self, why: &str) {
        if self.stage == Stage::Running {
            let is_elsewhere = |rank: &u32| self.ranks.index_of(*rank).is_none();
            let elsewhere: Vec<u32> = (0..self.hosts.size()).filter(is_elsewhere).collect();
            for rank in elsewhere {
                let exit = WireExit::Died(format!("was lost: {why}"));
                self.send_local(To::JoinedExcept(usize::MAX), &ToProcess::Exited { rank, exit });
            }
        }
        if matches!(self.stage, Stage::Running | Stage::Leaving) {
            self.fail(1, &format!("this host is cut off from rank 0: {why}"));
        }
    }
}
