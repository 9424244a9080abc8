//! `mpjrun`: starts the ranks of a job on this host, and terminates them together.
//!
//! | file | what it does |
//! |---|---|
//! | `main`, `foreign_options`, `params` | the command line, options of other launchers, the list of parameters |
//! | `spec`, `placement`, `environment` | check the options, and assign ranks and variables to processes and hosts |
//! | `spawn` | starts one process, which is killed when `mpjrun` exits |
//! | `job` | the event loop: processes, signals, deadlines |
//! | `messages` | handles the messages from the processes |
//! | `failures` | decides which ranks have failed, from reports and exits |
//! | `hang_report` | queries what each rank waits for |
//! | `trace_files` | merges the traces of the ranks |
//! | `verdict` | selects the root cause, the exit code and the message |
//! | `output`, `stdin`, `signals` | forward output, terminal input and signals |

mod environment;
mod failures;
mod foreign_options;
mod hang_report;
mod job;
mod messages;
mod output;
mod params;
mod placement;
#[allow(unsafe_code, reason = "signal masks and a signal descriptor")]
mod signals;
#[allow(unsafe_code, reason = "code that runs between fork and exec")]
mod spawn;
mod spec;
mod stdin;
mod trace_files;
mod verdict;

use std::ffi::OsString;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory, Parser, ValueEnum};

/// Starts PROGRAM as the ranks of a job on this host.
///
/// A rank is a process that calls mpj::run, or a thread of such a process. If a rank fails, calls of the other ranks on
/// communicators with that rank return errors. After a grace period the other ranks are terminated, and a message
/// names the root cause. Ctrl-C prints what each rank waits for and interrupts the ranks; a second Ctrl-C kills them.
/// Ctrl-\ (SIGQUIT) prints what each rank waits for, and the job continues. Signals that were ignored at the start stay
/// ignored: a script's shell ignores SIGINT for `mpjrun ... &`, so end such a job with SIGTERM.
#[derive(Parser, Debug)]
#[command(name = "mpjrun", version, override_usage = USAGE, after_long_help = AFTER)]
struct Cli {
    /// Number of ranks
    #[arg(short = 'n', long = "np", value_name = "N", required_unless_present = "params", value_parser = ranks)]
    #[arg(allow_negative_numbers = true)]
    ranks: Option<u32>,
    /// Devices, comma-separated: smdev (threads of one process), shmdev (shared memory), ibvdev (InfiniBand, RoCE),
    /// niodev (TCP), a device of the program, or auto (all, but ibvdev only for several hosts). Each pair of ranks uses
    /// the fastest one that connects it [default: MPJ_DEVICES, or auto]
    #[arg(long, visible_alias = "dev", value_name = "LIST")]
    devices: Option<String>,
    /// How message bodies move: auto, buffered (through pool blocks at both ends) or zerocopy (directly between user
    /// buffers if the device supports that; sends then wait for their receivers) [default: MPJ_DATA_PATH, or auto]
    #[arg(long, visible_alias = "path", value_name = "HOW")]
    data_path: Option<String>,
    /// Cores of each rank: auto (an equal share of the cores, if there is one for each rank), core (one hardware
    /// thread) or none (any core) [default: MPJ_BIND, or auto]
    #[arg(long, value_name = "CORES")]
    bind: Option<String>,
    /// Ranks per process, as threads [default: 1; all with --devices smdev]
    #[arg(long, value_name = "M", value_parser = ranks, allow_negative_numbers = true)]
    ranks_per_process: Option<u32>,
    /// Sets an environment variable for the ranks; NAME alone keeps the value that they inherit; repeatable
    #[arg(short = 'x', value_name = "NAME[=VALUE]")]
    set: Vec<String>,
    /// Prefixes each output line with the rank, or the ranks, of its process
    #[arg(short = 'l', long)]
    label: bool,
    /// Prints what each rank waits for and terminates the job after SECONDS, with exit code 124 (0: no limit)
    /// [default: MPJ_TIMEOUT, or no limit]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    timeout: Option<Duration>,
    /// Time that the other ranks get after a failure to end by themselves, before SIGTERM
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds, allow_negative_numbers = true)]
    grace: Duration,
    /// Time between SIGTERM and SIGKILL [default: MPJ_KILL_AFTER, or 2]
    #[arg(long, value_name = "SECONDS", allow_negative_numbers = true)]
    kill_after: Option<String>,
    /// Action on the other ranks after a failure
    #[arg(long, value_name = "ACTION", default_value = "terminate")]
    on_failure: OnFailure,
    /// Writes a trace of the job (JSON for Perfetto or Chrome) to FILE, and prints how long each rank waited in which
    /// calls [default: MPJ_TRACE, or no trace]
    #[arg(long, value_name = "FILE")]
    trace: Option<String>,
    /// Prints the traffic of each rank by protocol, and its devices, except for ranks that failed or were killed
    /// [default: MPJ_STATS, or no]
    #[arg(long)]
    stats: bool,
    /// Lists the run-time parameters with defaults and allowed values
    #[arg(long)]
    params: bool,
    /// The program (searched in PATH if it has no slash) and its arguments
    #[arg(value_name = "PROGRAM", required_unless_present = "params", trailing_var_arg = true)]
    program: Vec<OsString>,
}

const USAGE: &str = "mpjrun -n N [OPTIONS] PROGRAM [ARGS]...";

const AFTER: &str = "\
Exit codes:
  0        all ranks finished without error
  1 to 255 code of the process that caused the failure, or 128 + n if signal n killed it
  CODE     a rank called abort(CODE); the lowest eight bits, or 1 if these are 0 and CODE is not
  1        a process exited with 0 before its ranks had left the job, or without joining a job that
           others joined, or violated the control protocol; output could not be written; mpjrun
           failed, for example without memory
  2        invalid command line or parameter (MPJ_*)
  124      timeout
  126      PROGRAM cannot be executed
  127      PROGRAM not found

Examples:
  mpjrun -n 4 ./prog input.txt          four processes
  mpjrun -n 4 --devices smdev ./prog    four threads of one process
  mpjrun -n 4 -l -x RUST_BACKTRACE=1 -x MPJ_SPIN_US=0 ./prog
                                        labelled output and two environment variables
  mpjrun -n 4 --trace job.json ./prog   a trace (open job.json at ui.perfetto.dev)
  mpjrun -n 5 -x MPJ_SIMULATED_HOSTS=a:2,b:3 ./prog
                                        simulates two hosts: ranks 0 and 1, ranks 2 to 4

Standard input goes to rank 0. Run-time parameters are environment variables (mpjrun --params).";

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum OnFailure {
    /// They are terminated
    #[value(alias = "end")]
    Terminate,
    /// They continue; calls on communicators with the failed rank return errors
    Continue,
}

fn ranks(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "expected a number of ranks".to_string())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let invalid = |_| "expected a number of seconds".to_string();
    text.parse()
        .map_err(|_| "expected a number of seconds".to_string())
        .and_then(|s| Duration::try_from_secs_f64(s).map_err(invalid))
}

fn main() -> ExitCode {
    let args = match foreign_options::normalize_args(std::env::args_os(), Cli::command()) {
        Ok(args) => args,
        Err(why) => {
            print_line(&why);
            return ExitCode::from(2);
        }
    };
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(help) if !help.use_stderr() => {
            return match help.print() {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            };
        }
        Err(error) => {
            print_line(&foreign_options::usage_error(&error));
            return ExitCode::from(2);
        }
    };
    if cli.params {
        return params::print();
    }
    let misplaced =
        foreign_options::misplaced_option(cli.program.get(1..).unwrap_or_default(), &Cli::command())
            .map(str::to_owned);
    let outcome = spec::JobSpec::new(cli).and_then(|spec| {
        let signals =
            signals::Signals::block().map_err(|e| verdict::LaunchError::new(format!("signals: {e}")))?;
        job::run(&spec, &signals)
    });
    match outcome {
        Ok(verdict) => {
            if let Some(line) = verdict.line {
                let hint = misplaced.filter(|_| !verdict.is_interrupt).map_or(String::new(), |option| {
                    format!("\n  {option} was passed to the program: options of mpjrun precede its name")
                });
                print_line(&(line + &hint));
            }
            ExitCode::from(verdict.code)
        }
        Err(error) => {
            if !error.why.is_empty() {
                print_line(&error.why);
            }
            ExitCode::from(error.code)
        }
    }
}

/// Prints a message with a single write, so that other output is not mixed with it. In a pipe, this holds for messages
/// up to 4 KiB.
fn print_line(line: &str) {
    // There is no other place to report a failed write.
    let _ = std::io::stderr().write_all(format!("mpjrun: {line}\n").as_bytes());
}
