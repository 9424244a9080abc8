//! Waiting for several operations at once.
//!
//! A request whose outcome was returned becomes `None`, like `MPI_REQUEST_NULL`; a persistent one stays, and is no longer
//! active. These functions skip entries that are `None` or not active.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::{Duration, Instant};

use mpj_devices::{Channel, Engine, WaitReason};

use super::request::{OpInfo, Request};
use crate::error::Result;
use crate::status::Status;

/// An operation that can be waited for together with others.
pub(crate) trait PendingOp {
    /// Returns whether the operation has completed, without making progress.
    fn is_complete(&self) -> bool;

    /// Returns the engine, the description and the channel of a pending operation; may be `None` if it has completed.
    fn wait_target(&self) -> Option<(&Arc<Engine>, OpInfo, &Arc<Channel>)>;
}

impl PendingOp for Request {
    fn is_complete(&self) -> bool {
        self.outcome().is_some()
    }

    fn wait_target(&self) -> Option<(&Arc<Engine>, OpInfo, &Arc<Channel>)> {
        Request::wait_target(self)
    }
}

impl PendingOp for Option<Request> {
    fn is_complete(&self) -> bool {
        self.as_ref().is_none_or(PendingOp::is_complete)
    }

    fn wait_target(&self) -> Option<(&Arc<Engine>, OpInfo, &Arc<Channel>)> {
        Request::wait_target(self.as_ref()?)
    }
}

/// Waits for all requests and returns the outcomes in the same order, with an empty status for each skipped entry
/// (MPI_Waitall).
pub fn wait_all(requests: &mut [Option<Request>]) -> Vec<Result<Status>> {
    wait_for_all(requests);
    requests.iter_mut().map(take_outcome).collect()
}

/// Waits until one of the requests has completed, and returns its index and outcome; `None` if all entries are skipped
/// (MPI_Waitany).
pub fn wait_any(requests: &mut [Option<Request>]) -> Option<(usize, Result<Status>)> {
    requests.iter().find(|request| is_active(request))?;
    let index = wait_for(requests, true, || first_complete(requests));
    Some((index, take_outcome(&mut requests[index])))
}

/// Waits until at least one of the requests has completed, and returns the indices and outcomes of all completed ones.
/// If all entries are skipped, returns at once (MPI_Waitsome).
pub fn wait_some(requests: &mut [Option<Request>]) -> Vec<(usize, Result<Status>)> {
    if requests.iter().any(is_active) {
        wait_for(requests, true, || first_complete(requests));
    }
    take_completed(requests)
}

/// Waits as [`wait_all`] does, but at most for `limit`. Returns the indices and outcomes of the completed requests; the
/// others stay pending.
pub fn wait_all_timeout(requests: &mut [Option<Request>], limit: Duration) -> Vec<(usize, Result<Status>)> {
    wait_for_all_until(requests, deadline(limit));
    take_completed(requests)
}

/// Waits as [`wait_any`] does, but at most for `limit`. Returns `None` if no request has completed until then, or if
/// all entries are skipped.
pub fn wait_any_timeout(
    requests: &mut [Option<Request>],
    limit: Duration,
) -> Option<(usize, Result<Status>)> {
    requests.iter().find(|request| is_active(request))?;
    let index = wait_for_until(requests, true, deadline(limit), || first_complete(requests))?;
    Some((index, take_outcome(&mut requests[index])))
}

/// Makes progress once, and returns all outcomes if all requests have completed (MPI_Testall).
pub fn test_all(requests: &mut [Option<Request>]) -> Option<Vec<Result<Status>>> {
    progress_all(requests);
    requests.iter().all(PendingOp::is_complete).then(|| requests.iter_mut().map(take_outcome).collect())
}

/// Makes progress once, and returns the index and outcome of one completed request (MPI_Testany).
pub fn test_any(requests: &mut [Option<Request>]) -> Option<(usize, Result<Status>)> {
    progress_all(requests);
    let index = first_complete(requests)?;
    Some((index, take_outcome(&mut requests[index])))
}

/// Makes progress once, and returns the indices and outcomes of all completed requests (MPI_Testsome).
pub fn test_some(requests: &mut [Option<Request>]) -> Vec<(usize, Result<Status>)> {
    progress_all(requests);
    take_completed(requests)
}

/// Makes progress once, and returns all outcomes if all requests have completed, with an empty status for each skipped
/// entry. The requests stay as they are (MPI_Request_get_status_all).
pub fn status_all(requests: &[Option<Request>]) -> Option<Vec<Result<Status>>> {
    progress_all(requests);
    let is_complete = requests.iter().all(PendingOp::is_complete);
    let status = |request: &Option<Request>| request.as_ref().and_then(Request::status);
    is_complete.then(|| requests.iter().map(|it| status(it).unwrap_or(Ok(Status::empty()))).collect())
}

/// Makes progress once, and returns the index and outcome of one completed request. The requests stay as they are
/// (MPI_Request_get_status_any).
pub fn status_any(requests: &[Option<Request>]) -> Option<(usize, Result<Status>)> {
    progress_all(requests);
    let index = first_complete(requests)?;
    Some((index, requests[index].as_ref()?.status()?))
}

/// Makes progress once, and returns the indices and outcomes of all completed requests, which stay as they are
/// (MPI_Request_get_status_some).
pub fn status_some(requests: &[Option<Request>]) -> Vec<(usize, Result<Status>)> {
    progress_all(requests);
    let active = requests.iter().enumerate().filter(|(_, request)| is_active(request));
    active.filter_map(|(index, request)| Some((index, request.as_ref()?.status()?))).collect()
}

fn first_complete(requests: &[Option<Request>]) -> Option<usize> {
    requests.iter().position(|request| is_active(request) && request.is_complete())
}

fn is_active(request: &Option<Request>) -> bool {
    request.as_ref().is_some_and(Request::is_active)
}

fn take_outcome(request: &mut Option<Request>) -> Result<Status> {
    if let Some(persistent) = request.as_mut().and_then(Request::persistent_mut) {
        return persistent.wait();
    }
    request.take().map_or_else(|| Ok(Status::empty()), Request::wait)
}

fn take_completed(requests: &mut [Option<Request>]) -> Vec<(usize, Result<Status>)> {
    let complete = |request: &Option<Request>| is_active(request) && request.is_complete();
    let some = requests.iter_mut().enumerate().filter(|(_, request)| complete(request));
    some.map(|(index, request)| (index, take_outcome(request))).collect()
}

/// Returns the distinct engines of the operations that have a wait target.
fn engines<O: PendingOp>(operations: &[O]) -> Vec<&Arc<Engine>> {
    let mut engines: Vec<&Arc<Engine>> = Vec::new();
    for (engine, ..) in operations.iter().filter_map(PendingOp::wait_target) {
        if !engines.iter().any(|known| Arc::ptr_eq(known, engine)) {
            engines.push(engine);
        }
    }
    engines
}

pub(crate) fn progress_all<O: PendingOp>(operations: &[O]) {
    for engine in engines(operations) {
        engine.progress();
    }
}

/// Describes a wait for all operations, or for one if `any`, in wait reports.
fn describe<O: PendingOp>(operations: &[O], any: bool) -> WaitReason {
    let mut pending = operations.iter().filter(|operation| !operation.is_complete());
    let first =
        pending.by_ref().find_map(PendingOp::wait_target).map(|(_, info, channel)| info.wait_reason(channel));
    first.unwrap_or_else(|| WaitReason::call("operations")).with_others(pending.count(), any)
}

/// The number of polls without progress after which a thread that waits on several engines sleeps between polls.
const SPIN_ROUNDS: u32 = 200;
const SLEEP: Duration = Duration::from_micros(200);

/// Returns the end of a wait of at most `limit` that begins now; `None` if there is no such time.
pub(crate) fn deadline(limit: Duration) -> Option<Instant> {
    Instant::now().checked_add(limit)
}

pub(crate) fn wait_for_all<O: PendingOp>(operations: &[O]) {
    wait_for_all_until(operations, None);
}

/// Waits for all operations, at most until `end`.
pub(crate) fn wait_for_all_until<O: PendingOp>(operations: &[O], end: Option<Instant>) {
    let mut complete = 0;
    let _ = wait_for_until(operations, false, end, || {
        complete += operations[complete..].iter().take_while(|operation| operation.is_complete()).count();
        (complete == operations.len()).then_some(())
    });
}

/// Makes progress on each engine of the operations until `ready` returns a value. `any` tells wait reports whether one
/// completed operation is enough.
pub(crate) fn wait_for<O: PendingOp, T>(
    operations: &[O],
    any: bool,
    mut ready: impl FnMut() -> Option<T>,
) -> T {
    loop {
        if let Some(value) = wait_for_until(operations, any, None, &mut ready) {
            return value;
        }
    }
}

/// Waits as [`wait_for`] does, but returns `None` if `ready` has returned no value until `end`.
pub(crate) fn wait_for_until<O: PendingOp, T>(
    operations: &[O],
    any: bool,
    end: Option<Instant>,
    mut ready: impl FnMut() -> Option<T>,
) -> Option<T> {
    if let Some(value) = ready() {
        return Some(value);
    }
    wait_on(&engines(operations), end, ready, || describe(operations, any))
}

/// Makes progress on each of the engines until `ready` returns a value, or until `end`.
pub(crate) fn wait_on<E: Borrow<Arc<Engine>>, T>(
    engines: &[E],
    end: Option<Instant>,
    mut ready: impl FnMut() -> Option<T>,
    what: impl Fn() -> WaitReason,
) -> Option<T> {
    if let [engine] = engines {
        let (engine, ready, what) = (engine.borrow(), |(): &mut ()| ready(), |(): &()| what());
        return match end {
            None => Some(engine.wait_for(&mut (), ready, what)),
            Some(end) => engine.wait_for_until(end, &mut (), ready, what),
        };
    }
    // Each engine has its own doorbell, so a thread cannot sleep until any of several engines wakes it: poll them.
    let mut idle_rounds = 0;
    loop {
        let moved: usize = engines.iter().map(|engine| engine.borrow().progress()).sum();
        if let Some(value) = ready() {
            return Some(value);
        }
        if end.is_some_and(|end| Instant::now() >= end) {
            return None;
        }
        idle_rounds = if moved > 0 { 0 } else { idle_rounds + 1 };
        if idle_rounds < SPIN_ROUNDS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(SLEEP);
        }
    }
}
