//! Prints the time and memory of pools: `cargo run --release -p mpj-pool --example pool_timings`.
//!
//! Each time is the mean per call in the fastest of several batches, in nanoseconds, and includes the loop; the last
//! line is one run, in milliseconds. Blocks are at most 512 KiB long in the column "two threads", and at most 1 MiB in
//! the columns "handed over".
#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::hint::black_box;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use mpj_pool::{AllocError, Buddy, Growth, Magazine, Pages, Pool, RawBuffer, Storage};

mod stream;
use stream::Random;

fn fastest_mean(
    batches: u32,
    calls: u32,
    mut call: impl FnMut() -> Result<(), AllocError>,
) -> Result<f64, AllocError> {
    let mut least = f64::INFINITY;
    for _ in 0..batches {
        let start = Instant::now();
        for _ in 0..calls {
            call()?;
        }
        least = least.min(start.elapsed().as_nanos() as f64 / f64::from(calls));
    }
    Ok(least)
}

fn one_block<P: Pool>(pool: &P, size: usize) -> Result<f64, AllocError> {
    fastest_mean(25, 100_000, || {
        let mut block = pool.alloc(black_box(size))?;
        block.as_uninit_mut()[0].write(1);
        black_box(block.as_ptr());
        Ok(())
    })
}

/// The time of a free and an allocation among 256 live blocks, the share of hits, and the memory.
struct Mix {
    time: f64,
    hits: f64,
    /// Peak of live and cached bytes / peak of requested bytes.
    blocks_ratio: f64,
    /// Bytes of all regions / peak of requested bytes.
    regions_ratio: f64,
}

fn mix<P: Pool>(pool: &P) -> Result<Mix, AllocError> {
    let mut random = Random(1);
    let sizes: Vec<usize> = (0..1 << 16).map(|_| random.size()).collect();
    let mut live = (0..256).map(|at| pool.alloc(sizes[at]).map(Some)).collect::<Result<Vec<_>, _>>()?;
    let mut held: Vec<usize> = sizes[..256].to_vec();
    let mut need: usize = held.iter().sum();
    let (mut peak, mut at) = (need, 256);
    for _ in 0..1 << 16 {
        let (size, slot) = (sizes[at & 0xffff], random.below(256));
        live[slot] = None;
        live[slot] = Some(pool.alloc(size)?);
        need = need - held[slot] + size;
        held[slot] = size;
        peak = peak.max(need);
        at += 1;
    }
    let before = pool.stats();
    let time = fastest_mean(15, 1 << 16, || {
        let (size, slot) = (sizes[at & 0xffff], &mut live[random.below(256)]);
        at += 1;
        *slot = None;
        let mut block = pool.alloc(black_box(size))?;
        block.as_uninit_mut()[0].write(1);
        *slot = Some(block);
        Ok(())
    })?;
    let after = pool.stats();
    Ok(Mix {
        time,
        hits: (after.hits - before.hits) as f64 / (after.allocs - before.allocs) as f64,
        blocks_ratio: before.peak_bytes as f64 / peak as f64,
        regions_ratio: before.region_bytes as f64 / peak as f64,
    })
}

/// Returns the time of the slower of two threads, each with 16 live blocks of `size` bytes.
fn two_threads<P: Pool>(pool: &P, size: usize) -> Result<f64, AllocError> {
    let run = |seed| {
        let mut random = Random(seed);
        let mut live = (0..16).map(|_| pool.alloc(size)).collect::<Result<Vec<_>, _>>()?;
        fastest_mean(25, 100_000, || {
            // Index first: if the bounds check followed the allocation, its panic path would include code that drops
            // the block.
            let slot = &mut live[random.below(16)];
            *slot = pool.alloc(black_box(size))?;
            Ok(())
        })
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| run(2));
        let here = run(3)?;
        other.join().map_or(Ok(here), |there| there.map(|there| here.max(there)))
    })
}

const RING: usize = 64;

#[derive(Default)]
#[repr(align(128))]
struct Counter(AtomicUsize);

/// One thread creates values and passes them through a ring to another, which drops them. Returns the time per value.
fn ring<T: Send>(make: impl Fn() -> Result<T, AllocError>) -> Result<f64, AllocError> {
    const COUNT: usize = 400_000;
    let slots: Vec<std::sync::Mutex<Option<T>>> = (0..RING).map(|_| std::sync::Mutex::new(None)).collect();
    let (given, taken) = (Counter::default(), Counter::default());
    let wait = |counter: &Counter, least: usize| {
        let mut rounds = 0u32;
        while counter.0.load(Ordering::Acquire) < least {
            rounds += 1;
            if rounds.is_multiple_of(256) { std::thread::yield_now() } else { std::hint::spin_loop() }
        }
    };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for at in 0..COUNT {
                wait(&given, at + 1);
                drop(slots[at % RING].lock().map(|mut slot| slot.take()));
                taken.0.store(at + 1, Ordering::Release);
            }
        });
        let (mut start, mut least) = (Instant::now(), f64::INFINITY);
        let mut failed = None;
        for at in 0..COUNT {
            wait(&taken, (at + 1).saturating_sub(RING));
            // The other thread waits for all values, even after an error.
            let value = make().map_err(|error| failed = Some(error)).ok();
            if let Ok(mut slot) = slots[at % RING].lock() {
                *slot = value;
            }
            given.0.store(at + 1, Ordering::Release);
            if (at + 1).is_multiple_of(20_000) {
                least = least.min(start.elapsed().as_nanos() as f64 / 20_000.0);
                start = Instant::now();
            }
        }
        failed.map_or(Ok(least), Err)
    })
}

fn handoff<P: Pool>(pool: &P, size: usize) -> Result<f64, AllocError> {
    ring(|| {
        let mut block = pool.alloc(black_box(size))?;
        block.as_uninit_mut()[0].write(1);
        Ok(block)
    })
}

/// Returns the time to allocate, write and free a block, and the time to write one block again.
fn fill<P: Pool>(pool: &P, size: usize) -> Result<(f64, f64), AllocError> {
    let mut warm = pool.alloc(size)?;
    let again = fastest_mean(15, 20, || {
        black_box(warm.as_uninit_mut()).fill(MaybeUninit::new(1));
        Ok(())
    })?;
    drop(warm);
    let fresh = fastest_mean(15, 20, || {
        let mut block = pool.alloc(black_box(size))?;
        black_box(block.as_uninit_mut()).fill(MaybeUninit::new(1));
        Ok(())
    })?;
    Ok((fresh, again))
}

fn main() -> Result<(), AllocError> {
    let magazine = || Magazine::growing(Growth::default(), Pages::create);
    let buddy = || Buddy::growing(Growth::default(), Pages::create);
    let eager = || Buddy::growing(Growth::default().eager_merge(), Pages::create);
    let empty = ring(|| Ok(Box::new(())))?;
    println!(
        "ns per alloc + free, one at a time                     two threads   handed over ({empty:.0}: the ring alone)"
    );
    println!(
        "{:>9} {:>9} {:>9} {:>9} {:>9}    {:>9}   {:>9} {:>9}",
        "bytes", "magazine", "global", "buddy", "eager", "magazine", "magazine", "buddy"
    );
    for size in [64, 300, 1 << 10, 8 << 10, 64 << 10, 256 << 10, 1 << 20, 3 << 20, 8 << 20] {
        println!(
            "{size:>9} {:>9.2} {:>9.2} {:>9.1} {:>9.1}    {:>9.2}   {:>9.1} {:>9.1}",
            one_block(&magazine(), size)?,
            one_block(mpj_pool::global(), size)?,
            one_block(&buddy(), size)?,
            one_block(&eager(), size)?,
            two_threads(&magazine(), size.min(512 << 10))?,
            handoff(&magazine(), size.min(1 << 20))?,
            handoff(&buddy(), size.min(1 << 20))?,
        );
    }
    println!(
        "\n256 live blocks, 64 B to 8 MiB: ns per free + alloc, share of hits, \
         peak block bytes / peak requested bytes, region bytes / peak requested bytes"
    );
    for largest in [16 << 20, 64 << 20] {
        let growth = Growth::default().max_region(largest);
        for (name, mix) in [
            ("magazine", mix(&Magazine::growing(growth, Pages::create))?),
            ("buddy", mix(&Buddy::growing(growth, Pages::create))?),
        ] {
            let Mix { time, hits, blocks_ratio, regions_ratio } = mix;
            let (mib, hits) = (largest >> 20, hits * 100.0);
            println!(
                "{name:>9}, regions up to {mib} MiB {time:>8.1} {hits:>7.1} % {blocks_ratio:>7.2} \
                 {regions_ratio:>7.2}"
            );
        }
    }
    println!();
    for size in [64 << 10, 1 << 20, 8 << 20] {
        let (fresh, again) = fill(&magazine(), size)?;
        println!(
            "{size:>9} bytes: alloc, write all, free {fresh:.0} ns; write all {again:.0} ns; ratio {:.2}",
            fresh / again
        );
    }
    let start = Instant::now();
    let pages = Pages::create(64 << 20);
    let millis = start.elapsed().as_secs_f64() * 1e3;
    if let Ok(pages) = pages {
        println!("{} MiB of pages in {millis:.2} ms, {:?}", pages.size() >> 20, pages.backing());
    }
    Ok(())
}
