//! `pingpong --pool`, the second experiment of the mpjbuf paper: messages are packed into pool blocks, sent, received
//! into blocks of a pool of the same kind, and unpacked. The pools run interleaved.

use std::hint::black_box;
use std::path::Path;

use mpj::buffer::{Buffer, MESSAGE_HEADER_LEN, section_len};
use mpj::pool::{Growth, Pool, PoolStats, strategy};
use mpj::{Intracomm, World};

use super::Failure;
use super::plot::{Curve, CurveStyle, Lines, Page, Panel, Point};
use super::report::Report;
use super::stats::{now_ns, quantile, repeats};

const SIZES: [usize; 12] =
    [8, 64, 512, 1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20];
const ROUNDS: usize = 7;
const MEBI: f64 = (1 << 20) as f64;

trait Contender {
    /// Returns the nanoseconds of each round trip of messages of `len` numbers. Collective.
    fn times(&mut self, world: &Intracomm, len: usize, iterations: i64) -> Result<Vec<u64>, Failure>;

    fn stats(&self) -> PoolStats;
}

struct Exchange<P> {
    pool: P,
    sent: Vec<f64>,
    got: Vec<f64>,
}

impl<P: Pool + 'static> Exchange<P> {
    #[inline]
    fn send(&self, world: &Intracomm, to: usize, len: usize) -> Result<(), Failure> {
        let block = self.pool.alloc(message_len(len)?)?;
        let mut message = Buffer::new(block).map_err(|error| error.error)?;
        message.write(&self.sent[..len])?;
        Ok(world.send(&message.commit(), to, 1)?)
    }

    #[inline]
    fn recv(&mut self, world: &Intracomm, from: usize, len: usize) -> Result<(), Failure> {
        let (mut message, _) = world.recv_buffer_in(&self.pool, message_len(len)?, from, 1)?;
        message.read(&mut self.got[..len])?;
        black_box(&mut self.got[..len]);
        Ok(())
    }
}

impl<P: Pool + 'static> Contender for Exchange<P> {
    fn times(&mut self, world: &Intracomm, len: usize, iterations: i64) -> Result<Vec<u64>, Failure> {
        let (leads, other) = (world.rank() == 0, 1 - world.rank());
        self.sent.resize(self.sent.len().max(len), 1.5);
        self.got.resize(self.got.len().max(len), 2.5);
        let mut times = vec![0; usize::try_from(iterations)?];
        world.barrier()?;
        for time in &mut times {
            let start = now_ns();
            if leads {
                self.send(world, other, len)?;
                self.recv(world, other, len)?;
            } else {
                self.recv(world, other, len)?;
                self.send(world, other, len)?;
            }
            *time = now_ns() - start;
        }
        Ok(times)
    }

    fn stats(&self) -> PoolStats {
        self.pool.stats()
    }
}

fn message_len(len: usize) -> Result<usize, Failure> {
    Ok(MESSAGE_HEADER_LEN + section_len::<f64>(len).ok_or("the message is too long")?)
}

struct MakeExchange;

impl strategy::PoolVisitor for MakeExchange {
    type Output = Box<dyn Contender>;

    fn visit<P: Pool + 'static>(self, pool: P) -> Box<dyn Contender> {
        Box::new(Exchange { pool, sent: Vec::new(), got: Vec::new() })
    }
}

struct Entry {
    strategy: String,
    storage: String,
    contender: Box<dyn Contender>,
    points: Vec<Point>,
}

/// Makes a pool of each strategy on each storage.
///
/// # Errors
/// A name is invalid, or two names cannot be combined.
fn entries(strategies: &[String], storages: &[String]) -> Result<Vec<Entry>, Failure> {
    let mut entries = Vec::new();
    for storage in storages {
        for strategy in strategies {
            let contender = strategy::with_pool(strategy, storage, Growth::default(), MakeExchange)?;
            let (strategy, storage) = (strategy.clone(), storage.clone());
            entries.push(Entry { strategy, storage, contender, points: Vec::new() });
        }
    }
    Ok(entries)
}

/// Returns why these names cannot be measured, if they cannot.
pub(crate) fn rejection(strategies: &[String], storages: &[String]) -> Option<String> {
    struct Nothing;
    impl strategy::PoolVisitor for Nothing {
        type Output = ();

        fn visit<P: Pool + 'static>(self, _pool: P) {}
    }
    let pairs =
        storages.iter().flat_map(|storage| strategies.iter().map(move |strategy| (strategy, storage)));
    pairs
        .filter_map(|(strategy, storage)| {
            strategy::with_pool(strategy, storage, Growth::default(), Nothing).err()
        })
        .map(|error| error.to_string())
        .next()
}

pub(crate) fn run(
    world: &World,
    (strategies, storages): (&[String], &[String]),
    ms: f64,
    max_bytes: usize,
    svg: Option<&Path>,
) -> Result<(), Failure> {
    let sizes = || SIZES.into_iter().filter(|bytes| *bytes <= max_bytes);
    let report = Report::begin(world, sizes().count())?;
    let mut entries = entries(strategies, storages)?;
    for bytes in sizes() {
        let points = measure_interleaved(world, &mut entries, bytes, ms)?;
        for (entry, point) in entries.iter_mut().zip(points) {
            let Entry { strategy, storage, points, .. } = entry;
            let Point { x, y, low, high } = point;
            report.note_spread(y, low);
            report.line(format_args!(
                "POOLPP,{strategy},{storage},{bytes},{y:.3},{low:.3},{high:.3},{:.1}",
                x / y
            ))?;
            points.push(point);
        }
        report.step();
    }
    for Entry { strategy, storage, contender, .. } in &entries {
        let stats = contender.stats();
        report.line(format_args!(
            "POOLPPMEM,{strategy},{storage},{:.1},{:.1},{},{}",
            stats.region_bytes as f64 / MEBI,
            stats.peak_bytes as f64 / MEBI,
            stats.allocs,
            stats.misses
        ))?;
    }
    report.finish(world, svg, || page(&entries, storages))
}

/// Returns the half round trips of all pools at one size. Collective.
fn measure_interleaved(
    world: &Intracomm,
    entries: &mut [Entry],
    bytes: usize,
    ms: f64,
) -> Result<Vec<Point>, Failure> {
    let len = bytes / size_of::<f64>();
    let mut iterations = vec![0i64; entries.len()];
    for (entry, iterations) in entries.iter_mut().zip(&mut iterations) {
        entry.contender.times(world, len, 5)?;
        let estimate = quantile(&mut entry.contender.times(world, len, 5)?, 0.5) + 1.0;
        *iterations = repeats(ms * 1e6 / ROUNDS as f64, estimate, 3, 20_000);
    }
    world.bcast(&mut iterations, 0)?;
    let mut all = vec![Vec::new(); entries.len()];
    for round in 0..ROUNDS {
        for turn in 0..entries.len() {
            // Start with another pool in each round, so that no pool is always the first.
            let at = (turn + round) % entries.len();
            all[at].append(&mut entries[at].contender.times(world, len, iterations[at])?);
        }
    }
    let point = |times: &mut Vec<u64>| {
        let y = quantile(times, 0.5).max(1.0) / 2e3;
        Point { x: bytes as f64, y, low: times[0].max(1) as f64 / 2e3, high: quantile(times, 0.99) / 2e3 }
    };
    Ok(all.iter_mut().map(point).collect())
}

fn page(entries: &[Entry], storages: &[String]) -> Page {
    let panel = |storage: &String| {
        let of_storage = entries.iter().filter(|entry| entry.storage == *storage);
        let curves = of_storage.enumerate().map(|(at, entry)| Curve {
            label: entry.strategy.clone(),
            style: CurveStyle::of(at),
            points: entry.points.clone(),
        });
        Panel::Lines(Lines {
            title: format!("Blocks of {storage}"),
            x: "bytes of the elements",
            y: "half a round trip, µs",
            curves: curves.collect(),
            ..Lines::default()
        })
    };
    Page {
        title: "Ping-pong of messages that are packed into blocks of a pool".to_owned(),
        notes: vec![
            "Elements are packed into a block, sent, received into another block and unpacked. Lines: medians of half round \
             trips; bars: minimum to p99. Lower is better."
                .to_owned(),
            "magazine: the default pool; buddy: without thread caches; buddy-eager: buddy that merges at each free; buddy1, buddy2: \
             those of the mpjbuf paper; unpooled: new memory from the storage each time."
                .to_owned(),
        ],
        columns: storages.len().min(2),
        is_one_scale: true,
        panels: storages.iter().map(panel).collect(),
        ..Page::default()
    }
}
