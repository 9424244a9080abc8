//! Pools and other allocators: figure 8 of the mpjbuf paper, and the patterns of servers and simulations.
//!
//! All contenders run interleaved in one process, except that each contender's memory is measured in its own process.
//! Times are medians of the rounds, and ratios medians of the rounds' ratios.

use std::path::PathBuf;

use indicatif::ProgressBar;

use self::contender::{Contender, Name};
use self::helper_thread::HelperThread;
use self::memory::Peak;
use self::rounds::Series;
use super::Failure;
use super::affinity;
use super::interleaved::Effort;
use super::report::progress;

mod baselines;
mod contender;
#[allow(unsafe_code, reason = "calls allocators, which free by pointer")]
mod heaps;
mod helper_thread;
mod memory;
#[cfg(feature = "comparators")]
#[allow(unsafe_code, reason = "passes memory to allocators, and gets pointers from them")]
mod others;
mod ours;
mod patterns;
mod plot;
mod report;
mod rounds;
mod stream;

pub(crate) use self::patterns::AllocPattern;
pub(super) use self::report::{lines, size};

#[derive(Debug)]
pub(crate) struct PoolOptions {
    pub(crate) tests: Vec<AllocPattern>,
    /// The time to measure each contender in each round, in milliseconds.
    pub(crate) ms: f64,
    pub(crate) rounds: usize,
    pub(crate) csv: bool,
    pub(crate) svg: Option<PathBuf>,
}

pub(crate) fn run(options: &PoolOptions) -> Result<(), Failure> {
    let effort = Effort { slice_ns: options.ms * 1e6, rounds: options.rounds };
    let plan: Vec<(AllocPattern, usize)> = options
        .tests
        .iter()
        .flat_map(|pattern| pattern.sizes().into_iter().map(|bytes| (*pattern, bytes)))
        .collect();
    let memory: Vec<Name> =
        if options.tests.contains(&AllocPattern::Mix) { names().collect() } else { Vec::new() };
    let bar = progress(plan.len() + memory.len());
    if options.csv {
        report::lines(head(options))?;
    }
    let peaks = peaks(&memory, &bar)?;
    let mut contenders = Vec::new();
    for name in names() {
        contenders.push(make(name, true)?);
    }
    #[cfg(feature = "comparators")]
    contenders.extend(others::fixed());
    contenders.extend(baselines::all()?);
    affinity::bind_to_core(0, 1);
    let all = std::thread::scope(|scope| {
        let helper = HelperThread::start(scope, &contenders);
        let mut all: Vec<Series> = Vec::new();
        for (index, (pattern, bytes)) in plan.iter().copied().enumerate() {
            bar.set_message(pattern.name());
            if helper.is_none() && pattern.needs_two_threads() {
                bar.inc(1);
                continue;
            }
            all.push(rounds::measure(&contenders, (pattern, bytes), effort, helper.as_ref()));
            bar.inc(1);
            let is_last = plan.get(index + 1).is_none_or(|(next, _)| *next != pattern);
            let lines = match all.last() {
                Some(series) if options.csv => report::csv(series),
                Some(_) if is_last => report::table(pattern, &all),
                _ => Vec::new(),
            };
            bar.suspend(|| report::lines(lines))?;
        }
        Ok::<_, Failure>(all)
    })?;
    bar.finish_and_clear();
    report::lines(match options.csv {
        true => peaks.iter().map(|(name, peak)| report::memory_csv(*name, *peak)).collect(),
        false if peaks.is_empty() => Vec::new(),
        false => report::memory_table(&peaks),
    })?;
    if let Some(path) = &options.svg {
        let one: Vec<&Series> = all.iter().filter(|series| series.pattern == AllocPattern::One).collect();
        plot::page(&one, options.rounds).write(path)?;
    }
    Ok(())
}

/// Prints the memory that the mix needs with one contender, in the process that [`memory::of`] starts.
pub(crate) fn print_memory(chosen: &str) -> Result<(), Failure> {
    let name = names().find(|name| chosen.split_once(',') == Some((name.strategy, name.storage)));
    let name = name.ok_or_else(|| format!("no contender {chosen:?}"))?;
    let Peak { live, resident } = memory::measure(|| make(name, false))?;
    report::lines([format!("{live} {resident}")])
}

/// Returns the names of all contenders except pools of one size and baselines.
fn names() -> impl Iterator<Item = Name> {
    #[cfg(feature = "comparators")]
    let others = others::names();
    #[cfg(not(feature = "comparators"))]
    let others = std::iter::empty();
    ours::names().chain([heaps::SYSTEM]).chain(others)
}

fn make(name: Name, prefaulted: bool) -> Result<Box<dyn Contender + Send>, Failure> {
    match name.kind {
        contender::Kind::Ours => Ok(ours::make(name)?),
        _ if name == heaps::SYSTEM => Ok(heaps::system()),
        #[cfg(feature = "comparators")]
        _ => others::make(name, prefaulted),
        #[cfg(not(feature = "comparators"))]
        _ => Err(format!("no contender {name:?}, prefaulted {prefaulted}").into()),
    }
}

fn peaks(names: &[Name], bar: &ProgressBar) -> Result<Vec<(Name, Peak)>, Failure> {
    bar.set_message("memory");
    let peak = |name: &Name| {
        bar.inc(1);
        Ok((*name, memory::of(*name)?))
    };
    names.iter().map(peak).collect()
}

fn head(options: &PoolOptions) -> Vec<String> {
    let build = if cfg!(debug_assertions) { ", a debug build: its figures mean nothing" } else { "" };
    let others = if cfg!(feature = "comparators") {
        ""
    } else {
        "; for other allocators build with --features comparators"
    };
    vec![
        format!("# lib: mpj {}, pure Rust{build}{others}", env!("CARGO_PKG_VERSION")),
        format!(
            "# medians of {} rounds, {} ms per contender and round, interleaved in one process",
            options.rounds, options.ms
        ),
        "# POOL,test,strategy,storage,bytes,ns,ratio_to_best_other".to_owned(),
        "# POOLMEM,test,strategy,storage,live_bytes,peak_bytes,peak_to_live".to_owned(),
    ]
}
