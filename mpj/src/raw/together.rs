//! Waiting for several operations at once.
//!
//! The lists are slices of requests, as C has them: a request that was waited for leaves `None` in its place, as
//! `MPI_REQUEST_NULL` is, and such places are passed over. The typed lists of [`wait_all`](crate::wait_all) and the others
//! wait by the same functions.

use std::sync::Arc;
use std::time::Duration;

use mpj_devices::{Channel, Engine, WaitReason};

use super::request::{OpInfo, Request};
use crate::error::Result;
use crate::status::Status;

/// An operation that can be waited for together with others.
pub(crate) trait PendingOp {
    /// Whether it has ended, without looking for news.
    fn has_ended(&self) -> bool;

    /// What makes progress for it, and what it waits for; nothing does once it has ended.
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

/// Waits for all requests; the outcomes are in their order, empty ones of places that hold none (MPI_Waitall).
pub fn wait_all(requests: &mut [Option<Request>]) -> Vec<Result<Status>> {
    until_all(requests);
    requests.iter_mut().map(end).collect()
}

/// Waits until one of the requests has ended, and returns its place and outcome; `None` if there are none (MPI_Waitany).
pub fn wait_any(requests: &mut [Option<Request>]) -> Option<(usize, Result<Status>)> {
    requests.iter().find(|request| request.is_some())?;
    let place = until(requests, true, || first(requests));
    Some((place, end(&mut requests[place])))
}

/// Waits until one of the requests has ended, and returns the places and outcomes of all that have; nothing if there are
/// none (MPI_Waitsome).
pub fn wait_some(requests: &mut [Option<Request>]) -> Vec<(usize, Result<Status>)> {
    if requests.iter().any(Option::is_some) {
        until(requests, true, || first(requests));
    }
    end_some(requests)
}

/// Looks for news once, and returns all outcomes if all requests have ended (MPI_Testall).
pub fn test_all(requests: &mut [Option<Request>]) -> Option<Vec<Result<Status>>> {
    look(requests);
    requests.iter().all(PendingOp::has_ended).then(|| requests.iter_mut().map(end).collect())
}

/// Looks for news once; returns the place and outcome of one request that has ended (MPI_Testany).
pub fn test_any(requests: &mut [Option<Request>]) -> Option<(usize, Result<Status>)> {
    look(requests);
    let place = first(requests)?;
    Some((place, end(&mut requests[place])))
}

/// Looks for news once, and returns the places and outcomes of all requests that have ended (MPI_Testsome).
pub fn test_some(requests: &mut [Option<Request>]) -> Vec<(usize, Result<Status>)> {
    look(requests);
    end_some(requests)
}

/// The place of the first request that has ended.
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

/// The engines of all ranks that the operations belong to, each once; mostly there is one.
fn engines<O: PendingOp>(operations: &[O]) -> Vec<&Arc<Engine>> {
    let mut engines: Vec<&Arc<Engine>> = Vec::new();
    for (engine, ..) in operations.iter().filter_map(PendingOp::open) {
        if !engines.iter().any(|known| Arc::ptr_eq(known, engine)) {
            engines.push(engine);
        }
    }
    engines
}

/// Takes news in once.
pub(crate) fn look<O: PendingOp>(operations: &[O]) {
    for engine in engines(operations) {
        engine.progress();
    }
}

/// What a thread waits for that waits for these; `any`: until one of them has ended.
fn describe<O: PendingOp>(operations: &[O], any: bool) -> WaitReason {
    let mut open = operations.iter().filter(|operation| !operation.has_ended());
    let first = open.by_ref().find_map(PendingOp::open).map(|(_, about, channel)| about.wait(channel));
    first.unwrap_or_else(|| WaitReason::call("operations")).with_others(open.count(), any)
}

/// How often operations of several ranks are looked at before their thread naps, and for how long.
const LOOKS: u32 = 200;
const NAP: Duration = Duration::from_micros(200);

/// Waits until all have ended.
pub(crate) fn until_all<O: PendingOp>(operations: &[O]) {
    let mut ended = 0;
    until(operations, false, || {
        ended += operations[ended..].iter().take_while(|operation| operation.has_ended()).count();
        (ended == operations.len()).then_some(())
    });
}

/// Waits until `ready` answers, making progress for every rank that the operations belong to; `any` says, for reports, that
/// one of them is enough.
pub(crate) fn until<O: PendingOp, T>(operations: &[O], any: bool, mut ready: impl FnMut() -> Option<T>) -> T {
    if let Some(value) = ready() {
        return value;
    }
    let engines = engines(operations);
    if let [engine] = engines[..] {
        return engine.wait_for(&mut (), |()| ready(), |()| describe(operations, any));
    }
    // One thread waits for operations of several ranks, each of which has its own doorbell, so it naps and looks.
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
