//! `mpj-perf` measures the cost of messages, collectives, datatypes, pools and codecs: see `mpj-perf --help`.
//!
//! Exit status: 0 measured, or printed the help or the version; 1 a rank returned an error, or a measurement without
//! ranks failed; 2 invalid command line or `MPJ_BIND`. For other failures of ranks, see [`mpj::run`].

#![allow(clippy::print_stderr, reason = "errors are printed to stderr")]

use std::fs::OpenOptions;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::error::ErrorKind;
use clap::{Parser, ValueEnum};
use mpj::{Launch, World};

use arguments::{Cli, MeasureArgs, PathsArgs, PingpongArgs, PoolsArgs, Program, RankProgram, SerdeArgs};
use perf::Failure;

mod arguments;
mod perf;

/// The exit status for an invalid command line, the same as clap's.
const USAGE: u8 = 2;

impl RankProgram {
    /// Returns why the program cannot run with these arguments and `ranks` ranks, if it cannot.
    fn rejection(&self, ranks: usize) -> Option<String> {
        match self {
            RankProgram::Pingpong(_) if ranks != 2 => Some(format!("pingpong needs 2 ranks, not {ranks}")),
            RankProgram::Calls(_) if ranks != 1 => Some(format!("calls needs 1 rank (-n 1), not {ranks}")),
            RankProgram::Matching(_) if ranks != 2 => Some(format!("matching needs 2 ranks, not {ranks}")),
            RankProgram::Overlap(_) if ranks != 2 => Some(format!("overlap needs 2 ranks, not {ranks}")),
            RankProgram::Tune(_) if ranks != 2 => Some(format!("tune needs 2 ranks, not {ranks}")),
            RankProgram::Paths(_) if ranks != 2 => Some(format!("paths needs 2 ranks, not {ranks}")),
            RankProgram::Paths(PathsArgs { max_bytes, .. }) if *max_bytes < 64 => {
                Some("the largest message of paths must have at least 64 bytes".to_owned())
            }
            RankProgram::Pingpong(args) if !args.pool.is_empty() => {
                perf::pingpong_pools::rejection(&args.pool, &args.storages())
            }
            RankProgram::Pingpong(args) => args.options().rejection(),
            _ => None,
        }
    }

    fn run(&self, world: &World, svg: Option<&Path>) -> Result<(), Failure> {
        match self {
            RankProgram::Pingpong(PingpongArgs { payload, ms, max_bytes, .. }) if !payload.is_empty() => {
                perf::payloads::run(world, payload, *ms, *max_bytes)
            }
            RankProgram::Pingpong(PingpongArgs { threads: Some(threads), ms, .. }) => {
                perf::threads::run(world, *ms, usize::from(*threads))
            }
            RankProgram::Pingpong(args) if !args.pool.is_empty() => {
                let PingpongArgs { pool, ms, max_bytes, .. } = args;
                perf::pingpong_pools::run(world, (pool, &args.storages()), *ms, *max_bytes, svg)
            }
            RankProgram::Pingpong(args) => perf::pingpong::run(world, args.options(), svg),
            RankProgram::Coll(args) => perf::coll::run(world, args.ms, args.max_bytes, args.algorithms, svg),
            RankProgram::Ddt(args) => perf::ddt::run(world, args.pack_ms, args.send_ms, svg),
            RankProgram::Paths(args) => perf::paths::run(world, args.ms, args.max_bytes, svg),
            RankProgram::Tune(args) => perf::paths::tune::run(world, args.ms, &args.file),
            RankProgram::Matching(args) => perf::matching::run(world, args.messages),
            RankProgram::Overlap(args) => perf::overlap::run(world, args.ms),
            RankProgram::Calls(_) => perf::calls::run(world),
            RankProgram::Hello(_) => Ok(()),
        }
    }
}

impl PoolsArgs {
    fn options(self) -> perf::pools::PoolOptions {
        let all = perf::pools::AllocPattern::value_variants();
        let PoolsArgs { tests, ms, rounds, csv, draw, .. } = self;
        let tests = if tests.is_empty() { all.to_vec() } else { tests };
        perf::pools::PoolOptions { tests, ms, rounds: rounds.into(), csv, svg: draw.svg }
    }
}

impl PingpongArgs {
    fn storages(&self) -> Vec<String> {
        if self.storage.is_empty() { vec!["pages".to_owned()] } else { self.storage.clone() }
    }

    fn options(&self) -> perf::pingpong::PingpongOptions {
        perf::pingpong::PingpongOptions {
            ms: self.ms,
            max_bytes: self.max_bytes,
            rotate_mib: self.rotate_mib,
        }
    }
}

fn main() -> ExitCode {
    let Cli { program } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return print_clap_error(&error),
    };
    if let Some(why) = program.svg().and_then(|path| svg_error(&program, path)) {
        return reject(&why);
    }
    let svg = program.svg().cloned();
    let program = match program {
        Program::Ranks(program) => program,
        Program::Pools(PoolsArgs { memory_of: Some(chosen), .. }) => {
            return exit_code_of(perf::pools::print_memory(&chosen));
        }
        Program::Pools(args) => {
            return exit_code_of(perf::pools::run(&args.options()));
        }
        Program::Serde(SerdeArgs { csv, ms, rounds, .. }) => {
            return exit_code_of(perf::serde::run(&perf::serde::SerdeOptions {
                csv,
                ms,
                rounds: rounds.into(),
                svg,
            }));
        }
    };
    let MeasureArgs { ranks: arguments::Ranks { ranks }, bind, stats } = program.measuring();
    let bind = match bind.map_or_else(perf::affinity::default_binding, Ok) {
        Ok(bind) => bind,
        Err(why) => return reject(&why),
    };
    if let Some(why) = ranks.and_then(|ranks| program.rejection(ranks)) {
        return reject(&why);
    }
    let is_rejected = AtomicBool::new(false);
    let exit_code = mpj::run_with(Launch::threads(ranks.unwrap_or(2)), |world: World| {
        let size = world.size();
        let why = match ranks {
            Some(requested) if requested != size => {
                Some(format!("-n {requested}, but the job has {size} ranks"))
            }
            _ => program.rejection(size),
        };
        let Some(why) = why else {
            perf::affinity::bind(&world, bind)?;
            let outcome = program.run(&world, svg.as_deref());
            return outcome.and_then(|()| if stats { perf::report::print_stats(&world) } else { Ok(()) });
        };
        is_rejected.store(true, Ordering::Relaxed);
        if world.rank() == 0 {
            reject(&why);
        }
        Ok(())
    });
    if is_rejected.into_inner() { ExitCode::from(USAGE) } else { exit_code }
}

/// Returns why a program cannot draw its picture, if it cannot. Called before the long measurement.
fn svg_error(program: &Program, path: &Path) -> Option<String> {
    match program {
        Program::Pools(args)
            if !args.tests.is_empty() && !args.tests.contains(&perf::pools::AllocPattern::One) =>
        {
            return Some("--svg draws the test \"one\": add it, or omit --svg".to_owned());
        }
        _ => {}
    }
    let opened = match OpenOptions::new().write(true).create_new(true).open(path) {
        // A program that fails leaves no empty file, unless several processes check at the same time.
        Ok(_) => std::fs::remove_file(path),
        // Opening the file does not truncate it.
        Err(_) => OpenOptions::new().create(true).append(true).open(path).map(drop),
    };
    opened.err().map(|why| format!("{}: {why}", path.display()))
}

fn exit_code_of(outcome: Result<(), Failure>) -> ExitCode {
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("mpj-perf: {why}");
            ExitCode::FAILURE
        }
    }
}

fn reject(why: &str) -> ExitCode {
    eprintln!("mpj-perf: {why}");
    ExitCode::from(USAGE)
}

/// Prints the help or the version if it was requested, otherwise the error on one line.
fn print_clap_error(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand | ErrorKind::MissingSubcommand => reject(
            "expected a program: pingpong, coll, ddt, paths, tune, matching, overlap, calls, pools, serde or hello (see mpj-perf --help)",
        ),
        _ => {
            let message = error.render().to_string();
            let lines: Vec<&str> =
                message.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
            let line = lines.join(" ");
            reject(line.strip_prefix("error: ").unwrap_or(&line))
        }
    }
}
