//! Ranks that a launcher gave to this process.

use std::fmt;
use std::sync::Arc;

use mpj_devices::{Exit, ExitEvent, Registry};

use super::threads::{self, JobError, prepare};
use super::{Caller, TraceGuard};
use crate::boot::{Boot, LocalRanks, ThreadBoot, detect};
use crate::error::{Error, ErrorClass};
use crate::world::World;

/// Runs the ranks of this process; returns the first that failed.
pub(super) fn run_ranks<E, F>(faces: LocalRanks, registry: &Registry, f: &F) -> Option<JobError>
where
    F: Fn(World) -> Result<(), E> + Send + Sync + ?Sized,
    E: fmt::Display,
{
    let ranks: Vec<u32> = faces.iter().map(|face| face.rank()).collect();
    let first = faces.first().cloned()?;
    // A launcher knows every rank's failure, and prints the one that counts.
    let is_told = first.has_launcher();
    let (config, registry) = match prepare(&faces, registry) {
        Ok(prepared) => prepared,
        Err(why) => {
            let mut error = JobError::new(first.rank() as usize, format!("could not start: {why}"), false);
            error.is_told = is_told;
            return Some(error);
        }
    };
    let results = match threads::host(faces, &registry, &config, f, Caller::Program) {
        Ok(results) => results,
        Err(late) => return Some(late),
    };
    let failed = |(rank, result): (u32, Result<(), threads::RankFailure>)| {
        let failure = result.err()?;
        Some(JobError::new(rank as usize, failure.cause, failure.panicked))
    };
    let mut failures: Vec<JobError> = ranks.into_iter().zip(results).filter_map(failed).collect();
    let followers = |rank: u32| failures.iter().filter(|failure| failure.rank() != rank as usize).count();
    if let (Some(code), Some(ExitEvent { rank, exit: Exit::Died(cause) })) =
        (first.abort_code(), first.roster().first_death())
    {
        // Regardless of the results of this and other ranks.
        let mut error = JobError::new(rank as usize, cause.to_string(), false);
        (error.aborted, error.followers, error.is_told) = (Some(code), followers(rank), is_told);
        return Some(error);
    }
    let order: Vec<u32> = first.roster().since(0).into_iter().map(|event| event.rank).collect();
    failures.sort_by_key(|failure| order.iter().position(|rank| *rank as usize == failure.rank()));
    let followers = failures.len().saturating_sub(1);
    let mut error = failures.into_iter().next();
    error.iter_mut().for_each(|error| (error.followers, error.is_told) = (followers, is_told));
    error
}

/// Joins the job as the one rank of this process, or a job of one if no launcher has started it; once.
///
/// The rank leaves the job when the last clone of the world is dropped. A process that ends without that has failed.
/// [`run`](crate::run) serves processes of any number of ranks.
///
/// # Errors
/// This process hosts several ranks, has joined before, or could not be connected; or it was started by a launcher
/// that `mpj` does not support.
/// ```
/// let world = mpj::init()?;
/// assert_eq!((world.rank(), world.size()), (0, 1));
/// # Ok::<(), mpj::Error>(())
/// ```
pub fn init() -> Result<World, Error> {
    let refuse = |why: String| Error::new(ErrorClass::Other, "init", why);
    match detect().map_err(refuse)? {
        None => join(Arc::new(ThreadBoot::singleton())),
        Some(mut faces) if faces.len() == 1 => join(faces.remove(0)),
        Some(faces) => {
            let why = format!("this process hosts {} ranks, and init serves one: call mpj::run", faces.len());
            for face in &faces {
                face.roster().report(face.rank(), Exit::Died(why.as_str().into()));
            }
            Err(refuse(why))
        }
    }
}

fn join(face: Arc<dyn Boot>) -> Result<World, Error> {
    let faces = std::slice::from_ref(&face);
    let (rank, roster) = (face.rank(), face.roster());
    let prepared = prepare(faces, &face.registry());
    let (mut config, registry) = prepared.map_err(|why| Error::new(ErrorClass::Other, "init", why))?;
    let traced = TraceGuard::begin(faces, &mut config);
    let joined = World::join(face, &registry, &config);
    joined.map(|world| world.finalize_on_drop(traced)).inspect_err(|e| {
        roster.report(rank, Exit::Died(format!("could not start: {}", e.why()).into()));
    })
}
