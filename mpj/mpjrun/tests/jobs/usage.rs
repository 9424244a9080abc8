//! Command lines, environment variables, limits of the host and other launchers: errors and exit codes.

use std::process::Command;

use crate::Test;
use crate::job::{Ended, mpjrun, run, run_sh, watch};
use crate::process_managers::assert_pairs;
use crate::program::say;

pub(crate) const TESTS: &[Test] = &[
    ("invalid_command_lines_are_rejected", invalid_command_lines_are_rejected),
    ("spellings_of_other_launchers_work", spellings_of_other_launchers_work),
    ("misspelt_variables_are_rejected", misspelt_variables_are_rejected),
    ("params_and_help_are_printed", params_and_help_are_printed),
    ("too_few_descriptors_are_reported_before_the_start", too_few_descriptors_are_reported_before_the_start),
    ("too_little_memory_is_reported", too_little_memory_is_reported),
    ("file_size_limit_is_reported", file_size_limit_is_reported),
    ("host_without_network_is_not_a_death", host_without_network_is_not_a_death),
    ("stale_control_variable_is_an_error", stale_control_variable_is_an_error),
    ("program_of_another_version_is_rejected", program_of_another_version_is_rejected),
    ("mpjrun_works_under_another_launcher", mpjrun_works_under_another_launcher),
    ("launcher_mpjrun_joins_the_job_of_mpjrun", launcher_mpjrun_joins_the_job_of_mpjrun),
];

#[track_caller]
fn expect_one_line(ended: &Ended, code: i32, parts: &[&str]) {
    ended.expect(code, parts);
    assert_eq!((ended.out.len(), ended.err.len()), (0, 1), "{ended:#?}");
}

fn invalid_command_lines_are_rejected() {
    for (args, code, parts) in [
        ("-n 2 ./no-such-program", 127, &["program './no-such-program' not found"][..]),
        ("-n 2 no-such-program", 127, &["program 'no-such-program' not found"]),
        ("-n 2 /etc/passwd", 126, &["cannot execute '/etc/passwd'"]),
        (
            "-n 2 --devices token/ring true",
            2,
            &["--devices token/ring: 'token/ring' is not a valid device name"],
        ),
        ("-n 2 --devices smdev,auto true", 2, &["--devices smdev,auto: auto cannot be combined"]),
        ("-n 0 true", 2, &["-n 0"]),
        ("-n 100000 true", 2, &["-n 100000"]),
        ("-n two true", 2, &["'two'", "expected a number of ranks"]),
        ("-n -1 true", 2, &["'-1'", "expected a number of ranks"]),
        ("-n 2 --ranks-per-process -1 true", 2, &["'-1'", "expected a number of ranks"]),
        ("-n 2 --timeout -1 true", 2, &["'-1'", "expected a number of seconds"]),
        ("-n 2 --frobnicate true", 2, &["--frobnicate"]),
        ("-n 2", 2, &["mpjrun -n N [OPTIONS] PROGRAM"]),
        ("true", 2, &["expected a number of ranks and a program: mpjrun -n N"]),
        ("-n 2 /etc true", 126, &["'/etc' is a directory"]),
        ("-n 2 -x NOTHING true", 2, &["-x NOTHING: no such variable in the environment"]),
        ("-n 2 -x MPJ_SPIN_SU=3 true", 2, &["no parameter is named MPJ_SPIN_SU: did you mean MPJ_SPIN_US?"]),
        ("-np 2 --timout 3 true", 2, &["unexpected argument '--timout'", "did you mean '--timeout'?"]),
        ("-n 2 --on-failure=continu true", 2, &["continu", "did you mean 'continue'?"]),
        ("-np 2 -hostfile hosts true", 2, &["unsupported option -hostfile", "this host"]),
        ("-n 1 true : -n 1 false", 2, &["':' (several programs in one job) is not supported"]),
        ("-n 2 -x MPJ_SPIN_US=fast true", 2, &["MPJ_SPIN_US=fast"]),
        ("-n 2 --timeout soon true", 2, &["soon"]),
        (
            "-n 4 --devices smdev --ranks-per-process 2 true",
            2,
            &["smdev connects only threads", "--ranks-per-process"],
        ),
    ] {
        expect_one_line(&watch(&mut mpjrun(args)).0.end(), code, parts);
    }
}

fn spellings_of_other_launchers_work() {
    // `mpjrun` prints a hint if a program fails and one of its arguments is an option of `mpjrun`.
    let ended = watch(mpjrun("-n 2").args(["sh", "-c", "exit 7", "--timeout", "4"])).0.end();
    assert_eq!(ended.code, Some(7));
    let hint = "  --timeout was passed to the program: options of mpjrun precede its name";
    assert_eq!(ended.err.last().map(String::as_str), Some(hint), "{ended:#?}");
    assert!(watch(mpjrun("-n 2").args(["true", "--timeout", "4"])).0.end().err.is_empty());

    for args in ["-np 2", "--np 2", "-n2", "-n 2", "-np=2", "--np=2", "-dev niodev -np 2", "-label -n 2"] {
        let ended = run(args, "fine");
        assert_eq!((ended.code, ended.out.len(), ended.err.len()), (Some(0), 2, 0), "{args}: {ended:#?}");
    }
}

fn misspelt_variables_are_rejected() {
    let with = |name, value| {
        let mut command = mpjrun("-n 2 true");
        watch(command.env(name, value)).0.end()
    };
    expect_one_line(
        &with("MPJ_SPIN_SU", "3"),
        2,
        &["no parameter is named MPJ_SPIN_SU: did you mean MPJ_SPIN_US?"],
    );
    expect_one_line(&with("MPJ_SPIN_US", "three"), 2, &["MPJ_SPIN_US=three is not a number"]);
    // A variable of another program.
    assert_eq!(with("MPJ_HOME", "/opt/mpj").code, Some(0));
}

fn params_and_help_are_printed() {
    let ended = watch(&mut mpjrun("--params")).0.end();
    assert_eq!((ended.code, ended.err.len()), (Some(0), 0));
    assert!(
        ended
            .out
            .iter()
            .any(|line| line.starts_with("  MPJ_SPIN_US=20 ") && line.ends_with("[0 to 1000000]")),
        "{ended:#?}"
    );
    let ended = watch(&mut mpjrun("--help")).0.end();
    assert_eq!((ended.code, ended.err.len()), (Some(0), 0));
    for part in ["--ranks-per-process", "this host", "Exit codes:", "mpjrun --params"] {
        assert!(ended.out.iter().any(|line| line.contains(part)), "no '{part}' in {ended:#?}");
    }
    for option in ["--help", "--params"] {
        assert_eq!(sh(&format!("exec $MPJRUN {option} >/dev/full")).code, Some(1), "{option}");
    }
}

/// Runs a script in which `$MPJRUN` is `mpjrun` and `$RANKS` is this program.
pub(crate) fn sh(script: &str) -> Ended {
    let mut command = Command::new("sh");
    command.args(["-c", script]).env("MPJRUN", env!("CARGO_BIN_EXE_mpjrun"));
    watch(command.env("RANKS", std::env::current_exe().unwrap())).0.end()
}

fn too_few_descriptors_are_reported_before_the_start() {
    expect_one_line(
        &sh("ulimit -n 64; exec $MPJRUN -n 16 true"),
        1,
        &["16 processes need", "the limit is 64", "ulimit"],
    );
    // A soft limit is raised for `mpjrun`, but not for the ranks.
    let ended = sh("ulimit -Sn 64; exec $MPJRUN -n 16 sh -c 'ulimit -n'");
    assert_eq!((ended.code, ended.out), (Some(0), vec!["64".to_owned(); 16]));
    let ended = sh("ulimit -n 64; exec $MPJRUN -n 16 --ranks-per-process 8 $RANKS rank fine");
    assert!(ended.code == Some(0) || ended.message().contains("descriptor"), "{ended:#?}");
}

fn too_little_memory_is_reported() {
    let ended = run("-n 64 -x MPJ_SHM_FRAGMENTS=65536", "fine");
    ended.expect(1, &["MiB of shared memory for 64 ranks", "MPJ_SHM_FRAGMENTS", "MPJ_DEVICES"]);
}

fn file_size_limit_is_reported() {
    let ended = sh("ulimit -f 1000; exec $MPJRUN -n 2 $RANKS rank fine");
    ended.expect(
        1,
        &["MiB of shared memory for 2 ranks", "the file size limit is 0 MiB", "ulimit -f", "MPJ_DEVICES"],
    );
    let ended = sh("ulimit -f 1000; exec $MPJRUN -n 2 --devices niodev $RANKS rank fine");
    assert_eq!((ended.code, ended.err.len()), (Some(0), 0), "{ended:#?}");
}

/// Jobs in a network namespace without addresses. The test does nothing if this host does not permit that.
fn host_without_network_is_not_a_death() {
    if !Command::new("unshare").args(["-rn", "true"]).status().is_ok_and(|status| status.success()) {
        say("SKIPPED no `unshare -rn`: this user cannot create a network namespace");
        return;
    }
    let ended = sh("exec unshare -rn $MPJRUN -n 2 --devices niodev $RANKS rank fine");
    assert_eq!((ended.code, ended.out.len()), (Some(1), 0), "{ended:#?}");
    assert!(ended.message().contains("no loopback network"), "{ended:#?}");
    assert!(!ended.message().contains("has failed"), "{ended:#?}");
    for devices in ["auto", "shmdev"] {
        let ended = sh(&format!("exec unshare -rn $MPJRUN -n 2 --devices {devices} $RANKS rank fine"));
        assert_eq!((ended.code, ended.out.len(), ended.err.len()), (Some(0), 2, 0), "{devices}: {ended:#?}");
    }
}

fn stale_control_variable_is_an_error() {
    // If a wrapper has closed the descriptor, the rank must not run as a job of its own.
    let ended = run_sh("-n 2", "eval \"exec ${MPJ_CONTROL%%:*}>&-\"; $RANKS rank fine");
    assert_eq!(ended.code, Some(1), "{ended:#?}");
    assert!(
        ended.err.iter().any(|line| line.contains("is not a control socket of this process")),
        "{ended:#?}"
    );
}

fn program_of_another_version_is_rejected() {
    for (role, parts) in [
        (
            "later-version",
            &["the program of rank 0 is built with mpj 99.1 (control protocol ", "mpjrun with mpj 0"][..],
        ),
        ("no-version", &["rank 0 (pid ", "does the program use another version of mpj than mpjrun?"]),
    ] {
        let mut command = mpjrun("-n 1");
        command.arg(std::env::current_exe().unwrap()).args(["raw", role]);
        watch(&mut command).0.end().expect(1, parts);
    }
}

fn launcher_mpjrun_joins_the_job_of_mpjrun() {
    assert_pairs(&run("-n 2 -x MPJ_LAUNCHER=mpjrun", "pairs"), "aa", "shmdev");
}

/// Without `mpjrun`, the program runs under an unsupported launcher only with `MPJ_LAUNCHER=none`.
fn mpjrun_works_under_another_launcher() {
    let slurm = "export SLURM_PROCID=1 SLURM_NTASKS=4";
    let ended = sh(&format!("{slurm}; exec $MPJRUN -n 2 $RANKS rank fine"));
    assert_eq!((ended.code, ended.out.len(), ended.err.len()), (Some(0), 2, 0), "{ended:#?}");
    for role in ["fine", "init"] {
        let ended = sh(&format!("{slurm}; exec $RANKS rank {role}"));
        assert!(ended.code != Some(0) && ended.out.is_empty(), "{ended:#?}");
        assert!(ended.err.iter().any(|line| line.contains("Slurm's srun (SLURM_NTASKS=4)")), "{ended:#?}");
    }
    let ended = sh(&format!("{slurm} MPJ_LAUNCHER=none; exec $RANKS rank fine"));
    assert_eq!((ended.code, ended.out.len()), (Some(0), 1), "{ended:#?}");
}
