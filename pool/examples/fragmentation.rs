//! Models the memory cost of cached blocks: the size of regions for the mix of `mpj-perf pools`.
//!
//! 256 blocks of 64 B to 8 MiB are live; each step frees a random block and allocates another. Blocks above 128 KiB are
//! runs of 256 KiB units in regions; smaller blocks share units. Up to a budget, a freed run is kept for a request of
//! two thirds to all of its size. Kept runs are returned before regions grow. Printed for 40 streams: bytes of regions
//! ÷ peak of live bytes, and the share of requests for runs that kept runs served.
#![allow(clippy::print_stdout, reason = "a program")]

mod stream;
use stream::Random;

const UNIT: usize = 256 << 10;
const STREAMS: u64 = 40;

#[derive(Clone, Copy, PartialEq, Debug)]
enum Fit {
    First,
    Best,
}

#[derive(Clone, Copy, PartialEq, Debug)]
enum Growth {
    /// 1, 2, 4, 8 MiB, then 16 MiB each; more if the run that is needed is longer.
    Regions,
    /// One address range, which grows by multiples of 4 MiB.
    Range,
}

/// (region, first unit, number of units)
type Run = (usize, usize, usize);

struct Regions {
    taken: Vec<Vec<bool>>,
    fit: Fit,
    growth: Growth,
}

impl Regions {
    fn bytes(&self) -> usize {
        self.taken.iter().map(|region| region.len() * UNIT).sum()
    }

    fn mark(&mut self, (region, at, units): Run, taken: bool) {
        self.taken[region][at..at + units].fill(taken);
    }

    fn take(&mut self, units: usize) -> Option<Run> {
        let mut best: Option<(usize, Run)> = None;
        for (number, region) in self.taken.iter().enumerate() {
            let mut at = 0;
            for same in region.chunk_by(|a, b| a == b) {
                let fits = !same[0] && same.len() >= units;
                if fits && best.is_none_or(|(len, _)| self.fit == Fit::Best && same.len() < len) {
                    best = Some((same.len(), (number, at, units)));
                }
                at += same.len();
            }
        }
        let run = best?.1;
        self.mark(run, true);
        Some(run)
    }

    fn get(&mut self, units: usize, kept: &mut Vec<(usize, Run)>) -> Run {
        loop {
            if let Some(run) = self.take(units) {
                return run;
            }
            if kept.is_empty() {
                self.grow(units);
            }
            kept.drain(..).for_each(|(_, run)| self.mark(run, false));
        }
    }

    fn grow(&mut self, units: usize) {
        const MIB: usize = (1 << 20) / UNIT;
        match self.growth {
            Growth::Regions => {
                let last = self.taken.last().map_or(0, Vec::len);
                let next = (last * 2).clamp(MIB, 16 * MIB).max(units.next_power_of_two());
                self.taken.push(vec![false; next]);
            }
            Growth::Range => {
                self.taken.resize(1, Vec::new());
                let range = &mut self.taken[0];
                let free = range.iter().rev().take_while(|taken| !**taken).count();
                range.resize(range.len() + (units - free.min(units)).next_multiple_of(4 * MIB), false);
            }
        }
    }
}

/// The size of a block, and its run of units, which is `None` if the block shares a unit.
type Block = (usize, Option<Run>);

fn simulate(seed: u64, (fit, growth): (Fit, Growth), budget: impl Fn(usize) -> usize) -> (f64, f64) {
    let mut random = Random(seed);
    let mut regions = Regions { taken: Vec::new(), fit, growth };
    let mut live: Vec<Option<(usize, Block)>> = vec![None; 256];
    let mut kept: Vec<(usize, Run)> = Vec::new();
    let (mut live_bytes, mut peak, mut small, mut shared) = (0, 0, 0, 0);
    let (mut hits, mut runs) = (0, 0);
    for step in 0..256 + 8192 {
        let (slot, requested) = (if step < 256 { step } else { random.below(256) }, random.size());
        if let Some((bytes, (size, run))) = live[slot].take() {
            live_bytes -= bytes;
            let held: usize = kept.iter().map(|(size, _)| size).sum();
            match run {
                None => small -= size,
                Some(run) if held + size <= budget(regions.bytes()) => kept.push((size, run)),
                Some(run) => regions.mark(run, false),
            }
        }
        live_bytes += requested;
        peak = peak.max(live_bytes);
        let size = class(requested);
        let block = if size <= UNIT / 2 {
            small += size;
            while small > shared {
                regions.get(1, &mut kept);
                shared += UNIT;
            }
            (size, None)
        } else {
            runs += 1;
            let fits = |(_, (kept, _)): &(usize, &(usize, Run))| (size..=size * 3 / 2).contains(kept);
            let found = kept.iter().enumerate().filter(fits).min_by_key(|(_, (size, _))| *size);
            match found.map(|(index, _)| index) {
                Some(index) => {
                    hits += 1;
                    let (size, run) = kept.remove(index);
                    (size, Some(run))
                }
                None => (size, Some(regions.get(size.div_ceil(UNIT), &mut kept))),
            }
        };
        live[slot] = Some((requested, block));
    }
    (regions.bytes() as f64 / peak as f64, f64::from(hits) / f64::from(runs))
}

fn class(len: usize) -> usize {
    if len <= 256 {
        return len.next_power_of_two().max(64);
    }
    len.next_multiple_of((1 << (len - 1).ilog2()) / 4)
}

fn main() {
    println!(
        "{:28} {:>8} {:>8}  regions / live: mean, least, most   served by kept runs",
        "cached", "fit", "growth"
    );
    type Budget = fn(usize) -> usize;
    let budgets: [(&str, Budget); 3] = [
        ("nothing", |_| 0),
        ("8 MiB", |_| 8 << 20),
        ("8 MiB and 1/4 of regions", |regions| (8 << 20) + regions / 4),
    ];
    for (keeps, budget) in budgets {
        for growth in [Growth::Regions, Growth::Range] {
            for fit in [Fit::First, Fit::Best] {
                let all: Vec<_> = (1..=STREAMS).map(|seed| simulate(seed, (fit, growth), budget)).collect();
                let mean = |of: fn(&(f64, f64)) -> f64| all.iter().map(of).sum::<f64>() / all.len() as f64;
                let least = all.iter().map(|one| one.0).fold(f64::MAX, f64::min);
                let most = all.iter().map(|one| one.0).fold(0.0, f64::max);
                println!(
                    "{keeps:28} {:>8} {:>8}  {:.2}  {least:.2}  {most:.2}  {:.2}",
                    format!("{fit:?}"),
                    format!("{growth:?}"),
                    mean(|one| one.0),
                    mean(|one| one.1)
                );
            }
        }
    }
}
