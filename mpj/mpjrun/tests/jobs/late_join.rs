//! Tests messages to ranks that have not joined yet.
//!
//! The last rank joins when rank 0 creates a file. If rank 0 never does, the last rank finally joins anyway. So a job
//! in which rank 0 waits for the last rank still ends, and the test fails with a message.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use mpj::{Error, World};

use crate::Test;
use crate::job::{Ended, mpjrun, run_sh, watch};
use crate::program::{leave, say};

pub(crate) const TESTS: &[Test] = &[
    ("a_death_is_heard_by_who_sends_to_a_rank_that_has_not_started", a_death_is_heard),
    ("a_death_is_reported_before_the_job_is_ended", a_death_is_reported),
    ("others_are_spoken_to_while_a_rank_has_not_started", others_go_on),
    ("a_rank_that_ends_before_it_joins_ends_what_was_sent_to_it", never_joins),
    ("without_descriptors_a_peer_is_out_of_reach_and_not_dead", no_descriptors),
];

const DEVICES: [&str; 2] = ["shmdev", "niodev"];

/// How long the last rank waits for the file: far longer than any test takes.
const PATIENCE: Duration = Duration::from_secs(20);

const DOOR: &str = "LATE_DOOR";

fn run(args: &str, role: &str) -> Ended {
    let door = std::env::temp_dir().join(format!("mpj-late-{}", std::process::id()));
    // The file exists only if an earlier test has failed.
    let _ = std::fs::remove_file(&door);
    let mut command = mpjrun(args);
    command.env(DOOR, &door).arg(std::env::current_exe().unwrap()).args(["rank", role]);
    let ended = watch(&mut command).0.end();
    let _ = std::fs::remove_file(&door);
    ended
}

fn door() -> PathBuf {
    std::env::var_os(DOOR).unwrap().into()
}

fn let_the_last_in() {
    std::fs::write(door(), "").unwrap();
}

pub(crate) type Act = fn(&World) -> Result<(), Error>;

/// Returns the action of a role of this file for all ranks but the last.
pub(crate) fn find(role: &str) -> Option<Act> {
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
        "few-descriptors" => Some(meet_all),
        _ => None,
    }
}

pub(crate) fn play(act: Act) -> ExitCode {
    if std::env::var_os(DOOR).is_none() {
        return mpj::run(move |world| act(&world));
    }
    let number = |name| std::env::var(name).unwrap().parse::<usize>().unwrap();
    if number("MPJ_RANK") + 1 == number("MPJ_SIZE") {
        let start = Instant::now();
        while !door().exists() && start.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(5));
        }
        say(if door().exists() { "let in" } else { "gave up" });
        if std::ptr::fn_addr_eq(act, never as Act) {
            return ExitCode::SUCCESS;
        }
    }
    mpj::run(move |world| act(&world))
}

fn last(world: &World) -> usize {
    world.size() - 1
}

/// Rank 1 dies; rank 0 gets the error from a call that needs the last rank.
fn death(world: &World, call: fn(&World) -> Result<(), Error>) -> Result<(), Error> {
    match world.rank() {
        0 => {
            world.recv(&mut [0u8], 1, 0)?;
            let failed = call(world).unwrap_err();
            say(&format!("failed rank {:?}: {failed}", failed.failed_rank()));
            let_the_last_in();
        }
        1 => {
            world.send(&[0u8], 0, 0)?;
            leave(9);
        }
        _ => {}
    }
    Ok(())
}

fn a_death_is_heard() {
    for device in DEVICES {
        for role in ["late-death-send", "late-death-ssend", "late-death-long", "late-death-recv"] {
            let ended = run(&format!("-n 3 --dev {device} --on-failure=continue"), role);
            ended.expect(9, &["rank 1 (pid ", "exited with code 9"]);
            let named = ended.out.iter().any(|line| line.starts_with("failed rank Some(1)"));
            assert!(named && ended.out.iter().any(|line| line == "let in"), "{device} {role}: {ended:#?}");
        }
    }
}

fn a_death_is_reported() {
    for device in DEVICES {
        let ended = run(&format!("-n 3 --dev {device} --grace 6"), "late-death-send");
        ended.expect(9, &["rank 1 (pid ", "exited with code 9"]);
        assert!(ended.out.iter().any(|line| line.starts_with("failed rank Some(1)")), "{device}: {ended:#?}");
    }
}

/// Lengths of the messages from rank 0 to the last rank: every protocol, in an order that can be checked.
const LENGTHS: [usize; 6] = [1, 40_000, 0, 300_000, 8, 5000];

fn pattern(at: usize) -> Vec<u8> {
    (0..LENGTHS[at % LENGTHS.len()]).map(|i| (i * 7 + at) as u8).collect()
}

/// Rank 0 starts messages to the last rank, also blocking ones in threads, and then exchanges messages with all others.
fn traffic(world: &World) -> Result<(), Error> {
    const MANY: usize = 30;
    let (me, last) = (world.rank(), last(world));
    if me == 0 {
        let data: Vec<Vec<u8>> = (0..MANY).map(pattern).collect();
        std::thread::scope(|threads| {
            let blocked: Vec<_> =
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
                assert!(blocked.iter().all(|thread| !thread.is_finished()), "a send to nobody has ended");
                let_the_last_in();
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

fn others_go_on() {
    for device in DEVICES {
        let ended = run(&format!("-n 4 --dev {device}"), "late-traffic");
        assert_eq!((ended.code, ended.err.len()), (Some(0), 0), "{device}: {ended:#?}");
        assert_eq!(ended.out, ["let in"], "{device}");
    }
}

/// The last rank's process exits without joining.
fn never(world: &World) -> Result<(), Error> {
    if world.rank() == 0 {
        let last = last(world);
        let failed = world.scope(|s| {
            let send = s.isend(&[7u8], last, 0)?;
            let_the_last_in();
            send.wait().map(|_| ())
        });
        let failed = failed.unwrap_err();
        say(&format!("failed rank {:?}: {failed}", failed.failed_rank()));
    }
    Ok(())
}

fn never_joins() {
    for device in DEVICES {
        let ended = run(&format!("-n 3 --dev {device} --on-failure=continue"), "late-never");
        let named = ended.out.iter().any(|line| line.starts_with("failed rank Some(2)"));
        assert!(named && ended.out.iter().any(|line| line == "let in"), "{device}: {ended:#?}");
    }
}

/// Rank 0 sends to all others in turn, until it runs out of descriptors.
fn meet_all(world: &World) -> Result<(), Error> {
    let others: Vec<usize> = (1..world.size()).collect();
    if world.rank() > 0 {
        // Receives a message, or an error if rank 0 has left without having sent one.
        return world.recv(&mut [0u8], 0, 0).map_or_else(|e| e.failed_rank().map(drop).ok_or(e), |_| Ok(()));
    }
    let failed: Vec<Error> = others.iter().filter_map(|other| world.send(&[7u8], *other, 0).err()).collect();
    let first = failed.first().map(Error::to_string);
    say(&format!("{} of {} out of reach: {first:?}", failed.len(), others.len()));
    Ok(())
}

fn no_descriptors() {
    let run = |device, descriptors: u32| {
        let script =
            format!("[ $MPJ_RANK = 0 ] && ulimit -n {descriptors}; exec $RANKS rank few-descriptors");
        let ended = run_sh(&format!("-n 12 --dev {device}"), &script);
        assert_eq!((ended.code, ended.err.len(), ended.out.len()), (Some(0), 0, 1), "{ended:#?}");
        ended.out[0].clone()
    };
    let told = run("niodev", 14);
    assert!(told.contains("ulimit -n") && !told.starts_with("0 ") && !told.starts_with("11 "), "{told}");
    // Ranks that share memory need no descriptors to connect.
    assert_eq!(run("shmdev", 14), "0 of 11 out of reach: None");
}
