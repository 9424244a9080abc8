//! Jobs that Hydra starts (`mpiexec` of MPICH and Intel MPI). The tests do nothing if it is not installed.

use super::Test;
use super::process_managers::{Manager, assert_pairs, assert_refused, run_alone, run_on_hosts};

pub(crate) const TESTS: &[Test] = &[
    ("boot_suite_passes_under_hydra", || HYDRA.boot_suite_passes("", &[2, 4])),
    ("message_programs_run_under_hydra", || HYDRA.message_programs_run("")),
    ("ranks_of_a_hydra_host_share_memory", ranks_of_a_hydra_host_share_memory),
    ("boot_suite_passes_on_hydra_hosts", || HYDRA.boot_suite_passes(TWO_HOSTS, &[4])),
    ("message_programs_run_on_hydra_hosts", || HYDRA.message_programs_run(TWO_HOSTS)),
    ("hydra_hosts_use_the_network_between_them", hydra_hosts_use_the_network_between_them),
    ("hydra_hosts_with_networks_of_their_own", hydra_hosts_with_networks_of_their_own),
    ("cut_host_is_an_error_on_all_hosts", cut_host_is_an_error_on_all_hosts),
    ("stopped_host_is_not_cut", stopped_host_is_not_cut),
    ("failure_gives_the_exit_code_of_mpiexec", || HYDRA.failures_give_the_exit_code()),
    ("killed_processes_end_the_hydra_job", || HYDRA.killed_processes_end_the_job()),
    ("abort_ends_the_hydra_job_of_a_stopped_rank_0", || {
        HYDRA.abort_ends_the_job_of_a_stopped_rank_0(TWO_HOSTS)
    }),
    ("pmi_port_is_used_without_a_descriptor", pmi_port_is_used_without_a_descriptor),
    ("stale_pmi_variables_are_errors", stale_pmi_variables_are_errors),
];

pub(crate) const HYDRA: Manager = Manager { program: "mpiexec.hydra", args: "", package: "mpich" };

/// Two hosts whose processes all run on this machine, so that they reach each other by the loopback.
const TWO_HOSTS: &str = "-launcher fork -hosts a,b -ppn 2 -genv MPJ_NIO_INTERFACES lo";

fn ranks_of_a_hydra_host_share_memory() {
    if HYDRA.is_missing() {
        return;
    }
    assert_pairs(&HYDRA.run("-n 3", "pairs"), "aaa", "shmdev");
    assert_pairs(&HYDRA.run("-n 3 -env MPJ_DEVICES niodev", "pairs"), "aaa", "niodev");
}

fn hydra_hosts_use_the_network_between_them() {
    if HYDRA.is_missing() {
        return;
    }
    assert_pairs(&HYDRA.run(&format!("{TWO_HOSTS} -n 4"), "pairs"), "aabb", "shmdev");
    // Placements that begin again at the first host.
    assert_pairs(&HYDRA.run(&format!("{TWO_HOSTS} -n 7"), "pairs"), "aabbaab", "shmdev");
    let ended = HYDRA.run("-launcher fork -hosts a,b -ppn 1 -n 2 -genv MPJ_NIO_INTERFACES no-such-0", "fine");
    let said = |line: &String| line.contains("no-such-0 is not an interface of this host");
    assert!(ended.code != Some(0) && ended.err.iter().any(said), "{ended:#?}");
}

/// A script that starts a job with two ranks on each of three hosts.
const THREE_HOSTS: &str = "exec mpiexec.hydra -localhost 10.78.0.1 -launcher ssh -launcher-exec $NETNS_EXEC \
                           -hosts h0,h1,h2 -ppn 2 -n 6 \"$@\"";

/// Hosts in network namespaces, on each of which a bridge has the same address.
fn hydra_hosts_with_networks_of_their_own() {
    if HYDRA.is_missing() {
        return;
    }
    let Some(ended) = run_on_hosts(THREE_HOSTS, "pairs") else { return };
    assert_pairs(&ended, "aabbcc", "shmdev");
    assert_eq!(run_on_hosts(THREE_HOSTS, "abort").unwrap().code, Some(42));
    let ended = run_on_hosts(THREE_HOSTS, "kill").unwrap();
    assert_ne!(ended.code, Some(0), "{ended:#?}");
}

/// The part of a script that waits until all ranks have met, with a file for each rank in `$MET`.
const WHEN_MET: &str = "for i in {1..600}; do [ $(ls $MET | wc -l) = 6 ] && break; sleep 0.1; done; ";

/// The ranks of all hosts, even those of the host without a network, get an error that names a host.
fn cut_host_is_an_error_on_all_hosts() {
    if HYDRA.is_missing() {
        return;
    }
    // Ranks on the host without a network cannot print: all ranks append to their files.
    let script = format!(
        "export MET=$(mktemp -d); ({THREE_HOSTS}) & {WHEN_MET} ip link set $NETNS_PREFIX-v1 down; cut=$(date +%s%3N); \
         for i in {{1..600}}; do [ $(cat $MET/* | wc -l) = 6 ] && break; sleep 0.1; done; \
         for rank in 0 1 2 3 4 5; do while read at text; do echo rank $rank $((at - cut)) $text; done <$MET/$rank; done; \
         for host in h0 h1 h2; do ip netns pids $NETNS_PREFIX-$host | xargs -r kill -KILL; done; rm -r $MET"
    );
    let Some(ended) = run_on_hosts(&script, "cut") else { return };
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

/// Processes continue after they were stopped for longer than the library takes to detect a cut.
fn stopped_host_is_not_cut() {
    if HYDRA.is_missing() {
        return;
    }
    let script = format!(
        "export MET=$(mktemp -d); ({THREE_HOSTS}) & {WHEN_MET} pids=$(ip netns pids $NETNS_PREFIX-h1); kill -STOP $pids; sleep 10; kill -CONT $pids; sleep 1; \
         cat $MET/* | wc -l; touch $MET/end; wait $!; code=$?; rm -r $MET; exit $code"
    );
    let Some(ended) = run_on_hosts(&script, "cut") else { return };
    assert_eq!((ended.code, &ended.out[..]), (Some(0), &["0".to_owned()][..]), "{ended:#?}");
}

fn pmi_port_is_used_without_a_descriptor() {
    if HYDRA.is_missing() {
        return;
    }
    let ended = HYDRA.run("-pmi-port -n 3", "pairs");
    let pairs = ended.out.iter().filter(|line| line.starts_with("pair ")).count();
    assert_eq!((ended.code, pairs), (Some(0), 6), "{ended:#?}");
}

fn stale_pmi_variables_are_errors() {
    for (variables, why) in [
        (
            &[("PMI_FD", "77"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")][..],
            "PMI_FD=77 is not a socket of this process",
        ),
        (&[("PMI_FD", "x"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")], "unset it, or set MPJ_LAUNCHER=none"),
        (&[("PMI_FD", "3"), ("PMI_RANK", "0")], "PMI_FD is set, but not PMI_SIZE"),
        (&[("PMI_FD", "3"), ("PMI_RANK", "x"), ("PMI_SIZE", "2")], "PMI_RANK=x is not a number"),
        (
            &[("PMI_PORT", "127.0.0.1:1"), ("PMI_ID", "0")],
            "cannot connect to the process manager at PMI_PORT=127.0.0.1:1: Connection refused (os error 111); if the \
             variables PMI_* are left over",
        ),
        (&[("MPJ_LAUNCHER", "pmi1")], "MPJ_LAUNCHER: this launcher sets PMI_FD or PMI_PORT"),
        (&[("MPJ_LAUNCHER", "mpjrun")], "MPJ_LAUNCHER: this launcher sets MPJ_CONTROL"),
    ] {
        assert_refused(variables, why);
    }
    // A job of one process needs no process manager.
    for variables in [
        &[("PMI_FD", "77"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")][..],
        &[("PMI_FD", "77"), ("PMI_RANK", "0"), ("PMI_SIZE", "2"), ("MPJ_LAUNCHER", "none")],
    ] {
        assert_eq!(run_alone(variables).code, Some(0), "{variables:?}");
    }
}
