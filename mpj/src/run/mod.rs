//! The entry points of a program, which call its function once for each rank of this process.

mod interrupt;
mod job_error;
mod job_waits;
mod processes;
pub(crate) mod threads;
mod timeout;
mod trace_guard;
pub(crate) mod watch;

use std::cell::RefCell;
use std::fmt;
use std::io::Write;
use std::process::ExitCode;
use std::sync::{Arc, Once, mpsc};
use std::time::Duration;

use mpj_devices::{Registry, Roster};

pub use job_error::JobError;
pub use processes::{connect, init};
pub use threads::threads;
pub use timeout::{TIMEOUT, timeout};
pub(crate) use trace_guard::{TraceGuard, TraceHandle};

use crate::boot::{LocalRanks, detect};
use crate::world::World;

/// The ranks to start if no launcher has started this process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Launch {
    ranks: usize,
}

impl Launch {
    /// Runs `ranks` ranks as threads of this process.
    pub fn threads(ranks: usize) -> Self {
        Launch { ranks }
    }
}

/// Runs a program: calls `f` once for each rank that this process hosts, and returns the exit code for `main`.
///
/// Under `mpjrun` these are the ranks that it assigned to this process. Without a launcher, the program has one rank;
/// [`run_with`] starts more. If an unsupported launcher has started several processes, no rank runs, because each
/// process would be a job of its own; `MPJ_LAUNCHER=none` permits that.
/// ```no_run
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     mpj::run(rank)
/// }
///
/// fn rank(world: mpj::World) -> mpj::Result<()> {
///     println!("rank {} of {}", world.rank(), world.size());
///     world.barrier()
/// }
/// ```
/// A named function has an explicit error type. The compiler cannot infer that of a closure that ends in `Ok(())`
/// (E0283): end it in `Ok::<(), mpj::Error>(())`.
///
/// If a rank fails, standard error names it, its error, and the number of other ranks that failed. The exit code is 1
/// after an error, 101 after a panic, and that of [`Intracomm::abort`](crate::Intracomm::abort) if a rank called it. An
/// abort with code 0 does not change the exit code if a rank failed for another reason.
///
/// # Programs that hang
/// After `--timeout` or Ctrl-C, `mpjrun` prints a table of what each rank waits for. Without `mpjrun`:
///
/// * `MPJ_TIMEOUT=SECONDS` ends the job after that time. The table is printed, by rank 0 if several processes host the
///   ranks. Every call of every rank fails, and the exit code is 124. If ranks still run two seconds later, the process
///   exits. A process manager that kills the processes earlier chooses the code: that of Hydra is then 9.
/// * The first Ctrl-C (SIGINT) prints the table and terminates the process; a second one terminates it at once. Ctrl-\
///   (SIGQUIT) prints the waits of this process's ranks, and the program continues. Nothing is printed if the only rank
///   does not wait. This function sets handlers for the two signals, unless they are ignored or handled already.
pub fn run<E, F>(f: F) -> ExitCode
where
    F: Fn(World) -> Result<(), E> + Send + Sync,
    E: fmt::Display,
{
    run_with(Launch::threads(1), f)
}

/// The kind of call that runs ranks. Only `Program` prints why the job failed and may exit the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// [`run`] and its variants, and [`init`].
    Program,
    /// [`threads`] and [`connect`].
    Library,
}

type RankBody<'a, E> = dyn Fn(World) -> Result<(), E> + Send + Sync + 'a;

/// Runs a program as [`run`] does, with the ranks of `launch` if no launcher has started it.
/// ```no_run
/// use std::process::ExitCode;
///
/// fn main() -> ExitCode {
///     mpj::run_with(mpj::Launch::threads(4), rank)
/// }
///
/// fn rank(world: mpj::World) -> Result<(), mpj::BoxError> {
///     let mut sum = [0usize];
///     world.allreduce(&[world.rank()], &mut sum, mpj::Op::Sum)?;
///     std::fs::write(format!("sum-{}", world.rank()), sum[0].to_string())?; // BoxError holds any type of error
///     Ok(())
/// }
/// ```
pub fn run_with<E, F>(launch: Launch, f: F) -> ExitCode
where
    F: Fn(World) -> Result<(), E> + Send + Sync,
    E: fmt::Display,
{
    run_and_report(f, |f| match detect()? {
        Some(boots) => {
            let registry = boots.first().map(|boot| boot.registry()).unwrap_or_default();
            Ok(processes::run_ranks(boots, &registry, f))
        }
        None => Ok(threads::run(launch.ranks, f, Caller::Program).err()),
    })
}

/// Runs a program as the ranks of `boots` with the devices of `registry`, which usually adds devices of the program to
/// those of [`Boot::registry`](crate::boot::Boot::registry).
/// ```no_run
/// # use std::process::ExitCode;
/// use mpj::boot::{ThreadBoot, detect};
///
/// # fn with_own(registry: mpj::devices::Registry) -> mpj::devices::Registry { registry }
/// fn main() -> ExitCode {
///     let boots = match detect() {
///         Ok(boots) => boots.unwrap_or_else(|| ThreadBoot::ranks(4)),
///         Err(why) => {
///             eprintln!("{why}");
///             return ExitCode::FAILURE;
///         }
///     };
///     let registry = with_own(boots[0].registry()); // Registry::with adds a device
///     mpj::run_on(boots, &registry, |world| world.barrier())
/// }
/// ```
/// `examples/own-device` of the repository is a complete program with its own device.
pub fn run_on<E, F>(boots: LocalRanks, registry: &Registry, f: F) -> ExitCode
where
    F: Fn(World) -> Result<(), E> + Send + Sync,
    E: fmt::Display,
{
    run_and_report(f, |f| Ok(processes::run_ranks(boots, registry, f)))
}

fn run_and_report<E, F, H>(f: F, run: H) -> ExitCode
where
    F: Fn(World) -> Result<(), E> + Send + Sync,
    E: fmt::Display,
    H: FnOnce(&RankBody<'_, E>) -> Result<Option<JobError>, String>,
{
    install_panic_filter();
    let rank_body = |world: World| {
        let _guard = RosterGuard::begin(world.boot().roster());
        f(world)
    };
    match run(&rank_body) {
        Ok(None) => ExitCode::SUCCESS,
        Ok(Some(first)) => {
            first.summary().iter().for_each(|summary| print_error(summary));
            ExitCode::from(first.exit_code())
        }
        Err(why) => {
            print_error(&why);
            ExitCode::FAILURE
        }
    }
}

/// Prints a message for the user of a program. The program itself gets errors as values.
pub(crate) fn print_error(message: &dyn fmt::Display) {
    // If standard error is closed, the message is lost.
    let _ = std::io::stderr().write_all(format!("mpj: {message}\n").as_bytes());
}

/// Prints a message as [`print_error`] does, before a job is ended. Returns after half a second at the latest: a write
/// to a full pipe that nobody reads does not return.
pub(crate) fn print_last_error(message: String) {
    const LIMIT: Duration = Duration::from_millis(500);
    let (sender, printed) = mpsc::channel::<()>();
    let print = move || {
        print_error(&message);
        drop(sender);
    };
    // Without a thread, the message is lost, and the job ends.
    if std::thread::Builder::new().name("print".into()).spawn(print).is_ok() {
        let _ = printed.recv_timeout(LIMIT);
    }
}

thread_local! {
    static ROSTER: RefCell<Option<Arc<Roster>>> = const { RefCell::new(None) };
    static SUPPRESSED_PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Sets [`ROSTER`] while a rank runs on this thread.
struct RosterGuard(());

impl RosterGuard {
    fn begin(roster: Arc<Roster>) -> Self {
        ROSTER.set(Some(roster));
        RosterGuard(())
    }
}

impl Drop for RosterGuard {
    fn drop(&mut self) {
        ROSTER.set(None);
    }
}

/// Installs a panic hook that, after the first failure of a rank, does not print panics of rank threads. They usually
/// follow from that failure, and are printed only if they abort the process.
fn install_panic_filter() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let default_hook = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if has_job_failed() {
                let _ = SUPPRESSED_PANIC.try_with(|panic| panic.replace(Some(info.to_string())));
            } else {
                default_hook(info);
            }
        }));
    });
}

/// Prints the last panic that was suppressed on this thread, before it aborts the process.
#[cold]
pub(crate) fn print_suppressed_panic() {
    if let Ok(Some(panic)) = SUPPRESSED_PANIC.try_with(|panic| panic.try_borrow_mut().ok()?.take()) {
        print_error(&panic);
    }
}

/// Returns whether this thread runs a rank of a job in which a rank has failed.
fn has_job_failed() -> bool {
    let failed = |roster: &RefCell<Option<Arc<Roster>>>| {
        roster.try_borrow().is_ok_and(|roster| roster.as_ref().is_some_and(|roster| roster.has_death()))
    };
    // During the destruction of thread-locals, no rank runs on this thread.
    ROSTER.try_with(failed).unwrap_or(false)
}
