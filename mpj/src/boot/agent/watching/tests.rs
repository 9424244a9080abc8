//! Tests of the watches between hosts, and of a root to which no other agent connects.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use mpj_devices::config::{Config, NIO_INTERFACES};
use mpj_devices::{Hosts, JobKey};

use super::*;
use crate::boot::agent::{AgentSetup, LocalListener, LocalNames, PeerSetup, RootListener};
use crate::boot::control_plane::{GRACE, JobEnd};
use crate::boot::managed::ProcessManager;

/// A process manager that does not report the exits of processes.
#[derive(Debug)]
struct Silent;

impl ProcessManager for Silent {
    fn rank(&self) -> u32 {
        0
    }

    fn size(&self) -> u32 {
        2
    }

    fn job(&self) -> &str {
        ""
    }

    fn hosts(&mut self) -> Result<Hosts, String> {
        Err("not called".into())
    }

    fn put(&mut self, _: &str, _: &str) -> Result<(), String> {
        Ok(())
    }

    fn fence(&mut self, _: Duration) -> Result<(), String> {
        Ok(())
    }

    fn get(&mut self, _: &str) -> Result<String, String> {
        Err("not called".into())
    }

    fn finalize(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn abort(&mut self, _: u8) -> Result<(), String> {
        Ok(())
    }

    fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn poll(&mut self) -> Result<Vec<(u32, String)>, String> {
        Ok(Vec::new())
    }
}

#[test]
fn hosts_whose_ranks_communicate_watch_each_other() {
    let at = |host: u32| SocketAddr::from(([10, 0, 0, host as u8], 5));
    let message = |from: u32, host: u32| (HostId(from), FromRoot::WatchPeer { host, at: at(host) });
    let mut watches = PeerWatches::default();
    watches.announced(HostId(1), at(1));
    // Every host watches the root anyway, and no host watches itself or an unknown host.
    for peer in [Some(HostId(0)), Some(HostId(2)), None] {
        watches.communicates(HostId(2), peer);
    }
    assert_eq!(watches.take(), []);
    // Host 1 gets the address of host 2 when host 2 has announced it.
    watches.communicates(HostId(2), Some(HostId(1)));
    watches.communicates(HostId(1), Some(HostId(2)));
    assert_eq!(watches.take(), [message(2, 1)]);
    watches.announced(HostId(2), at(2));
    assert_eq!(watches.take(), [message(1, 2)]);
    watches.communicates(HostId(2), Some(HostId(1)));
    assert_eq!(watches.take(), []);
    for host in 3..200 {
        watches.announced(HostId(host), at(host));
        watches.communicates(HostId(1), Some(HostId(host)));
    }
    assert_eq!(watches.take().len(), MAX_PEER_WATCHES - 1, "host 1 watches host 2 already");
}

/// The user's limit for the start of the job.
const LIMIT: Duration = Duration::from_secs(5);

#[test]
fn agent_that_never_connects_fails_the_job() {
    let hosts = Hosts::from_runs([(HostId(0), 1), (HostId(1), 1)]).unwrap();
    let key = JobKey { job: 7, secret: [7; 32] };
    let mut config = Config::default();
    config.set_text(&NIO_INTERFACES, "lo").unwrap();
    let names = LocalNames::new(&format!("watching-{}", std::process::id()), HostId(0));
    let setup = AgentSetup {
        peers: PeerSetup::Root(Some(RootListener::open(&key, 2, &config).unwrap())),
        listener: LocalListener::bind(names).unwrap(),
        watch_port: None,
        start_limit: LIMIT,
        segment: None,
        devices: None,
        host: HostId(0),
        hosts,
        key,
    };
    let begun = Instant::now();
    let mut agent = Agent::new(setup, Box::new(Silent));
    let end = |agent: &Agent| agent.router.end(Instant::now() + LIMIT + GRACE);
    agent.check_relays(begun);
    assert_eq!(end(&agent), None);
    agent.check_relays(Instant::now() + LIMIT);
    let Some(JobEnd::Failed { code: 1, line }) = end(&agent) else { panic!("the job has not failed") };
    assert_eq!(line, "rank 1 was lost: the agent of its host has not connected to rank 0 within 5 s");
}
