//! The cost of the layers above a message of 8 bytes, which a rank sends to itself: typed calls, requests, persistent
//! messages, futures, and sets of requests.

use std::future::Future;
use std::hint::black_box;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use mpj::raw::{self, Buf, Mode};
use mpj::{Error, Intracomm, Request, RequestSet, World};

use super::Failure;
use super::interleaved::{Candidate, Effort, median, run_interleaved, spread};
use super::report::Report;
use super::stats::now_ns;

const ROUNDS: usize = 31;
const SLICE_NS: f64 = 1e6;
const TAG: i32 = 1;
/// The number of other operations that are pending in a set.
const PENDING: usize = 999;

type Call = for<'a> fn(&'a Intracomm) -> Box<dyn FnMut() -> Result<(), Error> + 'a>;

/// Each call sends and receives one message. The third column names the call with which it is compared.
const CALLS: [(&str, Call, &str); 9] = [
    ("raw", raw_call, "raw"),
    ("typed", typed, "raw"),
    ("raw request", raw_request, "raw"),
    ("scoped request", scoped, "raw request"),
    ("owned request", owned, "raw request"),
    ("persistent pair", persistent, "owned pair"),
    ("owned pair", owned_pair, "raw request"),
    ("future", future, "owned request"),
    ("set of 1000 requests", set, "owned request"),
];

pub(crate) fn run(world: &World) -> Result<(), Failure> {
    let report = Report::begin(world, CALLS.len())?;
    let mut failure = None;
    let mut candidates: Vec<Candidate<'_>> = Vec::new();
    for (name, call, _) in CALLS {
        let mut call = call(world);
        // The measurement discards errors, so report those of the first call.
        call().map_err(|error| format!("{name}: {error}"))?;
        let run = move |calls: usize| {
            let start = now_ns();
            (0..calls).try_for_each(|_| call()).ok()?;
            Some(now_ns() - start)
        };
        candidates.push(Candidate { run: Box::new(run), calls_unit: 1, warmup_runs: 100 });
    }
    let times = run_interleaved(&mut candidates, Effort { slice_ns: SLICE_NS, rounds: ROUNDS });
    for ((name, _, reference), own) in CALLS.iter().zip(&times) {
        let base = CALLS.iter().position(|(name, ..)| name == reference).and_then(|at| times[at].as_ref());
        let (Some(own), Some(base)) = (own, base) else {
            failure.get_or_insert(*name);
            continue;
        };
        let (low, high) = spread(own);
        let over = median(own.iter().zip(base).map(|(own, base)| own - base));
        let ns = median(own.iter().copied());
        report.row(format_args!("CALL,{name},{ns:.1},{low:.1},{high:.1},{reference},{over:.1}"))?;
    }
    drop(candidates);
    match failure {
        Some(name) => Err(format!("a call of '{name}' failed").into()),
        None => report.finish(world, None, || unreachable!("no picture was requested")),
    }
}

#[allow(unsafe_code, reason = "calls of the raw layer")]
fn raw_call(world: &Intracomm) -> Box<dyn FnMut() -> Result<(), Error> + '_> {
    let (me, comm) = (world.rank() as i32, world.as_raw());
    let (sent, mut got) = ([7u64], [0u64]);
    Box::new(move || {
        // SAFETY: the buffers are borrowed until the calls return.
        unsafe { raw::send(comm, Buf::slice(&sent), me, TAG, Mode::Standard)? };
        // SAFETY: as above.
        unsafe { raw::recv(comm, Buf::slice_mut(&mut got), me, TAG)? };
        black_box(&got);
        Ok(())
    })
}

fn typed(world: &Intracomm) -> Box<dyn FnMut() -> Result<(), Error> + '_> {
    let (me, sent, mut got) = (world.rank(), [7u64], [0u64]);
    Box::new(move || {
        world.send(&sent, me, TAG)?;
        world.recv(&mut got, me, TAG)?;
        black_box(&got);
        Ok(())
    })
}

#[allow(unsafe_code, reason = "calls of the raw layer")]
fn raw_request(world: &Intracomm) -> Box<dyn FnMut() -> Result<(), Error> + '_> {
    let (me, comm) = (world.rank() as i32, world.as_raw());
    let (sent, mut got) = ([7u64], [0u64]);
    Box::new(move || {
        // SAFETY: the buffer lives until the wait below has returned, even after a failed send.
        let receiving = unsafe { raw::irecv(comm, Buf::slice_mut(&mut got), me, TAG, None)? };
        // SAFETY: the buffer is borrowed until the call returns.
        let sent = unsafe { raw::send(comm, Buf::slice(&sent), me, TAG, Mode::Standard) };
        // After a failed send, no message arrives.
        if sent.is_err() {
            receiving.cancel();
        }
        receiving.wait()?;
        sent?;
        black_box(&got);
        Ok(())
    })
}

fn scoped(world: &Intracomm) -> Box<dyn FnMut() -> Result<(), Error> + '_> {
    let (me, sent, mut got) = (world.rank(), [7u64], [0u64]);
    Box::new(move || {
        world.scope(|s| {
            let receiving = s.irecv(&mut got, me, TAG)?;
            world.send(&sent, me, TAG)?;
            receiving.wait().map(drop)
        })?;
        black_box(&got);
        Ok(())
    })
}

fn owned(world: &Intracomm) -> Box<dyn FnMut() -> Result<(), Error> + '_> {
    let (me, sent) = (world.rank(), [7u64]);
    Box::new(move || {
        let receiving = world.irecv([0u64], me, TAG)?;
        world.send(&sent, me, TAG)?;
        black_box(receiving.wait()?);
        Ok(())
    })
}

fn owned_pair(world: &Intracomm) -> Box<dyn FnMut() -> Result<(), Error> + '_> {
    let me = world.rank();
    Box::new(move || {
        let receiving = world.irecv([0u64], me, TAG)?;
        let sending = world.isend([7u64], me, TAG)?;
        black_box(receiving.wait()?);
        black_box(sending.wait()?);
        Ok(())
    })
}

fn persistent(world: &Intracomm) -> Box<dyn FnMut() -> Result<(), Error> + '_> {
    let me = world.rank();
    let pair = world.recv_init([0u64], me, TAG).and_then(|r| Ok([r, world.send_init([7u64], me, TAG)?]));
    let mut pair = Some(pair);
    let mut ready = None;
    Box::new(move || {
        if let Some(pair) = pair.take() {
            ready = Some(pair?);
        }
        if let Some([receive, send]) = &mut ready {
            let (receiving, sending) = (receive.start()?, send.start()?);
            black_box(receiving.wait()?);
            sending.wait()?;
        }
        Ok(())
    })
}

fn future(world: &Intracomm) -> Box<dyn FnMut() -> Result<(), Error> + '_> {
    let (me, sent) = (world.rank(), [7u64]);
    Box::new(move || {
        let receiving = world.irecv([0u64], me, TAG)?;
        world.send(&sent, me, TAG)?;
        let mut receiving = pin!(receiving.into_future());
        match receiving.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(outcome) => drop(black_box(outcome?)),
            Poll::Pending => unreachable!("a message of a rank to itself has arrived when the send returns"),
        }
        Ok(())
    })
}

fn set(world: &Intracomm) -> Box<dyn FnMut() -> Result<(), Error> + '_> {
    let (me, sent) = (world.rank(), [7u64]);
    let mut pending: RequestSet<i32, Request<[u64; 1]>> = RequestSet::new();
    let mut duplicate = None;
    Box::new(move || {
        // The pending receives would slow down the matching of all other calls in the same communicator.
        let world = match &duplicate {
            Some(duplicate) => duplicate,
            None => duplicate.insert(world.dup()?),
        };
        while pending.len() < PENDING {
            let tag = TAG + 1 + pending.len() as i32;
            pending.insert(tag, world.irecv([0u64], me, tag)?);
        }
        pending.insert(TAG, world.irecv([0u64], me, TAG)?);
        world.send(&sent, me, TAG)?;
        if let Some((_, outcome)) = pending.wait_next() {
            black_box(outcome?);
        }
        Ok(())
    })
}
