//! Ranks that are killed at each step of the protocols, and a device of the program.

use std::process::ExitCode;
use std::sync::Arc;

use mpj_devices::config::Config;
use mpj_devices::conformance::unavailable;
use mpj_devices::kill_points::KillPoint;
use mpj_devices::{Driver, OpenError, Opened, Site};

use super::Test;
use super::job::{mpjrun, watch};

pub(crate) const TESTS: &[Test] = &[
    ("device_of_the_program_is_selected_by_name", device_of_the_program_is_selected_by_name),
    ("rank_killed_at_any_step_fails_calls_of_the_others", rank_killed_at_any_step_fails_calls_of_the_others),
];

/// Returns the devices between processes that this host supports.
fn devices() -> impl Iterator<Item = &'static str> {
    ["shmdev", "niodev", "ibvdev"].into_iter().filter(|device| match unavailable(device) {
        None => true,
        Some(why) => {
            super::program::say(&format!("SKIPPED {why}"));
            false
        }
    })
}

// The steps that occur only if a body is sent in frames.
const IN_PIECES: [KillPoint; 3] = [KillPoint::CtsSent, KillPoint::PieceSent, KillPoint::PieceLanded];
// The parameter with which every device sends long bodies in frames.
const IN_FRAMES: &str = "-x MPJ_IBV_RDMA_READ_MIN=1099511627776";

fn rank_killed_at_any_step_fails_calls_of_the_others() {
    for device in devices() {
        for step in KillPoint::ALL {
            for count in [1, 3] {
                let kill = format!("MPJ_KILL_AT={step:?}:1:{count}");
                let pieces = if IN_PIECES.contains(&step) { IN_FRAMES } else { "" };
                let mut command = mpjrun(&format!("-n 3 --devices {device} --grace 6 -x {kill} {pieces}"));
                command.arg(std::env::current_exe().unwrap()).args(["rank", "every-step"]);
                let ended = watch(&mut command).0.end();
                let named = ended.out.iter().filter(|line| line.contains("failed rank Some(1)")).count();
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

/// A driver of the program, which opens the device of another driver.
#[derive(Debug)]
struct OwnDriver(Arc<dyn Driver>);

// SAFETY: the device that the inner driver opens is returned unchanged.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Driver for OwnDriver {
    fn name(&self) -> &'static str {
        "owndev"
    }

    fn open(&self, site: &Site, config: &Config) -> Result<Opened, OpenError> {
        super::program::say("owndev");
        self.0.open(site, config)
    }
}

pub(crate) fn run_with_own_device() -> ExitCode {
    let boots = mpj::boot::detect().unwrap().expect("mpjrun has started this process");
    let registry = boots[0].registry();
    let own = OwnDriver(Arc::clone(registry.get("niodev").expect("always registered")));
    mpj::run_on(boots, &registry.with(own), |world| world.barrier())
}

fn device_of_the_program_is_selected_by_name() {
    let run = |device| {
        let mut command = mpjrun(&format!("-n 2 --devices {device}"));
        command.arg(std::env::current_exe().unwrap()).args(["rank", "own-device"]);
        watch(&mut command).0.end()
    };
    let ended = run("owndev");
    assert_eq!((ended.code, ended.out.len()), (Some(0), 2), "{ended:#?}");
    // The error lists the registered devices.
    let registered = "smdev, shmdev, ibvdev, niodev, owndev";
    for (device, meant) in [("owndve", " (did you mean owndev?)"), ("tokenring", "")] {
        let ended = run(device);
        let why = format!("no device is named '{device}'{meant}; available: {registered}");
        ended.expect(1, &["ranks 0 and 1 ", "could not start", &why]);
        assert_eq!((ended.out.len(), ended.err.len()), (0, 1), "the error is printed once: {ended:#?}");
    }
}
