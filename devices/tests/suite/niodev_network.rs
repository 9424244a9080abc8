//! The errors of niodev on a host without a network, such as some containers.

use std::io::Write;
use std::process::Command;
use std::sync::Arc;

use mpj_devices::config::Config;
use mpj_devices::{Doorbell, Driver, JobKey, NioDriver, Site};

/// Runs a test of this file in a new network namespace, in which no interface is up, and returns its output. Returns
/// `None` if this host does not permit that.
fn in_a_new_network(test: &str) -> Option<String> {
    let unshare = |what: &[&str]| {
        let ran = Command::new("unshare").args(["--map-root-user", "--net"]).args(what).output().ok()?;
        let output = String::from_utf8_lossy(&ran.stdout) + String::from_utf8_lossy(&ran.stderr);
        Some((ran.status.success(), output.into_owned()))
    };
    unshare(&["true"]).filter(|(allowed, _)| *allowed)?;
    let own = std::env::current_exe().unwrap();
    let (_, output) = unshare(&[
        own.to_str().unwrap(),
        "--ignored",
        "--exact",
        &format!("niodev_network::{test}"),
        "--nocapture",
    ])?;
    Some(output)
}

#[test]
#[ignore = "run by another test of this file in a new network"]
fn open_prints_its_outcome() {
    let key = Arc::new(JobKey { job: 1, secret: [1; 32] });
    let site = Site::new(0, 2, Arc::new(Doorbell::new().unwrap()));
    let opened = NioDriver::new(key).open(&site, &Config::default()).map(|_| ());
    writeln!(std::io::stdout(), "opened: {opened:?}").unwrap();
}

#[test]
fn error_names_a_missing_loopback() {
    let Some(output) = in_a_new_network("open_prints_its_outcome") else {
        let _ = writeln!(std::io::stderr(), "SKIPPED no `unshare --map-root-user --net` for this user");
        return;
    };
    assert!(output.contains("opened: Err") && output.contains("ip link set lo up"), "{output}");
}
