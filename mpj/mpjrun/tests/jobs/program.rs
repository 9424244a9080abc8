//! The programs of the ranks, by role.

use std::io::{BufRead, Write};
use std::process::{Command, ExitCode};
use std::sync::Arc;
use std::time::Duration;

use mpj::{Error, World};
use mpj_devices::conformance::{Member, find};

use crate::job::limit;
use crate::trace_file::exchange;
use crate::{
    boot, collectives, conformance, connect, cut_hosts, devices, env_variables, hosts, intercomm, large,
    late_join, messages, parameters, progress, recv_block, schedules, trace, unexpected,
};

/// Prints a line with one write.
pub(crate) fn say(text: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{text}\n").as_bytes()).unwrap();
    out.flush().unwrap();
}

/// Usually longer than a process takes to start and exit.
const LATE: Duration = Duration::from_millis(300);

fn first_rank() -> String {
    std::env::var("MPJ_RANK").unwrap()
}

pub(crate) fn run_role(role: &str) -> ExitCode {
    match role {
        "exit7-before" => return ExitCode::from(7),
        "never" => return ExitCode::SUCCESS,
        "threads" => {
            return mpj::run_with(mpj::Launch::threads(3), |world| {
                if world.rank() == 0 {
                    say(&format!("size {}", world.size()));
                }
                world.barrier()
            });
        }
        "without-1" | "late-without-1" if first_rank() == "1" => return ExitCode::SUCCESS,
        "late-without-2" if first_rank() == "2" => return ExitCode::SUCCESS,
        "without-late-1" if first_rank() == "1" => {
            std::thread::sleep(LATE);
            return ExitCode::SUCCESS;
        }
        "late-without-1" | "late-without-2" => std::thread::sleep(LATE),
        "cases" => {
            conformance::print_cases(3);
            return ExitCode::SUCCESS;
        }
        "init" => return init(),
        "init-forgotten" => {
            std::mem::forget(mpj::init().unwrap());
            return ExitCode::SUCCESS;
        }
        _ => {}
    }
    if let Some(name) = role.strip_prefix("case:") {
        return run_case(name);
    }
    if let Some(name) = role.strip_prefix("boot:") {
        return boot::run_named(name);
    }
    if let Some(arguments) = role.strip_prefix("connect:") {
        return connect::run_connected(arguments);
    }
    if role == "own-device" {
        return devices::run_with_own_device();
    }
    if role == "large" {
        return mpj::run(|world| large::exchange(&world));
    }
    if role == "every-step" {
        return mpj::run(|world| every_step(&world));
    }
    if role == "partly-connected" {
        return mpj::run(|world| collectives::partly_connected(&world));
    }
    if let Some(action) = late_join::action_of(role) {
        return late_join::run_action(action);
    }
    if let Some(code) = schedules::run_role(role) {
        return code;
    }
    if let Some(code) = unexpected::run_role(role) {
        return code;
    }
    if let Some(program) = messages::program_of(role) {
        return messages::run_program(program);
    }
    if let Some(programs) = collectives::programs_of(role) {
        return collectives::run_programs(programs);
    }
    if role == "helper" {
        return mpj::run(|world| error_of_helper_thread(&world));
    }
    let code = mpj::run(|world| run_in_world(role, &world));
    recv_block::check_held();
    match role {
        "exit5-after" => ExitCode::from(5),
        _ => code,
    }
}

fn run_case(name: &str) -> ExitCode {
    let case = find(name).unwrap();
    mpj::run(|world| {
        let member = Member::join(Arc::clone(world.engine())).map_err(|fault| fault.to_string())?;
        (case.run)(&member);
        say(&format!("done {}", world.rank()));
        Ok::<(), String>(())
    })
}

/// Runs every step of the protocols repeatedly; prints the failed rank if a call fails.
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
    // Rank 1 closes while the others wait for it.
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
    assert!(again.to_string().contains("already initialized in this process"), "{again}");
    ExitCode::SUCCESS
}

fn run_in_world(role: &str, world: &World) -> Result<(), Error> {
    let me = world.rank();
    // After this call, all ranks have joined.
    world.barrier()?;
    if let Some(rank) = role.strip_prefix("abort-of-stopped:") {
        return abort_of_stopped(world, rank.parse().unwrap());
    }
    if let Some(rank) = role.strip_prefix("killed-with-child:") {
        if me == rank.parse::<usize>().unwrap() {
            leave_descriptors_to_a_child();
            kill_me("-KILL");
        }
        return world.barrier();
    }
    match role {
        "fine" => say(&format!("rank {me} of {} in {}", world.size(), std::process::id())),
        "time" if me == 0 => say(&format!("time {}", now_ns())),
        "time" => {}
        "error" if me == 1 => drop(world.recv(&mut [0u8], world.size() + 5, 0)?),
        "panic" if me == 1 => panic!("an odd number"),
        "exit7" if me == 1 => leave(7),
        "exit0" if me == 1 => leave(0),
        "kill" if me == 1 => kill_me("-KILL"),
        "abrt" if me == 1 => kill_me("-ABRT"),
        "abort" if me == 1 => world.abort(42, "enough"),
        "abort-0" if me == 1 => world.abort(0, "found"),
        "abort-0" => world.barrier()?,
        "panic-abort-0" if me == 1 => panic!("an odd number"),
        "panic-abort-0" => {
            let error = world.recv(&mut [0u8], 1, 0).unwrap_err();
            world.abort(0, &format!("shutting down: {error}"));
        }
        "error" | "panic" | "exit7" | "exit0" | "kill" | "abrt" | "abort" => world.barrier()?,
        "recv-from-left" if me == 0 => drop(world.recv(&mut [0u8], 1, 0)?),
        "late-error" if me == 2 => {
            std::thread::sleep(Duration::from_secs(1));
            world.recv(&mut [0u8], world.size() + 5, 0)?;
        }
        "recv-from-left" | "late-error" => {}
        "leave-late" if me > 0 => std::thread::sleep(Duration::from_secs(2)),
        "leave-late" => {}
        "wait" => wait(world),
        "barrier-without-0" if me == 0 => {
            say(&format!("rank 0 is {}", std::process::id()));
            std::thread::sleep(Duration::from_secs(1000));
        }
        "barrier-without-0" => world.barrier()?,
        "cut" => cut_hosts::meet_until_cut(world)?,
        "wait-until-cut" => cut_hosts::wait_until_cut(world)?,
        "root-cause" | "root-cause-exit" => root_cause(role, world)?,
        "left-behind" => left_behind(world),
        "test-under-traffic" => test_under_traffic(world)?,
        "compute" => progress::exchange_while_computing(world)?,
        "event-loop" => progress::run_event_loop(world)?,
        "ring" => drop(world.recv(&mut [0u8], (me + 1) % world.size(), 7)?),
        "endless" => loop {
            say("a line");
        },
        "start-another" if me == 0 => env_variables::start_another(),
        "wait-for-file" => wait_for_file(world)?,
        "hang" => match me {
            0 => drop(world.recv(&mut [0u8], 3, 7)?),
            3 => {
                say("rank 3 computes");
                std::thread::sleep(Duration::from_secs(1000));
            }
            _ => world.barrier()?,
        },
        "on-failure-continue" => on_failure_continue(world)?,
        "credit" => credit(world)?,
        "pairs" => hosts::pairs(world)?,
        "mapped" => hosts::mapped(world)?,
        "topologies" => hosts::topologies(world)?,
        "wildcards" => hosts::wildcards(world)?,
        "creations" => hosts::creations(world)?,
        "exchange" => exchange(world)?,
        "intercomm" => intercomm::exchange(world)?,
        "intercomm-killed" => intercomm::killed(world)?,
        "exchange-killed" => trace::killed(world)?,
        "recv-block" => recv_block::run_ring(world)?,
        "recv-block-elsewhere" => recv_block::run_elsewhere(world)?,
        "recv-block-sender_leaves_with_lent_block" => recv_block::run_leavers(world)?,
        "recv-block-killed" => recv_block::run_killed(world)?,
        "recv-block-left" => recv_block::run_left(world)?,
        "recv-block-failed" => recv_block::run_failed(world)?,
        "algorithms" => parameters::algorithms(world)?,
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
                // Write like a program with unbuffered output.
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

/// Rank 1 panics. A call of another thread of each other rank fails, and the rank returns the text of that error.
fn error_of_helper_thread(world: &World) -> Result<(), String> {
    world.barrier().map_err(|error| error.to_string())?;
    if world.rank() == 1 {
        panic!("an odd number");
    }
    std::thread::scope(|scope| {
        let call = || world.recv(&mut [0u8], 1, 0).map(drop).map_err(|error| error.to_string());
        scope.spawn(call).join().unwrap()
    })
}

/// Rank 0 enters the barrier only when a file exists.
fn wait_for_file(world: &World) -> Result<(), Error> {
    let pair = world.dup()?.split(Some(0), 0)?.expect("a color");
    if world.rank() == 0 {
        say("waits");
        while !std::fs::exists(std::env::var("GATE").unwrap()).unwrap() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    pair.barrier()?;
    say("continued");
    Ok(())
}

/// Waits for a message that is never sent, prints the error of the receive, and exits.
fn wait(world: &World) {
    let (me, size) = (world.rank(), world.size());
    say(&format!("rank {me} is {}", std::process::id()));
    let failed = world.recv(&mut [0u8], (me + 1) % size, 0).unwrap_err();
    say(&format!("rank {me} error: {failed}"));
    leave(1);
}

/// Starts a child that keeps all descriptors of this process for a while, as a child of `fork` without `exec` does.
#[expect(unsafe_code, reason = "only a function between fork and exec can clear the flag")]
fn leave_descriptors_to_a_child() {
    use std::os::fd::BorrowedFd;
    use std::os::unix::process::CommandExt;
    let keep = || {
        for fd in 3..256 {
            // SAFETY: if the descriptor is not open, the call returns an error.
            let fd = unsafe { BorrowedFd::borrow_raw(fd) };
            let _ = rustix::io::fcntl_setfd(fd, rustix::io::FdFlags::empty());
        }
        Ok(())
    };
    let mut command = Command::new("sleep");
    command.arg("60").stdin(std::process::Stdio::null());
    command.stdout(std::process::Stdio::null()).stderr(std::process::Stdio::null());
    // SAFETY: the function makes system calls only.
    unsafe { command.pre_exec(keep) };
    // The child also keeps the pipe whose end `spawn` awaits.
    std::thread::spawn(move || command.spawn().unwrap());
    std::thread::sleep(Duration::from_secs(1));
}

/// Rank 0 stops, and then a rank of the same machine aborts the job.
fn abort_of_stopped(world: &World, rank: usize) -> Result<(), Error> {
    let mut stopped = [std::process::id()];
    if world.rank() == 0 {
        world.send(&stopped, rank, 0)?;
        say(&format!("rank 0 stops: {}", stopped[0]));
        kill_me("-STOP");
    } else if world.rank() == rank {
        world.recv(&mut stopped, 0, 0)?;
        while !std::fs::read_to_string(format!("/proc/{}/stat", stopped[0])).unwrap().contains(") T ") {
            std::thread::sleep(Duration::from_millis(5));
        }
        world.abort(42, "enough");
    }
    world.barrier()
}

/// A collective fails on rank 2, which ends later. The other ranks get its failure notice and end first.
fn root_cause(role: &str, world: &World) -> Result<(), Error> {
    if world.rank() != 2 {
        let failed = world.bcast(&mut [0u8], 0).and_then(|()| world.barrier());
        return if role == "root-cause" { failed } else { failed.inspect_err(|_| leave(1)) };
    }
    let failed = world.bcast(&mut [0u8], 77).unwrap_err();
    std::thread::sleep(LATE);
    if role == "root-cause" {
        panic!("over {failed}");
    }
    kill_me("-ABRT");
    Ok(())
}

/// Rank 0 leaves at once. The other ranks wait in different ways, and get errors.
fn left_behind(world: &World) {
    if world.rank() == 0 {
        return;
    }
    let began = std::time::Instant::now();
    let failed = match world.rank() % 4 {
        // This receive fails when the other ranks have got their errors and left.
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
    // The errors are expected within 2 s. A loaded machine gets three times that.
    assert!(began.elapsed() < limit(6), "after {:?}", began.elapsed());
    say(&format!("rank {} got the error", world.rank()));
}

/// Rank 1 leaves at once. Rank 0 tests a receive from rank 1 at intervals, while messages of rank 2 keep it busy.
fn test_under_traffic(world: &World) -> Result<(), Error> {
    const INTERVAL: Duration = Duration::from_millis(50);
    match world.rank() {
        0 => {
            let posted = (0..2000).map(|_| world.irecv([0u8], 2, 1)).collect::<Result<Vec<_>, _>>()?;
            let began = std::time::Instant::now();
            let mut request = world.irecv([0u8], 1, 0)?;
            let failed = loop {
                if let Some(result) = request.test() {
                    break result.unwrap_err();
                }
                assert!(began.elapsed() < limit(6), "no error says that rank 1 has left");
                std::thread::sleep(INTERVAL);
            };
            assert_eq!(failed.error().failed_rank(), Some(1), "{failed}");
            drop(posted);
            world.send(&[0u8], 2, 0)
        }
        2 => {
            while world.iprobe(0usize, 0)?.is_none() {
                world.send(&[0u8], 0, 1)?;
                std::thread::sleep(INTERVAL / 4);
            }
            world.recv(&mut [0u8], 0, 0).map(drop)
        }
        _ => Ok(()),
    }
}

/// Rank 1 dies. The others continue without the world communicator for a while.
fn on_failure_continue(world: &World) -> Result<(), Error> {
    if world.rank() == 1 {
        (0..world.size())
            .filter(|other| *other != 1)
            .try_for_each(|other| world.recv(&mut [0u8], other, 0).map(|_| ()))?;
        leave(9);
    }
    world.send(&[0u8], 1usize, 0)?;
    let failed = world.barrier().unwrap_err();
    std::thread::sleep(Duration::from_millis(500));
    say(&format!("rank {} continues after: {failed}", world.rank()));
    Ok(())
}

/// Rank 1 dies with unreceived messages. The others continue to exchange messages.
fn credit(world: &World) -> Result<(), Error> {
    let rest = world.split(Some(u32::from(world.rank() == 1)), 0)?.expect("each rank has a color");
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
    say(&format!("rank {} is done", world.rank()));
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the exit is tested")]
pub(crate) fn leave(code: i32) {
    std::process::exit(code)
}

/// Nanoseconds since the epoch.
fn now_ns() -> u128 {
    std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos()
}

pub(crate) fn kill_me(signal: &str) {
    Command::new("kill").args([signal, &std::process::id().to_string()]).status().unwrap();
    std::thread::sleep(Duration::from_secs(100));
}
