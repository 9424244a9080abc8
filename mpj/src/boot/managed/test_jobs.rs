//! The parts that tests of jobs under scripted process managers share.

use std::process::Command;

use mpj_devices::Exit;

use super::{ProcessManager, join};
use crate::boot::Boot;

/// Joins a job on `hosts` hosts, passes a fence, exchanges values with other ranks, and leaves.
pub(in crate::boot) fn run_rank(manager: impl ProcessManager + 'static, hosts: u32) {
    let (rank, size) = (manager.rank(), manager.size());
    let boot = join(Box::new(manager), |_| ()).unwrap().remove(0);
    assert_eq!((boot.rank(), boot.size(), boot.hosts().count()), (rank, size, hosts));
    boot.put("k", &rank.to_le_bytes()).unwrap();
    boot.fence().unwrap();
    let (sender, got) = std::sync::mpsc::channel();
    let next = (rank + 1) % size;
    boot.get(next, "k", Box::new(move |value| sender.send(value).unwrap()));
    assert_eq!(got.recv().unwrap(), Ok(next.to_le_bytes().to_vec()));
    boot.roster().report(rank, Exit::Left);
    boot.leave();
}

/// Runs a test in a new process whose hosts reach each other by the loopback. Returns `false` in that process.
pub(in crate::boot) fn run_on_loopback(test: &str) -> bool {
    if std::env::var_os("MPJ_NIO_INTERFACES").is_some() {
        return false;
    }
    // Only a new process can get a variable.
    let mut command = Command::new(std::env::current_exe().unwrap());
    let output = command.args([test, "--exact"]).env("MPJ_NIO_INTERFACES", "lo").output().unwrap();
    assert!(output.status.success(), "{output:#?}");
    true
}
