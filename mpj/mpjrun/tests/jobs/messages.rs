//! Messages of several types and layouts between processes, with every data path; programs that fail with other
//! libraries, also on threads (`smdev`); files that jobs leave in `/dev/shm`; and `--stats`.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::process::ExitCode;

use super::Test;
use super::job::run;
use super::message_programs::{PROGRAMS, Program};
use super::program::say;
use super::rival_faults::FAULTS;

pub(crate) const TESTS: &[Test] = &[
    ("buffers_arrive_intact", buffers_arrive_intact),
    ("every_data_path_gives_the_same_result", every_data_path_gives_the_same_result),
    ("programs_that_fail_with_other_libraries_succeed", programs_that_fail_with_other_libraries_succeed),
    ("jobs_leave_no_files_in_dev_shm", jobs_leave_no_files_in_dev_shm),
    ("stats_prints_one_table_of_all_ranks", stats_prints_one_table_of_all_ranks),
];

pub(crate) fn program_of(role: &str) -> Option<Program> {
    let name = role.strip_prefix("messages:")?;
    if name == "faults" {
        return Some(run_faults);
    }
    PROGRAMS.iter().find(|(known, _)| *known == name).map(|(_, program)| *program)
}

fn run_faults(world: &mpj::World) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    for (name, program) in FAULTS {
        program(world).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(())
}

pub(crate) fn run_program(program: Program) -> ExitCode {
    mpj::run(|world| {
        program(&world)?;
        say(&format!("rank {} is done", world.rank()));
        Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    })
}

fn buffers_arrive_intact() {
    for ranks in [2, 3, 6] {
        for device in ["shmdev", "niodev"] {
            for (name, _) in PROGRAMS {
                let ended = run(&format!("-n {ranks} --devices {device}"), &format!("messages:{name}"));
                let done = ended.out.iter().filter(|line| line.ends_with("is done")).count();
                assert_eq!((ended.code, done), (Some(0), ranks), "{name} by {device}: {ended:#?}");
            }
        }
    }
}

fn every_data_path_gives_the_same_result() {
    for path in ["buffered", "zerocopy"] {
        for device in ["shmdev", "niodev"] {
            // In `limits`, both ranks send before they receive, which works only if the messages are buffered.
            for (name, _) in PROGRAMS.iter().filter(|(name, _)| path != "zerocopy" || *name != "limits") {
                let ended =
                    run(&format!("-n 2 --devices {device} --data-path {path}"), &format!("messages:{name}"));
                let done = ended.out.iter().filter(|line| line.ends_with("is done")).count();
                assert_eq!((ended.code, done), (Some(0), 2), "{name} by {device}, {path}: {ended:#?}");
            }
        }
    }
    let ended = run("-n 2 --data-path sideways", "messages:none");
    assert_eq!(ended.code, Some(2), "{ended:#?}");
    assert!(ended.err.concat().contains("is not one of auto, buffered, zerocopy"), "{ended:#?}");
}

fn programs_that_fail_with_other_libraries_succeed() {
    let devices =
        ["--devices smdev", "--devices shmdev", "--devices niodev", "-x MPJ_SIMULATED_HOSTS=a:1,b:2"];
    for args in devices {
        let ended = run(&format!("-n 3 {args}"), "messages:faults");
        let done = ended.out.iter().filter(|line| line.ends_with("is done")).count();
        assert_eq!((ended.code, done), (Some(0), 3), "{args}: {ended:#?}");
    }
}

fn jobs_leave_no_files_in_dev_shm() {
    let files = || -> BTreeSet<OsString> {
        let entries = std::fs::read_dir("/dev/shm").into_iter().flatten().flatten();
        entries.map(|entry| entry.file_name()).filter(|name| name.to_string_lossy().contains("mpj")).collect()
    };
    let before = files();
    for (role, code) in [("fine", 0), ("panic", 101), ("kill", 137)] {
        let ended = run("-n 4 --devices shmdev", role);
        assert_eq!(ended.code, Some(code), "{role}: {ended:#?}");
        let left: Vec<_> = files().difference(&before).cloned().collect();
        assert!(left.is_empty(), "{role} leaves {left:?}");
    }
}

fn stats_prints_one_table_of_all_ranks() {
    let (name, _) = PROGRAMS[0];
    for device in ["shmdev", "niodev", "smdev"] {
        let ended = run(&format!("-n 2 -l --devices {device} --stats"), &format!("messages:{name}"));
        assert_eq!(ended.code, Some(0), "{ended:#?}");
        assert_eq!(ended.err[0], "mpjrun: traffic of the ranks: number (bytes)");
        for (line, who) in ended.err[1..5].iter().zip(["rank ", "0 ", "1 ", "sum "]) {
            assert!(line.trim_start().starts_with(who), "{who}: {ended:#?}");
            assert!(line.ends_with(if who == "rank " { "devices" } else { device }), "{who}: {ended:#?}");
        }
        let silent = run(&format!("-n 2 --devices {device}"), &format!("messages:{name}"));
        assert!(silent.err.is_empty(), "{silent:#?}");
    }
}
