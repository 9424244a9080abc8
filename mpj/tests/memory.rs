//! What messages take of memory, counted: of the allocator by number and bytes, of the pool by the bytes asked for. A copy
//! of a message needs memory, so that none is made that is not seen here. Alone in its file, as it counts for the process.

#[path = "suite/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::ranks;
use mpj::World;
use mpj::buffer::{Buffer, Reading};
use mpj::pool::{DefaultBlock, Pool, global};

struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: the system's allocator, which is asked for what this one is asked for.
#[allow(unsafe_code, reason = "an allocator")]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.fetch_add(1, Ordering::Relaxed);
        BYTES.fetch_add(size, Ordering::Relaxed);
        // SAFETY: the caller's contract.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// What one round of something takes.
#[derive(Clone, Copy, Debug)]
struct Taken {
    calls: usize,
    heap: usize,
    pool: usize,
}

fn so_far() -> [usize; 3] {
    let pool = global().stats().requested_bytes as usize;
    [CALLS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed), pool]
}

const ROUNDS: usize = 50;

/// Returns what a round takes, without what it takes only at first. Only the caller works meanwhile.
fn alone(mut round: impl FnMut()) -> Taken {
    (0..3).for_each(|_| round());
    let before = so_far();
    (0..ROUNDS).for_each(|_| round());
    per_round(before, so_far())
}

/// Returns at rank 0 what a round of all ranks takes.
fn together(world: &World, mut round: impl FnMut() -> mpj::Result<()>) -> mpj::Result<Option<Taken>> {
    for _ in 0..3 {
        round()?;
    }
    world.barrier()?;
    let before = so_far();
    world.barrier()?;
    for _ in 0..ROUNDS {
        round()?;
    }
    world.barrier()?;
    let after = so_far();
    world.barrier()?;
    Ok((world.rank() == 0).then(|| per_round(before, after)))
}

fn per_round(before: [usize; 3], after: [usize; 3]) -> Taken {
    let [calls, heap, pool] = [0, 1, 2].map(|at| (after[at] - before[at]) / ROUNDS);
    Taken { calls, heap, pool }
}

/// More than the descriptions of an operation take, and a hundredth of the message.
const LITTLE: usize = 4 << 10;

fn encoded(value: &[u64]) -> Buffer<DefaultBlock, Reading> {
    let mut message = Buffer::with_capacity(256).expect("room");
    message.write_object(value).expect("a value");
    message.commit()
}

/// An object takes the memory of its encoded form on one side, and of its message and its value on the other: it is
/// copied nowhere else.
fn objects() {
    let value: Vec<u64> = (0..60_000u64).map(|at| at * at * at).collect();
    let encoding = alone(|| drop(encoded(&value)));
    // As it arrives: in one piece.
    let bytes = encoded(&value).to_vec();
    let len = bytes.len();
    let mut message = Buffer::from_bytes(global().alloc(len).expect("room"), &bytes).expect("a message");
    assert!(len > 300_000 && encoding.pool < 3 * len && encoding.heap < LITTLE, "{encoding:?}");
    let decoding = alone(|| {
        message.rewind();
        drop(message.read_object::<Vec<u64>>().expect("the value"));
    });
    assert_eq!(decoding.pool, 0);
    for size in [2, 3] {
        ranks(size, |world| {
            let taken = together(&world, || {
                match world.rank() {
                    0 => world.send_object(&value, 1, 0)?,
                    1 => drop(world.recv_object::<Vec<u64>>(0, 0)?),
                    _ => {}
                }
                Ok(())
            })?;
            if let Some(taken) = taken {
                assert!(
                    taken.pool <= encoding.pool + len + LITTLE,
                    "{taken:?} for {len} bytes, {encoding:?}"
                );
                assert!(taken.heap <= decoding.heap + LITTLE, "{taken:?} for {len} bytes, {decoding:?}");
            }
            let mut here = Some(value.clone());
            let taken = together(&world, || {
                let mine = here.take().unwrap_or_default();
                here = Some(world.bcast_object(mine, 0)?);
                Ok(())
            })?;
            if let Some(taken) = taken {
                let others = size - 1;
                assert!(taken.pool <= encoding.pool + others * (len + LITTLE), "{taken:?}, {encoding:?}");
                assert!(taken.heap <= others * decoding.heap + size * LITTLE, "{taken:?}, {decoding:?}");
            }
            Ok(())
        });
    }
}

/// A buffer takes the memory of the message where it is received, whether it lies in one piece or in several.
fn buffers() {
    for (fixed, dynamic) in [(1000, 0), (60_000, 0), (1000, 60_000), (1000, 600_000)] {
        ranks(2, |world| {
            let mut message = Buffer::with_capacity(fixed + 256)?;
            message.write(&vec![7u8; fixed]).expect("room");
            if dynamic > 0 {
                for _ in 0..3 {
                    message.write_dynamic(&vec![8u8; dynamic / 3]).expect("room");
                }
            }
            let message = message.commit();
            let len = message.len();
            let taken = together(&world, || match world.rank() {
                0 => world.send(&message, 1, 0),
                _ => world.recv_buffer(0, 0).map(drop),
            })?;
            if let Some(taken) = taken {
                assert!(taken.pool <= len + LITTLE && taken.heap <= LITTLE, "{taken:?} for {len} bytes");
                assert!(taken.calls <= 8, "{taken:?} for {len} bytes");
            }
            Ok(())
        });
    }
}

#[test]
fn a_message_is_copied_nowhere_on_its_way() {
    objects();
    buffers();
}
