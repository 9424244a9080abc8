//! By which path messages go fastest, between two ranks: through blocks of the pool at both ends, without copies, or as the
//! library chooses; by shape, by size, freshly written and as they were. The paths take turns.

mod message;
mod picture;

use std::hint::black_box;
use std::path::Path as FilePath;

use clap::ValueEnum;
use mpj::{Intracomm, Path, World};

use super::Failure;
use super::memory::Pages;
use super::plot::Point;
use super::report::Report;
use super::stats::{now_ns, quantile, repeats};
use message::{Message, Shape};

const SIZES: [usize; 10] =
    [64, 256, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20];
const PATHS: [(&str, Path); 3] =
    [("auto", Path::Auto), ("buffered", Path::Buffered), ("zerocopy", Path::ZeroCopy)];
const ROUNDS: usize = 5;

/// The curves of one shape, written freshly before each send or not: one for each path, and the limit.
#[derive(Debug)]
struct Family {
    shape: Shape,
    fresh: bool,
    paths: [Vec<Point>; PATHS.len()],
    memcpy: Vec<Point>,
}

/// Measures everything up to `max_bytes`, on two ranks.
pub(crate) fn run(world: &World, ms: f64, max_bytes: usize, svg: Option<&FilePath>) -> Result<(), Failure> {
    let sizes = || SIZES.into_iter().filter(|bytes| *bytes <= max_bytes);
    let families = || Shape::value_variants().iter().flat_map(|shape| [(*shape, true), (*shape, false)]);
    let report = Report::new(world, families().count() * sizes().count());
    report.head(world)?;
    let copies = sizes().map(|bytes| memcpy(bytes, ms)).collect::<Result<Vec<_>, _>>()?;
    for point in &copies {
        report.line(format_args!("MEMCPY,{},{:.3},{:.1}", point.x, point.y, point.x / point.y))?;
    }
    let mut found = Vec::new();
    for (shape, fresh) in families() {
        let mut family = Family { shape, fresh, paths: Default::default(), memcpy: copies.clone() };
        for bytes in sizes() {
            let points = in_turns(world, Message::new(shape, bytes)?, fresh, ms)?;
            for ((name, _), (points, point)) in PATHS.iter().zip(family.paths.iter_mut().zip(points)) {
                let state = if fresh { "fresh" } else { "same" };
                let Point { x, y, low, high } = point;
                let rate = x / y;
                report.line(format_args!(
                    "PATH,{shape},{state},{bytes},{name},{y:.3},{low:.3},{high:.3},{rate:.1}"
                ))?;
                points.push(point);
            }
            report.step();
        }
        found.push(family);
    }
    let device = device(world);
    for family in &found {
        report.line(format_args!("# {device}: {}", picture::sentence(family)))?;
    }
    report.finish(svg, || picture::page(&device, &found))
}

/// The device that rank 0 and 1 speak by.
fn device(world: &World) -> String {
    let used = world.stats().devices.into_iter().max_by_key(|(_, traffic)| traffic.eager.number);
    used.map_or_else(String::new, |(name, _)| name.to_string())
}

/// What a copy within one rank takes: no message through memory is faster than two of these, or one without copies.
fn memcpy(bytes: usize, ms: f64) -> Result<Point, Failure> {
    let (from, mut to) = (Pages::filled(bytes, 1u8)?, Pages::filled(bytes, 2u8)?);
    let mut copy = || {
        let start = now_ns();
        black_box(&mut to[..]).copy_from_slice(black_box(&from[..]));
        now_ns() - start
    };
    let estimate = (0..20).map(|_| copy()).max().unwrap_or(1) as f64 + 1.0;
    let mut times: Vec<u64> = (0..repeats(ms * 1e6, estimate, 10, 20_000)).map(|_| copy()).collect();
    Ok(point(bytes, &mut times, 1e3))
}

fn point(bytes: usize, times: &mut [u64], unit: f64) -> Point {
    let y = quantile(times, 0.5).max(1.0) / unit;
    let (low, high) = (times[0].max(1) as f64 / unit, quantile(times, 0.99).max(1.0) / unit);
    Point { x: bytes as f64, y, low, high }
}

/// Times a message by each path in turns, so that what disturbs one disturbs all; half round trips. Collective.
fn in_turns(
    world: &Intracomm,
    mut message: Message,
    fresh: bool,
    ms: f64,
) -> Result<[Point; PATHS.len()], Failure> {
    let handles = PATHS.map(|(_, path)| world.by_path(path));
    let mut iterations = [0i64; PATHS.len()];
    for (handle, iterations) in handles.iter().zip(&mut iterations) {
        times(handle, &mut message, fresh, 5)?;
        let estimate = quantile(&mut times(handle, &mut message, fresh, 5)?, 0.5) + 1.0;
        *iterations = repeats(ms * 1e6 / ROUNDS as f64, estimate, 3, 20_000);
    }
    world.bcast(&mut iterations, 0)?;
    let mut all: [Vec<u64>; PATHS.len()] = Default::default();
    for round in 0..ROUNDS {
        for turn in 0..PATHS.len() {
            // Another one first each time: nobody always inherits the cache of the same one.
            let at = (turn + round) % PATHS.len();
            all[at].append(&mut times(&handles[at], &mut message, fresh, iterations[at])?);
        }
    }
    let bytes = message.bytes();
    Ok(all.map(|mut times| point(bytes, &mut times, 2e3)))
}

/// Returns the nanoseconds of each round trip, as this rank sees them.
fn times(
    world: &Intracomm,
    message: &mut Message,
    fresh: bool,
    iterations: i64,
) -> Result<Vec<u64>, Failure> {
    let (leads, other) = (world.rank() == 0, 1 - world.rank());
    let mut times = vec![0; usize::try_from(iterations)?];
    world.barrier()?;
    for time in &mut times {
        let start = now_ns();
        if !leads {
            message.recv(world, other)?;
        }
        if fresh {
            message.write();
        }
        message.send(world, other)?;
        if leads {
            message.recv(world, other)?;
        }
        *time = now_ns() - start;
    }
    Ok(times)
}
