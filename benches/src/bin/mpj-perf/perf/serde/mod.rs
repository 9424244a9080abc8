//! Codecs of objects in the dynamic part of a message, and other serializers.

use std::hint::black_box;
use std::path::PathBuf;

use mpj_buffer::Raw;

use super::Failure;
use super::affinity;
use super::interleaved::{Candidate, Effort, median, ratio, run_interleaved, spread};
use super::report::progress;
use super::stats::now_ns;

#[cfg(feature = "comparators")]
mod others;
mod ours;
mod report;
pub(super) mod values;

#[derive(Debug)]
pub(crate) struct SerdeOptions {
    /// The time to measure each codec in each round, in milliseconds.
    pub(crate) ms: f64,
    pub(crate) rounds: usize,
    pub(crate) csv: bool,
    pub(crate) svg: Option<PathBuf>,
}

/// The kind of a codec, which determines its comparisons.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// A codec of this project.
    Ours,
    /// Another serializer that uses serde.
    #[cfg_attr(not(feature = "comparators"), allow(dead_code, reason = "all are comparators"))]
    Serde,
    /// Another serializer with its own derive macros.
    #[cfg_attr(not(feature = "comparators"), allow(dead_code, reason = "all are comparators"))]
    Derive,
    /// A copy of the bytes.
    Copy,
}

struct Serializer<'a> {
    name: &'static str,
    kind: Kind,
    bytes: usize,
    encode: Box<dyn FnMut() -> Option<()> + 'a>,
    decode: Box<dyn FnMut() -> Option<()> + 'a>,
}

impl<'a> Serializer<'a> {
    fn new(
        name: &'static str,
        kind: Kind,
        bytes: usize,
        encode: impl FnMut() -> Option<()> + 'a,
        decode: impl FnMut() -> Option<()> + 'a,
    ) -> Serializer<'a> {
        Serializer { name, kind, bytes, encode: Box::new(encode), decode: Box::new(decode) }
    }
}

#[derive(Debug)]
struct Row {
    name: &'static str,
    kind: Kind,
    bytes: usize,
    ns: f64,
    /// The minimum and the maximum of the rounds.
    spread: (f64, f64),
    /// The ratios to the best other serializer that uses serde, to the best other serializer, and to the copy.
    to_serde: Option<f64>,
    to_best: Option<f64>,
    to_copy: Option<f64>,
}

#[derive(Debug)]
struct Series {
    value: &'static str,
    direction: &'static str,
    rows: Vec<Row>,
}

pub(crate) fn run(options: &SerdeOptions) -> Result<(), Failure> {
    affinity::bind_to_core(0, 1);
    let (numbers, mesh, records) = (values::numbers(), values::mesh(), values::records());
    let marked = Raw(&numbers[..]);
    let mut cases =
        [("100k f64", ours::all(&numbers)?), ("mesh", ours::all(&mesh)?), ("records", ours::all(&records)?)];
    cases[0].1.insert(0, ours::raw(&numbers, &marked)?);
    #[cfg(feature = "comparators")]
    for (serializers, others) in cases.iter_mut().zip([
        others::of_numbers(&numbers)?,
        others::of_mesh(&mesh)?,
        others::of_records(&records)?,
    ]) {
        serializers.1.extend(others);
    }
    let bar = progress(2 * cases.len());
    let mut all = Vec::new();
    report::lines(report::head(options))?;
    for (value, serializers) in &mut cases {
        bar.set_message(*value);
        // The copy has the size of the shortest encoding.
        serializers.push(copy(serializers.iter().map(|serializer| serializer.bytes).min().unwrap_or(0)));
        for direction in ["encode", "decode"] {
            let series = measure(value, direction, serializers, options);
            bar.inc(1);
            bar.suspend(|| report::lines(if options.csv { series.csv() } else { series.table() }))?;
            all.push(series);
        }
    }
    bar.finish_and_clear();
    options.svg.as_ref().map_or(Ok(()), |path| report::page(&all, options.rounds).write(path))
}

/// Returns a baseline: `encode` copies `bytes` bytes into existing memory, `decode` copies them into a new vector.
fn copy<'a>(bytes: usize) -> Serializer<'a> {
    let from = vec![1u8; bytes];
    let again = from.clone();
    let mut to = vec![0u8; bytes];
    let encode = move || {
        to.copy_from_slice(black_box(&from));
        black_box(&mut to);
        Some(())
    };
    let decode = move || {
        drop(black_box(black_box(&again).clone()));
        Some(())
    };
    Serializer::new("memcpy", Kind::Copy, bytes, encode, decode)
}

fn measure(
    value: &'static str,
    direction: &'static str,
    serializers: &mut [Serializer<'_>],
    options: &SerdeOptions,
) -> Series {
    let about: Vec<_> =
        serializers.iter().map(|serializer| (serializer.name, serializer.kind, serializer.bytes)).collect();
    let mut candidates: Vec<Candidate<'_>> =
        serializers.iter_mut().map(|serializer| candidate(serializer, direction)).collect();
    let rounds =
        run_interleaved(&mut candidates, Effort { slice_ns: options.ms * 1e6, rounds: options.rounds });
    let rounds: Vec<_> =
        about.iter().zip(&rounds).filter_map(|(about, ns)| Some((*about, ns.as_ref()?))).collect();
    let best = |name: &str, kinds: &[Kind]| {
        let others = rounds.iter().filter(|((other, kind, _), _)| *other != name && kinds.contains(kind));
        others
            .map(|(_, ns)| *ns)
            .min_by(|a, b| median(a.iter().copied()).total_cmp(&median(b.iter().copied())))
    };
    let row = |((name, kind, bytes), ns): &((&'static str, Kind, usize), &Vec<f64>)| {
        let to = |kinds: &[Kind]| {
            best(name, kinds).filter(|_| *kind != Kind::Copy).map(|theirs| ratio(ns, theirs))
        };
        Row {
            name,
            kind: *kind,
            bytes: *bytes,
            ns: median(ns.iter().copied()),
            spread: spread(ns),
            to_serde: to(&[Kind::Serde]),
            to_best: to(&[Kind::Serde, Kind::Derive]),
            to_copy: to(&[Kind::Copy]),
        }
    };
    Series { value, direction, rows: rounds.iter().map(row).collect() }
}

fn candidate<'a>(serializer: &'a mut Serializer<'_>, direction: &str) -> Candidate<'a> {
    let call = if direction == "encode" { &mut serializer.encode } else { &mut serializer.decode };
    let run = move |calls| {
        let start = now_ns();
        for _ in 0..calls {
            call()?;
        }
        Some(now_ns() - start)
    };
    Candidate { run: Box::new(run), calls_unit: 1, warmup_runs: 3 }
}
