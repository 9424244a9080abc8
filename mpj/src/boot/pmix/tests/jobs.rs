//! Whole jobs under PMIx servers that serve requests.

use std::io::Write;
use std::net::TcpStream;
use std::sync::{Arc, Barrier, OnceLock};

use super::super::client::PmixClient;
use super::super::frames::frame;
use super::super::packer::Packer;
use super::super::server::ServerAddress;
use super::job_info::job;
use super::{LONG, OK, accept, request, server};
use crate::boot::managed::test_jobs::{run_on_loopback, run_rank};

/// The commands of requests.
const JOB_INFO: u8 = 0;
const COMMIT: u8 = 2;
const FENCE: u8 = 3;
const GET: u8 = 4;
const FINALIZE: u8 = 5;

/// The bytes before the values in a commit: the command, the scope, and the length of the values.
const COMMIT_HEADER: usize = 25;

/// The state that the connections of a server share.
struct Served {
    job: Vec<u8>,
    barrier: Barrier,
    /// The values of rank 0.
    values: OnceLock<Vec<u8>>,
}

impl Served {
    /// Serves one rank; returns the commands of its requests.
    fn serve(&self, mut stream: TcpStream) -> Vec<u8> {
        accept(&mut stream);
        let mut commands = Vec::new();
        while let Some((tag, body)) = request(&mut stream) {
            let reply = match body[4] {
                JOB_INFO => self.job.clone(),
                GET => {
                    let owner = Packer::default().proc("ns@1", 0).finish();
                    let owner = [&owner[..], self.values.get().unwrap()].concat();
                    Packer::default().status(0).object(&owner).finish()
                }
                command => {
                    match command {
                        COMMIT => self.values.set(body[COMMIT_HEADER..].to_vec()).unwrap(),
                        FENCE => drop(self.barrier.wait()),
                        _ => {}
                    }
                    OK.to_vec()
                }
            };
            stream.write_all(&frame(7, tag, &reply)).unwrap();
            commands.push(body[4]);
        }
        commands
    }
}

/// Runs a job whose ranks are on these hosts. Returns the commands that each rank has requested.
fn commands_of_ranks(hosts: &[u32]) -> Vec<Vec<u8>> {
    let (barrier, values) = (Barrier::new(hosts.len()), OnceLock::new());
    let served = Arc::new(Served { job: job(hosts), barrier, values });
    let count = hosts.iter().max().unwrap() + 1;
    let uri = format!("srv.0;tcp4://{}-{count}-{}", hosts.len(), std::process::id());
    let rank = |rank: u32| {
        let served = Arc::clone(&served);
        let (commands, requested) = std::sync::mpsc::channel();
        let (at, _) = server(move |stream| commands.send(served.serve(stream)).unwrap());
        let at = ServerAddress { uri: uri.clone(), rank, ..at };
        let run = std::thread::spawn(move || run_rank(PmixClient::connect(&at, LONG).unwrap(), count));
        (run, requested)
    };
    let ranks: Vec<_> = (0..hosts.len() as u32).map(rank).collect();
    let commands = ranks.into_iter().map(|(run, requested)| {
        run.join().unwrap();
        requested.recv().unwrap()
    });
    commands.collect()
}

/// Each rank makes three requests, whatever the number of ranks.
#[test]
fn requests_do_not_depend_on_the_number_of_ranks() {
    for size in [2, 3, 17] {
        for commands in commands_of_ranks(&vec![0; size]) {
            assert_eq!(commands, [JOB_INFO, FENCE, FINALIZE]);
        }
    }
}

/// The first rank of a host makes one request more.
#[test]
fn requests_of_leaders_do_not_depend_on_the_number_of_ranks() {
    const NAME: &str = "boot::pmix::tests::jobs::requests_of_leaders_do_not_depend_on_the_number_of_ranks";
    if run_on_loopback(NAME) {
        return;
    }
    for size in [4, 16] {
        let hosts: Vec<u32> = (0..size).map(|rank| rank % 2).collect();
        let commands = commands_of_ranks(&hosts);
        assert_eq!(commands[0], [JOB_INFO, COMMIT, FENCE, FINALIZE]);
        assert_eq!(commands[1], [JOB_INFO, FENCE, GET, FINALIZE]);
        for commands in &commands[2..] {
            assert_eq!(*commands, [JOB_INFO, FENCE, FINALIZE]);
        }
    }
}
