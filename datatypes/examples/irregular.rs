//! Measures the time to build, pack and unpack irregular types of structures.
//!
//! `cargo run --release -p mpj-datatypes --example irregular [milliseconds per figure]` prints
//! `IRREGULAR,name,packed bytes,build,pack,unpack`: the times of the fastest repetition, in microseconds.
#![allow(clippy::print_stdout, reason = "a program")]

use mpj_datatypes::{Datatype, Packer, TypeError, Unpacker};
use std::hint::black_box;
use std::time::{Duration, Instant};

struct Row {
    name: &'static str,
    items: usize,
    build: fn() -> Result<Datatype, TypeError>,
}

const ROWS: [Row; 7] = [
    Row { name: "indexed_100k_of_struct", items: 1, build: || indexed(100_000, 0) },
    Row { name: "indexed_100k_pairs_of_struct", items: 1, build: || indexed(100_000, 1) },
    Row { name: "indexed_100k_of_short_struct", items: 1, build: short },
    Row { name: "indexed_100k_of_sparse_struct", items: 1, build: sparse },
    Row { name: "struct_of_30_indexed_300", items: 1, build: structure_of_lists },
    Row { name: "struct_of_10000_fields", items: 1, build: fields },
    Row { name: "struct_50_deep", items: 1000, build: deep },
];

fn particle() -> Result<Datatype, TypeError> {
    let number = Datatype::of::<f64>();
    Datatype::structure(&[(1, 0, number.vector(3, 2, 4)?), (1, 96, number)])
}

/// Irregular displacements, two to four items apart.
fn places(blocks: usize, from: usize) -> impl Iterator<Item = isize> {
    (0..blocks).map(move |i| (3 * (from + i) + (from + i) * 7919 % 5 % 2) as isize)
}

fn indexed(blocks: usize, longer: usize) -> Result<Datatype, TypeError> {
    let list: Vec<_> = places(blocks, 0).enumerate().map(|(i, at)| (1 + (i & longer), at)).collect();
    particle()?.indexed(&list)
}

fn short() -> Result<Datatype, TypeError> {
    let structure = Datatype::structure(&[(1, 0, Datatype::of::<f64>()), (1, 12, Datatype::of::<i32>())])?;
    structure.indexed_block(1, &places(100_000, 0).collect::<Vec<_>>())
}

fn sparse() -> Result<Datatype, TypeError> {
    let number = Datatype::of::<f32>();
    let structure = Datatype::structure(&[(1, 0, number.vector(12, 1, 2)?), (1, 100, number)])?;
    structure.indexed_block(1, &places(100_000, 0).collect::<Vec<_>>())
}

fn structure_of_lists() -> Result<Datatype, TypeError> {
    let particle = particle()?;
    let mut fields = Vec::new();
    for i in 0..30 {
        let list: Vec<_> = places(300, 300 * i).map(|at| (1, at)).collect();
        fields.push((1, 64 * i as i64, particle.indexed(&list)?));
    }
    Datatype::structure(&fields)
}

fn fields() -> Result<Datatype, TypeError> {
    let kinds = [Datatype::of::<f64>(), Datatype::of::<i32>(), Datatype::of::<u16>()];
    let fields: Vec<_> = (0..10_000)
        .map(|i| (1 + i % 3, 40 * i as i64 + (i * 7919 % 3 * 4) as i64, kinds[i % 3].clone()))
        .collect();
    Datatype::structure(&fields)
}

fn deep() -> Result<Datatype, TypeError> {
    let mut deep = Datatype::of::<f64>();
    for _ in 0..50 {
        let offset = deep.extent() + 8;
        deep = Datatype::structure(&[(1, 0, deep), (1, offset, Datatype::of::<i32>())])?;
    }
    Ok(deep)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let budget = std::env::args().nth(1).map_or(Ok(300), |ms| ms.parse())?;
    let fastest = |work: &mut dyn FnMut() -> Result<(), Box<dyn std::error::Error>>| {
        let (start, mut best) = (Instant::now(), Duration::MAX);
        while best == Duration::MAX || start.elapsed() < Duration::from_millis(budget) {
            let one = Instant::now();
            work()?;
            best = best.min(one.elapsed());
        }
        Ok::<f64, Box<dyn std::error::Error>>(best.as_nanos() as f64 / 1000.0)
    };
    for Row { name, items, build } in ROWS {
        let datatype = build()?;
        let bytes = datatype.packed_size(items)?;
        let mut memory = vec![1u8; datatype.byte_bounds(items)?.1 as usize];
        let mut packed = vec![2u8; bytes];
        let built = fastest(&mut || {
            drop(black_box(build()?));
            Ok(())
        })?;
        let pack = fastest(&mut || {
            Packer::new(&datatype, &memory, 0, items)?.pack_into_bytes(black_box(&mut packed));
            Ok(())
        })?;
        let unpack = fastest(&mut || {
            Unpacker::new(&datatype, black_box(&mut memory), 0, items)?.unpack_from(&packed)?;
            Ok(())
        })?;
        println!("IRREGULAR,{name},{bytes},{built:.1},{pack:.1},{unpack:.1}");
    }
    Ok(())
}
