//! Jobs that Hydra starts (`mpiexec` of MPICH and Intel MPI). The tests do nothing if it is not installed.

use super::Test;
use super::process_managers::{
    Manager, assert_pairs, assert_refused, killed_proxy_ends_the_job, run_alone, run_on_hosts,
};

pub(crate) const TESTS: &[Test] = &[
    ("boot_suite_passes_under_hydra", || HYDRA.boot_suite_passes("", &[2, 4])),
    ("message_programs_run_under_hydra", || HYDRA.message_programs_run("")),
    ("ranks_of_a_hydra_host_share_memory", ranks_of_a_hydra_host_share_memory),
    ("boot_suite_passes_on_hydra_hosts", || HYDRA.boot_suite_passes(TWO_HOSTS, &[4])),
    ("message_programs_run_on_hydra_hosts", || HYDRA.message_programs_run(TWO_HOSTS)),
    ("hydra_hosts_use_the_network_between_them", hydra_hosts_use_the_network_between_them),
    ("hydra_hosts_with_networks_of_their_own", hydra_hosts_with_networks_of_their_own),
    ("hydra_host_may_get_its_route_late", hydra_host_may_get_its_route_late),
    ("failure_gives_the_exit_code_of_mpiexec", || HYDRA.failures_give_the_exit_code()),
    ("killed_processes_end_the_hydra_job", || HYDRA.killed_processes_end_the_job()),
    ("killed_hydra_proxy_ends_the_job", killed_hydra_proxy_ends_the_job),
    ("abort_ends_the_hydra_job_of_a_stopped_rank_0", || {
        HYDRA.abort_ends_the_job_of_a_stopped_rank_0(TWO_HOSTS)
    }),
    ("missing_ranks_of_a_hydra_host_are_listed", || HYDRA.missing_ranks_of_the_host_are_listed("PMI_RANK")),
    ("pmi1_joins_the_job_of_hydra", pmi1_joins_the_job_of_hydra),
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

/// For three seconds, the second host has no route to that of rank 0.
fn hydra_host_may_get_its_route_late() {
    if HYDRA.is_missing() {
        return;
    }
    let routes = |change: &str| {
        let change = |address| format!("ip -n $NETNS_PREFIX-h1 route {change} unreachable {address}");
        ["10.78.0.10/32", "fd78::10/128"].map(change).join("; ")
    };
    let script = format!("{}; (sleep 3; {}) & {THREE_HOSTS}", routes("add"), routes("del"));
    let Some(ended) = run_on_hosts(&script, "pairs") else { return };
    assert_pairs(&ended, "aabbcc", "shmdev");
}

fn killed_hydra_proxy_ends_the_job() {
    if !HYDRA.is_missing() {
        killed_proxy_ends_the_job(THREE_HOSTS, "hydra_pmi_proxy");
    }
}

fn pmi1_joins_the_job_of_hydra() {
    if HYDRA.is_missing() {
        return;
    }
    assert_pairs(&HYDRA.run("-n 3 -env MPJ_LAUNCHER pmi1", "pairs"), "aaa", "shmdev");
    assert_pairs(&HYDRA.run("-pmi-port -n 3 -env MPJ_LAUNCHER pmi1", "pairs"), "aaa", "shmdev");
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
