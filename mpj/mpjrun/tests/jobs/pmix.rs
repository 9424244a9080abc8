//! Jobs that Open MPI starts, whose `mpirun` has a PMIx server. The tests that start `mpirun` do nothing if it is not
//! installed.

use super::Test;
use super::process_managers::{
    Manager, assert_pairs, assert_refused, killed_proxy_ends_the_job, run_alone, run_on_hosts,
};

pub(crate) const TESTS: &[Test] = &[
    ("boot_suite_passes_under_open_mpi", || OPEN_MPI.boot_suite_passes("", &[2, 4])),
    ("message_programs_run_under_open_mpi", || OPEN_MPI.message_programs_run("")),
    ("ranks_of_an_open_mpi_host_share_memory", ranks_of_an_open_mpi_host_share_memory),
    ("open_mpi_hosts_with_networks_of_their_own", open_mpi_hosts_with_networks_of_their_own),
    ("failure_gives_the_exit_code_of_mpirun", || OPEN_MPI.failures_give_the_exit_code()),
    ("killed_processes_end_the_open_mpi_job", || OPEN_MPI.killed_processes_end_the_job()),
    ("killed_open_mpi_daemon_ends_the_job", killed_open_mpi_daemon_ends_the_job),
    ("missing_ranks_of_an_open_mpi_host_are_listed", || {
        OPEN_MPI.missing_ranks_of_the_host_are_listed("PMIX_RANK")
    }),
    ("stale_pmix_variables_are_errors", stale_pmix_variables_are_errors),
];

/// `mpirun` can be that of MPICH. By default, Open MPI starts no more ranks than there are cores, and none for root.
pub(crate) const OPEN_MPI: Manager = Manager {
    program: "mpirun.openmpi",
    args: "--allow-run-as-root --oversubscribe",
    package: "openmpi-bin",
};

fn ranks_of_an_open_mpi_host_share_memory() {
    if OPEN_MPI.is_missing() {
        return;
    }
    assert_pairs(&OPEN_MPI.run("-n 3", "pairs"), "aaa", "shmdev");
    assert_pairs(&OPEN_MPI.run("-n 3 -x MPJ_DEVICES=niodev", "pairs"), "aaa", "niodev");
    assert_pairs(&OPEN_MPI.run("-n 2 -x MPJ_LAUNCHER=pmix", "pairs"), "aa", "shmdev");
    // A job of one process, and processes that are jobs of their own.
    let alone = OPEN_MPI.run("-n 1", "threads");
    assert!(alone.code == Some(0) && alone.out == ["size 1"], "{alone:#?}");
    let alone = OPEN_MPI.run("-n 2 -x MPJ_LAUNCHER=none", "fine");
    assert_eq!(alone.code, Some(0), "{alone:#?}");
}

/// A script that starts a job with two ranks on each of three hosts.
const THREE_HOSTS: &str = "exec mpirun.openmpi --allow-run-as-root --mca plm_rsh_agent $NETNS_EXEC \
                           --mca oob_tcp_if_include 10.78.0.0/24 --host h0:2,h1:2,h2:2 -n 6 \"$@\"";

/// Hosts in network namespaces, on each of which a bridge has the same address.
fn open_mpi_hosts_with_networks_of_their_own() {
    if OPEN_MPI.is_missing() {
        return;
    }
    let Some(ended) = run_on_hosts(THREE_HOSTS, "pairs") else { return };
    assert_pairs(&ended, "aabbcc", "shmdev");
    for role in ["abort", "abort-of-stopped:4"] {
        assert_eq!(run_on_hosts(THREE_HOSTS, role).unwrap().code, Some(42), "{role}");
    }
    let ended = run_on_hosts(THREE_HOSTS, "kill").unwrap();
    assert_ne!(ended.code, Some(0), "{ended:#?}");
}

fn killed_open_mpi_daemon_ends_the_job() {
    if !OPEN_MPI.is_missing() {
        killed_proxy_ends_the_job(THREE_HOSTS, "orted");
    }
}

fn stale_pmix_variables_are_errors() {
    let namespace = ("PMIX_NAMESPACE", "1");
    let rank = ("PMIX_RANK", "0");
    // Nothing listens at port 1.
    let uri = ("PMIX_SERVER_URI4", "0.0;tcp4://127.0.0.1:1");
    for (variables, why) in [
        (&[namespace, rank, uri][..], "cannot connect to the PMIx server 0.0;tcp4://127.0.0.1:1"),
        (&[namespace, rank, uri], "unset them, or set MPJ_LAUNCHER=none"),
        (&[namespace], "PMIX_NAMESPACE is set, but not PMIX_RANK"),
        (&[namespace, rank, uri, ("PMIX_SECURITY_MODE", "munge")], "requires the security module munge"),
        (&[("MPJ_LAUNCHER", "pmix")], "MPJ_LAUNCHER: this launcher sets PMIX_NAMESPACE"),
    ] {
        assert_refused(variables, why);
    }
    let ended = run_alone(&[namespace, rank, uri, ("MPJ_LAUNCHER", "none")]);
    assert_eq!(ended.code, Some(0), "{ended:#?}");
}
