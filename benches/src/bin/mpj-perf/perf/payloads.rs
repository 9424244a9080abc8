//! `pingpong --payload`: compares buffers of sections and pool blocks with a slice, and an object with the steps of its
//! transfer. The candidates of a comparison run interleaved.

use std::hint::black_box;
use std::sync::Arc;

use clap::ValueEnum;
use mpj::buffer::{Buffer, Reading};
use mpj::pool::{
    AllocError, DefaultBlock, FilledBlock, Magazine, Pool, PoolStats, ReadBlock, Storage, global,
};
use mpj::{Intracomm, Request, World};

use super::Failure;
use super::memory::Pages;
use super::report::Report;
use super::serde::values::{Mesh, mesh};
use super::stats::{now_ns, quantile, quantile_f64, repeats};

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Payload {
    /// A slice, with which buffers and blocks are compared
    Slice,
    /// A buffer in one block, and one with a dynamic part in three more blocks
    Buffer,
    /// A pool block
    Block,
    /// A buffer in a block of World::pool: "lent", received with recv_buffer, which reads it in place in shared memory,
    /// and "copied", received with recv_buffer_in. The receiver reads all words. In the variants "fresh", the sender
    /// writes all words before each send
    Lent,
    /// The mesh of mpj-perf serde, compared with encoding it, sending a slice of the same size, and decoding
    Object,
}

const SIZES: [usize; 4] = [1 << 10, 64 << 10, 1 << 20, 16 << 20];
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

/// Makes a message with its bytes in the static part or, if `chunks`, nearly all of them in three chunks.
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

type SharedBuffer = Buffer<<Magazine<Box<dyn Storage>> as Pool>::Block, Reading>;

/// A buffer in a block of [`World::pool`]. Its sends own it.
struct Lent {
    message: Option<SharedBuffer>,
    sending: Option<Request<SharedBuffer>>,
    is_fresh: bool,
    is_copied: bool,
}

impl Lent {
    fn new(world: &World, bytes: usize, is_fresh: bool, is_copied: bool) -> Result<Self, Failure> {
        let mut message = Buffer::new(world.pool().alloc(bytes + 256)?)?;
        message.fill_with(bytes / 8, |at| at as u64)?;
        Ok(Lent { message: Some(message.commit()), sending: None, is_fresh, is_copied })
    }

    fn send(&mut self, world: &Intracomm, to: usize) -> Result<(), Failure> {
        self.finish()?;
        let Some(mut message) = self.message.take() else { return Err("the buffer is lost".into()) };
        if self.is_fresh {
            let words = message.sections().next().map_or(0, |section| section.count);
            let mut writing = message.clear();
            writing.fill_with(words as usize, |at| at as u64)?;
            message = writing.commit();
        }
        self.sending = Some(world.isend(message, to, 1)?);
        Ok(())
    }

    fn finish(&mut self) -> Result<(), Failure> {
        if let Some(sending) = self.sending.take() {
            self.message = Some(sending.wait().map_err(|failed| failed.into_parts().0)?.0);
        }
        Ok(())
    }

    fn recv(&self, world: &Intracomm, from: usize) -> Result<(), Failure> {
        if self.is_copied {
            return sum(&mut world.recv_buffer_in(global(), usize::MAX, from, 1)?.0);
        }
        sum(&mut world.recv_buffer(from, 1)?.0)
    }
}

fn sum<R: ReadBlock>(message: &mut Buffer<R, Reading>) -> Result<(), Failure> {
    black_box(message.view::<u64>()?.iter().fold(0, |sum: u64, word| sum.wrapping_add(*word)));
    Ok(())
}

enum Candidate<'a> {
    Slice {
        send: Pages<u8>,
        recv: Pages<u8>,
    },
    Buffer(&'a Buffer<DefaultBlock, Reading>),
    Block {
        send: FilledBlock<DefaultBlock>,
        recv: FilledBlock<DefaultBlock>,
    },
    Lent(Lent),
    Object(&'a Mesh),
    /// The steps of an object: encodes, sends and receives a slice of the same length, and decodes an equal message.
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

impl Candidate<'_> {
    fn slice(bytes: usize) -> Result<Self, Failure> {
        Ok(Candidate::Slice { send: Pages::filled(bytes, 1)?, recv: Pages::filled(bytes, 2)? })
    }

    fn block(bytes: usize) -> Result<Self, Failure> {
        let written = |value: u8| -> Result<FilledBlock<DefaultBlock>, Failure> {
            let mut block = FilledBlock::new(global().alloc(bytes)?);
            block.extend_from_slice(&vec![value; bytes])?;
            Ok(block)
        };
        Ok(Candidate::Block { send: written(1)?, recv: written(2)? })
    }

    #[inline]
    fn send(&mut self, world: &Intracomm, to: usize) -> Result<(), Failure> {
        match self {
            Candidate::Slice { send, .. } => world.send(&send[..], to, 1)?,
            Candidate::Buffer(message) => world.send(&**message, to, 1)?,
            Candidate::Block { send, .. } => world.send(send, to, 1)?,
            Candidate::Lent(lent) => lent.send(world, to)?,
            Candidate::Object(mesh) => world.send_object(*mesh, to, 1)?,
            Candidate::Parts { mesh, send, .. } => {
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
            Candidate::Slice { recv, .. } => drop(world.recv(&mut recv[..], from, 1)?),
            Candidate::Buffer(_) => drop(black_box(world.recv_buffer(from, 1)?)),
            Candidate::Block { recv, .. } => drop(world.recv(recv, from, 1)?),
            Candidate::Lent(lent) => lent.recv(world, from)?,
            Candidate::Object(_) => drop(black_box(world.recv_object::<Mesh>(from, 1)?)),
            Candidate::Parts { recv, arrived, .. } => {
                world.recv(&mut recv[..], from, 1)?;
                arrived.rewind();
                drop(black_box(arrived.read_object::<Mesh>()?));
            }
        }
        Ok(())
    }

    /// Returns the nanoseconds of half round trips.
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
        if let Candidate::Lent(lent) = self {
            lent.finish()?;
        }
        Ok(times)
    }
}

struct Figures {
    rounds: Vec<f64>,
    min: u64,
}

fn up_to(max_bytes: usize) -> impl Iterator<Item = usize> {
    SIZES.into_iter().filter(move |bytes| *bytes <= max_bytes)
}

pub(crate) fn run(world: &World, payloads: &[Payload], ms: f64, max_bytes: usize) -> Result<(), Failure> {
    let is_requested = |wanted| payloads.contains(&wanted);
    let (buffers, blocks, lent) =
        (is_requested(Payload::Buffer), is_requested(Payload::Block), is_requested(Payload::Lent));
    let case_count = if is_requested(Payload::Slice) || buffers || blocks || lent {
        2 * up_to(max_bytes).count()
    } else {
        0
    };
    let report = Report::begin(world, case_count + usize::from(is_requested(Payload::Object)))?;
    let cases = up_to(max_bytes).flat_map(|bytes| [(bytes, "static", false), (bytes, "chunks", true)]);
    for (bytes, shape, chunks) in cases.take(case_count) {
        let message = message(bytes, chunks)?;
        let len = message.len();
        let mut candidates = vec![("slice", Candidate::slice(len)?)];
        if buffers {
            candidates.push(("buffer", Candidate::Buffer(&message)));
        }
        if blocks {
            candidates.push(("block", Candidate::block(len)?));
        }
        if lent && !chunks {
            for (name, is_fresh, is_copied) in [
                ("copied", false, true),
                ("lent", false, false),
                ("copied fresh", true, true),
                ("lent fresh", true, false),
            ] {
                candidates.push((name, Candidate::Lent(Lent::new(world, bytes, is_fresh, is_copied)?)));
            }
        }
        let figures = measure_interleaved(world, &mut candidates, ms)?;
        for ((name, _), found) in candidates.iter().zip(&figures) {
            line(&report, name, shape, len, found, &figures[0])?;
        }
        report.step();
    }
    if is_requested(Payload::Object) {
        let mesh = mesh();
        let bytes = encode(&mesh)?.to_vec();
        let arrived =
            Buffer::from_bytes(global().alloc(bytes.len())?, &bytes).map_err(|error| error.error)?;
        let (send, recv) = (Pages::filled(bytes.len(), 1)?, Pages::filled(bytes.len(), 2)?);
        let parts = Candidate::Parts { mesh: &mesh, send, recv, arrived };
        let mut candidates = vec![("parts", parts), ("object", Candidate::Object(&mesh))];
        let figures = measure_interleaved(world, &mut candidates, ms)?;
        for ((name, _), found) in candidates.iter().zip(&figures) {
            line(&report, name, "mesh", bytes.len(), found, &figures[0])?;
        }
        report.step();
    }
    report.finish(world, None, || unreachable!("no picture was requested"))
}

fn line(
    report: &Report,
    name: &str,
    shape: &str,
    bytes: usize,
    figures: &Figures,
    baseline: &Figures,
) -> Result<(), Failure> {
    let mut ratios: Vec<f64> =
        figures.rounds.iter().zip(&baseline.rounds).map(|(ns, other)| ns / other).collect();
    let (median, min) = (quantile_f64(&mut figures.rounds.clone(), 0.5) / 1e3, figures.min as f64 / 1e3);
    let ratio = quantile_f64(&mut ratios, 0.5);
    report.line(format_args!("WHOLE,{name},{shape},{bytes},{median:.3},{min:.3},{ratio:.3}"))
}

fn measure_interleaved(
    world: &Intracomm,
    candidates: &mut [(&str, Candidate<'_>)],
    ms: f64,
) -> Result<Vec<Figures>, Failure> {
    let mut iterations = vec![0i64; candidates.len()];
    for ((_, candidate), iterations) in candidates.iter_mut().zip(&mut iterations) {
        candidate.times(world, 20)?;
        let estimate = quantile(&mut candidate.times(world, 20)?, 0.5) + 1.0;
        *iterations = repeats(ms * 1e6 / ROUNDS as f64, 2.0 * estimate, 5, 20_000);
    }
    world.bcast(&mut iterations, 0)?;
    let mut figures: Vec<Figures> =
        candidates.iter().map(|_| Figures { rounds: Vec::new(), min: u64::MAX }).collect();
    for round in 0..ROUNDS {
        for turn in 0..candidates.len() {
            // Start with another candidate in each round, so that none is always the first.
            let at = (turn + round) % candidates.len();
            let mut times = candidates[at].1.times(world, iterations[at] as usize)?;
            figures[at].rounds.push(quantile(&mut times, 0.5).max(1.0));
            figures[at].min = figures[at].min.min(times[0]);
        }
    }
    Ok(figures)
}
