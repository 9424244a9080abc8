//! Prints the memory of the process in MiB while its live blocks rise and fall between 77 and 768 MiB.
//!
//!   rise_and_fall [SECONDS] [system]
//!
//! Eight threads hold blocks of 64 B to 8 MiB of the global pool, or `Vec`s with `system` (with `LD_PRELOAD`, those of
//! another allocator). One rise and fall takes 20 s. After SECONDS (40 by default) the threads free everything, sleep
//! for 5 s, and end. Printed last: the memory 10 s later, and the mean of the resident memory during SECONDS.
#![allow(clippy::print_stdout, reason = "a program")]

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use mpj_pool::{DefaultBlock, Pool, RawBuffer};

mod stream;
use stream::Random;

const THREADS: usize = 8;
const LEAST: f64 = 77.0 * MIB;
const MOST: f64 = 768.0 * MIB;
const MIB: f64 = (1 << 20) as f64;
const PERIOD: f64 = 20.0;

enum Memory {
    Block(DefaultBlock),
    Vec(Vec<u8>),
}

impl Memory {
    fn new(len: usize, in_pool: bool) -> Memory {
        if in_pool {
            let mut block = mpj_pool::global().alloc(len).expect("out of memory");
            block.as_uninit_mut()[..len].iter_mut().step_by(4096).for_each(|byte| _ = byte.write(1));
            Memory::Block(block)
        } else {
            let mut bytes = Vec::with_capacity(len);
            bytes.spare_capacity_mut().iter_mut().step_by(4096).for_each(|byte| _ = byte.write(1));
            Memory::Vec(bytes)
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Memory::Block(block) => block.capacity(),
            Memory::Vec(bytes) => bytes.capacity(),
        }
    }
}

/// Returns how many bytes are to be live after some time.
fn target(seconds: f64) -> f64 {
    let phase = seconds % PERIOD / PERIOD;
    LEAST + (MOST - LEAST) * (1.0 - (2.0 * phase - 1.0).abs())
}

fn mib(bytes: usize) -> f64 {
    bytes as f64 / MIB
}

fn resident_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kib.unwrap_or(f64::NAN) / 1024.0
}

fn hold(seed: u64, in_pool: bool, start: Instant, end: &AtomicBool, all_live: &AtomicUsize) {
    let (mut random, mut blocks, mut live) = (Random(seed), Vec::<Memory>::new(), 0);
    while !end.load(Ordering::Relaxed) {
        let wanted = target(start.elapsed().as_secs_f64()) as usize / THREADS;
        for _ in 0..16 {
            while live > wanted && !blocks.is_empty() {
                let freed = blocks.swap_remove(random.below(blocks.len()));
                live -= freed.bytes();
                all_live.fetch_sub(freed.bytes(), Ordering::Relaxed);
            }
            let block = Memory::new(random.size(), in_pool);
            live += block.bytes();
            all_live.fetch_add(block.bytes(), Ordering::Relaxed);
            blocks.push(block);
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    drop(blocks);
    all_live.fetch_sub(live, Ordering::Relaxed);
    std::thread::sleep(Duration::from_secs(5));
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(40.0);
    let in_pool = std::env::args().nth(2).is_none();
    let (start, end, live) = (Instant::now(), AtomicBool::new(false), AtomicUsize::new(0));
    let (mut sum, mut count) = (0.0, 0);
    let report = |what: &str| {
        let resident = resident_mib();
        let (live, cached) = (live.load(Ordering::Relaxed), mpj_pool::global().stats().cached_bytes as usize);
        println!("{what:18} {:6.0} live {:6.0} cached {resident:6.0} resident", mib(live), mib(cached));
        resident
    };
    std::thread::scope(|s| {
        let held: Vec<_> = (0..THREADS)
            .map(|thread| {
                s.spawn({
                    let (end, live) = (&end, &live);
                    move || hold(thread as u64 + 1, in_pool, start, end, live)
                })
            })
            .collect();
        while start.elapsed().as_secs_f64() < seconds {
            std::thread::sleep(Duration::from_secs(1));
            sum += report(&format!("{:3.0} s", start.elapsed().as_secs_f64()));
            count += 1;
        }
        end.store(true, Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs(4));
        report("threads sleep");
        held.into_iter().for_each(|thread| thread.join().expect("no thread panics"));
    });
    std::thread::sleep(Duration::from_secs(10));
    report("threads have ended");
    println!("mean resident {:.0} MiB", sum / f64::from(count));
}
