//! Operations that a thread has started, and how it waits for them.

use std::collections::BTreeMap;
use std::time::Duration;

use mpj::{ActiveRequest, ErrorClass, ObjectRequest, Request, RequestSet, Status, Waitable};

use super::calls::WaitBy;
use super::random::Random;

pub(super) type Failure = Box<dyn std::error::Error + Send + Sync>;
pub(super) type Bytes = Vec<u8>;

pub(super) enum Pending<'p> {
    Send(Request<Bytes>),
    Recv(Request<Bytes>),
    Persistent(ActiveRequest<'p, Bytes>),
    SendObject(Request<()>),
    RecvObject(ObjectRequest<Bytes>),
}

/// The data and the status of a receive, with the number of the operation.
pub(super) type Received = (usize, (Bytes, Status));

impl Pending<'_> {
    /// Waits for the operation. Returns what was received, unless the request is persistent.
    pub(super) fn wait(self, by: WaitBy) -> Result<Option<(Bytes, Status)>, Failure> {
        match self {
            Pending::Send(request) => wait(request, by).map(|_| None).map_err(Failure::from),
            Pending::Persistent(request) => wait(request, by).map(|_| None).map_err(Failure::from),
            Pending::SendObject(request) => wait(request, by).map(|_| None).map_err(Failure::from),
            Pending::Recv(request) => wait(request, by).map(Some).map_err(Failure::from),
            Pending::RecvObject(request) => wait(request, by).map(Some).map_err(Failure::from),
        }
    }
}

/// Waits for all operations in one of several ways, and returns what was received.
pub(super) fn wait_for_all(
    pending: BTreeMap<usize, Pending<'_>>,
    mut random: Random,
) -> Result<Vec<Received>, Failure> {
    let (mut ops, mut requests, mut received) = (Vec::new(), Vec::new(), Vec::new());
    for (op, operation) in pending {
        match operation {
            Pending::Send(request) => {
                ops.push((op, false));
                requests.push(request);
            }
            Pending::Recv(request) => {
                ops.push((op, true));
                requests.push(request);
            }
            other => received.extend(other.wait(WaitBy::Wait)?.map(|done| (op, done))),
        }
    }
    let mut keep = |(op, is_recv): (usize, bool), done| {
        if is_recv {
            received.push((op, done));
        }
    };
    match random.below(4) {
        0 => {
            for (op, done) in ops.into_iter().zip(mpj::wait_all(requests)) {
                keep(op, done?);
            }
        }
        1 => {
            while let Some((at, done)) = mpj::wait_any(&mut requests) {
                keep(ops.remove(at), done?);
            }
        }
        2 => {
            while !requests.is_empty() {
                // Remove from the end, so that the other indices stay valid.
                for (at, done) in mpj::wait_some(&mut requests).into_iter().rev() {
                    keep(ops.remove(at), done?);
                }
            }
        }
        _ => {
            let mut set = RequestSet::new();
            ops.into_iter().zip(requests).for_each(|(op, request)| set.insert(op, request));
            for (op, done) in set.drain() {
                keep(op, done?);
            }
        }
    }
    Ok(received)
}

pub(super) fn check_cancelled(request: Request<Bytes>) -> Result<(), Failure> {
    match request.wait() {
        Err(error) if error.error().class() == ErrorClass::Request => Ok(()),
        outcome => Err(format!("a cancelled receive has the outcome {outcome:?}").into()),
    }
}

/// Repeats `call` until it returns a value.
pub(super) fn poll<T>(mut call: impl FnMut() -> mpj::Result<Option<T>>) -> mpj::Result<T> {
    loop {
        if let Some(found) = call()? {
            return Ok(found);
        }
        std::thread::yield_now();
    }
}

fn wait<O: Waitable>(mut request: O, by: WaitBy) -> O::Outcome {
    loop {
        let outcome = match by {
            WaitBy::Wait => return request.wait(),
            WaitBy::Test => request.test(),
            WaitBy::Timed => request.wait_timeout(Duration::from_micros(100)),
        };
        match outcome {
            Some(outcome) => return outcome,
            None => std::thread::yield_now(),
        }
    }
}
