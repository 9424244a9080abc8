//! Whole jobs under process managers that serve requests.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Barrier, Mutex};

use super::{INIT, LONG};
use crate::boot::Boot;
use crate::boot::managed::test_jobs::{run_on_loopback, run_rank};
use crate::boot::managed::{self, ProcessManager};
use crate::boot::pmi::client::PmiClient;
use crate::boot::pmi::message::PmiReply;

/// A process manager, without its connections.
struct Manager {
    store: String,
    map: &'static str,
    barrier: Barrier,
    values: Mutex<HashMap<String, String>>,
}

impl Manager {
    fn new(test: &str, map: &'static str, size: u32) -> Arc<Manager> {
        let store = format!("store-{}-{test}", std::process::id());
        Arc::new(Manager { store, map, barrier: Barrier::new(size as usize), values: Mutex::default() })
    }

    /// Serves one rank; returns its requests.
    fn serve(&self, stream: UnixStream) -> Vec<String> {
        let mut requests = Vec::new();
        for line in BufReader::new(&stream).lines().map_while(Result::ok) {
            let request = PmiReply::parse(line.as_bytes()).unwrap();
            let field = |name: &str| request.get(name).unwrap().to_owned();
            let reply = match request.get("cmd") {
                Some("init") => INIT[0].1.trim_end(),
                Some("get_my_kvsname") => &format!("cmd=my_kvsname kvsname={}", self.store),
                Some("get") if field("key") == "PMI_process_mapping" => {
                    &format!("cmd=get_result rc=0 value={}", self.map)
                }
                Some("get") => {
                    &format!("cmd=get_result rc=0 value={}", self.values.lock().unwrap()[&field("key")])
                }
                Some("put") => {
                    self.values.lock().unwrap().insert(field("key"), field("value"));
                    "cmd=put_result rc=0"
                }
                Some("barrier_in") => {
                    self.barrier.wait();
                    "cmd=barrier_out"
                }
                Some("finalize") => "cmd=finalize_ack",
                Some("abort") => {
                    requests.push(line);
                    break;
                }
                _ => panic!("unexpected request: {line}"),
            };
            (&stream).write_all(format!("{reply}\n").as_bytes()).unwrap();
            requests.push(line);
        }
        requests
    }
}

/// Runs ranks that join, pass a fence, exchange values and leave. Returns the commands that each has requested.
fn commands_of_ranks(test: &str, map: &'static str, hosts: u32, size: u32) -> Vec<Vec<String>> {
    let manager = Manager::new(test, map, size);
    let rank = |rank: u32| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let manager = Arc::clone(&manager);
        let served = std::thread::spawn(move || manager.serve(ours));
        let run = move || run_rank(PmiClient::inherited(theirs, rank, size).unwrap(), hosts);
        (std::thread::spawn(run), served)
    };
    let command = |line: String| line.split(' ').next().unwrap().trim_start_matches("cmd=").to_owned();
    let ranks: Vec<_> = (0..size).map(rank).collect();
    let commands = ranks.into_iter().map(|(run, served)| {
        run.join().unwrap();
        served.join().unwrap().into_iter().map(command).collect()
    });
    commands.collect()
}

/// Each rank makes five requests, whatever the number of ranks.
#[test]
fn requests_do_not_depend_on_the_number_of_ranks() {
    for size in [2, 3, 17] {
        for commands in commands_of_ranks(&size.to_string(), "(vector,(0,1,1))", 1, size) {
            assert_eq!(commands, ["init", "get_my_kvsname", "get", "barrier_in", "finalize"]);
        }
    }
}

/// The first rank of a host makes one request more.
#[test]
fn requests_of_leaders_do_not_depend_on_the_number_of_ranks() {
    const NAME: &str = "boot::pmi::tests::jobs::requests_of_leaders_do_not_depend_on_the_number_of_ranks";
    if run_on_loopback(NAME) {
        return;
    }
    for size in [4, 16] {
        let commands = commands_of_ranks(&format!("hosts-{size}"), "(vector,(0,2,1))", 2, size);
        let (first, last) = (["init", "get_my_kvsname", "get"], ["barrier_in", "finalize"]);
        assert_eq!(commands[0], [&first[..], &["put"], &last].concat());
        assert_eq!(commands[1], [&first[..], &["barrier_in", "get", "finalize"]].concat());
        for commands in &commands[2..] {
            assert_eq!(*commands, [&first[..], &last].concat());
        }
    }
}

/// Slurm does not report the exit, and the agent never has a connection to the process whose end it could detect.
#[test]
fn rank_that_exits_between_barrier_and_agent_ends_the_job() {
    let manager = Manager::new("exits", "(vector,(0,1,1))", 2);
    let client = |rank| {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let manager = Arc::clone(&manager);
        let served = std::thread::spawn(move || manager.serve(ours));
        (PmiClient::inherited(theirs, rank, 2).unwrap(), served)
    };
    let (first, served) = client(0);
    let (mut second, _) = client(1);
    let exits = std::thread::spawn(move || second.fence(LONG));
    let boot = managed::join(Box::new(first), |_| ()).unwrap().remove(0);
    assert_eq!(exits.join().unwrap(), Ok(()));
    boot.fence().unwrap_err();
    let requests = served.join().unwrap();
    assert_eq!(requests.last().map(String::as_str), Some("cmd=abort exitcode=1"), "{requests:?}");
}
