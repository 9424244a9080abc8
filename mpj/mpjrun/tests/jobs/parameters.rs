//! Tests that parameters reach the ranks, and that they are checked before any process starts.

use mpj::{Error, Op, World};

use crate::Test;
use crate::job::{mpjrun, run, run_sh, watch};
use crate::program::say;

pub(crate) const TESTS: &[Test] = &[
    ("a_forced_algorithm_is_taken", a_forced_algorithm_is_taken),
    ("ranks_that_force_different_algorithms_are_told", ranks_that_force_different_algorithms_are_told),
    ("parameters_of_the_environment_reach_the_ranks", parameters_of_the_environment_reach_the_ranks),
    ("the_launcher_has_parameters_of_its_own", the_launcher_has_parameters_of_its_own),
    (
        "ranks_of_different_niodev_parameters_reach_each_other",
        ranks_of_different_niodev_parameters_reach_each_other,
    ),
    (
        "ranks_of_different_shmdev_parameters_reach_each_other",
        ranks_of_different_shmdev_parameters_reach_each_other,
    ),
    ("every_parameter_is_listed", every_parameter_is_listed),
];

const COUNT: usize = 64;

/// Calls every collective that has several algorithms; prints how many messages the allreduce took.
pub(crate) fn ways(world: &World) -> Result<(), Error> {
    let (me, size) = (world.rank() as u64, world.size());
    let sent =
        || -> u64 { world.stats().devices.iter().map(|(_, t)| t.eager.number + t.rendezvous.number).sum() };
    let before = sent();
    let mut sum = [0u64; COUNT];
    world.allreduce(&[me + 1; COUNT], &mut sum, Op::Sum)?;
    say(&format!("allreduce took {}", sent() - before));
    assert_eq!(sum, [(1..=size as u64).sum::<u64>(); COUNT]);
    let mut all = vec![0u64; COUNT * size];
    world.allgather(&[me; COUNT], &mut all)?;
    assert!(all.iter().enumerate().all(|(at, item)| *item == (at / COUNT) as u64), "{all:?}");
    let out: Vec<u64> = (0..size as u64).map(|to| 100 * me + to).collect();
    let mut back = vec![0u64; size];
    world.alltoall(&out, &mut back)?;
    assert!(back.iter().zip(0..).all(|(item, from)| *item == 100 * from + me), "{back:?}");
    Ok(())
}

fn a_forced_algorithm_is_taken() {
    for (set, messages) in [
        ("-x MPJ_LINEAR_MAX_RANKS=0", 2),
        (
            "-x MPJ_ALLREDUCE_ALGORITHM=ring -x MPJ_ALLGATHER_ALGORITHM=ring -x MPJ_ALLTOALL_ALGORITHM=pairs",
            6,
        ),
        ("-x MPJ_ALLREDUCE_RING_MIN=0 -x MPJ_ALLGATHER_LINEAR_MAX=0 -x MPJ_ALLTOALL_LINEAR_MAX=0", 6),
        (
            "-x MPJ_ALLREDUCE_RING_MIN=0 -x MPJ_ALLREDUCE_ALGORITHM=doubling -x MPJ_ALLGATHER_ALGORITHM=direct -x MPJ_ALLTOALL_ALGORITHM=direct",
            2,
        ),
    ] {
        let ended = run(&format!("-n 4 {set}"), "ways");
        assert_eq!(
            (ended.code, ended.out),
            (Some(0), vec![format!("allreduce took {messages}"); 4]),
            "{set}"
        );
    }
    for set in ["", "-x MPJ_LINEAR_MAX_RANKS=0 -x MPJ_ALLREDUCE_ALGORITHM=flat"] {
        let mut ended = run(&format!("-n 4 {set}"), "ways");
        ended.out.sort_unstable();
        // Rank 0 sends the result to the three ranks that have sent to it.
        let took = [1, 1, 1, 3].map(|messages| format!("allreduce took {messages}"));
        assert_eq!((ended.code, ended.out), (Some(0), took.to_vec()), "{set}");
    }
}

fn ranks_that_force_different_algorithms_are_told() {
    for (call, set) in [
        ("allreduce", "MPJ_ALLREDUCE_ALGORITHM=ring"),
        ("allreduce", "MPJ_ALLREDUCE_ALGORITHM=doubling"),
        ("allreduce", "MPJ_LINEAR_MAX_BYTES=0"),
        ("allgather", "MPJ_ALLGATHER_ALGORITHM=ring"),
        ("alltoall", "MPJ_ALLTOALL_ALGORITHM=pairs"),
    ] {
        let script = format!("[ $MPJ_RANK = 1 ] && export {set}; exec $RANKS rank ways");
        let ended = run_sh("-n 3", &script);
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        assert!(ended.err.iter().any(|line| line.contains(call)), "{call}: {ended:#?}");
    }
}

fn parameters_of_the_environment_reach_the_ranks() {
    let mut command = mpjrun("-n 2");
    command.args(["sh", "-c", "echo $MPJ_NIO_LISTEN_ADDRESS $MPJ_ALLREDUCE_ALGORITHM $MPJ_SPIN_US"]);
    command.envs([
        ("MPJ_NIO_LISTEN_ADDRESS", "127.0.0.2"),
        ("MPJ_ALLREDUCE_ALGORITHM", "ring"),
        ("MPJ_SPIN_US", "3"),
    ]);
    let ended = watch(&mut command).0.end();
    assert_eq!((ended.code, ended.out), (Some(0), vec!["127.0.0.2 ring 3".to_owned(); 2]));
    // The parameter also sets the address on which ranks listen. No interface has this address.
    let mut command = mpjrun("-n 2 --dev niodev");
    command
        .arg(std::env::current_exe().unwrap())
        .args(["rank", "fine"])
        .env("MPJ_NIO_LISTEN_ADDRESS", "240.0.0.77");
    let ended = watch(&mut command).0.end();
    ended.expect(1, &["MPJ_NIO_LISTEN_ADDRESS=240.0.0.77 is not an address of this host"]);
}

/// Each rank accepts messages of the other: eager ones, messages in pieces, and those of collectives.
fn ranks_of_different_niodev_parameters_reach_each_other() {
    for (name, values) in [
        ("MPJ_NIO_EAGER_LIMIT", ["56", "4194304"]),
        ("MPJ_NIO_MAX_SEND_SIZE", ["1024", "16777216"]),
        ("MPJ_NIO_LISTEN_ADDRESS", ["127.0.0.1", "127.0.0.2"]),
    ] {
        for [one, others] in [[values[0], values[1]], [values[1], values[0]]] {
            for program in ["ring", "collectives", "pieces", "freed"] {
                let rank = format!(
                    "{name}={others}; test $MPJ_RANK = 1 && {name}={one}; export {name}; exec $RANKS rank messages:{program}"
                );
                let ended = run_sh("-n 3 --dev niodev", &rank);
                assert_eq!(ended.code, Some(0), "{name}: {one}, {others}: {program}: {ended:#?}");
            }
        }
    }
}

/// The launcher's values determine the layout of the memory that the ranks of a host share.
fn ranks_of_different_shmdev_parameters_reach_each_other() {
    for (name, value) in
        [("EAGER", "56"), ("FRAGMENTS", "4"), ("RINGS", "1"), ("POOL", "1"), ("SINGLE_COPY", "100000000")]
    {
        let name = format!("MPJ_SHM_{name}");
        let rank = format!("test $MPJ_RANK = 1 && export {name}={value}; exec $RANKS rank messages:ring");
        let ended = run_sh("-n 3 --dev shmdev", &rank);
        assert_eq!(ended.code, Some(0), "{name}: {ended:#?}");
    }
}

fn the_launcher_has_parameters_of_its_own() {
    let with = |name: &str, value: &str, args: &str| {
        let mut command = mpjrun(args);
        command.arg(std::env::current_exe().unwrap()).args(["rank", "fine"]).env(name, value);
        watch(&mut command).0.end()
    };
    // With the variable alone, the ranks are threads of one process; with `--dev auto` they are processes.
    for (value, args, together) in [("smdev", "-n 2", true), ("smdev", "-n 2 --dev auto", false)] {
        let ended = with("MPJ_DEVICES", value, args);
        let processes: Vec<&str> = ended.out.iter().filter_map(|line| line.rsplit(' ').next()).collect();
        assert_eq!((ended.code, processes.len()), (Some(0), 2), "{ended:#?}");
        assert_eq!(processes[0] == processes[1], together, "{args}: {ended:#?}");
    }
    with("MPJ_DEVICES", "a ring", "-n 2").expect(2, &["MPJ_DEVICES=a ring is not devices, such as auto"]);
    with("MPJ_KILL_AFTER", "soon", "-n 2").expect(2, &["MPJ_KILL_AFTER=soon is not a number"]);
}

fn every_parameter_is_listed() {
    let ended = watch(&mut mpjrun("--params")).0.end();
    let parts = ended.out.split(String::is_empty).skip(1).map(|part| part.split_first().unwrap());
    let parts: Vec<(&String, &[String])> = parts.collect();
    for (part, start, end) in [
        ("know these first", "MPJ_DEVICES=auto ", "such as auto or shmdev,niodev]"),
        ("general", "MPJ_SPIN_US=20 ", "[0 to 1000000]"),
        ("start-up", "MPJ_KILL_AFTER=2 ", "[0 to 86400]"),
        ("reports", "MPJ_TEST_TIMEOUT=60s ", "or 0 for no limit]"),
        ("shmdev", "MPJ_SHM_SINGLE_COPY_MIN=0 ", "]"),
        ("niodev", "MPJ_NIO_LISTEN_ADDRESS=127.0.0.1 ", "[an address, such as 10.0.0.1]"),
        ("collectives", "MPJ_ALLREDUCE_ALGORITHM=auto ", "[one of auto, flat, doubling, ring]"),
    ] {
        let lines = parts.iter().find(|(name, _)| *name == part).map(|(_, lines)| *lines).unwrap_or_default();
        let line = lines.iter().find(|line| line.trim_start().starts_with(start));
        assert!(line.is_some_and(|line| line.ends_with(end)), "{part}: {start}: {ended:#?}");
    }
    assert_eq!((parts[0].0.as_str(), parts[0].1.len()), ("know these first", 3));
    let mut names: Vec<&str> =
        ended.out.iter().filter_map(|line| line.trim_start().split_once('=')).map(|(n, _)| n).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "each stands once");
}
