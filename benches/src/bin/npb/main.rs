//! `npb`: the NAS Parallel Benchmarks on mpj.
//!
//! ```text
//! npb cg A -n 2              two ranks as threads of this process
//! mpjrun -n 4 npb cg A       four ranks as processes
//! ```
//!
//! Exit status: 0 the run verifies; 1 it does not, a rank returned an error, or the output failed; 2 invalid command
//! line. For other failures of ranks, see [`mpj::run`].

#![allow(clippy::print_stderr, reason = "errors are printed to stderr")]

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use mpj::{Error, Launch, World};

use npb::cg::{self, Iteration, Params};
use npb::{Class, RunReport};

mod npb;

/// The exit status if the run does not verify, or its report cannot be written.
const FAILED: u8 = 1;
/// The exit status for an invalid command line, the same as clap's.
const USAGE: u8 = 2;

/// Maximum number of ranks in one process: with more, the ranks mostly wait for each other.
const MAX_THREADS: usize = 256;

/// The NAS Parallel Benchmarks on mpj
#[derive(Debug, Parser)]
#[command(name = "npb", version)]
struct Cli {
    #[command(subcommand)]
    kernel: Kernel,
}

#[derive(Clone, Debug, Subcommand)]
enum Kernel {
    /// Conjugate gradient: an eigenvalue of a sparse matrix, with irregular memory accesses and messages
    Cg(CgArgs),
}

#[derive(Args, Clone, Copy, Debug)]
struct CgArgs {
    /// Problem size: S, W, A, B or C
    #[arg(value_parser = Class::parse)]
    class: Class,
    /// Number of ranks, a power of two, as threads of this process; under a launcher, that of the job [default: 1]
    #[arg(short = 'n', value_name = "RANKS", value_parser = ranks, allow_negative_numbers = true)]
    ranks: Option<usize>,
    /// Runs one outer iteration fewer than the class specifies, so that the run does not verify
    #[arg(long, hide = true)]
    iterations_off_by_one: bool,
}

fn main() -> ExitCode {
    let Kernel::Cg(args) = match Cli::try_parse() {
        Ok(cli) => cli.kernel,
        Err(error) => return print_clap_error(&error),
    };
    if let Some(why) = args.ranks.and_then(|ranks| Params::of(args.class).rejection(ranks)) {
        return reject(&why);
    }
    // The exit status is the worst one of the ranks of this process.
    let status = Arc::new(AtomicU8::new(0));
    let worst = Arc::clone(&status);
    let exit_code = mpj::run_with(Launch::threads(args.ranks.unwrap_or(1)), move |world: World| {
        worst.fetch_max(run_rank(&world, args)?, Ordering::Relaxed);
        Ok::<(), Error>(())
    });
    match status.load(Ordering::Relaxed) {
        0 => exit_code,
        code => ExitCode::from(code),
    }
}

fn run_rank(world: &World, args: CgArgs) -> Result<u8, Error> {
    let leader = world.rank() == 0;
    let rejection = match args.ranks {
        Some(ranks) if ranks != world.size() => {
            Some(format!("-n {ranks}, but the job has {} ranks", world.size()))
        }
        _ => Params::of(args.class).rejection(world.size()),
    };
    if let Some(why) = rejection {
        if leader {
            reject(&why);
        }
        return Ok(USAGE);
    }

    let official = Params::of(args.class).iterations;
    let iterations = official - usize::from(args.iterations_off_by_one);
    let bar = if leader { progress(iterations) } else { ProgressBar::hidden() };
    let mut found: Vec<Iteration> = Vec::with_capacity(iterations);
    let report = cg::run(world, args.class, iterations, |iteration| {
        found.push(iteration);
        bar.inc(1);
    })?;
    bar.finish_and_clear();
    // A reader that closes the pipe early (`npb cg S | head`) is not an error.
    let result = if leader { print(&found, &report) } else { Ok(()) };
    let write_error = result.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
    if let Some(error) = &write_error {
        eprintln!("npb: cannot write the report: {error}");
    }

    // All processes of a job have the exit status of rank 0.
    let mut verdict = [i32::from(write_error.is_some() || !report.verified())];
    world.bcast(&mut verdict, 0)?;
    Ok(if verdict == [0] { 0 } else { FAILED })
}

/// Prints the output of NPB: a line for each iteration, followed by the report.
fn print(found: &[Iteration], report: &RunReport) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    writeln!(out, " NAS Parallel Benchmarks in Rust on mpj -- {} Benchmark", report.benchmark)?;
    writeln!(out, "   iteration           ||r||                 zeta")?;
    for (index, Iteration { residual, zeta }) in found.iter().enumerate() {
        writeln!(out, "    {:>5}       {residual:>20.14e}{zeta:>20.13}", index + 1)?;
    }
    writeln!(out, "{report}")?;
    out.flush()
}

/// Returns a progress bar. It is hidden if standard error is not a terminal.
fn progress(iterations: usize) -> ProgressBar {
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(iterations as u64).with_style(style).with_message("CG");
    // Show the bar before the matrix is made.
    bar.tick();
    bar
}

fn ranks(text: &str) -> Result<usize, String> {
    let ranks: usize = text.parse().map_err(|_| "expected a number of ranks".to_owned())?;
    if ranks > MAX_THREADS {
        return Err(format!("expected at most {MAX_THREADS} ranks; for more, use mpjrun and omit -n"));
    }
    if !ranks.is_power_of_two() {
        return Err("expected a power of two: 1, 2, 4, 8, …".to_owned());
    }
    Ok(ranks)
}

fn reject(why: &str) -> ExitCode {
    eprintln!("npb: {why}");
    ExitCode::from(USAGE)
}

/// Prints help if it was requested, otherwise the error on one line.
fn print_clap_error(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            reject("expected a benchmark and a class, such as npb cg S -n 2 (see npb --help)")
        }
        ErrorKind::InvalidSubcommand => reject("expected the benchmark cg (see npb --help)"),
        _ => {
            let message = error.render().to_string();
            let lines: Vec<&str> =
                message.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
            let line = lines.join(" ");
            reject(line.strip_prefix("error: ").unwrap_or(&line))
        }
    }
}
