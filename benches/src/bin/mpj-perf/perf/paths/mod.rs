//! Measures which data path is fastest between two ranks: through pool blocks at both ends, without copies, or as the
//! library chooses. Only `smdev` and `ibvdev` have a path without copies; other devices use the default path instead.
//! Contiguous data is also sent by ownership from a pool block, which the receiver reads in place in shared memory
//! ("lent" in the output). The paths run interleaved.

mod message;
mod picture;
pub(crate) mod tune;

use std::hint::black_box;
use std::path::Path as FilePath;

use clap::ValueEnum;
use mpj::{DataPath, Intracomm, World};

use super::Failure;
use super::memory::Pages;
use super::plot::Point;
use super::report::Report;
use super::setting::devices;
use super::stats::{now_ns, quantile, repeats};
use message::{Message, Shape};

const SIZES: [usize; 10] =
    [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
const PATHS: [(&str, DataPath); 3] =
    [("auto", DataPath::Auto), ("buffered", DataPath::Buffered), ("zerocopy", DataPath::ZeroCopy)];
const ROUNDS: usize = 5;

/// The curves of one shape. If `fresh`, each send is preceded by a write.
#[derive(Debug)]
struct ShapeCurves {
    shape: Shape,
    fresh: bool,
    paths: [Vec<Point>; PATHS.len()],
    read_in_place: Vec<Point>,
    memcpy: Vec<Point>,
}

pub(crate) fn run(world: &World, ms: f64, max_bytes: usize, svg: Option<&FilePath>) -> Result<(), Failure> {
    let sizes = || SIZES.into_iter().filter(|bytes| *bytes <= max_bytes);
    let cases = || Shape::value_variants().iter().flat_map(|shape| [(*shape, true), (*shape, false)]);
    let report = Report::begin(world, cases().count() * sizes().count())?;
    let copies = sizes().map(|bytes| memcpy(bytes, ms)).collect::<Result<Vec<_>, _>>()?;
    for point in &copies {
        report.line(format_args!("MEMCPY,{},{:.3},{:.1}", point.x, point.y, point.x / point.y))?;
    }
    let mut all_curves = Vec::new();
    for (shape, fresh) in cases() {
        let (paths, read_in_place) = Default::default();
        let mut curves = ShapeCurves { shape, fresh, paths, read_in_place, memcpy: copies.clone() };
        for bytes in sizes() {
            let mut candidates = candidates(world, shape, bytes)?;
            let times = measure_interleaved(world, &mut candidates, fresh, ms)?;
            let points = curves.paths.iter_mut().chain([&mut curves.read_in_place]);
            for ((candidate, Times { median, min, p99 }), points) in candidates.iter().zip(times).zip(points)
            {
                let state = if fresh { "fresh" } else { "same" };
                let (name, Point { x, y, .. }) = (candidate.name, median);
                let rate = x / y;
                report.line(format_args!(
                    "PATH,{shape},{state},{bytes},{name},{y:.3},{min:.3},{p99:.3},{rate:.1}"
                ))?;
                report.note_spread(y, min);
                points.push(median);
            }
            report.step();
        }
        all_curves.push(curves);
    }
    let device = devices(world);
    for curves in &all_curves {
        report.line(format_args!("# {device}: {}", picture::sentence(curves)))?;
    }
    report.finish(world, svg, || picture::page(&all_curves))
}

/// Measures a copy of `bytes` bytes within one rank, for comparison with messages.
pub(super) fn memcpy(bytes: usize, ms: f64) -> Result<Point, Failure> {
    let (from, mut to) = (Pages::filled(bytes, 1u8)?, Pages::filled(bytes, 2u8)?);
    let mut copy = || {
        let start = now_ns();
        black_box(&mut to[..]).copy_from_slice(black_box(&from[..]));
        now_ns() - start
    };
    let estimate = (0..20).map(|_| copy()).max().unwrap_or(1) as f64 + 1.0;
    let mut times: Vec<u64> = (0..repeats(ms * 1e6, estimate, 10, 20_000)).map(|_| copy()).collect();
    Ok(Times::of(bytes, &mut times, 1e3).median)
}

#[derive(Clone, Copy, Debug)]
struct Times {
    /// The median and the quartiles.
    median: Point,
    min: f64,
    p99: f64,
}

impl Times {
    fn of(bytes: usize, times: &mut [u64], unit: f64) -> Times {
        let mut at = |q| quantile(times, q).max(1.0) / unit;
        let [min, low, y, high, p99] = [0.0, 0.25, 0.5, 0.75, 0.99].map(&mut at);
        Times { median: Point { x: bytes as f64, y, low, high }, min, p99 }
    }
}

struct PathCandidate {
    name: &'static str,
    /// Selects the path, except for `lent`.
    world: Intracomm,
    message: Message,
}

/// Returns a message for each path, and one that is sent by ownership if the shape permits it.
fn candidates(world: &World, shape: Shape, bytes: usize) -> Result<Vec<PathCandidate>, Failure> {
    let mut candidates = Vec::new();
    for (name, path) in PATHS {
        candidates.push(PathCandidate {
            name,
            world: world.with_path(path),
            message: Message::new(shape, bytes)?,
        });
    }
    if shape == Shape::Contiguous {
        let (world, message) = (world.comm().clone(), Message::in_pool_block(world, bytes)?);
        candidates.push(PathCandidate { name: "lent", world, message });
    }
    Ok(candidates)
}

/// Returns the half round trips of interleaved candidates. Collective.
fn measure_interleaved(
    world: &Intracomm,
    candidates: &mut [PathCandidate],
    fresh: bool,
    ms: f64,
) -> Result<Vec<Times>, Failure> {
    let mut iterations = vec![0i64; candidates.len()];
    for (candidate, iterations) in candidates.iter_mut().zip(&mut iterations) {
        times(candidate, fresh, 5)?;
        let estimate = quantile(&mut times(candidate, fresh, 5)?, 0.5) + 1.0;
        *iterations = repeats(ms * 1e6 / ROUNDS as f64, estimate, 3, 20_000);
    }
    world.bcast(&mut iterations, 0)?;
    let mut all = vec![Vec::new(); candidates.len()];
    for round in 0..ROUNDS {
        for turn in 0..candidates.len() {
            // Start with another path in each round, so that no path is always the first.
            let at = (turn + round) % candidates.len();
            all[at].append(&mut times(&mut candidates[at], fresh, iterations[at])?);
        }
    }
    Ok(candidates
        .iter()
        .zip(&mut all)
        .map(|(candidate, times)| Times::of(candidate.message.bytes(), times, 2e3))
        .collect())
}

fn times(candidate: &mut PathCandidate, fresh: bool, iterations: i64) -> Result<Vec<u64>, Failure> {
    let PathCandidate { world, message, .. } = candidate;
    let (leads, other) = (world.rank() == 0, 1 - world.rank());
    let mut times = vec![0; usize::try_from(iterations)?];
    world.barrier()?;
    for time in &mut times {
        let start = now_ns();
        if !leads {
            message.recv(world, other)?;
        }
        if fresh {
            message.write()?;
        }
        message.send(world, other)?;
        if leads {
            message.recv(world, other)?;
        }
        *time = now_ns() - start;
    }
    Ok(times)
}
