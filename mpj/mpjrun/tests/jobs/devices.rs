//! Runs the conformance suite of devices with processes as ranks, and kills ranks at named steps of the protocols.

use std::process::ExitCode;
use std::sync::Arc;

use mpj_devices::config::Config;
use mpj_devices::conformance::{CASES, unavailable};
use mpj_devices::kill_points::KillPoint;
use mpj_devices::{Driver, OpenError, Opened, Site};

use super::Test;
use super::job::{mpjrun, watch};

pub(crate) const TESTS: &[Test] = &[
    ("a_device_of_the_programs_own_goes_by_its_name", a_device_of_the_programs_own_goes_by_its_name),
    ("the_suite_passes_on_processes", the_suite_passes_on_processes),
    ("a_rank_killed_at_any_step_is_an_error_elsewhere", a_rank_killed_at_any_step_is_an_error_elsewhere),
];

/// Returns the devices between processes that this host supports; prints the others with the reason.
fn devices() -> impl Iterator<Item = &'static str> {
    ["shmdev", "niodev", "ibvdev"].into_iter().filter(|device| match unavailable(device) {
        None => true,
        Some(why) => {
            super::program::say(&format!("SKIPPED {why}"));
            false
        }
    })
}

/// The steps of a body that is sent in frames, and the parameters that make any device send it so.
const IN_PIECES: [KillPoint; 3] = [KillPoint::CtsSent, KillPoint::PieceSent, KillPoint::PieceLanded];
const IN_FRAMES: &str = "-x MPJ_IBV_RDMA_READ_MIN=1099511627776 -x MPJ_SHM_SINGLE_COPY_MIN=1099511627776";

fn the_suite_passes_on_processes() {
    for device in devices() {
        for case in CASES {
            for ranks in case.ranks.iter().copied().filter(|ranks| *ranks > 1) {
                // In some cases a rank reports its own death. The others continue, and the job ends as a failure.
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
    for device in devices() {
        for step in KillPoint::ALL {
            for count in [1, 3] {
                let kill = format!("MPJ_KILL_AT={step:?}:1:{count}");
                // A body that a device reads directly is not sent in pieces.
                let pieces = if IN_PIECES.contains(&step) { IN_FRAMES } else { "" };
                let mut command = mpjrun(&format!("-n 3 --dev {device} --grace 6 -x {kill} {pieces}"));
                command.arg(std::env::current_exe().unwrap()).args(["rank", "every-step"]);
                let ended = watch(&mut command).0.end();
                let named = ended.out.iter().filter(|line| line.contains("failed rank Some(1)")).count();
                // A step that occurs only once, such as the start of closing, does not reach a count of 3.
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

/// A device that this program defines; it opens another one.
#[derive(Debug)]
struct Own(Arc<dyn Driver>);

// SAFETY: the device that the inner driver opens is returned unchanged.
#[expect(unsafe_code, reason = "the trait's contract")]
unsafe impl Driver for Own {
    fn name(&self) -> &'static str {
        "owndev"
    }

    fn open(&self, site: &Site, config: &Config) -> Result<Opened, OpenError> {
        super::program::say("owndev");
        self.0.open(site, config)
    }
}

/// Runs a rank in a program that registers one more device.
pub(crate) fn with_own() -> ExitCode {
    let faces = mpj::boot::detect().unwrap().expect("mpjrun has started this process");
    let registry = faces[0].registry();
    let own = Own(Arc::clone(registry.get("niodev").expect("it is always there")));
    mpj::run_on(faces, &registry.with(own), |world| world.barrier())
}

fn a_device_of_the_programs_own_goes_by_its_name() {
    let run = |device| {
        let mut command = mpjrun(&format!("-n 2 --dev {device}"));
        command.arg(std::env::current_exe().unwrap()).args(["rank", "own-device"]);
        watch(&mut command).0.end()
    };
    let ended = run("owndev");
    assert_eq!((ended.code, ended.out.len()), (Some(0), 2), "{ended:#?}");
    // The error lists the devices of the program.
    let there = "smdev, shmdev, ibvdev, niodev, owndev";
    for (device, meant) in [("owndve", " (did you mean owndev?)"), ("tokenring", "")] {
        let ended = run(device);
        let why = format!("no device is named '{device}'{meant}; available: {there}");
        ended.expect(1, &["ranks 0 and 1 ", "could not start", &why]);
        assert_eq!((ended.out.len(), ended.err.len()), (0, 1), "it is said once: {ended:#?}");
    }
}
