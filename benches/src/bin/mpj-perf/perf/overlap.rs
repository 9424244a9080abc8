//! How much of a long message is transferred while both ranks compute.
//!
//! ```text
//!   transfer      start ─► wait
//!   computation           compute
//!   both          start ─► compute ─► wait
//! ```
//! The computation takes twice as long as the transfer, and uses registers only. `both` takes as long as the
//! computation if the whole message is transferred during it, and as long as the transfer and the computation together
//! if nothing is.

use std::hint::black_box;

use mpj::{Error, Intracomm, Op, World};

use super::Failure;
use super::interleaved::median;
use super::report::Report;
use super::stats::{now_ns, repeats};

const BYTES: usize = 4 << 20;
const SENDER: usize = 0;
const RECEIVER: usize = 1;
const TAG: i32 = 1;
const WARMUP_ROUNDS: usize = 10;

pub(crate) fn run(world: &World, ms: f64) -> Result<(), Failure> {
    let report = Report::begin(world, 1)?;
    let mut message = vec![world.rank() as u8; BYTES];
    let mut transfer_ns = 0.0;
    for _ in 0..WARMUP_ROUNDS {
        transfer_ns = time(world, Some(&mut message), 0)?;
    }
    const PROBE: u64 = 1 << 20;
    let mut loops = [(2.0 * transfer_ns / time(world, None, PROBE)? * PROBE as f64) as u64];
    world.bcast(&mut loops, SENDER)?;
    let round_ns = 6.0 * transfer_ns;
    let mut rounds = [repeats(ms * 1e6, round_ns, 11, 1001)];
    world.bcast(&mut rounds, SENDER)?;
    let mut times = Vec::new();
    for _ in 0..rounds[0] {
        let transfer = time(world, Some(&mut message), 0)?;
        let computation = time(world, None, loops[0])?;
        times.push([transfer, computation, time(world, Some(&mut message), loops[0])?]);
    }
    let overlap = |[transfer, computation, both]: &[f64; 3]| (transfer + computation - both) / transfer;
    let percent = 100.0 * median(times.iter().map(overlap)).clamp(0.0, 1.0);
    let [transfer, computation, both] =
        [0, 1, 2].map(|column| median(times.iter().map(|row| row[column] / 1e3)));
    report.row(format_args!("OVERLAP,{BYTES},{transfer:.1},{computation:.1},{both:.1},{percent:.0}"))?;
    report.finish(world, None, || unreachable!("no picture was requested"))
}

/// Returns the nanoseconds of the slower rank for the transfer of the message, if there is one, and a computation of
/// `loops` steps.
fn time(world: &Intracomm, message: Option<&mut Vec<u8>>, loops: u64) -> Result<f64, Error> {
    world.barrier()?;
    let begun = now_ns();
    world.scope(|s| match message {
        Some(message) if world.rank() == SENDER => {
            let sending = s.isend(message, RECEIVER, TAG)?;
            compute(loops);
            sending.wait().map(drop)
        }
        Some(message) => {
            let receiving = s.irecv(message, SENDER, TAG)?;
            compute(loops);
            receiving.wait().map(drop)
        }
        None => {
            compute(loops);
            Ok(())
        }
    })?;
    world.allreduce_value((now_ns() - begun) as f64, Op::Max)
}

fn compute(loops: u64) {
    let mut word = black_box(1u64);
    for _ in 0..loops {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
    }
    black_box(word);
}
