//! Waiting for several operations at once.
//!
//! The lists are slices of requests, as in C. A request that was waited for leaves `None` in its place, like
//! `MPI_REQUEST_NULL`, and these entries are skipped. The typed functions such as [`wait_all`](crate::wait_all) share
//! the implementation.

use std::sync::Arc;
use std::time::Duration;

use mpj_devices::{Channel, Engine, WaitReason};

use super::request::{OpInfo, Request};
use crate::error::Result;
use crate::status::Status;

/// An operation that can be waited for together with others.
pub(crate) trait PendingOp {
    /// Returns whether it has completed, without making progress.
    fn has_ended(&self) -> bool;

    /// Returns the engine, the description and the channel of a pending operation; may be `None` if it has completed.
    fn open(&self) -> Option<(&Arc<Engine>, OpInfo, &Arc<Channel>)>;
}

impl PendingOp for Option<Request> {
    fn has_ended(&self) -> bool {
        self.as_ref().is_none_or(|request| request.outcome().is_some())
    }

    fn open(&self) -> Option<(&Arc<Engine>, OpInfo, &Arc<Channel>)> {
        self.as_ref()?.open()
    }
}

/// Waits for all requests and returns the outcomes in the same order, with an empty status for each `None`
/// (MPI_Waitall).
pub fn wait_all(requests: &mut [Option<Request>]) -> Vec<Result<Status>> {
    until_all(requests);
    requests.iter_mut().map(end).collect()
}

/// Waits until one of the requests has completed, and returns its index and outcome; `None` if the list has no requests
/// (MPI_Waitany).
pub fn wait_any(requests: &mut [Option<Request>]) -> Option<(usize, Result<Status>)> {
    requests.iter().find(|request| request.is_some())?;
    let place = until(requests, true, || first(requests));
    Some((place, end(&mut requests[place])))
}

/// Waits until at least one of the requests has completed, and returns the indices and outcomes of all completed ones.
/// A list without requests returns at once (MPI_Waitsome).
pub fn wait_some(requests: &mut [Option<Request>]) -> Vec<(usize, Result<Status>)> {
    if requests.iter().any(Option::is_some) {
        until(requests, true, || first(requests));
    }
    end_some(requests)
}

/// Makes progress once, and returns all outcomes if all requests have completed (MPI_Testall).
pub fn test_all(requests: &mut [Option<Request>]) -> Option<Vec<Result<Status>>> {
    look(requests);
    requests.iter().all(PendingOp::has_ended).then(|| requests.iter_mut().map(end).collect())
}

/// Makes progress once, and returns the index and outcome of one completed request (MPI_Testany).
pub fn test_any(requests: &mut [Option<Request>]) -> Option<(usize, Result<Status>)> {
    look(requests);
    let place = first(requests)?;
    Some((place, end(&mut requests[place])))
}

/// Makes progress once, and returns the indices and outcomes of all completed requests (MPI_Testsome).
pub fn test_some(requests: &mut [Option<Request>]) -> Vec<(usize, Result<Status>)> {
    look(requests);
    end_some(requests)
}

/// Returns the index of the first completed request.
fn first(requests: &[Option<Request>]) -> Option<usize> {
    requests.iter().position(|request| request.is_some() && request.has_ended())
}

fn end(request: &mut Option<Request>) -> Result<Status> {
    request.take().map_or_else(|| Ok(Status::empty()), Request::wait)
}

fn end_some(requests: &mut [Option<Request>]) -> Vec<(usize, Result<Status>)> {
    let ended = |request: &Option<Request>| request.is_some() && request.has_ended();
    let some = requests.iter_mut().enumerate().filter(|(_, request)| ended(request));
    some.map(|(place, request)| (place, end(request))).collect()
}

/// Returns the distinct engines of the operations; usually there is one.
fn engines<O: PendingOp>(operations: &[O]) -> Vec<&Arc<Engine>> {
    let mut engines: Vec<&Arc<Engine>> = Vec::new();
    for (engine, ..) in operations.iter().filter_map(PendingOp::open) {
        if !engines.iter().any(|known| Arc::ptr_eq(known, engine)) {
            engines.push(engine);
        }
    }
    engines
}

/// Makes progress once on each engine of the operations.
pub(crate) fn look<O: PendingOp>(operations: &[O]) {
    for engine in engines(operations) {
        engine.progress();
    }
}

/// Describes a wait for these operations; `any` means until one of them has completed.
fn describe<O: PendingOp>(operations: &[O], any: bool) -> WaitReason {
    let mut open = operations.iter().filter(|operation| !operation.has_ended());
    let first = open.by_ref().find_map(PendingOp::open).map(|(_, about, channel)| about.wait(channel));
    first.unwrap_or_else(|| WaitReason::call("operations")).with_others(open.count(), any)
}

/// The number of polls without progress before a thread that waits on several engines naps, and the length of a nap.
const LOOKS: u32 = 200;
const NAP: Duration = Duration::from_micros(200);

/// Waits until all operations have completed.
pub(crate) fn until_all<O: PendingOp>(operations: &[O]) {
    let mut ended = 0;
    until(operations, false, || {
        ended += operations[ended..].iter().take_while(|operation| operation.has_ended()).count();
        (ended == operations.len()).then_some(())
    });
}

/// Waits until `ready` returns a value, and makes progress on each engine of the operations. `any` is for wait reports:
/// it means that one completed operation is enough.
pub(crate) fn until<O: PendingOp, T>(operations: &[O], any: bool, mut ready: impl FnMut() -> Option<T>) -> T {
    if let Some(value) = ready() {
        return value;
    }
    let engines = engines(operations);
    if let [engine] = engines[..] {
        return engine.wait_for(&mut (), |()| ready(), |()| describe(operations, any));
    }
    // The thread waits for operations of several engines. Each engine has its own doorbell, so the thread cannot sleep
    // on one of them: it naps and polls.
    let mut looks = 0;
    loop {
        let moved: usize = engines.iter().map(|engine| engine.progress()).sum();
        if let Some(value) = ready() {
            return value;
        }
        looks = if moved > 0 { 0 } else { looks + 1 };
        if looks < LOOKS {
            std::thread::yield_now();
        } else {
            std::thread::sleep(NAP);
        }
    }
}
