//! Messages that are sent and received as a whole, between two ranks: a slice, a buffer of sections, a pool block, an
//! object. They take turns: a disturbance of a round affects all of them, so that ratios within a round hold when
//! times do not.

use std::hint::black_box;
use std::sync::Arc;

use clap::ValueEnum;
use mpj::buffer::{Buffer, Reading};
use mpj::pool::{AllocError, DefaultBlock, FilledBlock, Pool, PoolStats, global};
use mpj::{Intracomm, World};

use super::Failure;
use super::memory::Pages;
use super::report::Report;
use super::serde::values::{Mesh, mesh};
use super::stats::{now_ns, quantile, quantile_f64, repeats};

/// The kinds of messages that are measured.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum What {
    /// As many bytes in one slice: what the others are compared with.
    Slice,
    /// A buffer in one block, and one with a dynamic part in three more; received into a block of the right size.
    Buffer,
    /// The bytes written to a block of the pool.
    Block,
    /// The mesh of `mpj-perf serde`, compared with encoding it, sending as many bytes from one slice, and decoding.
    Object,
}

/// The sizes in bytes of the elements of a message.
const SIZES: [usize; 3] = [1 << 10, 64 << 10, 1 << 20];
const ROUNDS: usize = 15;

/// The global pool with a limited block size, so that a dynamic part has several chunks even if it is small.
#[derive(Debug)]
struct Chunks(usize);

impl Pool for Chunks {
    type Block = DefaultBlock;

    fn alloc(&self, len: usize) -> Result<DefaultBlock, AllocError> {
        global().alloc(len)
    }

    fn max_alloc(&self) -> usize {
        self.0
    }

    fn stats(&self) -> PoolStats {
        global().stats()
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}

/// Makes a message of `bytes` bytes, with all of them in the static part, or nearly all of them in three chunks.
fn message(bytes: usize, chunks: bool) -> Result<Buffer<DefaultBlock, Reading>, Failure> {
    let fixed = if chunks { 64 } else { bytes };
    let mut message = Buffer::with_capacity(fixed + 256)?;
    message.fill_with(fixed, |at| at as u8)?;
    if chunks {
        message.set_pool(Arc::new(Chunks((bytes / 3).next_multiple_of(8) + 24)));
        message.write_dynamic(&vec![7u8; bytes - fixed])?;
    }
    Ok(message.commit())
}

/// One of the messages that take turns.
enum Lane<'a> {
    Slice {
        send: Pages<u8>,
        recv: Pages<u8>,
    },
    Buffer(&'a Buffer<DefaultBlock, Reading>),
    Block {
        send: FilledBlock<DefaultBlock>,
        recv: FilledBlock<DefaultBlock>,
    },
    Object(&'a Mesh),
    /// The steps of sending an object: encodes, sends a slice of that length, receives it into one, and decodes
    /// another message.
    Parts {
        mesh: &'a Mesh,
        send: Pages<u8>,
        recv: Pages<u8>,
        arrived: Buffer<DefaultBlock, Reading>,
    },
}

fn encode(mesh: &Mesh) -> Result<Buffer<DefaultBlock, Reading>, Failure> {
    let mut message = Buffer::with_capacity(256)?;
    message.write_object(mesh)?;
    Ok(message.commit())
}

impl Lane<'_> {
    fn slice(bytes: usize) -> Result<Self, Failure> {
        Ok(Lane::Slice { send: Pages::filled(bytes, 1)?, recv: Pages::filled(bytes, 2)? })
    }

    fn block(bytes: usize) -> Result<Self, Failure> {
        let written = |value: u8| -> Result<FilledBlock<DefaultBlock>, Failure> {
            let mut block = FilledBlock::new(global().alloc(bytes)?);
            block.extend_from_slice(&vec![value; bytes])?;
            Ok(block)
        };
        Ok(Lane::Block { send: written(1)?, recv: written(2)? })
    }

    #[inline]
    fn send(&self, world: &Intracomm, to: usize) -> Result<(), Failure> {
        match self {
            Lane::Slice { send, .. } => world.send(&send[..], to, 1)?,
            Lane::Buffer(message) => world.send(*message, to, 1)?,
            Lane::Block { send, .. } => world.send(send, to, 1)?,
            Lane::Object(mesh) => world.send_object(*mesh, to, 1)?,
            Lane::Parts { mesh, send, .. } => {
                let message = black_box(encode(mesh)?);
                world.send(&send[..], to, 1)?;
                drop(message);
            }
        }
        Ok(())
    }

    #[inline]
    fn recv(&mut self, world: &Intracomm, from: usize) -> Result<(), Failure> {
        match self {
            Lane::Slice { recv, .. } => drop(world.recv(&mut recv[..], from, 1)?),
            Lane::Buffer(_) => drop(black_box(world.recv_buffer(from, 1)?)),
            Lane::Block { recv, .. } => drop(world.recv(recv, from, 1)?),
            Lane::Object(_) => drop(black_box(world.recv_object::<Mesh>(from, 1)?)),
            Lane::Parts { recv, arrived, .. } => {
                world.recv(&mut recv[..], from, 1)?;
                arrived.rewind();
                drop(black_box(arrived.read_object::<Mesh>()?));
            }
        }
        Ok(())
    }

    /// Returns the nanoseconds of each one-way transfer, as rank 0 measures them.
    fn times(&mut self, world: &Intracomm, iterations: usize) -> Result<Vec<u64>, Failure> {
        let (leads, other) = (world.rank() == 0, 1 - world.rank());
        let mut times = vec![0; iterations];
        world.barrier()?;
        for time in &mut times {
            let start = now_ns();
            if leads {
                self.send(world, other)?;
                self.recv(world, other)?;
            } else {
                self.recv(world, other)?;
                self.send(world, other)?;
            }
            *time = (now_ns() - start) / 2;
        }
        Ok(times)
    }
}

/// The results of one lane: the median of each round, and the minimum of all times.
struct Figures {
    rounds: Vec<f64>,
    least: u64,
}

fn up_to(max_bytes: usize) -> impl Iterator<Item = usize> {
    SIZES.into_iter().filter(move |bytes| *bytes <= max_bytes)
}

/// Measures the requested messages on two ranks, with elements of at most `max_bytes` bytes.
pub(crate) fn run(world: &World, what: &[What], ms: f64, max_bytes: usize) -> Result<(), Failure> {
    let is_asked = |wanted| what.contains(&wanted);
    let (buffers, blocks) = (is_asked(What::Buffer), is_asked(What::Block));
    let sizes = if is_asked(What::Slice) || buffers || blocks { 2 * up_to(max_bytes).count() } else { 0 };
    let report = Report::begin(world, sizes + usize::from(is_asked(What::Object)))?;
    let cases = up_to(max_bytes).flat_map(|bytes| [(bytes, "static", false), (bytes, "chunks", true)]);
    for (bytes, shape, chunks) in cases.take(sizes) {
        let message = message(bytes, chunks)?;
        let len = message.len();
        let mut lanes = vec![("slice", Lane::slice(len)?)];
        if buffers {
            lanes.push(("buffer", Lane::Buffer(&message)));
        }
        if blocks {
            lanes.push(("block", Lane::block(len)?));
        }
        let figures = in_turns(world, &mut lanes, ms)?;
        for ((name, _), found) in lanes.iter().zip(&figures) {
            line(&report, name, shape, len, found, &figures[0])?;
        }
        report.step();
    }
    if is_asked(What::Object) {
        let mesh = mesh();
        let bytes = encode(&mesh)?.to_vec();
        let arrived =
            Buffer::from_bytes(global().alloc(bytes.len())?, &bytes).map_err(|refused| refused.error)?;
        let (send, recv) = (Pages::filled(bytes.len(), 1)?, Pages::filled(bytes.len(), 2)?);
        let parts = Lane::Parts { mesh: &mesh, send, recv, arrived };
        let mut lanes = vec![("parts", parts), ("object", Lane::Object(&mesh))];
        let figures = in_turns(world, &mut lanes, ms)?;
        for ((name, _), found) in lanes.iter().zip(&figures) {
            line(&report, name, "mesh", bytes.len(), found, &figures[0])?;
        }
        report.step();
    }
    report.finish(world, None, || unreachable!("no picture was asked for"))
}

/// Prints a lane's figures, compared with those of another.
fn line(
    report: &Report,
    name: &str,
    shape: &str,
    bytes: usize,
    found: &Figures,
    beside: &Figures,
) -> Result<(), Failure> {
    let mut ratios: Vec<f64> =
        found.rounds.iter().zip(&beside.rounds).map(|(ns, other)| ns / other).collect();
    let (median, least) = (quantile_f64(&mut found.rounds.clone(), 0.5) / 1e3, found.least as f64 / 1e3);
    let ratio = quantile_f64(&mut ratios, 0.5);
    report.line(format_args!("WHOLE,{name},{shape},{bytes},{median:.3},{least:.3},{ratio:.3}"))
}

/// Times all lanes in turns. Collective.
fn in_turns(world: &Intracomm, lanes: &mut [(&str, Lane<'_>)], ms: f64) -> Result<Vec<Figures>, Failure> {
    let mut iterations = vec![0i64; lanes.len()];
    for ((_, lane), iterations) in lanes.iter_mut().zip(&mut iterations) {
        lane.times(world, 20)?;
        let estimate = quantile(&mut lane.times(world, 20)?, 0.5) + 1.0;
        *iterations = repeats(ms * 1e6 / ROUNDS as f64, 2.0 * estimate, 5, 20_000);
    }
    world.bcast(&mut iterations, 0)?;
    let mut figures: Vec<Figures> =
        lanes.iter().map(|_| Figures { rounds: Vec::new(), least: u64::MAX }).collect();
    for round in 0..ROUNDS {
        for turn in 0..lanes.len() {
            // Rotate the order in each round, so that a lane does not always run on the cache state that the same
            // other one left.
            let at = (turn + round) % lanes.len();
            let mut times = lanes[at].1.times(world, iterations[at] as usize)?;
            figures[at].rounds.push(quantile(&mut times, 0.5).max(1.0));
            figures[at].least = figures[at].least.min(times[0]);
        }
    }
    Ok(figures)
}
