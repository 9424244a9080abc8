//! The rendezvous as a process manager, which kills no processes: in a failed job, the agents end those of their hosts.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use mpj_devices::config::Config;
use mpj_devices::{HostId, Hosts, JobKey};

use super::client::RendezvousClient;
use super::server::RendezvousServer;
use super::{Rendezvous, secret};
use crate::boot::managed::ProcessManager;
use crate::run::Caller;

#[derive(Debug)]
pub(super) struct RendezvousManager {
    rendezvous: Rendezvous,
    part: Part,
    /// The name and the key of the job, once all ranks have joined.
    job: String,
    key: Option<JobKey>,
}

#[derive(Debug)]
enum Part {
    Server(Box<RendezvousServer>),
    Client(RendezvousClient),
}

impl RendezvousManager {
    /// Listens as rank 0, or connects to it.
    ///
    /// # Errors
    /// The port is in use, or rank 0 cannot be reached within the time limit.
    pub(super) fn new(rendezvous: Rendezvous, config: &Config) -> Result<RendezvousManager, String> {
        let part = match rendezvous.rank {
            0 => Part::Server(Box::new(RendezvousServer::listen(&rendezvous, config)?)),
            _ => Part::Client(RendezvousClient::connect(&rendezvous)?),
        };
        Ok(RendezvousManager { rendezvous, part, job: String::new(), key: None })
    }
}

impl ProcessManager for RendezvousManager {
    fn rank(&self) -> u32 {
        self.rendezvous.rank
    }

    fn size(&self) -> u32 {
        self.rendezvous.size
    }

    fn job(&self) -> &str {
        &self.job
    }

    fn hosts(&mut self) -> Result<Hosts, String> {
        let (runs, nonce) = match &mut self.part {
            Part::Server(server) => server.place()?,
            Part::Client(client) => client.place()?,
        };
        let hosts = Hosts::from_runs(runs.into_iter().map(|(host, ranks)| (HostId(host), ranks)));
        let hosts = hosts.map_err(|e| format!("rank 0 sent an invalid map of ranks to hosts: {e}"))?;
        if hosts.size() != self.rendezvous.size {
            return Err(format!("rank 0 sent a map of {} ranks to hosts", hosts.size()));
        }
        let key = secret::job_key(&self.rendezvous.key, &nonce);
        self.job = format!("rendezvous {:016x}", key.job);
        self.key = Some(key);
        Ok(hosts)
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), String> {
        match &mut self.part {
            Part::Server(server) => server.put(key, value),
            Part::Client(_) => return Err("only rank 0 puts values at a rendezvous".into()),
        }
        Ok(())
    }

    // The rendezvous has its own time limit.
    fn fence(&mut self, _: Duration) -> Result<(), String> {
        match &mut self.part {
            Part::Server(server) => server.fence(),
            Part::Client(client) => client.fence(),
        }
    }

    fn get(&mut self, key: &str) -> Result<String, String> {
        match &mut self.part {
            Part::Server(_) => Err("rank 0 gets no values at a rendezvous".into()),
            Part::Client(client) => client.get(key),
        }
    }

    fn finalize(&mut self) -> Result<(), String> {
        Ok(())
    }

    fn abort(&mut self, code: u8) -> Result<(), String> {
        match self.rendezvous.caller {
            Caller::Program => exit_process(code),
            Caller::Library => Ok(()),
        }
    }

    fn sockets(&self) -> Vec<BorrowedFd<'_>> {
        match &self.part {
            Part::Server(server) => server.sockets(),
            Part::Client(_) => Vec::new(),
        }
    }

    fn poll(&mut self) -> Result<Vec<(u32, String)>, String> {
        match &mut self.part {
            Part::Server(server) => Ok(server.poll()),
            Part::Client(_) => Ok(Vec::new()),
        }
    }

    fn shared_key(&self) -> Option<JobKey> {
        self.key.clone()
    }

    fn joined(&mut self) {
        match &mut self.part {
            Part::Server(_) => {}
            Part::Client(client) => client.joined(),
        }
    }

    fn failed(&mut self, why: &str) {
        match &mut self.part {
            Part::Server(server) => server.refuse(why),
            Part::Client(client) => client.failed(why),
        }
    }

    fn kills_processes(&self) -> bool {
        false
    }

    fn caller(&self) -> Caller {
        self.rendezvous.caller
    }
}

/// Exits although a rank still runs. A rank that makes no call cannot be stopped in another way.
#[expect(
    clippy::disallowed_methods,
    reason = "the job of this program has failed, and it had time to return"
)]
pub(in crate::boot) fn exit_process(code: u8) -> ! {
    std::process::exit(code.into())
}
