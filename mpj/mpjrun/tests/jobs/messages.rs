//! Tests `mpj::buffer` messages between processes, with every device.

use std::process::ExitCode;

use super::Test;
use super::job::run;
use super::program::say;
use super::programs::{PROGRAMS, Program};

pub(crate) const TESTS: &[Test] = &[
    ("buffers_travel_whole_between_processes", buffers_travel_whole_between_processes),
    ("every_path_brings_the_same_between_processes", every_path_brings_the_same_between_processes),
    ("one_table_says_what_the_ranks_have_moved", one_table_says_what_the_ranks_have_moved),
];

/// Returns the program of a role.
pub(crate) fn find(role: &str) -> Option<Program> {
    let name = role.strip_prefix("messages:")?;
    PROGRAMS.iter().find(|(known, _)| *known == name).map(|(_, program)| *program)
}

/// Runs a program as a rank.
pub(crate) fn play(program: Program) -> ExitCode {
    mpj::run(|world| {
        program(&world)?;
        say(&format!("rank {} is through", world.rank()));
        Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    })
}

fn buffers_travel_whole_between_processes() {
    for ranks in [2, 3, 6] {
        for device in ["shmdev", "niodev"] {
            for (name, _) in PROGRAMS {
                let ended = run(&format!("-n {ranks} --dev {device}"), &format!("messages:{name}"));
                let done = ended.out.iter().filter(|line| line.ends_with("is through")).count();
                assert_eq!((ended.code, done), (Some(0), ranks), "{name} by {device}: {ended:#?}");
            }
        }
    }
}

fn every_path_brings_the_same_between_processes() {
    for path in ["buffered", "zerocopy"] {
        for device in ["shmdev", "niodev"] {
            // In `limits`, both ranks send before either receives, so the messages must be copied.
            for (name, _) in PROGRAMS.iter().filter(|(name, _)| path != "zerocopy" || *name != "limits") {
                let ended = run(&format!("-n 2 --dev {device} --path {path}"), &format!("messages:{name}"));
                let done = ended.out.iter().filter(|line| line.ends_with("is through")).count();
                assert_eq!((ended.code, done), (Some(0), 2), "{name} by {device}, {path}: {ended:#?}");
            }
        }
    }
    let ended = run("-n 2 --path sideways", "messages:none");
    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert!(ended.err.concat().contains("is not one of auto, buffered, zerocopy"), "{ended:#?}");
}

fn one_table_says_what_the_ranks_have_moved() {
    let (name, _) = PROGRAMS[0];
    for device in ["shmdev", "niodev", "smdev"] {
        let ended = run(&format!("-n 2 -l --dev {device} --stats"), &format!("messages:{name}"));
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert_eq!(ended.err[0], "mpjrun: traffic of the ranks: number (bytes)");
        for (line, who) in ended.err[1..5].iter().zip(["rank ", "0 ", "1 ", "sum "]) {
            assert!(line.trim_start().starts_with(who), "{who}: {ended:#?}");
            assert!(line.ends_with(if who == "rank " { "devices" } else { device }), "{who}: {ended:#?}");
        }
        let silent = run(&format!("-n 2 --dev {device}"), &format!("messages:{name}"));
        assert!(silent.err.is_empty(), "{silent:#?}");
    }
}
