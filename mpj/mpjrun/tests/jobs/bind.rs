//! The binding of ranks to cores.

use std::io::Write;
use std::process::Command;

use mpj_devices::cores::Cores;

use crate::Test;
use crate::job::{Ended, mpjrun, watch};

pub(crate) const TESTS: &[Test] = &[
    (
        "ranks_are_bound_to_disjoint_cores_if_there_are_enough",
        ranks_are_bound_to_disjoint_cores_if_there_are_enough,
    ),
    ("ranks_that_outnumber_the_cores_are_not_bound", ranks_that_outnumber_the_cores_are_not_bound),
    ("binding_can_be_turned_off", binding_can_be_turned_off),
    ("process_is_bound_to_the_cores_of_all_its_ranks", process_is_bound_to_the_cores_of_all_its_ranks),
    ("ranks_use_only_the_cores_of_mpjrun", ranks_use_only_the_cores_of_mpjrun),
    ("invalid_bindings_are_rejected", invalid_bindings_are_rejected),
];

/// Returns the cores of each process of a job.
fn cores(command: &mut Command) -> Vec<String> {
    let ended = watch(command.args(["sh", "-c", "grep Cpus_allowed_list /proc/self/status"])).0.end();
    assert_eq!((ended.code, ended.err.len()), (Some(0), 0), "{ended:#?}");
    let mut cores: Vec<String> =
        ended.out.iter().map(|line| line.split_whitespace().last().unwrap().to_owned()).collect();
    cores.sort();
    cores
}

/// Returns the cores of this process in `ranks` shares, in the notation of the kernel; `None` if there are too few.
fn expected(ranks: usize) -> Option<Vec<String>> {
    let shares = Cores::allowed().shares(ranks);
    if shares.is_none() {
        drop(writeln!(std::io::stderr(), "SKIPPED: {ranks} ranks need as many cores"));
    }
    let written = |share: &Cores| share.to_string().replace('+', ",");
    let mut shares: Vec<String> = shares?.iter().map(written).collect();
    shares.sort();
    Some(shares)
}

fn all_cores() -> String {
    Cores::allowed().to_string().replace('+', ",")
}

fn ranks_are_bound_to_disjoint_cores_if_there_are_enough() {
    let Some(shares) = expected(2) else { return };
    assert!(shares[0] != shares[1]);
    assert_eq!(cores(&mut mpjrun("-n 2")), shares);
    assert_eq!(cores(&mut mpjrun("-n 2 --bind auto")), shares);
    let single = cores(&mut mpjrun("-n 2 --bind core"));
    assert!(single[0] != single[1] && single.iter().all(|one| one.parse::<usize>().is_ok()), "{single:?}");
}

fn ranks_that_outnumber_the_cores_are_not_bound() {
    let ranks = Cores::allowed().numbers().count() + 1;
    assert_eq!(cores(&mut mpjrun(&format!("-n {ranks}"))), vec![all_cores(); ranks]);
}

fn binding_can_be_turned_off() {
    let all = [all_cores(), all_cores()];
    assert_eq!(cores(&mut mpjrun("-n 2 --bind none")), all);
    assert_eq!(cores(mpjrun("-n 2").env("MPJ_BIND", "none")), all);
    assert_eq!(cores(&mut mpjrun("-n 2 -x MPJ_BIND=none")), all);
}

fn process_is_bound_to_the_cores_of_all_its_ranks() {
    assert_eq!(cores(&mut mpjrun("-n 2 --ranks-per-process 2")), [all_cores()]);
}

fn ranks_use_only_the_cores_of_mpjrun() {
    let first = Cores::allowed().first().to_string();
    let mut limited = Command::new("taskset");
    limited.args(["-c", &first, env!("CARGO_BIN_EXE_mpjrun"), "-n", "2"]);
    assert_eq!(cores(&mut limited), [first.clone(), first]);
}

fn invalid_bindings_are_rejected() {
    let run = |args: &str| -> Ended { watch(&mut mpjrun(args)).0.end() };
    let ranks = Cores::allowed().numbers().count() + 1;
    for (args, parts) in [
        (format!("-n {ranks} --bind core true"), ["--bind core", "need one core each"]),
        ("-n 2 --bind socket true".to_owned(), ["--bind socket", "not one of auto, core, none"]),
        ("-n 2 --bind-to none true".to_owned(), ["unsupported option --bind-to", "use --bind"]),
    ] {
        let ended = run(&args);
        ended.expect(2, &parts);
        assert_eq!((ended.out.len(), ended.err.len()), (0, 1), "{ended:#?}");
    }
}
