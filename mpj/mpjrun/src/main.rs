//! `mpjrun`: starts the ranks of a job on this host, and sees to it that they end together.
//!
//! | file | what it does |
//! |---|---|
//! | `main` | the command line |
//! | `plan` | which process gets which ranks, and what may be wrong with that |
//! | `spawn` | starts one process, bound to this one's life |
//! | `job` | the loop: what to wait for, signals, deadlines |
//! | `hear` | what the processes say |
//! | `claims` | who has failed: what was said, how processes ended, what others noticed |
//! | `memory` | the memory the ranks share, and whether there is enough |
//! | `control`, `board` | a control socket, and what ranks make known to each other by them |
//! | `report` | which failure counts, the exit code and the one message |
//! | `output`, `input`, `signals` | lines out, the terminal in, signals on |

mod board;
mod claims;
mod control;
mod hear;
mod input;
mod job;
mod memory;
mod output;
mod plan;
mod report;
#[allow(unsafe_code, reason = "signal masks")]
mod signals;
#[allow(unsafe_code, reason = "what a process does between fork and exec")]
mod spawn;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Parser, ValueEnum};
use mpj_devices::config::PARAMETERS;

/// Starts PROGRAM as the ranks of a job on this host.
///
/// The exit code is that of the first process that fails: its own, 128 + n if signal n killed it, the code it aborted
/// the job with, or 1 if it ended with 0 before its ranks had left the job. 124 after --timeout, 127 or 126 if PROGRAM
/// is not there or cannot be run, 2 for a wrong command line.
#[derive(Parser, Debug)]
#[command(name = "mpjrun", version)]
struct Cli {
    /// How many ranks
    #[arg(short = 'n', long = "np", value_name = "N", required_unless_present = "params")]
    ranks: Option<u32>,
    /// smdev (all ranks are threads of one process), shmdev, niodev, or auto for the best there is for each pair
    #[arg(long, value_name = "DEVICE", default_value = "auto")]
    dev: String,
    /// How many ranks each process hosts, as threads
    #[arg(long, value_name = "M")]
    ranks_per_process: Option<u32>,
    /// Sets a variable in the environment of the ranks; repeatable
    #[arg(short = 'x', value_name = "NAME=VALUE")]
    set: Vec<String>,
    /// Begins each line of output with the rank it is from
    #[arg(short = 'l', long)]
    label: bool,
    /// Ends the job after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = seconds)]
    timeout: Option<Duration>,
    /// How long the others may go on after a failure, to report their errors, before they get SIGTERM; SIGKILL follows
    /// after 2 s
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds)]
    grace: Duration,
    /// Whether the others are ended after a failure
    #[arg(long, value_name = "WHAT", default_value = "end")]
    on_failure: OnFailure,
    /// Lists the run-time parameters, with their defaults
    #[arg(long)]
    params: bool,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required_unless_present = "params", trailing_var_arg = true)]
    program: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum OnFailure {
    /// They are ended
    End,
    /// They go on
    Continue,
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = |_| "not a number of seconds".to_string();
    text.parse()
        .map_err(|_| "not a number of seconds".to_string())
        .and_then(|s| Duration::try_from_secs_f64(s).map_err(wrong))
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(help) if !help.use_stderr() => {
            // Nobody listens: nothing can be done.
            let _ = help.print();
            return ExitCode::SUCCESS;
        }
        Err(wrong) => {
            say(&one_line(&wrong.to_string()));
            return ExitCode::from(2);
        }
    };
    if cli.params {
        return params();
    }
    let outcome = plan::Plan::new(cli).and_then(|plan| {
        let signals = signals::Signals::take().map_err(|e| report::Refused::new(format!("signals: {e}")))?;
        job::run(&plan, &signals)
    });
    match outcome {
        Ok(verdict) => {
            if let Some(line) = verdict.line {
                say(&line);
            }
            ExitCode::from(verdict.code)
        }
        Err(refused) => {
            say(&refused.why);
            ExitCode::from(refused.code)
        }
    }
}

/// The first paragraph, which says what is wrong.
fn one_line(text: &str) -> String {
    let lines = text.lines().map(str::trim).take_while(|line| !line.is_empty());
    lines.collect::<Vec<_>>().join(" ").trim_start_matches("error: ").to_owned() + "; see mpjrun --help"
}

/// Says something in one piece, which no other line gets into.
fn say(line: &str) {
    // Nobody listens: nothing can be done.
    let _ = std::io::stderr().write_all(format!("mpjrun: {line}\n").as_bytes());
}

fn params() -> ExitCode {
    let mut out = std::io::stdout().lock();
    for parameter in PARAMETERS {
        let (low, high) = parameter.range;
        let (name, default, help) = (parameter.name, parameter.default, parameter.help);
        if writeln!(out, "MPJ_{name}={default} ({low} to {high})\n    {help}").is_err() {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}
