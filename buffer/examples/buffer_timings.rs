//! Compares the operations of a buffer with plain copies or loops: `cargo run --release -p mpj-buffer --example
//! buffer_timings`. Both sides alternate, and the fastest of 41 rounds counts (of 21 in the first line).
#![allow(clippy::print_stdout, reason = "a program that reports")]

use std::cell::RefCell;
use std::hint::black_box;
use std::time::Instant;

use mpj_buffer::pool::{DefaultBlock, Pool, RawBuffer, global};
use mpj_buffer::{
    Buffer, ByteOrder, Fixed, MESSAGE_HEADER_LEN, Raw, RawVec, Reading, SECTION_HEADER_LEN, section_len,
};

type Writing = Buffer<DefaultBlock>;

/// Returns the nanoseconds per call of both sides. `bytes`, which a call copies, determines the number of calls.
fn time_both(bytes: usize, mut ours: impl FnMut(), mut plain: impl FnMut()) -> (f64, f64) {
    let calls = (1_000_000 / (bytes / 16 + 20)).max(3);
    let time = |call: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..calls).for_each(|_| call());
        start.elapsed().as_nanos() as f64 / calls as f64
    };
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..41 {
        best.0 = best.0.min(time(&mut ours));
        best.1 = best.1.min(time(&mut plain));
    }
    best
}

fn row(name: &str, bytes: usize, (ours, plain): (f64, f64)) {
    let rate = bytes as f64 / ours;
    println!(
        "{name:<36}{bytes:>9} B {ours:>10.1} ns {rate:>6.1} GB/s {plain:>10.1} ns {:>6.2}",
        plain / ours
    );
}

fn message(slot: &mut Option<Writing>, f: impl FnOnce(&mut Writing)) -> Buffer<DefaultBlock, Reading> {
    let mut writing = slot.take().expect("a buffer");
    f(&mut writing);
    writing.commit()
}

fn buffer(elements: usize) -> Writing {
    Buffer::with_capacity(MESSAGE_HEADER_LEN + section_len::<f64>(elements).expect("a size")).expect("memory")
}

fn numbers(count: usize) -> Vec<f64> {
    (0..count).map(|i| i as f64).collect()
}

fn time_small_messages() {
    const ROUNDS: u32 = 1_000_000;
    let mut best = f64::MAX;
    let mut value = [0u64];
    let mut writing = buffer(8);
    for _ in 0..21 {
        let start = Instant::now();
        for _ in 0..ROUNDS {
            writing.write(black_box(&[1u64])).expect("room");
            let mut reading = writing.commit();
            reading.read(black_box(&mut value)).expect("a value");
            writing = reading.clear();
        }
        best = best.min(start.elapsed().as_nanos() as f64 / f64::from(ROUNDS));
    }
    println!("write + commit + read + clear, 8 B {best:>12.1} ns");

    let mut writing = buffer(512);
    writing.write(&numbers(512)).expect("room");
    let mut reading = writing.commit();
    let round = || {
        for _ in 0..100 {
            reading.rewind();
            black_box(black_box(&mut reading).view::<f64>().is_ok());
        }
    };
    println!("rewind + view of 512 f64           {:>12.1} ns", time_both(4000, round, || ()).0 / 100.0);
    reading.rewind();
    reading.section::<f64>().expect("a section");
    let round = || {
        for _ in 0..100 {
            black_box(black_box(&mut reading).view_n::<f64>(black_box(0)).is_ok());
        }
    };
    println!("view_n in the open section         {:>12.1} ns", time_both(4000, round, || ()).0 / 100.0);
}

/// Offset of the elements of the first section. The plain copy goes there too, so that both have the same alignment.
const FIRST: usize = MESSAGE_HEADER_LEN + SECTION_HEADER_LEN;

/// Measures `write`: 4 to 64 writes share a `commit` and a `clear`. The plain copies go to the same offsets.
fn time_writes(src: &[f64]) {
    let bytes = size_of_val(src);
    let times = ((1 << 18) / bytes).clamp(4, 64);
    let plain: Vec<u8> = src.iter().flat_map(|x| x.to_ne_bytes()).collect();
    let mut block = global().alloc(FIRST + times * bytes).expect("memory");
    let mut slot = Some(buffer(times * src.len()));
    let write = || {
        let fill = |b: &mut Writing| (0..times).for_each(|_| b.write(black_box(src)).expect("room"));
        slot = Some(message(&mut slot, fill).clear());
    };
    let copy = || {
        for to in block.as_uninit_mut()[FIRST..FIRST + times * bytes].chunks_exact_mut(bytes) {
            to.write_copy_of_slice(black_box(&plain));
        }
        black_box(&mut block);
    };
    let (ours, theirs) = time_both(times * bytes, write, copy);
    row("write", bytes, (ours / times as f64, theirs / times as f64));
}

const FOREIGN: ByteOrder = if cfg!(target_endian = "little") { ByteOrder::Big } else { ByteOrder::Little };

fn time_slices() {
    for bytes in [64, 1024, 4096, 16384, 65536, 1 << 20, 8 << 20] {
        let src = numbers(bytes / 8);
        time_writes(&src);
        let mut block = global().alloc(FIRST + bytes).expect("memory");
        let mut slot = Some(buffer(src.len()));
        let write = || slot = Some(message(&mut slot, |b| b.write(black_box(&src)).expect("room")).clear());
        let plain: Vec<u8> = src.iter().flat_map(|x| x.to_ne_bytes()).collect();
        let copy = || {
            block.as_uninit_mut()[FIRST..FIRST + bytes].write_copy_of_slice(black_box(&plain));
            black_box(&mut block);
        };
        row("write + commit + clear", bytes, time_both(bytes, write, copy));
        let write = || {
            let swapped = |b: &mut Writing| {
                b.section_with_order::<f64>(FOREIGN).expect("room");
                b.write(black_box(&src)).expect("room");
            };
            slot = Some(message(&mut slot, swapped).clear());
        };
        let copy = || {
            block.as_uninit_mut()[FIRST..FIRST + bytes].write_copy_of_slice(black_box(&plain));
            black_box(&mut block);
        };
        row("… in the other byte order", bytes, time_both(bytes, write, copy));
        // Both sides copy to the same place, because copies between addresses with equal low bits take longer.
        let back = RefCell::new(numbers(bytes / 8));
        let mut other = message(&mut Some(buffer(src.len())), |b| b.write(&src).expect("room"));
        let from = other.view::<f64>().expect("values");
        let mut copy = || {
            back.borrow_mut().copy_from_slice(black_box(from));
        };

        let mut reading = message(&mut slot, |b| b.write(&src).expect("room"));
        let read = || {
            reading.rewind();
            reading.read(black_box(&mut back.borrow_mut()[..])).expect("values");
        };
        row("rewind + read", bytes, time_both(bytes, read, &mut copy));

        let mut wire = reading.to_vec();
        wire[5] ^= b'<' ^ b'>';
        for range in [8..16, 20..24, 24..32] {
            wire[range].reverse();
        }
        let mut foreign = Buffer::from_bytes(buffer(src.len()).into_block(), &wire).expect("a message");
        let read = || {
            foreign.rewind();
            foreign.read(black_box(&mut back.borrow_mut()[..])).expect("values");
        };
        row("rewind + read, other byte order", bytes, time_both(bytes, read, &mut copy));
    }
}

fn time_gather_and_strided() {
    for count in [512, 8192, 1 << 17] {
        let src = numbers(count);
        let mut seed = 1u32;
        let indices: Vec<u32> = (0..count)
            .map(|_| {
                seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                (seed >> 8) % count as u32
            })
            .collect();
        let mut out = numbers(count);
        let mut slot = Some(buffer(count));
        let gather = || {
            let b = message(&mut slot, |b| b.gather(black_box(&src), black_box(&indices)).expect("room"));
            slot = Some(b.clear());
        };
        let plain_loop = || {
            let src = black_box(&src);
            for (to, index) in out.iter_mut().zip(black_box(&indices)) {
                *to = src[*index as usize];
            }
            black_box(&mut out);
        };
        row("gather, random (loop)", count * 8, time_both(count * 8, gather, plain_loop));

        let rows = count / 64;
        let mut slot = Some(buffer(count));
        let strided = || {
            let dims = black_box([(rows, 64), (8, 8)]);
            slot = Some(message(&mut slot, |b| b.write_strided(&src, 0, &dims).expect("room")).clear());
        };
        let mut out = numbers(rows * 8);
        let mut plain_loop = || {
            for (to, from) in out.chunks_exact_mut(8).zip(black_box(&src).chunks_exact(64)) {
                (0..8).for_each(|i| to[i] = from[8 * i]);
            }
            black_box(&mut out);
        };
        row("write_strided, 8 of 64 (loop)", rows * 64, time_both(rows * 64, strided, &mut plain_loop));
        let strided = || {
            let dims = black_box([(rows, 64), (8, 8)]);
            let swapped = |b: &mut Writing| {
                b.section_with_order::<f64>(FOREIGN).expect("room");
                b.write_strided(&src, 0, &dims).expect("room");
            };
            slot = Some(message(&mut slot, swapped).clear());
        };
        row("… in the other byte order", rows * 64, time_both(rows * 64, strided, plain_loop));
    }
}

fn time_dynamic_slices(src: &[f64], plain: &[u8]) {
    let bytes = plain.len();
    let mut block = global().alloc(8 * bytes).expect("memory");
    let copy = || {
        for to in block.as_uninit_mut()[..8 * bytes].chunks_exact_mut(bytes) {
            to.write_copy_of_slice(black_box(plain));
        }
        black_box(&mut block);
    };
    let mut slot = Some(buffer(8));
    let write = || {
        let fill = |b: &mut Writing| (0..8).for_each(|_| b.write_dynamic(black_box(src)).expect("room"));
        slot = Some(message(&mut slot, fill).clear());
    };
    let (ours, theirs) = time_both(8 * bytes, write, copy);
    row("write_dynamic, one of eight", bytes, (ours / 8.0, theirs / 8.0));
}

fn time_dynamic_part() {
    for count in [512, 8192, 32_768, 100_000, 1 << 20] {
        let bytes = count * 8;
        let src = numbers(count);
        let plain: Vec<u8> = src.iter().flat_map(|x| x.to_ne_bytes()).collect();
        let mut block = global().alloc(bytes).expect("memory");
        let mut copy = || {
            block.as_uninit_mut()[..bytes].write_copy_of_slice(black_box(&plain));
            black_box(&mut block);
        };
        let mut slot = Some(buffer(8));
        let write = || {
            let raw = Raw(black_box(&src[..]));
            let write = |b: &mut Writing| b.write_object_with::<Fixed, _>(&raw).expect("room");
            slot = Some(message(&mut slot, write).clear());
        };
        row("write_object, Raw", bytes, time_both(bytes, write, &mut copy));
        let write =
            || slot = Some(message(&mut slot, |b| b.write_dynamic(black_box(&src)).expect("room")).clear());
        row("write_dynamic", bytes, time_both(bytes, write, &mut copy));
        time_dynamic_slices(&src, &plain);
        let write = || {
            let write = |b: &mut Writing| b.write_object_with::<Fixed, _>(black_box(&src)).expect("room");
            slot = Some(message(&mut slot, write).clear());
        };
        row("write_object, Fixed, a vector", bytes, time_both(bytes, write, &mut copy));

        let sent = message(&mut slot, |b| b.write_object_with::<Fixed, _>(&Raw(&src)).expect("room"));
        let block = global().alloc(sent.len()).expect("memory");
        let mut reading = Buffer::from_bytes(block, &sent.to_vec()).expect("a message");
        let read = || {
            reading.rewind();
            black_box(reading.read_object_with::<Fixed, RawVec<f64>>().expect("a value"));
        };
        let copy = || {
            black_box(black_box(&plain).to_vec());
        };
        row("read_object, RawVec (to_vec)", bytes, time_both(bytes, read, copy));
    }
}

fn main() {
    time_small_messages();
    println!("{:<36}{:>11} {:>13} {:>11} {:>13} {:>6}", "", "bytes", "ours", "", "plain copy", "×");
    time_slices();
    time_gather_and_strided();
    time_dynamic_part();
}
