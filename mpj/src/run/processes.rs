//! Ranks with given [`Boot`]s, such as those that a launcher assigned to this process; and [`init`].

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

use mpj_devices::{Exit, ExitEvent, Registry};

use super::job_error::JobError;
use super::threads::{self, RankFailure, prepare};
use super::timeout::{leave_before, timeout};
use super::{Caller, TraceGuard};
use crate::boot::{self, Boot, LocalRanks, ThreadBoot, detect};
use crate::config;
use crate::error::{Error, ErrorClass};
use crate::world::World;

/// Runs the ranks of this process, and then leaves the job.
pub(super) fn run_ranks<E, F>(boots: LocalRanks, registry: &Registry, f: &F) -> Option<JobError>
where
    F: Fn(World) -> Result<(), E> + Send + Sync + ?Sized,
    E: fmt::Display,
{
    let (first, begun) = (boots.first().cloned()?, Instant::now());
    let failure = run_until_exit(boots, registry, f);
    let limit = if first.has_launcher() { None } else { config::from_env().ok().and_then(|c| timeout(&c)) };
    let deadline = limit.and_then(|limit| begun.checked_add(limit));
    leave_before(deadline, first.roster().has_death(), || first.leave());
    failure
}

fn run_until_exit<E, F>(boots: LocalRanks, registry: &Registry, f: &F) -> Option<JobError>
where
    F: Fn(World) -> Result<(), E> + Send + Sync + ?Sized,
    E: fmt::Display,
{
    let ranks: Vec<u32> = boots.iter().map(|boot| boot.rank()).collect();
    let first = boots.first().cloned()?;
    let (config, registry) = match prepare(&boots, registry) {
        Ok(prepared) => prepared,
        Err(why) => {
            let mut error = JobError::new(first.rank() as usize, format!("could not start: {why}"), false);
            error.is_reported = first.reports_failures();
            return Some(error);
        }
    };
    let results = match threads::run_ranks(boots, &registry, &config, f, Caller::Program) {
        Ok(results) => results,
        Err(timed_out) => return Some(timed_out),
    };
    // A launcher receives every rank's failure, and prints the root cause.
    let is_reported = first.reports_failures();
    let failed = |(rank, result): (u32, Result<(), RankFailure>)| Some((rank as usize, result.err()?));
    let mut failures: Vec<(usize, RankFailure)> = ranks.into_iter().zip(results).filter_map(failed).collect();
    if let (Some(code), Some(ExitEvent { rank, exit: Exit::Died(cause) })) =
        (first.abort_code(), first.roster().first_death())
    {
        let mut error = JobError::from_death(rank, &cause, failures, Some(code));
        error.is_reported = is_reported;
        return Some(error);
    }
    let order: Vec<u32> = first.roster().since(0).into_iter().map(|event| event.rank).collect();
    failures.sort_by_key(|(failed, _)| order.iter().position(|rank| *rank as usize == *failed));
    let mut failures = failures.into_iter();
    let (rank, failure) = failures.next()?;
    let mut error = JobError::new(rank, failure.cause, failure.panicked).with_others(failures);
    error.is_reported = is_reported;
    Some(error)
}

/// Joins the job as the only rank of this process (MPI_Init). Without a launcher the job has one rank. Under a launcher
/// this function can succeed only once.
///
/// The rank leaves the job when the last clone of the [`World`] is dropped. Under `mpjrun`, an earlier exit of the
/// process is a failure. For processes with several ranks, use [`run`](crate::run).
///
/// # Errors
/// This process hosts several ranks, has joined before or could not start, or an unsupported launcher has started it.
/// ```
/// let world = mpj::init()?;
/// assert_eq!((world.rank(), world.size()), (0, 1));
/// # Ok::<(), mpj::Error>(())
/// ```
pub fn init() -> Result<World, Error> {
    let error = |why: String| Error::new(ErrorClass::Other, "init", why);
    match detect().map_err(error)? {
        None => join(Arc::new(ThreadBoot::singleton())),
        Some(mut boots) if boots.len() == 1 => join(boots.remove(0)),
        Some(boots) => {
            let why =
                format!("this process hosts {} ranks; mpj::init supports one: use mpj::run", boots.len());
            for boot in &boots {
                boot.roster().report(boot.rank(), Exit::Died(why.as_str().into()));
            }
            Err(error(why))
        }
    }
}

/// Joins a job whose processes the caller has started, for example with Ray or Dask, or in a test. This process is rank
/// `rank` of `size` ranks. Rank 0 listens at `rendezvous`, a text such as `node1:7000` or `[fd00::1]:7000`, and the
/// other ranks connect to it. They can start before rank 0, and before the name of its host can be resolved; the time
/// limit is `MPJ_RENDEZVOUS_TIMEOUT`. All ranks prove to each other that they have `secret`, 16 to 4096 bytes that no
/// other job has. Several threads of one process can join as ranks.
///
/// The rank leaves the job when the last clone of the [`World`] is dropped; the first rank of each host then waits
/// until the others there have left, and rank 0 until all have left. If a process exits earlier, calls of the other
/// ranks that need it fail. The library prints nothing about that, and ends no process.
///
/// # Errors
/// An argument is invalid, a rank is missing after the time limit, two processes have the same rank, or the secrets or
/// sizes of the ranks differ. The text names the ranks.
/// ```
/// let secret = b"read from a file, or sent by a scheduler";
/// let world = mpj::connect(0, 1, "localhost:7000", secret)?;
/// assert_eq!((world.rank(), world.size()), (0, 1));
/// # Ok::<(), mpj::Error>(())
/// ```
/// Two ranks, here as threads:
/// ```
/// # let port = 10_000 + std::process::id() % 20_000;
/// let join = move |rank| {
///     let world = mpj::connect(rank, 2, &format!("localhost:{port}"), b"a secret of this job")?;
///     let mut sum = [0];
///     world.allreduce(&[rank + 1], &mut sum, mpj::Op::Sum)?;
///     Ok::<usize, mpj::Error>(sum[0])
/// };
/// let other = std::thread::spawn(move || join(1));
/// assert_eq!(join(0)?, 3);
/// assert_eq!(other.join().unwrap()?, 3);
/// # Ok::<(), mpj::BoxError>(())
/// ```
pub fn connect(rank: usize, size: usize, rendezvous: &str, secret: &[u8]) -> Result<World, Error> {
    // Larger numbers are errors as well.
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    let boot = boot::connect(number(rank), number(size), rendezvous, secret);
    let boot = boot.map_err(|why| Error::new(ErrorClass::Other, "connect", why))?;
    join(boot)
}

fn join(boot: Arc<dyn Boot>) -> Result<World, Error> {
    let boots = std::slice::from_ref(&boot);
    let (rank, roster) = (boot.rank(), boot.roster());
    let prepared = prepare(boots, &boot.registry());
    let (mut config, registry) = prepared.map_err(|why| Error::new(ErrorClass::Other, "init", why))?;
    let trace = TraceGuard::begin(boots, &mut config);
    let joined = World::join(boot, &registry, &config);
    joined.map(|world| world.finalize_on_drop(trace)).inspect_err(|e| {
        roster.report(rank, Exit::Died(format!("could not start: {}", e.why()).into()));
    })
}
