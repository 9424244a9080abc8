//! The roles that a rank can play.

use std::io::{BufRead, Write};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use mpj::{Error, World};
use mpj_devices::conformance::{Member, find};

use crate::reader::exchange;
use crate::{collectives, devices, hosts, late_join, messages, parameters, recv_block, trace};

/// Prints whole lines, because the tests read whole lines.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{text}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Longer than a process takes to start and exit.
const LATE: Duration = Duration::from_millis(300);

/// Returns the first rank of this process.
fn first_here() -> String {
    std::env::var("MPJ_RANK").unwrap()
}

/// Plays a role. In most roles rank 1 is the one that fails.
pub(crate) fn play(role: &str) -> ExitCode {
    match role {
        "exit7-before" => return ExitCode::from(7),
        "never" => return ExitCode::SUCCESS,
        "without-1" | "late-without-1" if first_here() == "1" => return ExitCode::SUCCESS,
        "late-without-2" if first_here() == "2" => return ExitCode::SUCCESS,
        "without-late-1" if first_here() == "1" => {
            std::thread::sleep(LATE);
            return ExitCode::SUCCESS;
        }
        "late-without-1" | "late-without-2" => std::thread::sleep(LATE),
        "init" => return init(),
        "init-forgotten" => {
            std::mem::forget(mpj::init().unwrap());
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    if let Some(name) = role.strip_prefix("case:") {
        return conform(name);
    }
    if role == "own-device" {
        return devices::with_own();
    }
    if role == "every-step" {
        return mpj::run(|world| every_step(&world));
    }
    if let Some(act) = late_join::find(role) {
        return late_join::play(act);
    }
    if let Some(program) = messages::find(role) {
        return messages::play(program);
    }
    if let Some(programs) = collectives::find(role) {
        return collectives::play(programs);
    }
    let code = mpj::run(|world| act(role, &world));
    recv_block::check_kept();
    match role {
        "exit5-after" => ExitCode::from(5),
        _ => code,
    }
}

/// Runs a case of the devices' conformance suite.
fn conform(name: &str) -> ExitCode {
    let case = find(name).unwrap();
    mpj::run(|world| {
        let member = Member::join(Arc::clone(world.engine())).map_err(|fault| fault.to_string())?;
        (case.run)(&member);
        say(&format!("done {}", world.rank()));
        Ok::<(), String>(())
    })
}

/// Runs every step of the protocols repeatedly, until a rank dies or a number of rounds is reached.
fn every_step(world: &World) -> Result<(), Error> {
    let outcome = exchanges(world);
    if let Err(error) = &outcome {
        say(&format!("rank {}: failed rank {:?}", world.rank(), error.failed_rank()));
    }
    outcome
}

fn exchanges(world: &World) -> Result<(), Error> {
    let (me, size) = (world.rank(), world.size());
    let (left, right) = ((me + size - 1) % size, (me + 1) % size);
    for round in 0..20 {
        for len in [8, 5000, 1 << 20] {
            let (mine, mut theirs) = (vec![me as u8; len], vec![0u8; len]);
            world.scope(|s| {
                let receiving = s.irecv(&mut theirs, left, round)?;
                let sending = s.issend(&mine, right, round)?;
                receiving.wait()?;
                sending.wait()?;
                Ok::<(), Error>(())
            })?;
            assert!(theirs.iter().all(|byte| usize::from(*byte) == left));
        }
        world.barrier()?;
    }
    // One rank closes; the others still wait for it.
    if me != 1 {
        world.recv(&mut [0u8], 1, 99)?;
    }
    Ok(())
}

fn init() -> ExitCode {
    let world = mpj::init().unwrap();
    let mut sum = [0usize];
    world.allreduce(&[world.rank()], &mut sum, mpj::Op::Sum).unwrap();
    say(&format!("sum {}", sum[0]));
    let again = mpj::init().unwrap_err();
    assert!(again.to_string().contains("joined its job already"), "{again}");
    ExitCode::SUCCESS
}

fn act(role: &str, world: &World) -> Result<(), Error> {
    let me = world.rank();
    // All ranks must have joined before anything happens.
    world.barrier()?;
    match role {
        "fine" => say(&format!("rank {me} of {} in {}", world.size(), std::process::id())),
        "error" if me == 1 => drop(world.recv(&mut [0u8], world.size() + 5, 0)?),
        "panic" if me == 1 => panic!("an odd number"),
        "exit7" if me == 1 => leave(7),
        "exit0" if me == 1 => leave(0),
        "kill" if me == 1 => kill_me("-KILL"),
        "abrt" if me == 1 => kill_me("-ABRT"),
        "abort" if me == 1 => world.abort(42, "enough"),
        "error" | "panic" | "exit7" | "exit0" | "kill" | "abrt" | "abort" => world.barrier()?,
        "wait" => wait(world),
        "told" | "told-exit" => told(role, world)?,
        "left-behind" => left_behind(world),
        "beats" => beats(world)?,
        "ring" => drop(world.recv(&mut [0u8], (me + 1) % world.size(), 7)?),
        "endless" => loop {
            say("a line");
        },
        "hang-on" => hang_on(world)?,
        "hang" => match me {
            0 => drop(world.recv(&mut [0u8], 3, 7)?),
            3 => std::thread::sleep(Duration::from_secs(1000)),
            _ => world.barrier()?,
        },
        "go-on" => go_on(world)?,
        "room" => room(world)?,
        "pairs" => hosts::pairs(world)?,
        "mapped" => hosts::mapped(world)?,
        "exchange" => exchange(world)?,
        "exchange-killed" => trace::killed(world)?,
        "lent" => recv_block::play_ring(world)?,
        "lent-leavers" => recv_block::play_leavers(world)?,
        "lent-killed" => recv_block::play_killed(world)?,
        "lent-left" => recv_block::play_left(world)?,
        "lent-failed" => recv_block::play_failed(world)?,
        "ways" => parameters::ways(world)?,
        "far-ahead" => collectives::far_ahead(world)?,
        "count" => {
            say(&format!("counting: {}", std::process::id()));
            for round in 0..60u64 {
                let mut sum = [0u64];
                world.allreduce(&[round], &mut sum, mpj::Op::Sum)?;
                std::thread::sleep(Duration::from_millis(100));
            }
            say("counted");
        }
        "lines" => {
            let letter = char::from(b'a' + me as u8);
            let mut out = std::io::stdout();
            for length in 1..400usize {
                // In pieces, as a program with unbuffered output does.
                for _ in 0..length {
                    rustix::io::write(&out, &[letter as u8]).unwrap();
                }
                writeln!(out).unwrap();
                out.flush().unwrap();
            }
            std::io::stderr().write_all(format!("rank {me} is done").as_bytes()).unwrap();
        }
        "stdin" => {
            let lines: Vec<String> = std::io::stdin().lock().lines().map(Result::unwrap).collect();
            say(&format!("rank {me} read {lines:?}"));
        }
        "env" => {
            let mut names: Vec<String> =
                std::env::vars().map(|(name, value)| format!("{name}={value}")).collect();
            names.retain(|name| {
                name.starts_with("MPJ_") || name.starts_with("PMI") || name.starts_with("GREETING")
            });
            names.sort();
            say(&format!("rank {me}: {}", names.join(" ")));
        }
        _ => {}
    }
    Ok(())
}

/// Waits for a message that is sent when a file exists.
fn hang_on(world: &World) -> Result<(), Error> {
    let pair = world.dup()?.split(Some(0), 0)?.expect("a color");
    if world.rank() == 0 {
        say("hangs");
        while !std::fs::exists(std::env::var("GO_ON").unwrap()).unwrap() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    pair.barrier()?;
    say("went on");
    Ok(())
}

/// Waits for a message that is never sent, and prints the error.
fn wait(world: &World) {
    let (me, size) = (world.rank(), world.size());
    say(&format!("rank {me} is {}", std::process::id()));
    let failed = world.recv(&mut [0u8], (me + 1) % size, 0).unwrap_err();
    say(&format!("rank {me} error: {failed}"));
    leave(1);
}

/// Rank 2 fails in a collective and exits some time later; the others get the failure notice and exit at once.
fn told(role: &str, world: &World) -> Result<(), Error> {
    if world.rank() != 2 {
        let failed = world.bcast(&mut [0u8], 0).and_then(|()| world.barrier());
        return if role == "told" { failed } else { failed.inspect_err(|_| leave(1)) };
    }
    let failed = world.bcast(&mut [0u8], 77).unwrap_err();
    std::thread::sleep(LATE);
    if role == "told" {
        panic!("over {failed}");
    }
    kill_me("-ABRT");
    Ok(())
}

/// Rank 0 leaves at once; each other rank waits for it in a different way, and prints the error.
fn left_behind(world: &World) {
    if world.rank() == 0 {
        return;
    }
    let began = std::time::Instant::now();
    let failed = match world.rank() % 4 {
        // This receive fails after the others have got their errors and left.
        0 => world.recv(&mut [0u8], mpj::Source::Any, 0).unwrap_err(),
        1 => world.recv(&mut [0u8], 0usize, 0).unwrap_err(),
        2 => world.probe(0usize, 0).unwrap_err(),
        _ => loop {
            match world.iprobe(0usize, 0) {
                Ok(found) => assert!(found.is_none()),
                Err(failed) => break failed,
            }
        },
    };
    assert!(failed.to_string().contains("left"), "{failed}");
    // The documentation promises 2 s. A loaded machine gets three times that.
    assert!(began.elapsed() < Duration::from_secs(6), "after {:?}", began.elapsed());
    say(&format!("rank {} was told", world.rank()));
}

/// Rank 1 leaves at once. Rank 0 occasionally tests a receive from rank 1, and each time also completes a posted
/// receive from rank 2.
fn beats(world: &World) -> Result<(), Error> {
    const BEAT: Duration = Duration::from_millis(50);
    match world.rank() {
        0 => {
            let posted = (0..2000).map(|_| world.irecv([0u8], 2, 1)).collect::<Result<Vec<_>, _>>()?;
            let began = std::time::Instant::now();
            let mut open = world.irecv([0u8], 1, 0)?;
            let failed = loop {
                match open.try_wait() {
                    Ok(ended) => break ended.unwrap_err(),
                    Err(still) => open = still,
                }
                assert!(began.elapsed() < Duration::from_secs(6), "nobody has told it that rank 1 has left");
                std::thread::sleep(BEAT);
            };
            assert_eq!(failed.error().failed_rank(), Some(1), "{failed}");
            drop(posted);
            world.send(&[0u8], 2, 0)
        }
        2 => {
            while world.iprobe(0usize, 0)?.is_none() {
                world.send(&[0u8], 0, 1)?;
                std::thread::sleep(BEAT / 4);
            }
            world.recv(&mut [0u8], 0, 0).map(drop)
        }
        _ => Ok(()),
    }
}

/// Rank 1 dies; the others continue without the world communicator for a while.
fn go_on(world: &World) -> Result<(), Error> {
    if world.rank() == 1 {
        (0..world.size())
            .filter(|other| *other != 1)
            .try_for_each(|other| world.recv(&mut [0u8], other, 0).map(|_| ()))?;
        leave(9);
    }
    world.send(&[0u8], 1usize, 0)?;
    let failed = world.barrier().unwrap_err();
    std::thread::sleep(Duration::from_millis(500));
    say(&format!("rank {} goes on after: {failed}", world.rank()));
    Ok(())
}

/// Rank 1 dies with more unread messages than the credit allows; the others continue to exchange messages.
fn room(world: &World) -> Result<(), Error> {
    let rest = world.split(Some(u32::from(world.rank() == 1)), 0)?.expect("a part for each");
    world.barrier()?;
    if world.rank() == 1 {
        std::thread::sleep(Duration::from_millis(300));
        kill_me("-ABRT");
    }
    if world.rank() == 0 {
        let sends: Vec<_> = (0..200).map_while(|_| world.isend([5u8; 100], 1, 0).ok()).collect();
        mpj::wait_all(sends);
    }
    for len in [1, 100, 3000, 100_000].repeat(10) {
        if rest.rank() == 0 {
            rest.send(&vec![6u8; len], 1, 1)?;
        } else {
            rest.recv(&mut vec![0u8; len], 0, 1)?;
        }
    }
    say(&format!("rank {} is through", world.rank()));
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the end that is tested")]
pub(crate) fn leave(code: i32) {
    std::process::exit(code)
}

pub(crate) fn kill_me(signal: &str) {
    Command::new("kill").args([signal, &std::process::id().to_string()]).status().unwrap();
    std::thread::sleep(Duration::from_secs(100));
}
