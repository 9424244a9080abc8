//! Collectives that do not fit, between processes: everybody is told by every device.

use std::process::ExitCode;

use super::Test;
use super::job::run;
use super::mismatch::{Program, lengths, operations, play as play_one, refusals, roots};
use super::program::say;

pub(crate) const TESTS: &[Test] = &[(
    "collectives_that_do_not_fit_are_an_error_everywhere",
    collectives_that_do_not_fit_are_an_error_everywhere,
)];

type Programs = fn(usize) -> Vec<Program>;

/// The programs, by role.
const PROGRAMS: [(&str, Programs); 4] =
    [("lengths", lengths), ("operations", operations), ("roots", roots), ("refusals", refusals)];

/// Returns the programs of a role.
pub(crate) fn find(role: &str) -> Option<Programs> {
    PROGRAMS.iter().find(|(name, _)| *name == role).map(|(_, programs)| *programs)
}

/// Plays programs as a rank.
pub(crate) fn play(programs: Programs) -> ExitCode {
    mpj::run(|world| {
        let programs = programs(world.size());
        programs.iter().try_for_each(|program| play_one(&world, program))?;
        say(&format!("{} programs", programs.len()));
        Ok::<(), String>(())
    })
}

fn collectives_that_do_not_fit_are_an_error_everywhere() {
    for ranks in [2, 3, 5] {
        for device in ["shmdev", "niodev"] {
            for (role, _) in PROGRAMS {
                let ended = run(&format!("-n {ranks} --dev {device}"), role);
                let done = ended.out.iter().filter(|line| line.ends_with("programs")).count();
                assert_eq!((ended.code, done), (Some(0), ranks), "{role} by {device}: {ended:#?}");
                say(&format!("{ranks} × {device}: {role}: {}", ended.out[0]));
            }
        }
    }
}
