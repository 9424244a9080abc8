//! Ping-pong with the same, rotating, freshly written and fully used buffers; message rate; bandwidth in one and both
//! directions. Follows the C program `pingpong.c` (see [`super`]).

use std::hint::black_box;
use std::path::Path;

use mpj::{Error, Intracomm, World};

use super::Failure;
use super::memory::{PAGE, Pages};
use super::paths::memcpy;
use super::plot::{Curve, CurveStyle, LegendEntry, Lines, Page, Panel, Point, Scale};
use super::report::Report;
use super::stats::{now_ns, quantile, quantile_f64, repeats};
use super::words::{read_all, write_all};

const SIZES: [usize; 18] = [
    0, 1, 8, 64, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536, 131_072, 262_144, 524_288, 1_048_576,
    4_194_304, 16_777_216,
];
const WINDOW_SIZES: [usize; 6] = [1024, 8192, 65536, 262_144, 1_048_576, 4_194_304];
const RATE_WINDOWS: [usize; 3] = [1, 8, 64];
const RATE_BYTES: usize = 8;
/// The shortest message of the variant `used`.
const USED_MIN: usize = 64;
const MEBI: usize = 1 << 20;
/// 1 TiB.
const MAX_MIB: usize = MEBI;

#[derive(Clone, Copy, Debug)]
pub(crate) struct PingpongOptions {
    /// The time to measure each point, in milliseconds.
    pub(crate) ms: f64,
    pub(crate) max_bytes: usize,
    /// Size of each of the two memories in which buffers rotate.
    pub(crate) rotate_mib: usize,
}

impl PingpongOptions {
    fn rows(&self) -> usize {
        let up_to_limit = |sizes: &[usize], min: usize| {
            sizes.iter().filter(|bytes| (min..=self.max_bytes).contains(*bytes)).count()
        };
        let single: usize = [0, 1, PAGE, USED_MIN].into_iter().map(|min| up_to_limit(&SIZES, min)).sum();
        single + RATE_WINDOWS.len() + 1 + 2 * up_to_limit(&WINDOW_SIZES, 0)
    }

    /// Returns why these options are invalid, if they are.
    pub(crate) fn rejection(&self) -> Option<String> {
        let windows = WINDOW_SIZES.into_iter().filter(|b| *b <= self.max_bytes).map(|b| b * window(b));
        let single = SIZES.into_iter().filter(|b| *b <= self.max_bytes).map(|b| stride(b).max(b));
        let needed = windows.chain(single).fold(RATE_BYTES * 64, usize::max).div_ceil(MEBI);
        if self.rotate_mib < needed {
            return Some(format!(
                "messages of up to {} bytes need {needed} MiB of rotating memory",
                self.max_bytes
            ));
        }
        (self.rotate_mib > MAX_MIB).then(|| format!("expected at most {MAX_MIB} MiB of rotating memory"))
    }
}

fn window(bytes: usize) -> usize {
    if bytes >= MEBI { 16 } else { 64 }
}

/// Returns the distance between rotating buffers, chosen so that buffers below 1 MiB are spread over the cache sets.
fn stride(bytes: usize) -> usize {
    if bytes >= MEBI { bytes } else { (bytes + PAGE + 64).next_multiple_of(PAGE) + 64 }
}

fn write_lines(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().step_by(64) {
        *byte = byte.wrapping_add(1);
    }
    black_box(bytes);
}

#[derive(Clone, Copy, Debug)]
struct Variant {
    name: &'static str,
    bytes: usize,
    stride: usize,
    buffers: usize,
    access: Access,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Access {
    None,
    /// The sender writes each cache line before each send.
    WriteLines,
    /// The sender writes every word before each send, and the receiver reads every word.
    WriteAndRead,
}

#[derive(Debug)]
struct PingPong<'a> {
    world: &'a Intracomm,
    is_leader: bool,
    other: usize,
    report: &'a Report,
    send: Pages<u8>,
    recv: Pages<u8>,
    budget_ns: f64,
    round: u64,
}

pub(crate) fn run(world: &World, options: PingpongOptions, svg: Option<&Path>) -> Result<(), Failure> {
    let report = Report::begin(world, options.rows())?;
    let (is_leader, rotate_bytes) = (world.rank() == 0, options.rotate_mib.saturating_mul(MEBI));
    let (send, recv) = (Pages::filled(rotate_bytes, 1)?, Pages::filled(rotate_bytes, 2)?);
    let budget_ns = options.ms * 1e6;
    let mut bench = PingPong {
        world,
        is_leader,
        other: usize::from(is_leader),
        report: &report,
        send,
        recv,
        budget_ns,
        round: 0,
    };

    let sizes = || SIZES.into_iter().filter(|bytes| *bytes <= options.max_bytes);
    let [mut same, mut rotating, mut fresh, mut used] = std::array::from_fn(|_| Vec::new());
    for bytes in sizes() {
        let variant = Variant { name: "same", bytes, stride: 0, buffers: 1, access: Access::None };
        same.push(bench.pingpong(variant)?);
    }
    for bytes in sizes().filter(|bytes| *bytes > 0) {
        let stride = stride(bytes);
        let variant =
            Variant { name: "rot", bytes, stride, buffers: rotate_bytes / stride, access: Access::None };
        rotating.push(bench.pingpong(variant)?);
    }
    for bytes in sizes().filter(|bytes| *bytes >= PAGE) {
        let variant = Variant { name: "fresh", bytes, stride: 0, buffers: 1, access: Access::WriteLines };
        fresh.push(bench.pingpong(variant)?);
    }
    for bytes in sizes().filter(|bytes| *bytes >= USED_MIN) {
        let variant = Variant { name: "used", bytes, stride: 0, buffers: 1, access: Access::WriteAndRead };
        used.push(bench.pingpong(variant)?);
    }
    for window in RATE_WINDOWS {
        bench.bandwidth("", RATE_BYTES, window, false)?;
    }
    bench.bandwidth("", RATE_BYTES, 64, true)?;
    let mut rates = [Vec::new(), Vec::new()];
    for ((tag, both), rates) in [("BW", false), ("BIBW", true)].into_iter().zip(&mut rates) {
        for bytes in WINDOW_SIZES.into_iter().filter(|bytes| *bytes <= options.max_bytes) {
            rates.push(bench.bandwidth(tag, bytes, window(bytes), both)?);
        }
    }
    let mut copies = Vec::new();
    for bytes in WINDOW_SIZES.into_iter().filter(|bytes| *bytes <= options.max_bytes && svg.is_some()) {
        let Point { x, y, low, high } = memcpy(bytes, options.ms)?;
        copies.push(Point { x, y: x / y, low: x / high, high: x / low });
    }
    let [one_way, both_ways] = rates;
    report.finish(world, svg, || page([same, rotating, fresh, used], [one_way, both_ways, copies]))
}

const BUFFERS: [(&str, &str); 4] = [
    ("same", "one buffer on each side, which stays in the cache"),
    ("rotating", "another buffer each time, in memory that should exceed the caches"),
    ("freshly written", "one buffer; the sender writes every cache line before each send"),
    ("used", "one buffer; the sender writes every word before each send, and the receiver reads every word"),
];
const RATES: [(&str, &str); 3] = [
    ("one way", "a window of 64 concurrent messages (16 from 1 MiB on), then the receiver replies"),
    ("both ways", "both ranks send and receive such windows concurrently; the sum of both"),
    ("memcpy", "a copy of the same number of bytes within each rank, both ranks at the same time"),
];

fn page(latency: [Vec<Point>; 4], rates: [Vec<Point>; 3]) -> Page {
    let styles = [
        CurveStyle::of(0),
        CurveStyle::of(1),
        CurveStyle::of(2),
        CurveStyle::of(3),
        CurveStyle::of(4),
        CurveStyle::of(5),
        CurveStyle::of(6).with_dashes(2),
    ];
    let (of_latency, of_rates) = styles.split_at(BUFFERS.len());
    let curves = |names: &[(&str, &str)], styles: &[CurveStyle], points: Vec<Vec<Point>>| {
        let all = names.iter().zip(styles).zip(points).filter(|(_, points)| !points.is_empty());
        all.map(|(((name, _), style), points)| Curve { label: (*name).to_owned(), style: *style, points })
            .collect()
    };
    let empty = latency[0].first().filter(|point| point.x == 0.0).map(|point| point.y);
    let in_gb = |points: Vec<Point>| -> Vec<Point> {
        let gb = |Point { x, y, low, high }| Point { x, y: y / 1e3, low: low / 1e3, high: high / 1e3 };
        points.into_iter().map(gb).collect()
    };
    // Limits on the sizes can leave a curve, or all curves of a panel, without a point.
    let has_points = latency.iter().chain(&rates).map(|points| !points.is_empty());
    let meanings = BUFFERS.into_iter().chain(RATES).zip(styles).zip(has_points);
    let legend = meanings.filter(|(_, has_points)| *has_points);
    let entry = |(((name, explanation), style), _)| LegendEntry { style, name, explanation };
    let legend = legend.map(entry).collect();
    let has_curves = |panel: &Panel| matches!(panel, Panel::Lines(lines) if !lines.curves.is_empty());
    let mut page = Page {
        title: "Messages between two ranks".to_owned(),
        notes: vec![
            "Lines: medians. Bars: minimum to p99 of half round trips, minimum to maximum of bandwidths, quartiles of memcpy."
                .to_owned(),
        ],
        legend,
        columns: 2,
        panels: vec![
            Panel::Lines(Lines {
                title: "Latency: half a round trip. Lower is better".to_owned(),
                finding: empty.map_or_else(String::new, |us| format!("An empty message takes {us:.3} µs")),
                x: "size of the message",
                y: "time, µs",
                curves: curves(&BUFFERS, of_latency, latency.into()),
                ..Lines::default()
            }),
            Panel::Lines(Lines {
                title: "Bandwidth of messages in windows. Higher is better".to_owned(),
                x: "size of a message",
                y: "bandwidth, GB/s",
                scale: Scale::Linear,
                curves: curves(&RATES, of_rates, rates.map(in_gb).into()),
                ..Lines::default()
            }),
        ],
        ..Page::default()
    };
    page.panels.retain(has_curves);
    page.columns = page.panels.len();
    page
}

impl PingPong<'_> {
    /// Makes one round trip with the buffers at offset `at`: the leader sends first, the other rank replies.
    #[inline]
    fn round_trip(&mut self, at: usize, variant: Variant) -> Result<(), Error> {
        let Variant { bytes, access, .. } = variant;
        let (world, other) = (self.world, self.other);
        let (send, recv) = (&mut self.send[at..][..bytes], &mut self.recv[at..][..bytes]);
        for sends in [self.is_leader, !self.is_leader] {
            if sends {
                match access {
                    Access::None => (),
                    Access::WriteLines => write_lines(send),
                    Access::WriteAndRead => write_all(send, self.round),
                }
                world.send(send, other, 1)?;
            } else {
                world.recv(recv, other, 1)?;
                if access == Access::WriteAndRead {
                    read_all(recv);
                }
            }
        }
        self.round += 1;
        Ok(())
    }

    fn pingpong(&mut self, variant: Variant) -> Result<Point, Failure> {
        const WARM: usize = 20;
        let mut buffer = 0;
        let mut next = || {
            let at = buffer * variant.stride;
            buffer = if buffer + 1 == variant.buffers { 0 } else { buffer + 1 };
            at
        };
        self.world.barrier()?;
        for _ in 0..3 {
            self.round_trip(next(), variant)?;
        }
        let start = now_ns();
        for _ in 0..WARM {
            self.round_trip(next(), variant)?;
        }
        let estimate = (now_ns() - start) as f64 / WARM as f64;
        let mut iterations = repeats(self.budget_ns, estimate + 1.0, 10, 200_000);
        self.world.bcast(&mut iterations, 0)?;
        let mut times = vec![0u64; iterations as usize];
        self.world.barrier()?;
        for time in &mut times {
            let at = next();
            let start = now_ns();
            self.round_trip(at, variant)?;
            *time = now_ns() - start;
        }
        let Variant { name, bytes, .. } = variant;
        let median = quantile(&mut times, 0.5) / 2e3;
        let (min, p99) = (times[0] as f64 / 2e3, quantile(&mut times, 0.99) / 2e3);
        self.report.note_spread(median, min);
        let rate = bytes as f64 / median;
        self.report
            .row(format_args!("PP,{name},{bytes},{iterations},{median:.3},{min:.3},{p99:.3},{rate:.1}"))?;
        Ok(Point { x: bytes as f64, y: median, low: min, high: p99 })
    }

    /// Sends windows of messages in one or both directions, and returns the seconds that they took.
    fn windows(&mut self, bytes: usize, window: usize, iterations: i64, both: bool) -> Result<f64, Error> {
        let (world, is_leader, other) = (self.world, self.is_leader, self.other);
        let (send, recv) = (&self.send[..bytes * window], &mut self.recv[..bytes * window]);
        let (sends, recvs) = (both || is_leader, both || !is_leader);
        let mut ack = [0u8];
        world.barrier()?;
        let start = now_ns();
        for _ in 0..iterations {
            world.scope(|s| {
                let mut receiving = Vec::with_capacity(if recvs { window } else { 0 });
                let mut sending = Vec::with_capacity(if sends { window } else { 0 });
                if recvs {
                    for buf in recv.chunks_exact_mut(bytes) {
                        receiving.push(s.irecv(buf, other, 2)?);
                    }
                }
                if sends {
                    for buf in send.chunks_exact(bytes) {
                        sending.push(s.isend(buf, other, 2)?);
                    }
                }
                for request in receiving {
                    request.wait()?;
                }
                for request in sending {
                    request.wait()?;
                }
                Ok::<(), Error>(())
            })?;
            if !both {
                if is_leader {
                    world.recv(&mut ack, 1, 3)?;
                } else {
                    world.send(&ack, 0, 3)?;
                }
            }
        }
        Ok((now_ns() - start) as f64 * 1e-9)
    }

    fn bandwidth(&mut self, tag: &str, bytes: usize, window: usize, both: bool) -> Result<Point, Failure> {
        const REPEATS: usize = 5;
        let budget = self.budget_ns * 2.0 * 1e-9;
        let estimate = self.windows(bytes, window, 3, both)? / 3.0;
        let mut iterations = repeats(budget / REPEATS as f64, estimate + 1e-9, 2, 20_000);
        self.world.bcast(&mut iterations, 0)?;
        let moved = if both { 2.0 } else { 1.0 } * (bytes * window) as f64 * iterations as f64;
        let mut rates = [0.0; REPEATS];
        for rate in &mut rates {
            *rate = moved / self.windows(bytes, window, iterations, both)?;
        }
        let median = quantile_f64(&mut rates, 0.5);
        if bytes <= 64 {
            let (kind, best) = (if both { "_BI" } else { "" }, rates[REPEATS - 1]);
            let [median, best] = [median, best].map(|rate| rate / bytes as f64 / 1e6);
            self.report.row(format_args!("RATE{kind},{bytes},{window},{median:.3},{best:.3}"))?;
        } else {
            self.report.row(format_args!("{tag},{bytes},{window},{:.1}", median / 1e6))?;
        }
        let [low, y, high] = [rates[0], median, rates[REPEATS - 1]].map(|rate| rate / 1e6);
        Ok(Point { x: bytes as f64, y, low, high })
    }
}

#[cfg(test)]
mod tests {
    use super::{Page, PingpongOptions, Point, page, stride};

    #[test]
    fn rotating_memory_must_hold_the_largest_message() {
        let rejection =
            |max_bytes, rotate_mib| PingpongOptions { ms: 1.0, max_bytes, rotate_mib }.rejection();
        assert_eq!(rejection(usize::MAX, 64), None);
        assert!(rejection(usize::MAX, 63).is_some());
        assert_eq!(rejection(0, 1), None);
        assert!(rejection(0, 0).is_some());
    }

    #[test]
    fn strides_are_those_of_the_c_program() {
        assert_eq!([1, 8192, 1 << 20].map(stride), [8256, 16448, 1 << 20]);
    }

    #[test]
    fn page_omits_curves_and_panels_without_points() {
        let points = || vec![Point { x: 8.0, y: 1.0, low: 1.0, high: 2.0 }];
        let names = |page: &Page| page.legend.iter().map(|entry| entry.name).collect::<Vec<_>>();
        let short = page([points(), points(), vec![], vec![]], [vec![], vec![], vec![]]);
        assert_eq!((names(&short), short.panels.len()), (vec!["same", "rotating"], 1));
        let all = page(std::array::from_fn(|_| points()), std::array::from_fn(|_| points()));
        assert_eq!((names(&all).len(), all.panels.len(), all.columns), (7, 2, 2));
    }
}
