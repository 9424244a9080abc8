//! `npb`: the NAS Parallel Benchmarks on mpj.
//!
//! ```text
//! npb cg A -n 2              two ranks, threads of this process
//! mpjrun -n 4 npb cg A       four ranks, processes
//! ```
//!
//! Exit status: 0 the answer verified; 1 it did not, or a rank failed; 2 the command line is wrong.

#![allow(clippy::print_stderr, reason = "a program says on stderr why it does not run")]

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use mpj::{Error, Launch, World};

use npb::cg::{self, Iteration, Params};
use npb::{Class, Report};

mod npb;

/// The exit status if the answer is not the published one.
const FAILED: u8 = 1;
/// The exit status for an invalid command line, the same as clap's.
const USAGE: u8 = 2;

/// The maximum number of threads in one process: with more, they only wait for each other.
const MOST_THREADS: usize = 256;

/// The NAS Parallel Benchmarks on mpj
#[derive(Debug, Parser)]
#[command(name = "npb", version)]
struct Cli {
    #[command(subcommand)]
    kernel: Kernel,
}

#[derive(Clone, Debug, Subcommand)]
enum Kernel {
    /// Conjugate gradient: the eigenvalue of a sparse matrix, irregular memory and messages
    Cg(CgArgs),
}

#[derive(Args, Clone, Copy, Debug)]
struct CgArgs {
    /// Problem size: S, W, A, B or C
    #[arg(value_parser = Class::parse)]
    class: Class,
    /// Ranks, as threads of this process: a power of two [default: 1]. Under mpjrun its number holds
    #[arg(short = 'n', value_name = "RANKS", value_parser = ranks, allow_negative_numbers = true)]
    ranks: Option<usize>,
    /// Runs one outer iteration too few, which must not verify
    #[arg(long, hide = true)]
    iterations_off_by_one: bool,
}

fn main() -> ExitCode {
    let Kernel::Cg(args) = match Cli::try_parse() {
        Ok(cli) => cli.kernel,
        Err(error) => return usage(&error),
    };
    if let Some(why) = args.ranks.and_then(|ranks| Params::of(args.class).refuse(ranks)) {
        return refuse(&why);
    }
    // Ranks can share this process, which has only one exit status: the worst one.
    let status = Arc::new(AtomicU8::new(0));
    let worst = Arc::clone(&status);
    let ended = mpj::run_with(Launch::threads(args.ranks.unwrap_or(1)), move |world: World| {
        worst.fetch_max(rank(&world, args)?, Ordering::Relaxed);
        Ok::<(), Error>(())
    });
    match status.load(Ordering::Relaxed) {
        0 => ended,
        code => ExitCode::from(code),
    }
}

/// Runs one rank and returns the program's status. Only rank 0 prints.
fn rank(world: &World, args: CgArgs) -> Result<u8, Error> {
    let leader = world.rank() == 0;
    let refusal = match args.ranks {
        Some(ranks) if ranks != world.size() => {
            Some(format!("-n {ranks}, but the launcher started {} ranks", world.size()))
        }
        _ => Params::of(args.class).refuse(world.size()),
    };
    if let Some(why) = refusal {
        if leader {
            refuse(&why);
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
    // A reader that closes the pipe early (`npb cg S | head`) is not an error; a full disk is one.
    let written = if leader { print(&found, &report) } else { Ok(()) };
    let lost = written.err().filter(|error| error.kind() != io::ErrorKind::BrokenPipe);
    if let Some(error) = &lost {
        eprintln!("npb: the report could not be written: {error}");
    }

    // All processes of a job should have the same exit status, so broadcast rank 0's verdict.
    let mut verdict = [i32::from(lost.is_some() || !report.verified())];
    world.bcast(&mut verdict, 0)?;
    Ok(if verdict == [0] { 0 } else { FAILED })
}

/// Prints the output of NPB: a line for each iteration, followed by the report.
fn print(found: &[Iteration], report: &Report) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    writeln!(out, " NAS Parallel Benchmarks in Rust on mpj -- {} Benchmark", report.benchmark)?;
    writeln!(out, "   iteration           ||r||                 zeta")?;
    for (index, Iteration { residual, zeta }) in found.iter().enumerate() {
        writeln!(out, "    {:>5}       {residual:>20.14e}{zeta:>20.13}", index + 1)?;
    }
    writeln!(out, "{report}")?;
    out.flush()
}

/// Returns a progress bar on the terminal, which is hidden if standard error is not a terminal.
fn progress(iterations: usize) -> ProgressBar {
    // The bar is drawn a few times a second for microseconds each, which does not affect the measured time.
    let style = ProgressStyle::with_template("{msg} {wide_bar} {pos}/{len} {eta}")
        .unwrap_or_else(|_| ProgressStyle::default_bar());
    let bar = ProgressBar::new(iterations as u64).with_style(style).with_message("CG");
    // Show the bar at once: making the matrix precedes the first iteration.
    bar.tick();
    bar
}

/// Parses the number of ranks.
fn ranks(text: &str) -> Result<usize, String> {
    let ranks: usize = text.parse().map_err(|_| "a number of ranks is expected".to_owned())?;
    if ranks > MOST_THREADS {
        return Err(format!(
            "at most {MOST_THREADS} ranks in one process; for more use mpjrun, without -n here"
        ));
    }
    if !ranks.is_power_of_two() {
        return Err("the number of ranks must be a power of two: 1, 2, 4, 8, …".to_owned());
    }
    Ok(ranks)
}

/// Prints one line with the reason why nothing is run.
fn refuse(why: &str) -> ExitCode {
    eprintln!("npb: {why}");
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
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            refuse("name a benchmark and a class, as in: npb cg S -n 2 (npb --help says more)")
        }
        _ => {
            let complaint = error.render().to_string();
            let lines: Vec<&str> =
                complaint.lines().take_while(|line| !line.is_empty()).map(str::trim).collect();
            let line = lines.join(" ");
            refuse(line.strip_prefix("error: ").unwrap_or(&line))
        }
    }
}
