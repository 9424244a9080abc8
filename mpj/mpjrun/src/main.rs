//! `mpjrun`: starts the ranks of a job on this host, and ends them together.
//!
//! | file | what it does |
//! |---|---|
//! | `main`, `spelling`, `params` | the command line, options of other launchers, and the list of parameters |
//! | `spec`, `hosts`, `environment` | assigns ranks and variables to processes and hosts, and validates them |
//! | `spawn` | starts one process, and ties its life to that of `mpjrun` |
//! | `job` | the event loop: processes, signals, deadlines |
//! | `hear` | handles the messages from the processes |
//! | `claims` | decides which ranks have failed, from reports and exits |
//! | `ends` | sends orderly exits to the processes that request them |
//! | `hang` | reports what each rank waits for |
//! | `memory` | creates the memory that ranks share, and checks that there is enough |
//! | `control`, `board` | a control socket, and the key-value store behind it |
//! | `traced` | the trace file of a job |
//! | `report` | selects the failure that counts, the exit code and the message |
//! | `output`, `input`, `signals` | forwards output, terminal input and signals |

mod control;
mod environment;
mod exits;
mod failures;
mod foreign_options;
mod hang_report;
mod job;
mod kvs;
mod memory;
mod messages;
mod output;
mod params;
mod placement;
#[allow(unsafe_code, reason = "signal masks")]
mod signals;
#[allow(unsafe_code, reason = "what a process does between fork and exec")]
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

/// Starts PROGRAM as the ranks of a job, all of them on this host.
///
/// A rank is a copy of PROGRAM that calls mpj::run, or one of the threads of such a copy. If one of them fails the
/// others get errors that name it, a little time to say so, and are ended; one line says which rank was the cause.
/// Ctrl-C prints which rank waits for what and ends the job, pressed again it kills. Ctrl-\ (SIGQUIT) prints that, and the
/// job goes on.
#[derive(Parser, Debug)]
#[command(name = "mpjrun", version, override_usage = USAGE, after_long_help = AFTER)]
struct Cli {
    /// How many ranks
    #[arg(short = 'n', long = "np", value_name = "N", required_unless_present = "params", value_parser = ranks)]
    #[arg(allow_negative_numbers = true)]
    ranks: Option<u32>,
    /// Devices that messages may go by: smdev (threads of one process), shmdev (shared memory), ibvdev (InfiniBand,
    /// RoCE), niodev (TCP), one that the program has made itself, or auto for all of them. A list has commas. Each pair of
    /// ranks uses the fastest of them that connects it, whatever their order [default: MPJ_DEVICES, or auto]
    #[arg(long, value_name = "DEVICE")]
    devices: Option<String>,
    /// By which way their bytes go: auto, buffered (through blocks of the pool at both ends), or zerocopy (straight between
    /// the users' memories where the device can; a send then waits for its receiver) [default: MPJ_DATA_PATH, or auto]
    #[arg(long, value_name = "PATH")]
    path: Option<String>,
    /// Which cores a rank runs on: auto (an equal share of the cores, if there are enough for all ranks), core (one core),
    /// or none (wherever the system puts it) [default: MPJ_BIND, or auto]
    #[arg(long, value_name = "CORES")]
    bind: Option<String>,
    /// How many ranks each process hosts, as threads [default: 1; all with --dev smdev]
    #[arg(long, value_name = "M", value_parser = ranks, allow_negative_numbers = true)]
    ranks_per_process: Option<u32>,
    /// Sets a variable in the environment of the ranks, or takes it from this one, which they have anyway; repeatable
    #[arg(short = 'x', value_name = "NAME[=VALUE]")]
    set: Vec<String>,
    /// Begins each line of output with the rank it is from
    #[arg(short = 'l', long)]
    label: bool,
    /// Ends the job after this many seconds, with exit code 124, and prints which rank waits for what; 0 sets no limit
    /// [default: MPJ_TIMEOUT, or no limit]
    #[arg(long, value_name = "SECONDS", value_parser = seconds, allow_negative_numbers = true)]
    timeout: Option<Duration>,
    /// How long the others may go on after a failure, to report their errors, before they get SIGTERM; SIGKILL follows
    /// after MPJ_KILL_AFTER seconds, 2 unless set
    #[arg(long, value_name = "SECONDS", default_value = "2", value_parser = seconds, allow_negative_numbers = true)]
    grace: Duration,
    /// Whether the others are ended after a failure
    #[arg(long, value_name = "WHAT", default_value = "end")]
    on_failure: OnFailure,
    /// Traces the job in a file, which Perfetto (ui.perfetto.dev) and Chrome open: what each rank waits for, and each
    /// message, by which protocol and device it goes; at the end a table says how long each rank waited, and in which calls
    /// [default: MPJ_TRACE, or none]
    #[arg(long, value_name = "FILE")]
    trace: Option<String>,
    /// Prints a table at the end: what each rank has moved, and how, with their sum
    /// [default: MPJ_STATS, or not]
    #[arg(long)]
    stats: bool,
    /// Lists the run-time parameters, with their defaults and ranges, and exits
    #[arg(long)]
    params: bool,
    /// The program, looked for in PATH unless it has a slash, and its arguments
    #[arg(value_name = "PROGRAM", required_unless_present = "params", trailing_var_arg = true)]
    program: Vec<OsString>,
}

const USAGE: &str = "mpjrun -n N [OPTIONS] PROGRAM [ARGS]...";

const AFTER: &str = "\
Exit codes:
  0        every rank has ended well
  1 to 255 the first process that failed: its own code, or 128 + n if signal n killed it
  CODE     a rank called abort(CODE)
  1        a process ended with 0 before its ranks had left the job, or without having joined it
           while others did; output could not be written; there was no memory or process for the job
  2        the command line is wrong
  124      --timeout has passed
  126, 127 PROGRAM cannot be run, or was not found

Examples:
  mpjrun -n 4 ./prog input.txt        four processes
  mpjrun -n 4 --dev smdev ./prog      four threads of one process
  mpjrun -n 5 -x MPJ_SIMULATED_HOSTS=a:2,b:3 ./prog
                                      as if ranks 0 and 1 ran on one host, and 2 to 4 on another
  mpjrun -n 4 -l -x RUST_BACKTRACE=1 -x MPJ_SPIN_US=0 ./prog
  mpjrun -n 4 --trace job.json ./prog open job.json at ui.perfetto.dev

Standard input goes to rank 0. Parameters are variables of the environment (mpjrun --params).";

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum OnFailure {
    /// They are ended
    End,
    /// They go on, in communicators that the failed rank is no member of
    Continue,
}

fn ranks(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| "not a number of ranks".to_string())
}

fn seconds(text: &str) -> Result<Duration, String> {
    let wrong = |_| "not a number of seconds".to_string();
    text.parse()
        .map_err(|_| "not a number of seconds".to_string())
        .and_then(|s| Duration::try_from_secs_f64(s).map_err(wrong))
}

fn main() -> ExitCode {
    let args = match foreign_options::normalize_args(std::env::args_os(), &Cli::command()) {
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
        Err(wrong) => {
            print_line(&foreign_options::sentence(&wrong));
            return ExitCode::from(2);
        }
    };
    if cli.params {
        return params::print();
    }
    let misplaced = foreign_options::misplaced(cli.program.get(1..).unwrap_or_default(), &Cli::command())
        .map(str::to_owned);
    let outcome = spec::JobSpec::new(cli).and_then(|spec| {
        let signals =
            signals::Signals::take().map_err(|e| verdict::LaunchError::new(format!("signals: {e}")))?;
        job::run(&spec, &signals)
    });
    match outcome {
        Ok(verdict) => {
            if let Some(line) = verdict.line {
                let hint = misplaced.filter(|_| !verdict.is_interrupt).map_or(String::new(), |option| {
                    format!("\n  {option} went to the program: options of mpjrun stand before its name")
                });
                print_line(&(line + &hint));
            }
            ExitCode::from(verdict.code)
        }
        Err(refused) => {
            if !refused.why.is_empty() {
                print_line(&refused.why);
            }
            ExitCode::from(refused.code)
        }
    }
}

/// Prints a line with a single write, so that no other line can be mixed with it.
fn print_line(line: &str) {
    // If the write fails, there is no other place to report an error.
    let _ = std::io::stderr().write_all(format!("mpjrun: {line}\n").as_bytes());
}
