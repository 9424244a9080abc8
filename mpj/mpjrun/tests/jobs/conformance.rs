//! The conformance suite of devices, with each device for processes and on simulated hosts; one test for each case and
//! place.

use libtest_mimic::Trial;
use mpj_devices::conformance::{CASES, Case, unavailable};

use super::job::{mpjrun, watch};
use super::program::say;

/// Returns the tests. `ibvdev` has none if it cannot be opened on this host.
pub(crate) fn trials() -> Vec<Trial> {
    let devices = ["shmdev", "niodev", "ibvdev"].into_iter().filter(|device| unavailable(device).is_none());
    // Cases take message lengths from the open devices, so request shmdev even on hosts with one rank.
    let on_hosts = |ranks| {
        let hosts = match ranks {
            2 => "a:1,b",
            3 => "a:2,b",
            _ => "a:1,b:1,a:1,c",
        };
        format!("-x MPJ_SIMULATED_HOSTS={hosts} --devices shmdev,niodev")
    };
    let on_devices = devices.flat_map(|device| {
        CASES.iter().map(move |case| trial(case, device, move |_| format!("--devices {device}")))
    });
    on_devices.chain(CASES.iter().map(|case| trial(case, "hosts", on_hosts))).collect()
}

/// Prints the names of the cases with this number of ranks, for `mpj/check/engines`.
pub(crate) fn print_cases(ranks: u32) {
    CASES.iter().filter(|case| case.ranks.contains(&ranks)).for_each(|case| say(case.name));
}

fn trial(case: &'static Case, place: &str, options: impl Fn(u32) -> String + Send + 'static) -> Trial {
    Trial::test(format!("conformance::{place}::{}", case.name), move || {
        for ranks in case.ranks.iter().copied().filter(|ranks| *ranks > 1) {
            // In some cases, a rank reports its own death, so do not check the exit code.
            let mut command = mpjrun(&format!("-n {ranks} {} --on-failure=continue", options(ranks)));
            command.arg(std::env::current_exe().unwrap()).args(["rank", &format!("case:{}", case.name)]);
            let ended = watch(&mut command).0.end();
            let done = ended.out.iter().filter(|line| line.starts_with("done")).count();
            assert_eq!(done, ranks as usize, "on {ranks} ranks: {ended:?}");
        }
        Ok(())
    })
}
