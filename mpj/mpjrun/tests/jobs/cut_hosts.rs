//! Hosts without a launcher that lose their network, or that are stopped. Each host is a network namespace.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use mpj::{Error, Op, World};

use super::Test;
use super::mismatch::time_factor;
use super::networks::over_ipv6;
use super::process_managers::run_on_hosts;

pub(crate) const TESTS: &[Test] = &[
    ("cut_host_is_an_error_on_all_hosts", cut_host_is_an_error_on_all_hosts),
    ("cut_host_is_an_error_over_ipv6", cut_host_is_an_error_over_ipv6),
    ("cut_between_two_other_hosts_is_an_error", cut_between_two_other_hosts_is_an_error),
    ("stopped_host_is_not_cut", stopped_host_is_not_cut),
];

/// The time in ms that the ranks have to notice a cut. Probes take up to 4 s, and attempts to connect 2.5 s.
const LIMIT: u64 = 8000;

/// A script that starts two ranks on each of three hosts, and waits until each rank has a file in `$MET`.
const START: &str = "export MET=$(mktemp -d) MPJ_SIZE=6 MPJ_SECRET=0123456789abcdef; \
    export MPJ_RENDEZVOUS=${MPJ_RENDEZVOUS:-10.78.0.10:7000}; for rank in {0..5}; do MPJ_RANK=$rank $NETNS_EXEC h$((rank / 2)) exec \"$@\" & done; \
    for i in {1..600}; do [ $(ls $MET | wc -l) = 6 ] && break; sleep 0.1; done; ";

/// Ranks on a host without a network cannot print: all ranks append to their files.
const END: &str = "for i in {1..300}; do [ $(cat $MET/* | wc -l) = 6 ] && break; sleep 0.1; done; \
    for rank in {0..5}; do while read at text; do echo rank $rank $((at - cut)) $text; done <$MET/$rank; done; \
    for host in h0 h1 h2; do ip netns pids $NETNS_PREFIX-$host | xargs -r kill -KILL; done; rm -r $MET";

/// Repeats an allreduce until the directory `$MET` contains a file `end`. After its first allreduce, each rank creates
/// a file there, named by its number. If an allreduce fails, the rank writes the time and the error to that file.
pub(crate) fn meet_until_cut(world: &World) -> Result<(), Error> {
    let end = PathBuf::from(std::env::var_os("MET").unwrap()).join("end");
    let mut has_met = false;
    loop {
        let ends = u8::from(world.rank() == 0 && end.exists());
        let mut any = [0u8];
        match world.allreduce(&[ends], &mut any, Op::Max) {
            Ok(()) if any == [1] => return Ok(()),
            Ok(()) => {
                if !has_met {
                    write_file(world, String::new());
                    has_met = true;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            Err(error) => return Err(write_error(world, error)),
        }
    }
}

/// Each rank receives a message from a rank of the next host, and then waits for a second one, which is never sent.
pub(crate) fn wait_until_cut(world: &World) -> Result<(), Error> {
    let (me, size) = (world.rank(), world.size());
    let (from, to) = ((me + 2) % size, (me + size - 2) % size);
    let mut got = [0u8];
    world.sendrecv(&[1u8], to, 0, &mut got, from, 0)?;
    world.barrier()?;
    write_file(world, String::new());
    world.recv(&mut got, from, 1).map(drop).map_err(|error| write_error(world, error))
}

fn write_file(world: &World, text: String) {
    let directory = PathBuf::from(std::env::var_os("MET").unwrap());
    std::fs::write(directory.join(world.rank().to_string()), text).unwrap();
}

fn write_error(world: &World, error: Error) -> Error {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
    write_file(world, format!("{now} {error}\n"));
    error
}

/// Runs a role, started by the script `start`, until a command cuts hosts off. Asserts that each rank gets an error in
/// time, and that the error contains one text of each list that `wanted` returns for the rank.
fn assert_errors(start: &str, role: &str, cut: &str, wanted: impl Fn(usize) -> [&'static [&'static str]; 2]) {
    let Some(ended) = run_on_hosts(&format!("{start}{cut}; cut=$(date +%s%3N); {END}"), role) else { return };
    let said: Vec<&String> = ended.out.iter().filter(|line| line.starts_with("rank ")).collect();
    assert_eq!(said.len(), 6, "{ended:#?}");
    for line in said {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let (rank, time, error) = (words[1].parse().unwrap(), words[2].parse::<u64>().unwrap(), words[3]);
        for texts in wanted(rank) {
            assert!(texts.iter().any(|text| error.contains(text)), "{texts:?} for rank {rank}: {ended:#?}");
        }
        assert!(time < LIMIT * u64::from(time_factor()), "{ended:#?}");
    }
}

const CUT_HOST_1: &str = "ip link set $NETNS_PREFIX-v1 down";

fn cut_host_is_an_error_on_all_hosts() {
    assert_errors(START, "cut", CUT_HOST_1, |rank| match rank {
        2 | 3 => [&["rank 0", "rank 1", "rank 4", "rank 5"], &["its host 10.78.0.10 does not answer"]],
        _ => [&["rank 2", "rank 3"], &["its host 10.78.0.11 does not answer"]],
    });
}

fn cut_host_is_an_error_over_ipv6() {
    let Some(start) = over_ipv6(START) else { return };
    assert_errors(&start, "cut", CUT_HOST_1, |rank| match rank {
        2 | 3 => [&["rank 0", "rank 1", "rank 4", "rank 5"], &["its host fd78::10 does not answer"]],
        _ => [&["rank 2", "rank 3"], &["its host fd78::11 does not answer"]],
    });
}

/// The agents of both hosts have connections only to the root. Each of the two hosts sends frames for the other one to
/// a MAC address that does not exist.
fn cut_between_two_other_hosts_is_an_error() {
    let lose = |host: u32, peer: u32| {
        format!(
            "ip -n $NETNS_PREFIX-h{host} neigh replace 10.78.0.1{peer} lladdr 02:00:00:00:00:99 dev eth0 nud permanent"
        )
    };
    assert_errors(START, "wait-until-cut", &format!("{}; {}", lose(1, 2), lose(2, 1)), |_| {
        [
            &["rank 2", "rank 3", "rank 4", "rank 5"],
            &[
                "its host 10.78.0.12 does not answer to the host of rank 2",
                "its host 10.78.0.11 does not answer to the host of rank 4",
            ],
        ]
    });
}

/// Processes continue after they were stopped for longer than the library takes to detect a cut.
fn stopped_host_is_not_cut() {
    let script = format!(
        "{START}pids=$(ip netns pids $NETNS_PREFIX-h1); kill -STOP $pids; sleep 10; kill -CONT $pids; sleep 1; \
         cat $MET/* | wc -l; touch $MET/end; code=0; for job in $(jobs -p); do wait $job || code=$?; done; \
         rm -r $MET; exit $code"
    );
    let Some(ended) = run_on_hosts(&script, "cut") else { return };
    assert_eq!((ended.code, &ended.out[..]), (Some(0), &["0".to_owned()][..]), "{ended:#?}");
}
