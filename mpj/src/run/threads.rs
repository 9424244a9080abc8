//! Ranks as threads of this process.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Weak};

use mpj_devices::{Exit, ExitEvent, Registry, drop_panic_payload};

use super::job_error::JobError;
use super::timeout::Timer;
use super::watch::{RankPhase, Watch};
use super::{Caller, TraceGuard, interrupt, print_error};
use crate::boot::{Boot, LocalRanks, ThreadBoot};
use crate::config::{self, Config};
use crate::error;
use crate::world::World;

/// Returns whether a rank counts as dead only because another rank called `abort`.
fn is_by_abort_of_another(event: &ExitEvent) -> bool {
    matches!(&event.exit, Exit::Died(cause) if cause.starts_with("rank ") && cause.contains(" aborted the job "))
}

/// Runs `f` as `n` ranks, each on a thread of this process, and returns their results in order of rank.
///
/// It needs no launcher, and is meant for unit tests, examples and programs on one host. The compiler cannot infer the
/// error type of a closure that ends in `Ok(value)`: end it in `Ok::<_, mpj::Error>(value)`, or pass a named function
/// `fn rank(world: World) -> mpj::Result<…>`.
/// ```
/// let squares = mpj::threads(4, |world| {
///     let mut sum = [0usize];
///     world.allreduce(&[world.rank() * world.rank()], &mut sum, mpj::Op::Sum)?;
///     Ok::<_, mpj::Error>(sum[0])
/// })?;
/// assert_eq!(squares, [14, 14, 14, 14]);
/// # Ok::<(), mpj::JobError>(())
/// ```
///
/// # Errors
/// `n` is 0 or more than 65,536, the ranks could not start, or a rank panicked, returned an error or aborted the job.
/// The error is that of the rank that failed first, because others fail due to it. With `MPJ_TIMEOUT=SECONDS` in the
/// environment, a job that runs longer fails, and the error lists what each rank waited for. Even then, this function
/// returns only after all ranks have returned, because a rank that makes no call cannot be stopped.
/// ```
/// let error = mpj::threads(2, |world| {
///     if world.rank() == 1 {
///         return Err("no input".to_string());
///     }
///     world.barrier().map_err(|e| e.to_string()) // fails, and names rank 1
/// })
/// .unwrap_err();
/// assert_eq!(error.to_string(), "rank 1 returned an error: no input");
/// ```
pub fn threads<R, E, F>(n: usize, f: F) -> Result<Vec<R>, JobError>
where
    F: Fn(World) -> Result<R, E> + Send + Sync,
    R: Send,
    E: fmt::Display,
{
    run(n, f, Caller::Library)
}

pub(super) fn run<R, E, F>(n: usize, f: F, caller: Caller) -> Result<Vec<R>, JobError>
where
    F: Fn(World) -> Result<R, E> + Send + Sync,
    R: Send,
    E: fmt::Display,
{
    let (boots, config, registry) = job(n)?;
    let first = Arc::clone(&boots[0]);
    let results = run_ranks(boots, &registry, &config, &f, caller)?;
    collect(results, first.as_ref())
}

/// Runs ranks as [`threads`] does, but without `MPJ_TIMEOUT`: only the owner of `watch` ends them early.
pub(crate) fn run_watched<R, E, F>(n: usize, watch: &Watch, f: F) -> Result<Vec<R>, JobError>
where
    F: Fn(World) -> Result<R, E> + Send + Sync,
    R: Send,
    E: fmt::Display,
{
    let (boots, mut config, registry) = job(n)?;
    let first = Arc::clone(&boots[0]);
    let _trace = TraceGuard::begin(&boots, &mut config);
    let results = run_all(boots, &registry, &config, watch, &f);
    collect(results, first.as_ref())
}

fn job(n: usize) -> Result<(LocalRanks, Config, Registry), JobError> {
    let size = match u32::try_from(n) {
        Ok(size) if (1..=1 << 16).contains(&size) => size,
        _ => {
            return Err(JobError::new(0, format!("cannot start {n} ranks: expected 1 to 65536"), false));
        }
    };
    let job = ThreadBoot::ranks(size);
    let prepared = prepare(&job, &job[0].registry());
    let (config, registry) =
        prepared.map_err(|why| JobError::new(0, format!("could not start: {why}"), false))?;
    Ok((job, config, registry))
}

/// Reads the parameters, and selects from `registry` the devices that [`Boot::devices`] names. After an error, reports
/// all ranks of this process as dead.
pub(super) fn prepare(boots: &[Arc<dyn Boot>], registry: &Registry) -> Result<(Config, Registry), String> {
    let config = config::from_env().map_err(|e| e.to_string());
    let prepared = config.and_then(|config| {
        let names = boots.first().and_then(|boot| boot.devices(&config));
        let registry = names.map_or(Ok(registry.clone()), |names| registry.clone().select(&names));
        Ok((config, registry.map_err(|e| format!("{e} (MPJ_DEVICES or mpjrun --devices selects devices)"))?))
    });
    prepared.inspect_err(|why| {
        let cause = format!("could not start: {why}");
        boots.iter().for_each(|boot| boot.roster().report(boot.rank(), Exit::Died(cause.as_str().into())));
    })
}

/// Runs the ranks of this process until all have returned. A single rank runs on this thread, several on new threads.
///
/// # Errors
/// The job timed out.
pub(super) fn run_ranks<R, E, F>(
    boots: LocalRanks,
    registry: &Registry,
    config: &Config,
    f: &F,
    caller: Caller,
) -> Result<Vec<Result<R, RankFailure>>, JobError>
where
    F: Fn(World) -> Result<R, E> + Send + Sync + ?Sized,
    R: Send,
    E: fmt::Display,
{
    let mut config = config.clone();
    let trace = TraceGuard::begin(&boots, &mut config);
    let watch = Watch::of_boots(&boots, trace.handle());
    let without_launcher = !boots.first().is_some_and(|boot| boot.has_launcher());
    if without_launcher && caller == Caller::Program {
        interrupt::report_on_signals(&watch);
    }
    let timer = if without_launcher { Timer::start(&config, &watch, caller) } else { None };
    let results = run_all(boots, registry, &config, &watch, f);
    if let Some(stats) = watch.stats().filter(|_| caller == Caller::Program) {
        print_error(&stats);
    }
    match timer.and_then(Timer::stop) {
        Some(report) => Err(JobError::timed_out(report)),
        None => Ok(results),
    }
}

fn run_all<R, E, F>(
    boots: LocalRanks,
    registry: &Registry,
    config: &Config,
    watch: &Watch,
    f: &F,
) -> Vec<Result<R, RankFailure>>
where
    F: Fn(World) -> Result<R, E> + Send + Sync + ?Sized,
    R: Send,
    E: fmt::Display,
{
    if boots.len() == 1 {
        return boots.into_iter().map(|boot| rank_main(boot, registry, config, watch, f)).collect();
    }
    std::thread::scope(|scope| {
        let spawn = |boot: Arc<dyn Boot>| {
            let (rank, roster) = (boot.rank(), boot.roster());
            let body = move || rank_main(boot, registry, config, watch, f);
            let spawned = std::thread::Builder::new().name(format!("rank {rank}")).spawn_scoped(scope, body);
            spawned.map_err(|e| {
                let cause = format!("could not start: {e}");
                roster.report(rank, Exit::Died(cause.as_str().into()));
                RankFailure { cause, panicked: false, is_consequence: false }
            })
        };
        let started: Vec<_> = boots.into_iter().map(spawn).collect();
        let join = |handle: Result<std::thread::ScopedJoinHandle<'_, _>, _>| {
            handle?.join().unwrap_or_else(|panic| Err(RankFailure::panicked(panic.as_ref())))
        };
        started.into_iter().map(join).collect()
    })
}

#[derive(Debug)]
pub(crate) struct RankFailure {
    pub(crate) cause: String,
    pub(crate) panicked: bool,
    /// Whether another rank caused the failure, as far as this process knows (`error::cause_of`).
    pub(crate) is_consequence: bool,
}

impl RankFailure {
    fn panicked(panic: &(dyn Any + Send)) -> Self {
        let text = panic.downcast_ref::<&str>().copied();
        let text =
            text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message");
        RankFailure { cause: format!("panicked: {text}"), panicked: true, is_consequence: false }
    }
}

/// Runs one rank until it returns or panics, and reports its exit to the other ranks.
fn rank_main<R, E, F>(
    boot: Arc<dyn Boot>,
    registry: &Registry,
    config: &Config,
    watch: &Watch,
    f: &F,
) -> Result<R, RankFailure>
where
    F: Fn(World) -> Result<R, E> + ?Sized,
    E: fmt::Display,
{
    let roster = boot.roster();
    let rank = boot.rank();
    let world = World::join(boot, registry, config).map_err(|e| {
        let cause = format!("could not start: {}", e.why());
        roster.report(rank, Exit::Died(cause.as_str().into()));
        RankFailure { cause, panicked: false, is_consequence: false }
    })?;
    let engine = Arc::downgrade(world.engine());
    watch.set_phase(rank, RankPhase::Running(Weak::clone(&engine)));
    // The formatting and the drop of the user's error can panic, too.
    let run = || f(world.clone()).map_err(|error| format!("returned an error: {error}"));
    let outcome = catch_unwind(AssertUnwindSafe(run));
    watch.set_phase(rank, RankPhase::Returned(engine));
    let (mut failure, thrown) = match outcome {
        // `finalize` can panic: it drops the buffers of requests that the rank has dropped.
        Ok(Ok(value)) => match catch_unwind(AssertUnwindSafe(|| world.finalize())) {
            Ok(stats) => {
                stats.into_iter().for_each(|stats| watch.add_stats(rank, stats));
                return Ok(value);
            }
            Err(panic) => (RankFailure::panicked(panic.as_ref()), Some(panic)),
        },
        Ok(Err(cause)) => (RankFailure { cause, panicked: false, is_consequence: false }, None),
        Err(panic) => (RankFailure::panicked(panic.as_ref()), Some(panic)),
    };
    if let Some(first) = error::cause_of(&failure.cause).filter(|first| *first != rank) {
        failure.is_consequence = true;
        roster.report_cause(rank, first);
    }
    world.report_death(&failure.cause);
    thrown.into_iter().for_each(drop_panic_payload);
    Err(failure)
}

/// Returns the results of all ranks, or the failure that caused the others.
fn collect<R>(results: Vec<Result<R, RankFailure>>, boot: &dyn Boot) -> Result<Vec<R>, JobError> {
    let mut values = Vec::with_capacity(results.len());
    let mut failures = Vec::new();
    for (rank, result) in results.into_iter().enumerate() {
        match result {
            Ok(value) => values.push(value),
            Err(failure) => failures.push((rank, failure)),
        }
    }
    let roster = boot.roster();
    // The deaths that an abort has caused explain less than the abort itself.
    let cause =
        roster.cause().filter(|event| !is_by_abort_of_another(event)).or_else(|| roster.first_death());
    if let Some(ExitEvent { rank, exit: Exit::Died(cause) }) = cause {
        return Err(JobError::from_death(rank, &cause, failures, boot.abort_code()));
    }
    let mut failures = failures.into_iter();
    match failures.next() {
        None => Ok(values),
        Some((rank, failure)) => {
            Err(JobError::new(rank, failure.cause, failure.panicked).with_others(failures))
        }
    }
}
