//! Jobs that Hydra starts (`mpiexec` of MPICH and Intel MPI). The tests do nothing if it is not installed.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::Test;
use super::boot_cases::CASES;
use super::job::{Ended, Job, kill, pid, wait_for_exit, watch};
use super::message_programs::PROGRAMS;
use super::program::say;

pub(crate) const TESTS: &[Test] = &[
    ("boot_suite_passes_under_hydra", boot_suite_passes_under_hydra),
    ("message_programs_run_under_hydra", message_programs_run_under_hydra),
    ("ranks_of_a_hydra_host_share_memory", ranks_of_a_hydra_host_share_memory),
    ("boot_suite_passes_on_hydra_hosts", boot_suite_passes_on_hydra_hosts),
    ("message_programs_run_on_hydra_hosts", message_programs_run_on_hydra_hosts),
    ("hydra_hosts_use_the_network_between_them", hydra_hosts_use_the_network_between_them),
    ("hydra_hosts_with_networks_of_their_own", hydra_hosts_with_networks_of_their_own),
    ("cut_host_is_an_error_on_all_hosts", cut_host_is_an_error_on_all_hosts),
    ("stopped_host_is_not_cut", stopped_host_is_not_cut),
    ("failure_gives_the_exit_code_of_mpiexec", failure_gives_the_exit_code_of_mpiexec),
    ("killed_processes_end_the_hydra_job", killed_processes_end_the_hydra_job),
    ("pmi_port_is_used_without_a_descriptor", pmi_port_is_used_without_a_descriptor),
    ("stale_pmi_variables_are_errors", stale_pmi_variables_are_errors),
];

const MPIEXEC: &str = "mpiexec.hydra";

/// Returns whether Hydra is missing, and prints that.
fn skipped() -> bool {
    let version = Command::new(MPIEXEC).arg("--version").stdout(Stdio::null()).status();
    let is_missing = !version.is_ok_and(|status| status.success());
    if is_missing {
        say("SKIPPED no mpiexec.hydra (Debian: apt-get install mpich)");
    }
    is_missing
}

fn start(args: &str, role: &str) -> Job {
    let mut command = Command::new(MPIEXEC);
    command.args(args.split_whitespace()).arg(std::env::current_exe().unwrap()).args(["rank", role]);
    command.env_remove("RUST_BACKTRACE").stdin(Stdio::null());
    watch(&mut command).0
}

fn run(args: &str, role: &str) -> Ended {
    start(args, role).end()
}

/// Two hosts whose processes all run on this machine, so that they reach each other by the loopback.
const TWO_HOSTS: &str = "-launcher fork -hosts a,b -ppn 2 -genv MPJ_NIO_INTERFACES lo";

fn boot_suite_passes_under_hydra() {
    boot_suite_passes("", &[2, 4]);
}

fn boot_suite_passes_on_hydra_hosts() {
    boot_suite_passes(TWO_HOSTS, &[4]);
}

fn boot_suite_passes(args: &str, sizes: &[u32]) {
    if skipped() {
        return;
    }
    for &ranks in sizes {
        for case in CASES.iter().filter(|case| case.min_ranks <= ranks) {
            let ended = run(&format!("{args} -n {ranks}"), &format!("boot:{}", case.name));
            let done = ended.out.iter().filter(|line| line.starts_with("done")).count();
            assert_eq!(done, ranks as usize, "{} on {ranks} ranks: {ended:#?}", case.name);
            let is_expected = match case.name {
                "abort_is_a_death_with_its_code_and_reason" => ended.code == Some(42),
                name => ended.code == Some(0) || name.contains("died") || name.contains("losses"),
            };
            assert!(is_expected, "{} on {ranks} ranks: {ended:#?}", case.name);
        }
    }
}

fn message_programs_run_under_hydra() {
    message_programs_run("");
}

fn message_programs_run_on_hydra_hosts() {
    message_programs_run(TWO_HOSTS);
}

fn message_programs_run(args: &str) {
    if skipped() {
        return;
    }
    for (name, _) in PROGRAMS {
        let ended = run(&format!("{args} -n 5"), &format!("messages:{name}"));
        let done = ended.out.iter().filter(|line| line.ends_with("is done")).count();
        assert_eq!((ended.code, done), (Some(0), 5), "{name}: {ended:#?}");
    }
}

fn ranks_of_a_hydra_host_share_memory() {
    if skipped() {
        return;
    }
    assert_pairs(&run("-n 3", "pairs"), "aaa", "shmdev");
    assert_pairs(&run("-n 3 -env MPJ_DEVICES niodev", "pairs"), "aaa", "niodev");
}

/// Asserts that each pair of ranks on one host used `device`, and the others TCP.
fn assert_pairs(ended: &Ended, host_of_rank: &str, device: &str) {
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let said: BTreeSet<&str> = ended.out.iter().map(String::as_str).collect();
    let (ranks, hosts) = (host_of_rank.len(), host_of_rank.as_bytes());
    let pairs = (0..ranks * ranks).map(|at| (at / ranks, at % ranks)).filter(|(from, to)| from != to);
    let used = |from: usize, to: usize| if hosts[from] == hosts[to] { device } else { "niodev" };
    let wanted: Vec<String> =
        pairs.map(|(from, to)| format!("pair {from} {to} {}", used(from, to))).collect();
    assert_eq!(said, wanted.iter().map(String::as_str).collect());
}

fn hydra_hosts_use_the_network_between_them() {
    if skipped() {
        return;
    }
    assert_pairs(&run(&format!("{TWO_HOSTS} -n 4"), "pairs"), "aabb", "shmdev");
    // Placements that begin again at the first host.
    assert_pairs(&run(&format!("{TWO_HOSTS} -n 7"), "pairs"), "aabbaab", "shmdev");
    let ended = run("-launcher fork -hosts a,b -ppn 1 -n 2 -genv MPJ_NIO_INTERFACES no-such-0", "fine");
    let said = |line: &String| line.contains("no-such-0 is not an interface of this host");
    assert!(ended.code != Some(0) && ended.err.iter().any(said), "{ended:#?}");
}

/// Runs a script on a machine that acts as three hosts, each with two ranks of a role; `None` without that possibility.
/// In the script, `start` starts the job.
fn on_three_hosts(script: &str, role: &str) -> Option<Ended> {
    let start = "start() { exec mpiexec.hydra -localhost 10.78.0.1 -launcher ssh -launcher-exec $NETNS_EXEC \
                 -hosts h0,h1,h2 -ppn 2 -n 6 \"$RANKS\" rank \"$ROLE\"; }";
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/check/netns-hosts"));
    command.args(["3", "bash", "-c", &format!("{start}; {script}")]).stdin(Stdio::null());
    command.env("RANKS", std::env::current_exe().unwrap()).env("ROLE", role).env_remove("RUST_BACKTRACE");
    let ended = watch(&mut command).0.end();
    if ended.code == Some(77) {
        ended.err.iter().for_each(|line| say(line));
        return None;
    }
    Some(ended)
}

/// Hosts in network namespaces, on each of which a bridge has the same address.
fn hydra_hosts_with_networks_of_their_own() {
    if skipped() {
        return;
    }
    let Some(ended) = on_three_hosts("start", "pairs") else { return };
    assert_pairs(&ended, "aabbcc", "shmdev");
    assert_eq!(on_three_hosts("start", "abort").unwrap().code, Some(42));
    let ended = on_three_hosts("start", "kill").unwrap();
    assert_ne!(ended.code, Some(0), "{ended:#?}");
}

/// The part of a script that waits until all ranks have met, with a file for each rank in `$MET`.
const WHEN_MET: &str = "export MET=$(mktemp -d); (start) & \
    for i in {1..600}; do [ $(ls $MET | wc -l) = 6 ] && break; sleep 0.1; done; ";

/// The ranks of all hosts, also those of the host without a network, get an error that names the host.
fn cut_host_is_an_error_on_all_hosts() {
    if skipped() {
        return;
    }
    // Ranks on the host without a network cannot print: all ranks append to their files.
    let script = format!(
        "{WHEN_MET} ip link set $NETNS_PREFIX-v1 down; cut=$(date +%s%3N); \
         for i in {{1..600}}; do [ $(cat $MET/* | wc -l) = 6 ] && break; sleep 0.1; done; \
         for rank in 0 1 2 3 4 5; do while read at text; do echo rank $rank $((at - cut)) $text; done <$MET/$rank; done; \
         for host in h0 h1 h2; do ip netns pids $NETNS_PREFIX-$host | xargs -r kill -KILL; done; rm -r $MET"
    );
    let Some(ended) = on_three_hosts(&script, "cut") else { return };
    let said: Vec<&String> = ended.out.iter().filter(|line| line.starts_with("rank ")).collect();
    assert_eq!(said.len(), 6, "{ended:#?}");
    for line in said {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        let host = if matches!(words[1], "2" | "3") { "10.78.0.10" } else { "10.78.0.11" };
        assert!(words[3].contains(&format!("its host {host} does not answer")), "{ended:#?}");
        // The time is 7 s; a loaded machine may take longer.
        assert!(words[2].parse::<u64>().unwrap() < 24_000, "{ended:#?}");
    }
}

/// Processes that are stopped for longer than a cut takes continue.
fn stopped_host_is_not_cut() {
    if skipped() {
        return;
    }
    let script = format!(
        "{WHEN_MET} pids=$(ip netns pids $NETNS_PREFIX-h1); kill -STOP $pids; sleep 10; kill -CONT $pids; sleep 1; \
         cat $MET/* | wc -l; touch $MET/end; wait $!; code=$?; rm -r $MET; exit $code"
    );
    let Some(ended) = on_three_hosts(&script, "cut") else { return };
    assert_eq!((ended.code, &ended.out[..]), (Some(0), &["0".to_owned()][..]), "{ended:#?}");
}

fn failure_gives_the_exit_code_of_mpiexec() {
    if skipped() {
        return;
    }
    for (role, code, line) in [
        ("abort", 42, "mpj: rank 1 aborted the job with code 42: enough"),
        ("error", 1, "mpj: rank 1 returned an error: recv: rank 8 is out of range"),
        ("panic", 101, "mpj: rank 1 panicked: an odd number"),
    ] {
        let begun = Instant::now();
        let ended = run("-n 3", role);
        assert_eq!(ended.code, Some(code), "{role}: {ended:#?}");
        let own: Vec<&String> = ended.err.iter().filter(|text| text.starts_with("mpj: ")).collect();
        assert!(own.len() == 1 && own[0].starts_with(line), "{role}: {ended:#?}");
        assert!(begun.elapsed() < Duration::from_secs(60), "{role}: {:?}", begun.elapsed());
    }
    assert_eq!(run("-n 3", "exit5-after").code, Some(5), "a code after mpj::run");
}

/// A killed rank, a killed agent and a killed `mpiexec` end all processes of the job.
fn killed_processes_end_the_hydra_job() {
    if skipped() {
        return;
    }
    for victim in [Some(2), Some(0), None] {
        let job = start("-n 3", "wait");
        let there = job.lines(3, " is ");
        let pids: Vec<u32> = there.iter().map(|line| pid(line)).collect();
        let of_rank =
            |rank| there.iter().find(|line| line.contains(&format!("rank {rank} "))).map(|line| pid(line));
        kill(&[victim.map_or(job.pid(), |rank| of_rank(rank).unwrap())], "-KILL");
        pids.into_iter().for_each(|pid| wait_for_exit(pid, Duration::from_secs(20)));
        let ended = job.end();
        assert_ne!(ended.code, Some(0), "{victim:?}: {ended:#?}");
    }
}

fn pmi_port_is_used_without_a_descriptor() {
    if skipped() {
        return;
    }
    let ended = run("-pmi-port -n 3", "pairs");
    let pairs = ended.out.iter().filter(|line| line.starts_with("pair ")).count();
    assert_eq!((ended.code, pairs), (Some(0), 6), "{ended:#?}");
}

fn stale_pmi_variables_are_errors() {
    let rank = |variables: &[(&str, &str)]| {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["rank", "fine"]).envs(variables.iter().copied()).stdin(Stdio::null());
        watch(&mut command).0.end()
    };
    for (variables, why) in [
        (
            &[("PMI_FD", "77"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")][..],
            "PMI_FD=77 is not a socket of this process",
        ),
        (&[("PMI_FD", "x"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")], "unset it, or set MPJ_LAUNCHER=none"),
        (&[("PMI_FD", "3"), ("PMI_RANK", "0")], "PMI_FD is set, but not PMI_SIZE"),
        (&[("PMI_FD", "3"), ("PMI_RANK", "x"), ("PMI_SIZE", "2")], "PMI_RANK=x is not a number"),
        (&[("PMI_PORT", "127.0.0.1:1"), ("PMI_ID", "0")], "cannot connect to the process manager"),
        (&[("MPJ_LAUNCHER", "pmi1")], "MPJ_LAUNCHER: this launcher sets PMI_FD or PMI_PORT"),
        (&[("MPJ_LAUNCHER", "mpjrun")], "MPJ_LAUNCHER: this launcher sets MPJ_CONTROL"),
    ] {
        let ended = rank(variables);
        let said = ended.err.iter().any(|line| line.starts_with("mpj: ") && line.contains(why));
        assert!(said && ended.code == Some(1), "{variables:?}: {ended:#?}");
    }
    // A job of one process needs no process manager.
    for variables in [
        &[("PMI_FD", "77"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")][..],
        &[("PMI_FD", "77"), ("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPJ_LAUNCHER", "none")],
    ] {
        assert_eq!(rank(variables).code, Some(0), "{variables:?}");
    }
}
