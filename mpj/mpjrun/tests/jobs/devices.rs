//! The conformance suite of devices with processes for ranks, and ranks killed at named steps of the protocols.

use mpj_devices::conformance::CASES;
use mpj_devices::steps::Step;

use super::Test;
use super::job::{mpjrun, watch};

pub(crate) const TESTS: &[Test] = &[
    ("the_suite_passes_on_processes", the_suite_passes_on_processes),
    ("a_rank_killed_at_any_step_is_an_error_elsewhere", a_rank_killed_at_any_step_is_an_error_elsewhere),
];

/// Devices between processes.
const DEVICES: [&str; 2] = ["shmdev", "niodev"];

fn the_suite_passes_on_processes() {
    for device in DEVICES {
        for case in CASES {
            for ranks in case.ranks.iter().copied().filter(|ranks| *ranks > 1) {
                // Some cases have a rank say that it has died: the others go on, and the job ends as a failure.
                let mut command = mpjrun(&format!("-n {ranks} --dev {device} --on-failure=continue"));
                command.arg(std::env::current_exe().unwrap()).args(["rank", &format!("case:{}", case.name)]);
                let ended = watch(&mut command).0.end();
                let done = ended.out.iter().filter(|line| line.starts_with("done")).count();
                assert_eq!(done, ranks as usize, "{} on {ranks} processes by {device}: {ended:?}", case.name);
            }
        }
    }
}

fn a_rank_killed_at_any_step_is_an_error_elsewhere() {
    for device in DEVICES {
        for step in Step::ALL {
            for count in [1, 3] {
                let kill = format!("MPJ_KILL_AT={step:?}:1:{count}");
                let mut command = mpjrun(&format!("-n 3 --dev {device} --grace 6 -x {kill}"));
                command.arg(std::env::current_exe().unwrap()).args(["rank", "every-step"]);
                let ended = watch(&mut command).0.end();
                let named = ended.out.iter().filter(|line| line.contains("failed rank Some(1)")).count();
                // A rank begins to close once.
                let hit = ended.code == Some(128 + 9);
                super::program::say(&format!(
                    "{device} {step:?} ×{count}: {}",
                    if hit { "killed" } else { "not reached" }
                ));
                assert!(named == 2 || !hit, "{device} {step:?} {count}: {ended:?}");
                assert!(hit || count > 1, "{device} {step:?} was never reached: {ended:?}");
            }
        }
    }
}
