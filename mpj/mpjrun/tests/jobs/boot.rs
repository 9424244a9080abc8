//! The suite of `Boot` on processes.

use std::process::ExitCode;

use super::Test;
use super::boot_cases::{CASES, run_case};
use super::job::run;
use super::program::say;

pub(crate) const TESTS: &[Test] = &[("boot_suite_passes_on_processes", boot_suite_passes_on_processes)];

pub(crate) fn run_named(name: &str) -> ExitCode {
    let boots = mpj::boot::detect().unwrap().expect("mpjrun has started this process");
    run_case(&boots, CASES.iter().find(|case| case.name == name).unwrap());
    boots.iter().for_each(|boot| say(&format!("done {}", boot.rank())));
    boots[0].leave();
    ExitCode::SUCCESS
}

fn boot_suite_passes_on_processes() {
    for (ranks, how) in [
        (1, ""),
        (4, ""),
        (4, "--ranks-per-process 2"),
        (4, "--devices niodev"),
        (4, "-x MPJ_SIMULATED_HOSTS=a:1,b:3"),
    ] {
        for case in CASES.iter().filter(|case| case.min_ranks <= ranks) {
            let args = format!("-n {ranks} {how} --on-failure=continue --grace 6");
            let ended = run(&args, &format!("boot:{}", case.name));
            let done = ended.out.iter().filter(|line| line.starts_with("done")).count();
            assert_eq!(done, ranks as usize, "{} with {args}: {ended:#?}", case.name);
            let is_expected = match case.name {
                "abort_is_a_death_with_its_code_and_reason" => ended.code == Some(42),
                name => ended.code == Some(0) || name.contains("died") || name.contains("losses"),
            };
            assert!(is_expected, "{} with {args}: {ended:#?}", case.name);
        }
    }
}
