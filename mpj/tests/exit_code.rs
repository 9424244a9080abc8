//! Tests the exit code and standard error of programs that call `mpj::run`. This binary is also the program that is
//! run; an environment variable selects its mode.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use mpj::boot::ThreadBoot;
use mpj::{Launch, World};

const MODE: &str = "MPJ_TEST_MODE";

fn main() -> ExitCode {
    match std::env::var(MODE) {
        Ok(mode) => program(&mode),
        // `.ci/portable` sets it if this program runs in an emulator that the kernel cannot start for its children.
        Err(_) if std::env::var_os("NO_CHILD_PROCESSES").is_some() => {
            let _ = writeln!(
                std::io::stderr(),
                "SKIPPED exit_code: the test starts its own program, which the kernel cannot run"
            );
            ExitCode::SUCCESS
        }
        Err(_) => check(),
    }
}

fn program(mode: &str) -> ExitCode {
    let four = Launch::threads(4);
    match mode {
        "one" => mpj::run(|world| {
            assert_eq!((world.rank(), world.size()), (0, 1));
            world.barrier()
        }),
        "good" => mpj::run_with(four, |world| world.barrier()),
        "error" => mpj::run_with(four, |world| {
            if world.rank() == 3 { Err("no luck".into()) } else { wait_for_others(&world) }
        }),
        "same-error" => mpj::run_with(four, |_| Err::<(), _>("no network")),
        "panic" => mpj::run_with(four, |world| {
            assert_ne!(world.rank(), 2, "on purpose");
            wait_for_others(&world)
        }),
        // All the other ranks panic because of the errors that the first panic causes.
        "panics" => mpj::run_with(four, |world| -> Result<(), String> {
            assert_ne!(world.rank(), 1, "the first");
            wait_for_others(&world).expect("all ranks arrive");
            Ok(())
        }),
        // The message of a caught panic and that of the panic that fails the job are printed, even in a second job.
        "caught" | "twice" => {
            let once = || {
                mpj::run_with(four, |world| {
                    if world.rank() == 0 {
                        let caught = std::panic::catch_unwind(|| panic!("and is caught"));
                        assert!(caught.is_err());
                        world.send(&[0u8], 2, 0).map_err(|error| error.to_string())?;
                    }
                    if world.rank() == 2 {
                        world.recv(&mut [0u8], 0, 0).map_err(|error| error.to_string())?;
                        panic!("the cause");
                    }
                    wait_for_others(&world)
                })
            };
            if mode == "twice" {
                once();
            }
            once()
        }
        "abort" => mpj::run_with(four, |world| {
            if world.rank() == 1 {
                world.abort(7, "enough");
            }
            wait_for_others(&world)
        }),
        "abort-on" => {
            let boots = ThreadBoot::ranks(4);
            let registry = boots[0].registry();
            mpj::run_on(boots, &registry, |world| match world.rank() {
                1 => {
                    world.abort(7, "enough");
                    Ok(())
                }
                _ => wait_for_others(&world),
            })
        }
        // One rank waits for a message to itself.
        "abort-0" => mpj::run_with(four, |world| match world.rank() {
            1 => {
                world.abort(0, "found");
                Ok(())
            }
            3 => world.recv(&mut [0u8], 3, 0).map(drop).map_err(|error| error.to_string()),
            _ => wait_for_others(&world),
        }),
        // The error handler of a rank aborts the job with code 0 because another rank has panicked.
        "panic-abort-0" => mpj::run_with(Launch::threads(2), |world| -> Result<(), String> {
            assert_ne!(world.rank(), 1, "on purpose");
            let error = world.recv(&mut [0u8], 1, 0).expect_err("rank 1 panics");
            world.abort(0, &format!("shutting down: {error}"));
            Ok(())
        }),
        // A collective fails on rank 1, which panics only after rank 0 has aborted the job because of that.
        "abort-0-panic" => mpj::run_with(Launch::threads(2), |world| {
            if world.rank() == 1 {
                world.bcast(&mut [0u8], 77).expect_err("no such root");
                while !world.boot().roster().has_death() {
                    std::thread::yield_now();
                }
                panic!("on purpose");
            }
            let failed = world.bcast(&mut [0u8], 0).and_then(|()| world.barrier());
            failed
                .inspect_err(|error| world.abort(0, &format!("shutting down: {error}")))
                .or(Ok::<_, String>(()))
        }),
        "abort-0-own" => mpj::run_with(Launch::threads(3), |world| match world.rank() {
            0 => {
                world.abort(0, "found");
                Ok(())
            }
            1 => {
                while !world.boot().roster().has_death() {
                    std::thread::yield_now();
                }
                Err("no luck".to_owned())
            }
            _ => world.recv(&mut [0u8], 0, 0).map(drop).map_err(|error| error.to_string()),
        }),
        // The call that fails because of rank 0 runs on another thread than the rank.
        "helper" => mpj::run_with(Launch::threads(2), |world| match world.rank() {
            0 => Err("no file".to_owned()),
            _ => std::thread::scope(|scope| {
                let call = || world.recv(&mut [0u8], 0, 0).map(drop).map_err(|error| error.to_string());
                scope.spawn(call).join().expect("no panic")
            }),
        }),
        "unwound" => mpj::run_with(Launch::threads(2), |world| drop_panics_in_call(&world)),
        // A panic in a blocking call aborts the process even if another rank has failed before, and is printed.
        "unwound-late" => mpj::run_with(Launch::threads(3), |world| {
            let pair = world.split(Some(u32::from(world.rank() == 2)), 0)?.expect("a color");
            if world.rank() == 2 {
                // The failure must not reach the others during `split`.
                world.recv(&mut [0u8], 0, 4)?;
                world.recv(&mut [0u8], 1, 4)?;
                return Err(pair.send(&[0u8], 5, 0).expect_err("no such rank"));
            }
            world.send(&[0u8], 2, 4)?;
            while !world.boot().roster().has_death() {
                std::thread::yield_now();
            }
            drop_panics_in_call(&pair)
        }),
        // Two failures that have nothing to do with each other, and one because of the first.
        "own" => mpj::run_with(Launch::threads(3), |world| match world.rank() {
            0 => Err("no file".to_owned()),
            1 => {
                while !world.boot().roster().has_death() {
                    std::thread::yield_now();
                }
                Err("no luck".to_owned())
            }
            _ => world.recv(&mut [0u8], 0, 0).map(drop).map_err(|error| error.to_string()),
        }),
        "ring" => mpj::run_with(four, |world| ring(&world)),
        "ring-on" => {
            let boots = ThreadBoot::ranks(3);
            let registry = boots[0].registry();
            mpj::run_on(boots, &registry, |world| ring(&world))
        }
        "busy" => mpj::run_with(Launch::threads(2), |world| {
            if world.rank() == 1 {
                std::thread::sleep(Duration::from_secs(1000));
            }
            world.barrier()
        }),
        "started" => mpj::run_with(Launch::threads(2), |world| {
            if world.rank() == 0 {
                std::thread::sleep(Duration::from_secs(3));
                return Ok(());
            }
            let failed = world.start(mpj::coll::barrier())?.wait().expect_err("rank 0 makes no call");
            print_line(&failed.to_string());
            Err(mpj::Error::from(failed))
        }),
        "library" => {
            let error = mpj::threads(2, |world| ring(&world)).expect_err("it hangs");
            print_line(&format!("rank {}: {error}", error.rank()));
            ExitCode::SUCCESS
        }
        "alone" => mpj::run(|_| -> Result<(), String> {
            (0..4).for_each(|_| print_line("here"));
            std::thread::sleep(Duration::from_secs(1000));
            Ok(())
        }),
        "none" => mpj::run_with(Launch::threads(0), |world| world.barrier()),
        _ => ExitCode::from(99),
    }
}

fn print_line(line: &str) {
    std::io::stdout().write_all(format!("{line}\n").as_bytes()).expect("a reader");
}

fn ring(world: &World) -> mpj::Result<()> {
    print_line("here");
    world.recv(&mut [0u8], (world.rank() + 1) % world.size(), 7).map(drop)
}

fn wait_for_others(world: &World) -> Result<(), String> {
    std::thread::sleep(Duration::from_millis(5));
    world.barrier().map_err(|error| error.to_string())
}

/// Drops an owned buffer whose drop panics during a blocking call. The unwinding call must not release its own buffer
/// while messages arrive in it.
fn drop_panics_in_call(world: &mpj::Intracomm) -> mpj::Result<()> {
    struct PanicOnDrop;
    impl Drop for PanicOnDrop {
        fn drop(&mut self) {
            panic!("on purpose");
        }
    }
    if world.rank() == 1 {
        world.recv(&mut [0u8], 0, 2)?;
        world.recv(&mut vec![0u8; 1 << 20], 0, 1)?;
        return world.recv(&mut [0u8], 0, 3).map(drop);
    }
    let big = vec![1u8; 1 << 20].leak();
    let keep: mpj::raw::KeepAlive = Arc::new(PanicOnDrop);
    let buf = mpj::raw::Buf::slice(big);
    // SAFETY: the bytes are never freed.
    #[expect(unsafe_code, reason = "only the raw interface accepts a `KeepAlive`")]
    let send = unsafe { mpj::raw::isend(world.as_raw(), buf, 1, 1, mpj::raw::Mode::Standard, Some(keep))? };
    drop(send);
    world.sendrecv(&[0u8], 1, 2, &mut [0u8], 1, 3).map(drop)
}

fn check() -> ExitCode {
    for (mode, code, lines) in [
        ("one", 0, &[][..]),
        ("good", 0, &[]),
        ("error", 1, &["mpj: rank 3 returned an error: no luck; 3 ranks failed because of it"]),
        ("same-error", 1, &["mpj: ranks 0 to 3 returned an error: no network"]),
        ("abort", 7, &["mpj: rank 1 aborted the job with code 7: enough; 3 ranks failed because of it"]),
        ("abort-on", 7, &["mpj: rank 1 aborted the job with code 7: enough; 3 ranks failed because of it"]),
        ("abort-0", 0, &["mpj: rank 1 aborted the job with code 0: found; 3 ranks failed because of it"]),
        (
            "abort-0-own",
            1,
            &[
                "mpj: rank 1 returned an error: no luck; 1 rank failed because of it",
                "  also: rank 0 aborted the job with code 0: found",
            ],
        ),
        ("helper", 1, &["mpj: rank 0 returned an error: no file; 1 rank failed because of it"]),
        (
            "own",
            1,
            &[
                "mpj: rank 0 returned an error: no file; 1 rank failed because of it",
                "  also: rank 1 returned an error: no luck",
            ],
        ),
        ("none", 1, &["mpj: rank 0 cannot start 0 ranks: expected 1 to 65536"]),
    ] {
        let (output, text) = run(mode);
        assert_eq!(
            (output.status.code(), text.lines().collect::<Vec<_>>()),
            (Some(code), lines.to_vec()),
            "{mode}"
        );
    }
    for (mode, cause) in [("panic", "on purpose"), ("panics", "the first")] {
        let (output, text) = run(mode);
        assert_eq!(output.status.code(), Some(101), "{mode}: {text}");
        assert_eq!(text.matches("panicked at").count(), 1, "one message for one cause: {text}");
        assert!(text.contains(cause), "{mode}: {text}");
        assert!(text.ends_with(" panicked; 3 ranks failed because of it\n"), "{mode}: {text}");
    }
    let (output, text) = run("panic-abort-0");
    assert_eq!((output.status.code(), text.contains("on purpose")), (Some(101), true), "{text}");
    let (output, text) = run("abort-0-panic");
    assert_eq!(output.status.code(), Some(101), "{text}");
    assert!(text.starts_with("mpj: rank 1 panicked: on purpose\n  also: rank 0 aborted"), "{text}");
    for (mode, jobs) in [("caught", 1), ("twice", 2)] {
        let (output, text) = run(mode);
        assert_eq!(output.status.code(), Some(101), "{mode}: {text}");
        for message in ["and is caught", "the cause"] {
            assert_eq!(text.matches(message).count(), jobs, "{mode}: {text}");
        }
    }
    for mode in ["unwound", "unwound-late"] {
        let (output, text) = run(mode);
        assert_eq!(output.status.signal(), Some(6), "the process aborts: {mode}: {text}");
        assert!(text.contains("on purpose"), "{mode}: {text}");
    }
    invalid_parameters_are_rejected_without_a_launcher();
    process_of_another_launcher_is_rejected();
    time_limit_ends_a_program_that_hangs();
    signals_print_the_table_of_waits();
    signals_have_their_default_effect_if_no_thread_can_be_started();
    trace_of_an_interrupted_program_is_complete();
    program_runs_under_valgrind();
    ExitCode::SUCCESS
}

fn invalid_parameters_are_rejected_without_a_launcher() {
    let known = "available: smdev, shmdev, ibvdev, niodev (MPJ_DEVICES or mpjrun --devices selects devices)";
    for (name, value, why) in [
        ("MPJ_DEVICES", "foo", format!("no device is named 'foo'; {known}")),
        ("MPJ_DEVICES", "smdv", format!("no device is named 'smdv' (did you mean smdev?); {known}")),
        ("MPJ_DEVICES", "smdev,", "MPJ_DEVICES=smdev, is not auto, or names separated by commas".to_owned()),
        ("MPJ_DEVICES", "niodev", "no device could be opened: niodev: needs a job key".to_owned()),
        ("MPJ_SPIN_US", "fast", "MPJ_SPIN_US=fast is not a number".to_owned()),
        ("MPJ_NIO_LISTEN_ADDRESS", "here", "MPJ_NIO_LISTEN_ADDRESS=here is not an address".to_owned()),
    ] {
        for mode in ["one", "good"] {
            let (output, text) = output(command(mode).env(name, value));
            assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{name}={value}: {text}");
            assert!(text.contains(&why), "{name}={value}: {text}");
        }
    }
    let (output_on, text) = output(command("abort-on").env("MPJ_DEVICES", "foo"));
    assert_eq!((output_on.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    let (output, text) = output(command("good").env("MPJ_DEVICES", "smdev"));
    assert_eq!((output.status.code(), &*text), (Some(0), ""));
}

/// Runs the program as a process of another launcher. It must fail, unless `MPJ_LAUNCHER=none`.
fn process_of_another_launcher_is_rejected() {
    let run_with_launcher = |launcher| {
        let mut command = command("good");
        command.envs([
            ("OMPI_COMM_WORLD_SIZE", "3"),
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("MPJ_LAUNCHER", launcher),
        ]);
        output(&mut command)
    };
    let (refused, text) = run_with_launcher("auto");
    assert_eq!((refused.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("Open MPI's mpirun") && text.contains("mpjrun -n 3"), "{text}");
    let (alone, text) = run_with_launcher("none");
    assert_eq!((alone.status.code(), &*text), (Some(0), ""));
}

/// The table shows why the program hangs. `mpj::threads` returns the table as an error.
fn time_limit_ends_a_program_that_hangs() {
    let limited = |mode| output(command(mode).env("MPJ_TIMEOUT", "1"));
    for (mode, cycle) in [("ring", "0 → 1 → 2 → 3 → 0"), ("ring-on", "0 → 1 → 2 → 0")] {
        let (output, text) = limited(mode);
        assert_eq!(output.status.code(), Some(124), "{text}");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "mpj: timeout of 1 s reached; the job was terminated:");
        assert!(lines[1].starts_with("  rank 0: recv from rank 1 with tag 7, for "), "{text}");
        assert_eq!(lines[lines.len() - 1], format!("  a cycle of waiting ranks: {cycle}"));
    }
    let (output_of, text) = limited("busy");
    assert_eq!(output_of.status.code(), Some(124), "{text}");
    assert!(
        text.contains("\n  rank 1: in no blocking call")
            && text.contains("\n  rank 1 has not entered: barrier"),
        "{text}"
    );
    let (output_of, text) = limited("started");
    assert_eq!(output_of.status.code(), Some(124), "{text}");
    let said = String::from_utf8_lossy(&output_of.stdout);
    assert!(
        said.contains("ibarrier: rank ") && said.contains(" has failed: timed out (MPJ_TIMEOUT)"),
        "{said} {text}"
    );
    let (output_of, text) = limited("library");
    assert_eq!((output_of.status.code(), &*text), (Some(0), ""), "a library prints nothing");
    let said = String::from_utf8_lossy(&output_of.stdout);
    assert!(
        said.contains("rank 0: timeout of 1 s reached; the job was terminated:\n  rank 0: recv from rank 1"),
        "{said}"
    );
    let (output_of, text) = output(command("good").env("MPJ_TIMEOUT", "60"));
    assert_eq!((output_of.status.code(), &*text), (Some(0), ""));
    let (output_of, text) = output(command("good").env("MPJ_TIMEOUT", "soon"));
    assert!(
        output_of.status.code() == Some(1) && text.contains("MPJ_TIMEOUT=soon is not a number of seconds"),
        "{text}"
    );
}

/// After the table, SIGINT ends the program, unless SIGINT was ignored at the start.
fn signals_print_the_table_of_waits() {
    // A shell starts background jobs with both signals ignored, and this test might run in one.
    let with = |option: &str| {
        let mut env = Command::new("env");
        env.arg(option).arg(std::env::current_exe().expect("this test")).env(MODE, "ring");
        env
    };
    let (status, text) = signalled(&mut with("--default-signal=INT,QUIT"), &["-QUIT", "-INT"]);
    assert_eq!(status.signal(), Some(2), "{text}");
    for line in ["mpj: SIGQUIT; what the ranks wait for:\n", "mpj: interrupted; what the ranks wait for:\n"] {
        assert!(text.contains(line), "{text}");
    }
    assert_eq!(text.matches("  a cycle of waiting ranks: 0 → 1 → 2 → 3 → 0").count(), 2, "{text}");
    let (status, text) = signalled(&mut with("--ignore-signal=INT"), &["-INT", "-KILL"]);
    assert_eq!((status.signal(), &*text), (Some(9), ""), "it stays ignored");
}

fn signals_have_their_default_effect_if_no_thread_can_be_started() {
    for (signal, number) in [("-QUIT", 3), ("-INT", 2)] {
        let mut shell = Command::new("sh");
        shell.args(["-c", "ulimit -c 0; exec env --default-signal=INT,QUIT \"$0\""]);
        shell.arg(std::env::current_exe().expect("this test"));
        // No address space has room for such a stack.
        shell.env(MODE, "alone").env("RUST_MIN_STACK", (1u64 << 60).to_string());
        let (status, text) = signalled(&mut shell, &[signal, "-KILL"]);
        assert_eq!(status.signal(), Some(number), "{text}");
    }
}

/// The trace is one file, with the calls that had not returned.
fn trace_of_an_interrupted_program_is_complete() {
    let folder = std::env::temp_dir().join(format!("mpj-interrupted-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let path = folder.join("job.json");
    let mut env = Command::new("env");
    env.arg("--default-signal=INT").arg(std::env::current_exe().expect("this test"));
    let (status, text) = signalled(env.env(MODE, "ring").env("MPJ_TRACE", &path), &["-INT"]);
    assert_eq!(status.signal(), Some(2), "{text}");
    let files: Vec<_> =
        std::fs::read_dir(&folder).expect("the folder").map(|file| file.unwrap().path()).collect();
    assert_eq!(files, [path.as_path()]);
    let trace = std::fs::read_to_string(&path).expect("the trace");
    assert_eq!(trace.matches(r#""open":1"#).count(), 4, "{trace}");
    assert!(trace.starts_with('[') && trace.ends_with("]\n"), "{trace}");
    std::fs::remove_dir_all(&folder).expect("removed");
}

/// Starts a program that prints "here" four times. Half a second later, when its ranks sleep, sends it the signals,
/// half a second apart.
fn signalled(command: &mut Command, signals: &[&str]) -> (ExitStatus, String) {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let lines = BufReader::new(child.stdout.take().expect("a pipe")).lines();
    assert_eq!(lines.take(4).map_while(Result::ok).filter(|line| line == "here").count(), 4);
    for signal in signals {
        std::thread::sleep(Duration::from_millis(500));
        let sent = Command::new("kill").arg(signal).arg(child.id().to_string()).status();
        assert!(sent.expect("kill").success());
    }
    let output = child.wait_with_output().expect("ends");
    (output.status, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn program_runs_under_valgrind() {
    let program = command("good");
    let mut valgrind = Command::new("valgrind");
    valgrind.args(["-q", "--error-exitcode=9"]).arg(program.get_program());
    valgrind.envs(program.get_envs().filter_map(|(name, value)| Some((name, value?))));
    match valgrind.output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stderr);
            assert_eq!((output.status.code(), &*text), (Some(0), ""));
        }
        Err(error) => drop(writeln!(std::io::stderr(), "SKIPPED: valgrind: {error}")),
    }
}

fn run(mode: &str) -> (Output, String) {
    output(&mut command(mode))
}

fn command(mode: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this test"));
    command.env(MODE, mode).env("RUST_BACKTRACE", "0");
    command
}

fn output(command: &mut Command) -> (Output, String) {
    let output = command.output().expect("runs");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, text)
}
