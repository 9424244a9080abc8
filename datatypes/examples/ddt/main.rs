//! Pack and unpack rates of common access patterns, compared with hand-written loops.
//!
//! `cargo run --release -p mpj-datatypes --example ddt [milliseconds a pattern] [name filter]` prints
//! `DDT,name,bytes,pack,hand pack,unpack,hand unpack,memcpy,pack/hand,unpack/hand`, rates in GB/s: the medians of
//! interleaved rounds. `# MISMATCH` means that type and loop copy different bytes. `BUILD` lines: times to build types.
#![allow(unsafe_code, reason = "raw pointers, as the loops written by hand")]
#![allow(clippy::print_stdout, reason = "a program")]

mod grid;
mod indexed;
mod pattern;

use core::mem::MaybeUninit;
use pattern::{Arena, Pattern};
use std::hint::black_box;
use std::time::Instant;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let budget: f64 = arguments.next().and_then(|a| a.parse().ok()).unwrap_or(40.0);
    let only = arguments.next().unwrap_or_default();
    for pattern in grid::patterns().into_iter().chain(indexed::patterns()) {
        if pattern.name.contains(&only) {
            measure(&pattern, budget);
        }
    }
    if "build".contains(&only) {
        build();
    }
}

fn measure(p: &Pattern, budget: f64) {
    let bytes = p.pack_type.size();
    let mut arena = Arena::new(&[bytes, bytes, bytes]);
    let (packed, copy, check) = (arena.at(0), arena.at(1), arena.at(2));
    // SAFETY: each of the three is an array of this length in the arena, and no two views of one exist at once.
    let view = |array: *mut u8| unsafe { core::slice::from_raw_parts_mut(array, bytes) };
    let pack = || {
        let room = packed.cast::<MaybeUninit<u8>>();
        // SAFETY: as for `view`; only initialised bytes are written.
        let out = unsafe { core::slice::from_raw_parts_mut(room, bytes) };
        // SAFETY: invariant 1 of `Pattern`, whose arena is filled.
        unsafe { black_box(&p.pack_type).pack(black_box(p.base), 1, 0, out) };
    };
    let unpack = || {
        let input = view(packed);
        // SAFETY: invariant 1 of `Pattern`; the packed bytes are in another arena.
        unsafe { black_box(&p.unpack_type).unpack(black_box(p.base), 1, 0, input) };
    };
    let hand_pack = || (p.hand_pack)(packed);
    let hand_unpack = || (p.hand_unpack)(packed);
    // SAFETY: two arrays of this length.
    let memcpy = || unsafe { black_box(copy).copy_from_nonoverlapping(black_box(packed), bytes) };

    let same = || view(packed) == view(check);
    pack();
    view(check).copy_from_slice(view(packed));
    view(packed).fill(0);
    hand_pack();
    if !same() {
        println!("# MISMATCH pack {}", p.name);
    }
    view(packed).iter_mut().enumerate().for_each(|(i, byte)| *byte = (i * 37 + 11) as u8);
    view(check).copy_from_slice(view(packed));
    if p.symmetric {
        unpack();
        view(packed).fill(0);
        hand_pack();
        if !same() {
            println!("# MISMATCH unpack {}", p.name);
        }
    }

    let work: [&dyn Fn(); 5] = [&pack, &hand_pack, &unpack, &hand_unpack, &memcpy];
    let mut batch = [1u32; 5];
    for (work, batch) in work.iter().zip(&mut batch) {
        (0..3).for_each(|_| work());
        let start = Instant::now();
        (0..4).for_each(|_| work());
        let each = start.elapsed().as_nanos() as f64 / 4.0 + 1.0;
        *batch = (20_000.0 / each).clamp(1.0, 10_000.0) as u32;
    }
    let mut times: [Vec<f64>; 5] = Default::default();
    let begin = Instant::now();
    while times[0].len() < 7 || (begin.elapsed().as_secs_f64() * 1e3 < budget && times[0].len() < 2_000) {
        for ((work, &batch), times) in work.iter().zip(&batch).zip(&mut times) {
            let start = Instant::now();
            for _ in 0..batch {
                work();
            }
            times.push(start.elapsed().as_nanos() as f64 / f64::from(batch));
        }
    }
    let rate = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        bytes as f64 / times[times.len() / 2]
    });
    let [pack, by_hand, unpack, back_by_hand, memcpy] = rate;
    println!(
        "DDT,{},{bytes},{pack:.2},{by_hand:.2},{unpack:.2},{back_by_hand:.2},{memcpy:.2},{:.2},{:.2}",
        p.name,
        pack / by_hand,
        unpack / back_by_hand
    );
}

fn build() {
    use mpj_datatypes::{ArrayOrder, Datatype};
    let double = Datatype::of::<f64>();
    let blocks: Vec<isize> = (0..10_000).map(|i| i * 7 % 50_000 * 2).collect();
    let report = |name: &str, parts: usize, make: &dyn Fn() -> Datatype| {
        let mut best = f64::MAX;
        for _ in 0..50 {
            let n = 1 + 20_000 / parts.pow(2).max(1);
            let start = Instant::now();
            for _ in 0..n {
                black_box(make());
            }
            best = best.min(start.elapsed().as_nanos() as f64 / n as f64);
        }
        println!("BUILD,{name},{best:.0} ns,{:.2} ns a part", best / parts as f64);
    };
    report("contiguous", 1, &|| black_box(&double).contiguous(1000).expect("fits"));
    report("vector", 1, &|| black_box(&double).vector(1000, 3, 8).expect("fits"));
    let rows = double.vector(1000, 3, 8).expect("fits");
    report("hvector of vector", 1, &|| black_box(&rows).hvector(100, 1, 100_000).expect("fits"));
    report("resized vector", 1, &|| black_box(&rows).resized(0, 64).expect("fits"));
    report("dup", 1, &|| black_box(&rows).dup().expect("fits"));
    let structure: Vec<_> = (0..4).map(|i| (2, 100 * i as i64, double.clone())).collect();
    report("structure", 4, &|| Datatype::structure(black_box(&structure)).expect("fits"));
    report("subarray3", 3, &|| {
        black_box(&double).subarray(&[64; 3], &[32; 3], &[16; 3], ArrayOrder::C).expect("fits")
    });
    report("indexed_block", blocks.len(), &|| black_box(&double).indexed_block(1, &blocks).expect("fits"));
}
