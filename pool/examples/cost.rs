//! Prints what pools cost in time and memory: `cargo run --release -p mpj-pool --example cost`.
#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::hint::black_box;
use std::sync::mpsc::sync_channel;
use std::time::Instant;

use mpj_pool::{AllocError, Buddy, Growth, Magazine, Pages, Pool, RawBuffer};

/// Returns the least of some batches' mean time of a call, in nanoseconds.
fn least(calls: u32, mut call: impl FnMut() -> Result<(), AllocError>) -> Result<f64, AllocError> {
    let mut least = f64::INFINITY;
    for _ in 0..15 {
        let start = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        least = least.min(start.elapsed().as_nanos() as f64 / f64::from(calls));
    }
    Ok(least)
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (((self.0 >> 32) * end as u64) >> 32) as usize
    }

    /// 64 B to 8 MiB, mostly small: 64 · 2^(17 u³).
    fn size(&mut self) -> usize {
        let u = self.below(1 << 24) as f64 / (1 << 24) as f64;
        (64.0 * (17.0 * u * u * u).exp2()) as usize
    }
}

/// One block at a time, of each size.
fn one<P: Pool>(pool: &P, size: usize) -> Result<f64, AllocError> {
    least(200_000, || {
        let mut block = pool.alloc(black_box(size))?;
        block.as_uninit_mut()[0].write(1);
        drop(black_box(block));
        Ok(())
    })
}

/// 256 live blocks of sizes at random; returns the time of a free and an allocation, and peak memory over peak need.
fn mix<P: Pool>(pool: &P) -> Result<(f64, f64, f64), AllocError> {
    let mut random = Random(1);
    let sizes: Vec<usize> = (0..1 << 16).map(|_| random.size()).collect();
    let mut live = (0..256).map(|at| pool.alloc(sizes[at])).collect::<Result<Vec<_>, _>>()?;
    let mut need: usize = sizes[..256].iter().sum();
    let mut held: Vec<usize> = sizes[..256].to_vec();
    let (mut peak_need, mut at) = (need, 256);
    // Once outside of the clock, to see the memory.
    for _ in 0..1 << 16 {
        let (size, place) = (sizes[at & 0xffff], random.below(256));
        drop(live.swap_remove(place));
        live.push(pool.alloc(size)?);
        held.swap(place, 255);
        let place = 255;
        need = need - held[place] + size;
        held[place] = size;
        peak_need = peak_need.max(need);
        at += 1;
    }
    let stats = pool.stats();
    let time = least(1 << 16, || {
        let (size, place) = (sizes[at & 0xffff], random.below(256));
        at += 1;
        live[place] = pool.alloc(black_box(size))?;
        live[place].as_uninit_mut()[0].write(1);
        Ok(())
    })?;
    let peak = peak_need as f64;
    Ok((time, stats.peak_granted as f64 / peak, stats.region_bytes as f64 / peak))
}

/// Two threads, each with 16 live blocks of one size.
fn two<P: Pool>(pool: &P, size: usize) -> Result<f64, AllocError> {
    let run = |seed| {
        let mut random = Random(seed);
        let mut live = (0..16).map(|_| pool.alloc(size)).collect::<Result<Vec<_>, _>>()?;
        least(100_000, || {
            live[random.below(16)] = pool.alloc(black_box(size))?;
            Ok(())
        })
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(2));
        let here = run(3)?;
        other.join().map_or(Ok(here), |there| there.map(|there| f64::midpoint(here, there)))
    })
}

/// One thread allocates, another frees, through a channel of 64 places; less what the channel takes with empty boxes.
fn handoff<P: Pool>(pool: &P, size: usize) -> Result<f64, AllocError> {
    const BATCH: usize = 32;
    let (give, take) = sync_channel::<Vec<P::Block>>(4);
    let (back, again) = sync_channel::<Vec<P::Block>>(8);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for mut blocks in take {
                blocks.clear();
                if back.send(blocks).is_err() {
                    break;
                }
            }
        });
        let mut spare: Vec<Vec<P::Block>> = (0..6).map(|_| Vec::with_capacity(BATCH)).collect();
        least(1000, || {
            let mut blocks = spare.pop().or_else(|| again.recv().ok()).unwrap_or_default();
            for _ in 0..BATCH {
                let mut block = pool.alloc(black_box(size))?;
                block.as_uninit_mut()[0].write(1);
                blocks.push(block);
            }
            let _ = give.send(blocks);
            Ok(())
        })
        .inspect(|_| drop(give))
        .map(|time| time / BATCH as f64)
    })
}

fn main() -> Result<(), AllocError> {
    let magazine = || Magazine::growing(Growth::default(), Pages::create);
    let buddy = || Buddy::growing(Growth::default(), Pages::create);
    println!("ns per alloc + free   one at a time       two threads          handed over, 32 at a time");
    println!(
        "{:>9} {:>10} {:>8} {:>10} {:>8} {:>14} {:>8}",
        "bytes", "magazine", "buddy", "magazine", "buddy", "magazine", "buddy"
    );
    for size in [64, 300, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 3 << 20, 8 << 20] {
        println!(
            "{size:>9} {:>10.2} {:>8.1} {:>10.2} {:>8.1} {:>14.1} {:>8.1}",
            one(&magazine(), size)?,
            one(&buddy(), size)?,
            two(&magazine(), size)?,
            two(&buddy(), size)?,
            if size > 1 << 20 { f64::NAN } else { handoff(&magazine(), size)? },
            if size > 1 << 20 { f64::NAN } else { handoff(&buddy(), size)? },
        );
    }
    println!(
        "256 live blocks, 64 B to 8 MiB: ns per free + alloc, peak of blocks and of regions over peak of requests"
    );
    for largest in [16 << 20, 32 << 20, 64 << 20] {
        let growth = Growth::default().largest(largest);
        let (time, blocks, regions) = mix(&Magazine::growing(growth, Pages::create))?;
        println!(
            " magazine, regions up to {:>3} MiB {time:>8.1} {blocks:>8.2} {regions:>8.2}",
            largest >> 20
        );
        let (time, blocks, regions) = mix(&Buddy::growing(growth, Pages::create))?;
        println!(
            " buddy,    regions up to {:>3} MiB {time:>8.1} {blocks:>8.2} {regions:>8.2}",
            largest >> 20
        );
    }
    Ok(())
}
