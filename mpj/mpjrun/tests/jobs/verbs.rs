//! Jobs over InfiniBand or RoCE. The tests do nothing if the host has no device; `devices/check/rdma-vm` has one.

use std::collections::BTreeSet;

use mpj_devices::conformance::unavailable;

use super::Test;
use super::job::run;
use super::program::say;

pub(crate) const TESTS: &[Test] = &[
    ("ibvdev_connects_simulated_hosts", ibvdev_connects_simulated_hosts),
    ("invalid_ibvdev_parameters_are_errors", invalid_ibvdev_parameters_are_errors),
];

/// Returns whether the host has no device, and prints why.
fn skipped() -> bool {
    let missing = unavailable("ibvdev");
    missing.inspect(|why| say(&format!("SKIPPED {why}"))).is_some()
}

fn ibvdev_connects_simulated_hosts() {
    if skipped() {
        return;
    }
    let ended = run("-n 4 -x MPJ_SIMULATED_HOSTS=a:2,b:2", "pairs");
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    let said: BTreeSet<&str> = ended.out.iter().filter_map(|line| line.strip_prefix("pair ")).collect();
    let device = |from: usize, to: usize| if from / 2 == to / 2 { "shmdev" } else { "ibvdev" };
    let pairs = (0..16).map(|at| (at / 4, at % 4)).filter(|(from, to)| from != to);
    let wanted: BTreeSet<String> =
        pairs.map(|(from, to)| format!("{from} {to} {}", device(from, to))).collect();
    assert_eq!(said, wanted.iter().map(String::as_str).collect());
}

fn invalid_ibvdev_parameters_are_errors() {
    if skipped() {
        return;
    }
    for (set, why) in [
        ("MPJ_IBV_DEVICE=mlx9_0", "this host has no device 'mlx9_0'"),
        ("MPJ_IBV_PORT=9", " has ports 1 to "),
        ("MPJ_IBV_GID_INDEX=77", " has no GID at that index"),
        ("MPJ_IBV_PKEY_INDEX=400", " has no partition key at that index"),
        ("MPJ_IBV_SL=9", " is Ethernet: service levels are 0 to 7"),
        ("MPJ_IBV_MTU=9000", "is not one of auto, 256, 512, 1024, 2048, 4096"),
        ("MPJ_IBV_SL=16", "is not a number from 0 to 15"),
    ] {
        let ended = run(&format!("-n 2 --devices ibvdev -x {set}"), "fine");
        let errors: Vec<_> =
            ended.err.iter().filter(|line| line.contains(set) && line.contains(why)).collect();
        assert!(!errors.is_empty() && ended.code.is_some_and(|code| code > 0), "{set}: {ended:#?}");
        assert!(
            ended.out.is_empty() && ended.err.iter().all(|line| !line.contains("panicked")),
            "{ended:#?}"
        );
    }
}
