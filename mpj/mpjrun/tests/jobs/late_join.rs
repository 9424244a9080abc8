//! Messages to ranks that have not joined yet, and to ranks that cannot be connected.
//!
//! In the roles `late-…` of this file, the last rank waits until rank 0 creates a file, the gate, or for `GATE_LIMIT`.
//! Then it joins, except in `late-never`.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mpj::{Error, World};

use crate::Test;
use crate::job::{Ended, mpjrun, run_sh, watch};
use crate::program::{leave, say};

pub(crate) const TESTS: &[Test] = &[
    ("death_fails_calls_that_wait_for_an_unstarted_rank", death_fails_calls_that_wait_for_an_unstarted_rank),
    ("death_is_reported_before_the_job_is_terminated", death_is_reported_before_the_job_is_terminated),
    (
        "started_ranks_communicate_while_one_has_not_joined",
        started_ranks_communicate_while_one_has_not_joined,
    ),
    ("exit_before_joining_fails_pending_sends", exit_before_joining_fails_pending_sends),
    ("fd_exhaustion_makes_peer_unreachable_not_dead", fd_exhaustion_makes_peer_unreachable_not_dead),
    ("job_without_descriptors_for_all_connections_ends", job_without_descriptors_for_all_connections_ends),
];

const DEVICES: [&str; 2] = ["shmdev", "niodev"];

const GATE_LIMIT: Duration = Duration::from_secs(20);

const GATE: &str = "LATE_GATE";

fn run(args: &str, role: &str) -> Ended {
    // Tests run concurrently in this process.
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let run = RUNS.fetch_add(1, Ordering::Relaxed);
    let gate = std::env::temp_dir().join(format!("mpj-late-{}-{run}", std::process::id()));
    // An earlier process with the same id might have failed and left the file.
    let _ = std::fs::remove_file(&gate);
    let mut command = mpjrun(args);
    command.env(GATE, &gate).arg(std::env::current_exe().unwrap()).args(["rank", role]);
    let ended = watch(&mut command).0.end();
    let _ = std::fs::remove_file(&gate);
    ended
}

fn gate() -> PathBuf {
    std::env::var_os(GATE).unwrap().into()
}

fn release_last_rank() {
    std::fs::write(gate(), "").unwrap();
}

pub(crate) type Action = fn(&World) -> Result<(), Error>;

pub(crate) fn action_of(role: &str) -> Option<Action> {
    match role {
        "late-death-send" => Some(|world| death(world, |world| world.send(&[7u8], last(world), 0))),
        "late-death-ssend" => Some(|world| death(world, |world| world.ssend(&[7u8], last(world), 0))),
        "late-death-long" => {
            Some(|world| death(world, |world| world.send(&vec![7u8; 1 << 20], last(world), 0)))
        }
        "late-death-recv" => {
            Some(|world| death(world, |world| world.recv(&mut [0u8], last(world), 0).map(|_| ())))
        }
        "late-traffic" => Some(traffic),
        "late-never" => Some(never),
        "few-descriptors" => Some(send_to_all),
        "few-descriptors-alltoall" => Some(alltoall),
        _ => None,
    }
}

pub(crate) fn run_action(action: Action) -> ExitCode {
    if std::env::var_os(GATE).is_none() {
        return mpj::run(move |world| action(&world));
    }
    let number = |name| std::env::var(name).unwrap().parse::<usize>().unwrap();
    if number("MPJ_RANK") + 1 == number("MPJ_SIZE") {
        let start = Instant::now();
        while !gate().exists() && start.elapsed() < GATE_LIMIT {
            std::thread::sleep(Duration::from_millis(5));
        }
        say(if gate().exists() { "released" } else { "not released" });
        if std::ptr::fn_addr_eq(action, never as Action) {
            return ExitCode::SUCCESS;
        }
    }
    mpj::run(move |world| action(&world))
}

fn last(world: &World) -> usize {
    world.size() - 1
}

/// Rank 1 dies. Rank 0 gets the error from a call that needs the last rank.
fn death(world: &World, call: fn(&World) -> Result<(), Error>) -> Result<(), Error> {
    match world.rank() {
        0 => {
            world.recv(&mut [0u8], 1, 0)?;
            let failed = call(world).unwrap_err();
            say(&format!("failed rank {:?}: {failed}", failed.failed_rank()));
            release_last_rank();
        }
        1 => {
            world.send(&[0u8], 0, 0)?;
            leave(9);
        }
        _ => {}
    }
    Ok(())
}

fn death_fails_calls_that_wait_for_an_unstarted_rank() {
    for device in DEVICES {
        for role in ["late-death-send", "late-death-ssend", "late-death-long", "late-death-recv"] {
            let ended = run(&format!("-n 3 --devices {device} --on-failure=continue"), role);
            ended.expect(9, &["rank 1 (pid ", "exited with code 9"]);
            let named = ended.out.iter().any(|line| line.starts_with("failed rank Some(1)"));
            assert!(named && ended.out.iter().any(|line| line == "released"), "{device} {role}: {ended:#?}");
        }
    }
}

fn death_is_reported_before_the_job_is_terminated() {
    for device in DEVICES {
        let ended = run(&format!("-n 3 --devices {device} --grace 6"), "late-death-send");
        ended.expect(9, &["rank 1 (pid ", "exited with code 9"]);
        assert!(ended.out.iter().any(|line| line.starts_with("failed rank Some(1)")), "{device}: {ended:#?}");
    }
}

/// Lengths in bytes of the messages from rank 0 to the last rank.
const LENGTHS: [usize; 6] = [1, 40_000, 0, 300_000, 8, 5000];

fn pattern(at: usize) -> Vec<u8> {
    (0..LENGTHS[at % LENGTHS.len()]).map(|i| (i * 7 + at) as u8).collect()
}

/// Rank 0 starts messages to the last rank, some of them in threads that block. Then it exchanges messages with the
/// other ranks.
fn traffic(world: &World) -> Result<(), Error> {
    const MANY: usize = 30;
    let (me, last) = (world.rank(), last(world));
    if me == 0 {
        let data: Vec<Vec<u8>> = (0..MANY).map(pattern).collect();
        std::thread::scope(|threads| {
            let mut blocked: Vec<_> =
                (1..3).map(|tag| threads.spawn(move || world.send(&[tag as u8], last, tag))).collect();
            world.scope(|s| {
                let mut sends = Vec::new();
                for (at, data) in data.iter().enumerate() {
                    sends.push(match at % 2 {
                        0 => s.isend(data, last, 0)?,
                        _ => s.issend(data, last, 0)?,
                    });
                }
                for round in 0..100 {
                    for other in 1..last {
                        world.send(&[round as u8], other, 0)?;
                        let mut back = [0u8];
                        world.recv(&mut back, other, 0)?;
                        assert_eq!(back, [round as u8 + 1]);
                    }
                }
                if let Some(at) = blocked.iter().position(|thread| thread.is_finished()) {
                    let ended = blocked.swap_remove(at).join();
                    panic!("a send to an unstarted rank has ended: {ended:?}");
                }
                release_last_rank();
                sends.into_iter().try_for_each(|send| send.wait().map(|_| ()))
            })?;
            blocked.into_iter().try_for_each(|thread| thread.join().unwrap())
        })?;
    } else if me < last {
        for _ in 0..100 {
            let mut got = [0u8];
            world.recv(&mut got, 0, 0)?;
            world.send(&[got[0] + 1], 0, 0)?;
        }
    } else {
        for at in 0..MANY {
            let expected = pattern(at);
            let mut got = vec![0u8; expected.len()];
            world.recv(&mut got, 0, 0)?;
            assert!(got == expected, "message {at}");
        }
        for tag in 1..3 {
            let mut got = [0u8];
            world.recv(&mut got, 0, tag)?;
            assert_eq!(got, [tag as u8]);
        }
    }
    world.barrier()
}

fn started_ranks_communicate_while_one_has_not_joined() {
    for device in DEVICES {
        let ended = run(&format!("-n 4 --devices {device}"), "late-traffic");
        assert_eq!((ended.code, ended.err.len()), (Some(0), 0), "{device}: {ended:#?}");
        assert_eq!(ended.out, ["released"], "{device}");
    }
}

/// The last rank's process exits without joining.
fn never(world: &World) -> Result<(), Error> {
    if world.rank() == 0 {
        let last = last(world);
        let failed = world.scope(|s| {
            let send = s.isend(&[7u8], last, 0)?;
            release_last_rank();
            send.wait().map(|_| ())
        });
        let failed = failed.unwrap_err();
        say(&format!("failed rank {:?}: {failed}", failed.failed_rank()));
    }
    Ok(())
}

fn exit_before_joining_fails_pending_sends() {
    for device in DEVICES {
        let ended = run(&format!("-n 3 --devices {device} --on-failure=continue"), "late-never");
        let named = ended.out.iter().any(|line| line.starts_with("failed rank Some(2)"));
        assert!(named && ended.out.iter().any(|line| line == "released"), "{device}: {ended:#?}");
    }
}

/// Rank 0 sends to all other ranks in turn. With niodev, it runs out of descriptors.
fn send_to_all(world: &World) -> Result<(), Error> {
    let others: Vec<usize> = (1..world.size()).collect();
    if world.rank() > 0 {
        // The receive fails if rank 0 has left without having sent a message.
        return world.recv(&mut [0u8], 0, 0).map_or_else(|e| e.failed_rank().map(drop).ok_or(e), |_| Ok(()));
    }
    let failed: Vec<Error> = others.iter().filter_map(|other| world.send(&[7u8], *other, 0).err()).collect();
    let first = failed.first().map(Error::to_string);
    say(&format!("{} of {} unreachable: {first:?}", failed.len(), others.len()));
    Ok(())
}

fn fd_exhaustion_makes_peer_unreachable_not_dead() {
    let run = |device, descriptors: u32| {
        let script =
            format!("[ $MPJ_RANK = 0 ] && ulimit -n {descriptors}; exec $RANKS rank few-descriptors");
        let ended = run_sh(&format!("-n 12 --devices {device}"), &script);
        assert_eq!((ended.code, ended.err.len(), ended.out.len()), (Some(0), 0, 1), "{ended:#?}");
        ended.out[0].clone()
    };
    let line = run("niodev", 14);
    assert!(line.contains("ulimit -n") && !line.starts_with("0 ") && !line.starts_with("11 "), "{line}");
    // Ranks that share memory need no descriptors to connect.
    assert_eq!(run("shmdev", 14), "0 of 11 unreachable: None");
}

fn alltoall(world: &World) -> Result<(), Error> {
    let mut got = vec![0usize; world.size()];
    (0..3).try_for_each(|_| world.alltoall(&vec![world.rank(); world.size()], &mut got))
}

/// Both ranks of a pair that cannot connect must notice that, even if both have no descriptors left.
fn job_without_descriptors_for_all_connections_ends() {
    for (ranks, who, descriptors) in [(3, "01234567", 8), (4, "0", 8), (8, "01234567", 12)] {
        let script = format!(
            "case {who} in *$MPJ_RANK*) ulimit -n {descriptors};; esac; exec $RANKS rank few-descriptors-alltoall"
        );
        let ended = run_sh(&format!("-n {ranks} --devices niodev --timeout 30"), &script);
        let is_over = |line: &String| line.contains("timeout of");
        assert!(
            ended.code != Some(124) && !ended.err.iter().any(is_over),
            "{ranks} {descriptors}: {ended:#?}"
        );
    }
}
