//! `mpj-perf` measures the cost of messages, collectives, datatypes, pools and codecs. See `mpj-perf --help` for its
//! usage.
//!
//! Exit status: 0 measured; 1 a rank failed; 2 the command line is wrong.

#![allow(clippy::print_stderr, reason = "a program says on stderr why it does not run")]

use std::fs::OpenOptions;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::error::ErrorKind;
use clap::{Parser, ValueEnum};
use mpj::{Launch, World};

use arguments::{Cli, Measuring, OfRanks, PathsArgs, PingpongArgs, PoolsArgs, Program, SerdeArgs};
use perf::Failure;

mod arguments;
mod perf;

/// The exit status for an invalid command line, the same as clap's.
const USAGE: u8 = 2;
impl OfRanks {
    /// Returns the reason why the program cannot run with `ranks` ranks, if there is one.
    fn refuse(&self, ranks: usize) -> Option<String> {
        match self {
            OfRanks::Pingpong(_) if ranks != 2 => Some(format!("pingpong needs 2 ranks, not {ranks}")),
            OfRanks::Matching(_) if ranks != 2 => Some(format!("matching needs 2 ranks, not {ranks}")),
            OfRanks::Tune(_) if ranks != 2 => Some(format!("tune needs 2 ranks, not {ranks}")),
            OfRanks::Paths(_) if ranks != 2 => Some(format!("paths needs 2 ranks, not {ranks}")),
            OfRanks::Paths(PathsArgs { max_bytes, .. }) if *max_bytes < 64 => {
                Some("the smallest message of paths has 64 bytes".to_owned())
            }
            OfRanks::Pingpong(args) if !args.pool.is_empty() => {
                perf::pingpong_pools::refuse(&args.pool, &args.storages())
            }
            OfRanks::Pingpong(args) => args.options().refuse(),
            _ => None,
        }
    }

    fn run(&self, world: &World, svg: Option<&Path>) -> Result<(), Failure> {
        match self {
            OfRanks::Pingpong(PingpongArgs { what, ms, max_bytes, .. }) if !what.is_empty() => {
                perf::payloads::run(world, what, *ms, *max_bytes)
            }
            OfRanks::Pingpong(PingpongArgs { threads: Some(threads), ms, .. }) => {
                perf::threads::run(world, *ms, usize::from(*threads))
            }
            OfRanks::Pingpong(args) if !args.pool.is_empty() => {
                let PingpongArgs { pool, ms, max_bytes, .. } = args;
                perf::pingpong_pools::run(world, (pool, &args.storages()), *ms, *max_bytes, svg)
            }
            OfRanks::Pingpong(args) => perf::pingpong::run(world, args.options(), svg),
            OfRanks::Coll(args) => perf::coll::run(world, args.ms, args.max_bytes, svg),
            OfRanks::Ddt(args) => perf::ddt::run(world, args.pack_ms, args.send_ms, svg),
            OfRanks::Paths(args) => perf::paths::run(world, args.ms, args.max_bytes, svg),
            OfRanks::Tune(args) => perf::paths::tune::run(world, args.ms, &args.file),
            OfRanks::Matching(args) => perf::matching::run(world, args.messages),
            OfRanks::Hello(_) => Ok(()),
        }
    }
}

impl PoolsArgs {
    fn options(self) -> perf::pools::Options {
        let all = perf::pools::Test::value_variants();
        let PoolsArgs { tests, ms, rounds, csv, draw, .. } = self;
        let tests = if tests.is_empty() { all.to_vec() } else { tests };
        perf::pools::Options { tests, ms, rounds: rounds.into(), csv, svg: draw.svg }
    }
}

impl PingpongArgs {
    fn storages(&self) -> Vec<String> {
        if self.storage.is_empty() { vec!["pages".to_owned()] } else { self.storage.clone() }
    }

    fn options(&self) -> perf::pingpong::Options {
        perf::pingpong::Options { ms: self.ms, max_bytes: self.max_bytes, pool_mib: self.pool_mib }
    }
}

fn main() -> ExitCode {
    let Cli { program } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    if let Some(why) = program.svg().and_then(|path| undrawable(&program, path)) {
        return refuse(&why);
    }
    let svg = program.svg().cloned();
    let program = match program {
        Program::Ranks(program) => program,
        Program::Pools(PoolsArgs { memory_of: Some(chosen), .. }) => {
            return alone(perf::pools::print_memory(&chosen));
        }
        Program::Pools(args) => {
            return alone(perf::pools::run(&args.options()));
        }
        Program::Serde(SerdeArgs { csv, ms, rounds, .. }) => {
            return alone(perf::serde::run(&perf::serde::Options { csv, ms, rounds: rounds.into(), svg }));
        }
    };
    let Measuring { ranks: arguments::Ranks { ranks }, bind, stats } = program.measuring();
    let bind = match bind.map_or_else(perf::affinity::preset, Ok) {
        Ok(bind) => bind,
        Err(why) => return refuse(&why),
    };
    if let Some(why) = ranks.and_then(|ranks| program.refuse(ranks)) {
        return refuse(&why);
    }
    let refused = AtomicBool::new(false);
    let ended = mpj::run_with(Launch::threads(ranks.unwrap_or(2)), |world: World| {
        let size = world.size();
        let why = match ranks {
            Some(asked) if asked != size => {
                Some(format!("-n {asked}, but the launcher started {size} ranks"))
            }
            _ => program.refuse(size),
        };
        let Some(why) = why else {
            perf::affinity::bind(&world, bind)?;
            let outcome = program.run(&world, svg.as_deref());
            return outcome.and_then(|()| if stats { perf::report::stats(&world) } else { Ok(()) });
        };
        refused.store(true, Ordering::Relaxed);
        if world.rank() == 0 {
            refuse(&why);
        }
        Ok(())
    });
    if refused.into_inner() { ExitCode::from(USAGE) } else { ended }
}

/// Returns the reason why a program cannot draw its picture, if there is one. It is checked before the long
/// measurement.
fn undrawable(program: &Program, path: &Path) -> Option<String> {
    match program {
        Program::Pools(args) if !args.tests.is_empty() && !args.tests.contains(&perf::pools::Test::One) => {
            return Some("--svg draws the test one, which is not among those named".to_owned());
        }
        _ => {}
    }
    // Opening the file does not truncate it: it keeps its content until the picture is drawn.
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.err().map(|why| format!("{}: {why}", path.display()))
}

/// Returns the exit status of a program without ranks.
fn alone(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("mpj-perf: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Prints one line with the reason why nothing is run.
fn refuse(why: &str) -> ExitCode {
    eprintln!("mpj-perf: {why}");
    ExitCode::from(USAGE)
}

/// Prints help if it was requested, and otherwise clap's error on one line.
fn usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // If the output is closed, the failure cannot be reported.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => refuse(
            "name a program: pingpong, coll, ddt, paths, tune, matching, pools, serde or hello (mpj-perf --help says more)",
        ),
        _ => {
            let complaint = error.render().to_string();
            let lines: Vec<&str> =
                complaint.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
            let line = lines.join(" ");
            refuse(line.strip_prefix("error: ").unwrap_or(&line))
        }
    }
}
