//! `pingpong --threads`: how much concurrent threads of a rank slow each other down.

use std::thread;

use mpj::{Error, Intracomm, World};

use super::Failure;
use super::report::Report;
use super::stats::{now_ns, quantile, repeats};

const BYTES: usize = 8;
/// Number of messages before the receiver replies.
const WINDOW: usize = 64;

/// Round-trip times in nanoseconds, and messages per second.
type Measured = (Vec<u64>, f64);

/// Measures one thread, increasing numbers up to `threads`, and one thread again: a rank that has used several threads
/// takes locks.
pub(crate) fn run(world: &World, ms: f64, threads: usize) -> Result<(), Failure> {
    let mut counts: Vec<usize> =
        std::iter::successors(Some(1), |n| Some(2 * n)).take_while(|n| *n < threads).collect();
    counts.extend([threads, 1]);
    let report = Report::begin(world, counts.len())?;
    let comms: Vec<Intracomm> = (0..threads).map(|_| world.dup()).collect::<Result<_, _>>()?;
    for count in counts {
        let measured = match &comms[..count] {
            [comm] => vec![measure(comm, ms)?],
            comms => thread::scope(|s| {
                let running: Vec<_> = comms.iter().map(|comm| s.spawn(move || measure(comm, ms))).collect();
                running.into_iter().map(|one| one.join().expect("no thread panics")).collect::<Result<_, _>>()
            })?,
        };
        world.barrier()?;
        let mut times: Vec<u64> = measured.iter().flat_map(|(times, _)| times).copied().collect();
        let median = quantile(&mut times, 0.5) / 2e3;
        let rate: f64 = measured.iter().map(|(_, rate)| rate / 1e6).sum();
        report.row(format_args!("THREADS,{count},{median:.3},{rate:.3}"))?;
    }
    report.finish(world, None, || unreachable!("no picture was requested"))
}

fn measure(comm: &Intracomm, ms: f64) -> Result<Measured, Error> {
    let start = now_ns();
    round_trips(comm, 20)?;
    let estimate = (now_ns() - start) as f64 / 20.0;
    let times = round_trips(comm, agree(comm, repeats(ms * 1e6, estimate + 1.0, 10, 200_000))?)?;
    let estimate = windows(comm, 3)? / 3.0;
    let count = agree(comm, repeats(ms * 1e6, estimate + 1.0, 2, 20_000))?;
    let rate = (count as usize * WINDOW) as f64 / (windows(comm, count)? * 1e-9);
    Ok((times, rate))
}

/// Broadcasts a number of iterations from rank 0.
fn agree(comm: &Intracomm, mut count: i64) -> Result<i64, Error> {
    comm.bcast(&mut count, 0)?;
    Ok(count)
}

fn round_trips(comm: &Intracomm, count: i64) -> Result<Vec<u64>, Error> {
    let (send, mut recv) = ([1u8; BYTES], [0u8; BYTES]);
    comm.barrier()?;
    let mut once = || {
        let start = now_ns();
        if comm.rank() == 0 {
            comm.send(&send, 1, 1)?;
            comm.recv(&mut recv, 1, 1)?;
        } else {
            comm.recv(&mut recv, 0, 1)?;
            comm.send(&send, 0, 1)?;
        }
        Ok(now_ns() - start)
    };
    (0..count).map(|_| once()).collect()
}

/// Sends windows of messages from rank 0 to rank 1, which replies to each window. Returns the total nanoseconds.
fn windows(comm: &Intracomm, count: i64) -> Result<f64, Error> {
    let (send, mut recv) = ([1u8; BYTES], [[0u8; BYTES]; WINDOW]);
    comm.barrier()?;
    let start = now_ns();
    for _ in 0..count {
        comm.scope(|s| {
            if comm.rank() == 0 {
                let sending: Vec<_> = (0..WINDOW).map(|_| s.isend(&send, 1, 2)).collect::<Result<_, _>>()?;
                sending.into_iter().try_for_each(|request| request.wait().map(drop))
            } else {
                let receiving: Vec<_> =
                    recv.iter_mut().map(|buf| s.irecv(buf, 0, 2)).collect::<Result<_, _>>()?;
                receiving.into_iter().try_for_each(|request| request.wait().map(drop))
            }
        })?;
        if comm.rank() == 0 {
            comm.recv(&mut 0u8, 1, 3)?;
        } else {
            comm.send(&0u8, 0, 3)?;
        }
    }
    Ok((now_ns() - start) as f64)
}
