//! An agent of a simulated job.

use mpj_devices::{HostId, Hosts};

use super::packet::{Load, Packet};
use crate::boot::agent::router::Router;

pub(super) struct SimulatedAgent {
    pub(super) router: Router,
    pub(super) inbox: Vec<Packet>,
    pub(super) busy_until: u64,
    /// The time of the next turn.
    pub(super) turn_at: Option<u64>,
    /// The agent was lost with its host, or has ended.
    pub(super) is_gone: bool,
    pub(super) load: Load,
}

impl SimulatedAgent {
    pub(super) fn new(hosts: &Hosts, host: HostId) -> SimulatedAgent {
        let router = match host {
            HostId(0) => Router::root(hosts.clone()),
            _ => Router::relay(hosts.clone(), host),
        };
        SimulatedAgent {
            router,
            inbox: Vec::new(),
            busy_until: 0,
            turn_at: None,
            is_gone: false,
            load: Load::default(),
        }
    }
}
