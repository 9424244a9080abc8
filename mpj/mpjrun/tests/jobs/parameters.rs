//! Parameters reach `mpjrun` and the ranks, and invalid values are rejected.

use mpj::{Error, Op, World};

use crate::Test;
use crate::job::{mpjrun, run, run_sh, watch};
use crate::program::say;

pub(crate) const TESTS: &[Test] = &[
    ("forced_algorithm_is_used", forced_algorithm_is_used),
    ("different_algorithms_on_ranks_are_an_error", different_algorithms_on_ranks_are_an_error),
    ("parameters_in_the_environment_reach_the_ranks", parameters_in_the_environment_reach_the_ranks),
    ("mpjrun_reads_its_parameters", mpjrun_reads_its_parameters),
    ("niodev_parameters_may_differ_between_ranks", niodev_parameters_may_differ_between_ranks),
    ("shmdev_parameters_may_differ_between_ranks", shmdev_parameters_may_differ_between_ranks),
    ("parameters_are_listed_once_and_in_groups", parameters_are_listed_once_and_in_groups),
];

const COUNT: usize = 64;

/// Calls allreduce, allgather and alltoall, and prints how many messages this rank sent for the allreduce.
pub(crate) fn algorithms(world: &World) -> Result<(), Error> {
    let (me, size) = (world.rank() as u64, world.size());
    let sent =
        || -> u64 { world.stats().devices.iter().map(|(_, t)| t.eager.number + t.rendezvous.number).sum() };
    let before = sent();
    let mut sum = [0u64; COUNT];
    world.allreduce(&[me + 1; COUNT], &mut sum, Op::Sum)?;
    say(&format!("allreduce sent {}", sent() - before));
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

fn forced_algorithm_is_used() {
    for (set, messages) in [
        ("-x MPJ_COLL_ALLREDUCE=recursive_doubling", 2),
        ("-x MPJ_COLL_ALLREDUCE=ring -x MPJ_COLL_ALLGATHER=ring -x MPJ_COLL_ALLTOALL=pairwise", 6),
        ("-x MPJ_COLL_ALLREDUCE=linear:ranks=5-,ring:bytes=1-,linear", 6),
        ("-x MPJ_SIMULATED_HOSTS=a:1,b:3 -x MPJ_COLL_ALLREDUCE=linear:hosts=1,ring:hosts=2", 6),
    ] {
        let ended = run(&format!("-n 4 {set}"), "algorithms");
        assert_eq!(
            (ended.code, ended.out),
            (Some(0), vec![format!("allreduce sent {messages}"); 4]),
            "{set}"
        );
    }
    for set in ["", "-x MPJ_COLL_ALLREDUCE=linear"] {
        let mut ended = run(&format!("-n 4 {set}"), "algorithms");
        ended.out.sort_unstable();
        let took = [1, 1, 1, 3].map(|messages| format!("allreduce sent {messages}"));
        assert_eq!((ended.code, ended.out), (Some(0), took.to_vec()), "{set}");
    }
}

fn different_algorithms_on_ranks_are_an_error() {
    for (call, set) in [
        ("allreduce", "MPJ_COLL_ALLREDUCE=ring"),
        ("allreduce", "MPJ_COLL_ALLREDUCE=recursive_doubling"),
        ("allgather", "MPJ_COLL_ALLGATHER=ring"),
        ("alltoall", "MPJ_COLL_ALLTOALL=pairwise"),
    ] {
        let script = format!("[ $MPJ_RANK = 1 ] && export {set}; exec $RANKS rank algorithms");
        let ended = run_sh("-n 3", &script);
        assert_eq!(ended.code, Some(1), "{ended:#?}");
        assert!(ended.err.iter().any(|line| line.contains(call)), "{call}: {ended:#?}");
    }
}

fn parameters_in_the_environment_reach_the_ranks() {
    let mut command = mpjrun("-n 2");
    command.args(["sh", "-c", "echo $MPJ_NIO_LISTEN_ADDRESS $MPJ_COLL_ALLREDUCE $MPJ_SPIN_US"]);
    command.envs([
        ("MPJ_NIO_LISTEN_ADDRESS", "127.0.0.2"),
        ("MPJ_COLL_ALLREDUCE", "ring"),
        ("MPJ_SPIN_US", "3"),
    ]);
    let ended = watch(&mut command).0.end();
    assert_eq!((ended.code, ended.out), (Some(0), vec!["127.0.0.2 ring 3".to_owned(); 2]));
    // Ranks listen on the address of the parameter. No interface has this address.
    let mut command = mpjrun("-n 2 --devices niodev");
    command
        .arg(std::env::current_exe().unwrap())
        .args(["rank", "fine"])
        .env("MPJ_NIO_LISTEN_ADDRESS", "240.0.0.77");
    let ended = watch(&mut command).0.end();
    ended.expect(1, &["MPJ_NIO_LISTEN_ADDRESS=240.0.0.77 is not an address of this host"]);
}

fn niodev_parameters_may_differ_between_ranks() {
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
                let ended = run_sh("-n 3 --devices niodev", &rank);
                assert_eq!(ended.code, Some(0), "{name}: {one}, {others}: {program}: {ended:#?}");
            }
        }
    }
}

/// The values of `mpjrun` determine the layout of the shared memory.
fn shmdev_parameters_may_differ_between_ranks() {
    for (name, value) in [("EAGER_LIMIT", "56"), ("FRAGMENTS", "4"), ("RING_KIB", "1"), ("POOL_MIB", "1")] {
        let name = format!("MPJ_SHM_{name}");
        let rank = format!("test $MPJ_RANK = 1 && export {name}={value}; exec $RANKS rank messages:ring");
        let ended = run_sh("-n 3 --devices shmdev", &rank);
        assert_eq!(ended.code, Some(0), "{name}: {ended:#?}");
    }
}

fn mpjrun_reads_its_parameters() {
    let with = |name: &str, value: &str, args: &str| {
        let mut command = mpjrun(args);
        command.arg(std::env::current_exe().unwrap()).args(["rank", "fine"]).env(name, value);
        watch(&mut command).0.end()
    };
    // The option overrides the variable.
    for (value, args, is_one_process) in [("smdev", "-n 2", true), ("smdev", "-n 2 --devices auto", false)] {
        let ended = with("MPJ_DEVICES", value, args);
        let processes: Vec<&str> = ended.out.iter().filter_map(|line| line.rsplit(' ').next()).collect();
        assert_eq!((ended.code, processes.len()), (Some(0), 2), "{ended:#?}");
        assert_eq!(processes[0] == processes[1], is_one_process, "{args}: {ended:#?}");
    }
    with("MPJ_DEVICES", "a ring", "-n 2")
        .expect(2, &["MPJ_DEVICES=a ring is not auto, or names separated by commas"]);
    with("MPJ_KILL_AFTER", "soon", "-n 2").expect(2, &["MPJ_KILL_AFTER=soon is not a number"]);
}

fn parameters_are_listed_once_and_in_groups() {
    let ended = watch(&mut mpjrun("--params")).0.end();
    let parts = ended.out.split(String::is_empty).skip(1).map(|part| part.split_first().unwrap());
    let parts: Vec<(&String, &[String])> = parts.collect();
    for (part, start, end) in [
        ("most important", "MPJ_DEVICES=auto ", "[auto, or names separated by commas]"),
        ("general", "MPJ_SPIN_US=20 ", "[0 to 1000000]"),
        ("start-up", "MPJ_KILL_AFTER=2 ", "[0 to 86400]"),
        ("reports", "MPJ_TEST_TIMEOUT=60s ", "or 0 for no limit]"),
        ("shmdev", "MPJ_SHM_EAGER_LIMIT=65536 ", "]"),
        ("niodev", "MPJ_NIO_LISTEN_ADDRESS=127.0.0.1 ", "[an address, such as 10.0.0.1]"),
        ("collectives", "MPJ_COLL_BCAST=linear:ranks=3-8:bytes=0-32K,binomial ", "[linear, binomial]"),
    ] {
        let lines = parts.iter().find(|(name, _)| *name == part).map(|(_, lines)| *lines).unwrap_or_default();
        let line = lines.iter().find(|line| line.trim_start().starts_with(start));
        assert!(line.is_some_and(|line| line.ends_with(end)), "{part}: {start}: {ended:#?}");
    }
    assert_eq!((parts[0].0.as_str(), parts[0].1.len()), ("most important", 3));
    let mut names: Vec<&str> =
        ended.out.iter().filter_map(|line| line.trim_start().split_once('=')).map(|(n, _)| n).collect();
    let all = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), all, "each parameter is listed once");
}
