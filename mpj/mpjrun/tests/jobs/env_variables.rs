//! Jobs without a launcher: which variables of a process state its rank, and those of several launchers at once.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::{Command, Stdio};

use super::Test;
use super::env::{SECRET, assert_pairs, free_port, has_error, run_job, start, start_rank};
use super::hydra::HYDRA;
use super::job::{Job, run_sh, watch};
use super::pmix::OPEN_MPI;

pub(crate) const TESTS: &[Test] = &[
    ("variables_of_schedulers_state_the_rank", variables_of_schedulers_state_the_rank),
    ("incomplete_variables_are_errors", incomplete_variables_are_errors),
    ("programs_of_ranks_are_not_ranks", programs_of_ranks_are_not_ranks),
    ("inner_launcher_wins_over_a_step_of_one_rank", inner_launcher_wins_over_a_step_of_one_rank),
];

fn variables_of_schedulers_state_the_rank() {
    let port = free_port().to_string();
    let at = format!("localhost:{port}");
    let slurm = |rank| {
        let step = [("SLURM_JOB_ID", "7"), ("SLURM_STEP_ID", "3"), ("SLURM_STEP_NUM_TASKS", "3")];
        let ports = [("SLURM_STEP_NODELIST", "localhost,other"), ("SLURM_STEP_RESV_PORTS", &port)];
        [&step[..], &ports, &[("SLURM_PROCID", rank), ("MPJ_SECRET", SECRET)]].concat()
    };
    let kubernetes = |rank| {
        let own = [("MPJ_SIZE", "3"), ("MPJ_RENDEZVOUS", &*at), ("MPJ_SECRET", SECRET)];
        [&own[..], &[("JOB_COMPLETION_INDEX", rank)]].concat()
    };
    let torch = |rank| {
        let own =
            [("RANK", rank), ("WORLD_SIZE", "3"), ("MASTER_ADDR", "127.0.0.1"), ("MASTER_PORT", &*port)];
        [&own[..], &[("MPJ_LAUNCHER", "env"), ("MPJ_NIO_SECURITY", "none")]].concat()
    };
    type Variables<'a> = &'a dyn Fn(&'static str) -> Vec<(&'a str, &'a str)>;
    for variables in [&slurm as Variables<'_>, &kubernetes, &torch] {
        let jobs = ["0", "1", "2"].map(|rank| start("pairs", &variables(rank)));
        assert_pairs(&jobs.map(Job::end), "aaa");
    }
    // Variables of `torchrun` alone start nothing, and a step of Slurm needs a secret.
    let variables: Vec<_> = torch("1").into_iter().filter(|(name, _)| !name.starts_with("MPJ_")).collect();
    assert_eq!(start("fine", &variables).end().code, Some(0));
    let variables: Vec<_> = slurm("1").into_iter().filter(|(name, _)| !name.starts_with("MPJ_")).collect();
    let ended = start("fine", &variables).end();
    assert!(ended.code == Some(1) && has_error(&ended, "no secret protects the connections"), "{ended:#?}");
}

fn incomplete_variables_are_errors() {
    let at = ("MPJ_RENDEZVOUS", "localhost:7000");
    for (variables, why) in [
        (
            &[at][..],
            "no variables state the rank of this process; expected those of one of: explicit variables",
        ),
        (&[("MPJ_LAUNCHER", "env")], "no variables state the rank of this process"),
        (
            &[("MPJ_RANK", "1"), ("MPJ_SIZE", "4")],
            "MPJ_RANK=1 and MPJ_SIZE=4 are set, but not MPJ_RENDEZVOUS: set it to HOST:PORT of rank 0",
        ),
        (&[("JOB_COMPLETION_INDEX", "1"), ("MPJ_SIZE", "4")], "but not MPJ_RENDEZVOUS"),
        (
            &[("MPJ_RANK", "1"), ("MPJ_SIZE", "4"), ("MPJ_RENDEZVOUZ", "localhost:7000")],
            "no parameter is named MPJ_RENDEZVOUZ: did you mean MPJ_RENDEZVOUS?",
        ),
        (&[at, ("MPJ_RANK", "0")], "MPJ_SIZE is not set, but MPJ_RANK is"),
        (&[at, ("MPJ_RANK", "2"), ("MPJ_SIZE", "2")], "MPJ_RANK=2 is not a rank of 2 ranks (MPJ_SIZE)"),
        (&[at, ("MPJ_RANK", "0"), ("MPJ_SIZE", "2")], "no secret protects the connections of this job"),
        (
            &[at, ("MPJ_RANK", "0"), ("MPJ_SIZE", "2"), ("MPJ_SECRET", "short")],
            "the secret has 5 bytes, but 16 to",
        ),
        (
            &[at, ("MPJ_RANK", "0"), ("MPJ_SIZE", "2"), ("MPJ_SECRET_FILE", "/no/such/file")],
            "MPJ_SECRET_FILE: /no/such/file: No such file",
        ),
        (
            &[at, ("MPJ_RANK", "0"), ("MPJ_SIZE", "70000"), ("MPJ_SECRET", SECRET)],
            "70000 ranks were requested, but a job has at most 65536",
        ),
        (
            &[
                ("MPJ_RENDEZVOUS", "0.0.0.0:7000"),
                ("MPJ_RANK", "0"),
                ("MPJ_SIZE", "2"),
                ("MPJ_SECRET", SECRET),
            ],
            "0.0.0.0 is not an address that others can connect to: name the host of rank 0",
        ),
        (&[("MPJ_RENDEZVOUS_TIMEOUT", "0")], "MPJ_RENDEZVOUS_TIMEOUT=0 is not a number from 1 to"),
    ] {
        let ended = start("fine", variables).end();
        assert!(ended.code == Some(1) && has_error(&ended, why), "{variables:?}: {ended:#?}");
    }
    let both = "MPJ_SECRET_FILE and MPJ_SECRET are both set";
    for (name, value, why) in [
        ("MPJ_SECRET", SECRET.as_bytes(), both),
        ("MPJ_SECRET", b"not UTF-8: \xff", both),
        ("MPJ_RANK", b"\xff", "MPJ_RANK=\u{fffd} is not a number"),
    ] {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["rank", "fine"]).envs([at, ("MPJ_RANK", "0"), ("MPJ_SIZE", "2")]).stdin(Stdio::null());
        command.env("MPJ_SECRET_FILE", "/no/such/file").env(name, OsStr::from_bytes(value));
        let ended = watch(&mut command).0.end();
        assert!(ended.code == Some(1) && has_error(&ended, why), "{name} {value:?}: {ended:#?}");
    }
    for ended in run_job("ab", "init", &[]) {
        assert!(ended.code == Some(0) && ended.out == ["sum 1"], "a second init is an error: {ended:#?}");
    }
    // A job of one rank needs no rendezvous.
    let ended = start("fine", &[at, ("MPJ_RANK", "0"), ("MPJ_SIZE", "1")]).end();
    assert_eq!(ended.code, Some(0), "{ended:#?}");
    for (variables, size) in
        [(&[at, ("MPJ_RANK", "0"), ("MPJ_SIZE", "1")][..], "size 1"), (&[("MPJ_LAUNCHER", "none")], "size 3")]
    {
        let ended = start("threads", variables).end();
        assert!(ended.code == Some(0) && ended.out == [size], "{variables:?}: {ended:#?}");
    }
}

/// Starts a program that inherits the variables of this rank.
pub(crate) fn start_another() {
    let ended = start("fine", &[]).end();
    let why = "another process of this host has rank 0: a program that a rank starts must not inherit MPJ_RENDEZVOUS";
    assert!(ended.code == Some(1) && has_error(&ended, why), "{ended:#?}");
    assert_eq!(start("fine", &[("MPJ_LAUNCHER", "none")]).end().code, Some(0));
}

fn programs_of_ranks_are_not_ranks() {
    let ended = run_job("aa", "start-another", &[]);
    assert!(ended.iter().all(|ended| ended.code == Some(0)), "{ended:#?}");
    // Under `mpjrun`, they are jobs of their own.
    let ended = run_sh("-n 2", "unset MPJ_CONTROL; exec $RANKS rank threads");
    assert_eq!(
        (ended.code, &ended.out[..]),
        (Some(0), &["size 3".to_owned(), "size 3".to_owned()][..]),
        "{ended:#?}"
    );
}

fn inner_launcher_wins_over_a_step_of_one_rank() {
    let step = [("PMI_FD", "77"), ("PMI_RANK", "0"), ("PMI_SIZE", "1")];
    let port = free_port();
    let ended = [0, 1].map(|rank| start_rank(rank, 2, port, "pairs", &step)).map(Job::end);
    assert_pairs(&ended, "aa");
    // The same in steps of real process managers, which processes with inherited variables can reach.
    let ranks = r#"for rank in 0 1; do MPJ_RANK=$rank "$RANKS" rank pairs & done; wait"#;
    let shell = ["sh", "-c", ranks];
    let ranks_of_open_mpi =
        "exec mpirun.openmpi --allow-run-as-root --oversubscribe -n 2 \"$RANKS\" rank pairs";
    for (outer, args, inner, is_missing) in [
        (HYDRA, "-n 1", &shell, HYDRA.is_missing()),
        (HYDRA, "-pmi-port -n 1", &shell, HYDRA.is_missing()),
        (OPEN_MPI, "-n 1", &shell, OPEN_MPI.is_missing()),
        (HYDRA, "-n 1", &["sh", "-c", ranks_of_open_mpi], HYDRA.is_missing() || OPEN_MPI.is_missing()),
    ] {
        if is_missing {
            continue;
        }
        let mut command = Command::new(outer.program);
        command.args(outer.args.split_whitespace()).args(args.split_whitespace()).args(inner);
        command
            .env("RANKS", std::env::current_exe().unwrap())
            .env_remove("RUST_BACKTRACE")
            .stdin(Stdio::null());
        if inner[2] == ranks {
            let at = format!("localhost:{}", free_port());
            command.envs([("MPJ_SIZE", "2"), ("MPJ_RENDEZVOUS", &at), ("MPJ_SECRET", SECRET)]);
        }
        assert_pairs(&[watch(&mut command).0.end()], "aa");
    }
}
