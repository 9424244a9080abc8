//! Messages of more than 4 KiB are not copied into additional memory, and short collectives allocate nothing. The test
//! counts allocator calls, allocated bytes and bytes requested from the pool. It is alone in its file because the
//! counts are those of the whole process.

#[path = "suite/common/mod.rs"]
mod common;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use common::ranks;
use mpj::buffer::{Buffer, Reading};
use mpj::pool::{DefaultBlock, Pool, global};
use mpj::topology::Dim;
use mpj::{Op, Reorder, World};

struct Counting;

static CALLS: AtomicUsize = AtomicUsize::new(0);
static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is forwarded to the system's allocator unchanged.
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

#[derive(Clone, Copy, Debug)]
struct MemoryUse {
    calls: usize,
    heap: usize,
    pool: usize,
}

fn counters() -> [usize; 3] {
    let pool = global().stats().requested_bytes as usize;
    [CALLS.load(Ordering::Relaxed), BYTES.load(Ordering::Relaxed), pool]
}

const ROUNDS: usize = 50;

/// Returns the memory that a round needs, after three rounds that are not counted. Other threads must not allocate
/// memory meanwhile.
fn memory_per_round(mut round: impl FnMut()) -> MemoryUse {
    (0..3).for_each(|_| round());
    let before = counters();
    (0..ROUNDS).for_each(|_| round());
    average(before, counters())
}

/// Returns, at rank 0, the memory that a round of all ranks needs.
fn memory_of_all_ranks(
    world: &World,
    mut round: impl FnMut() -> mpj::Result<()>,
) -> mpj::Result<Option<MemoryUse>> {
    for _ in 0..3 {
        round()?;
    }
    world.barrier()?;
    let before = counters();
    world.barrier()?;
    for _ in 0..ROUNDS {
        round()?;
    }
    world.barrier()?;
    let after = counters();
    world.barrier()?;
    Ok((world.rank() == 0).then(|| average(before, after)))
}

fn average(before: [usize; 3], after: [usize; 3]) -> MemoryUse {
    let [calls, heap, pool] = [0, 1, 2].map(|at| (after[at] - before[at]) / ROUNDS);
    MemoryUse { calls, heap, pool }
}

/// The maximum number of bytes for the bookkeeping of an operation. Copies of shorter messages are not detected.
const SLACK: usize = 4 << 10;

fn encoded(value: &[u64]) -> Buffer<DefaultBlock, Reading> {
    let mut message = Buffer::with_capacity(256).expect("room");
    message.write_object(value).expect("a value");
    message.commit()
}

/// A restart of a short persistent or partitioned message allocates nothing. A restart of a long one allocates less
/// than [`SLACK`].
fn persistent_messages() {
    ranks(2, |world| {
        let other = 1 - world.rank();
        for len in [8, 100_000] {
            let mut send = world.send_init(vec![0u8; len], other, 0)?;
            let mut recv = world.recv_init(vec![0u8; len], other, 0)?;
            let mut parts = world.psend_init(vec![0u8; len], 4, other, 0)?;
            let mut whole = world.precv_init(vec![0u8; len], 4, other, 0)?;
            let used = memory_of_all_ranks(&world, || {
                let (receiving, sending) = (recv.start()?, send.start()?);
                receiving.wait()?;
                sending.wait()?;
                let (arriving, filling) = (whole.start()?, parts.start()?);
                for part in 0..4 {
                    filling.part(part)?.ready()?;
                }
                arriving.wait()?;
                filling.wait()
            })?;
            if let Some(used) = used {
                assert!(used.calls == 0 || len > 8, "{used:?} for {len} bytes");
                assert!(used.heap < SLACK, "{used:?} for {len} bytes");
            }
        }
        Ok(())
    });
}

/// An object needs the memory of its encoding at the sender, and of its message and its value at each receiver.
fn objects() {
    let value: Vec<u64> = (0..60_000u64).map(|at| at * at * at).collect();
    let encoding = memory_per_round(|| drop(encoded(&value)));
    // Decode a message in one piece, because a received message is in one piece.
    let bytes = encoded(&value).to_vec();
    let len = bytes.len();
    let mut message = Buffer::from_bytes(global().alloc(len).expect("room"), &bytes).expect("a message");
    assert!(len > 300_000 && encoding.pool < 3 * len && encoding.heap < SLACK, "{encoding:?}");
    let decoding = memory_per_round(|| {
        message.rewind();
        drop(message.read_object::<Vec<u64>>().expect("the value"));
    });
    assert_eq!(decoding.pool, 0);
    for size in [2, 3] {
        ranks(size, |world| {
            let used = memory_of_all_ranks(&world, || {
                match world.rank() {
                    0 => world.send_object(&value, 1, 0)?,
                    1 => drop(world.recv_object::<Vec<u64>>(0, 0)?),
                    _ => {}
                }
                Ok(())
            })?;
            if let Some(used) = used {
                assert!(used.pool <= encoding.pool + len + SLACK, "{used:?} for {len} bytes, {encoding:?}");
                assert!(used.heap <= decoding.heap + SLACK, "{used:?} for {len} bytes, {decoding:?}");
            }
            let mut held = Some(value.clone());
            let used = memory_of_all_ranks(&world, || {
                let mine = held.take().unwrap_or_default();
                held = Some(world.bcast_object(mine, 0)?);
                Ok(())
            })?;
            if let Some(used) = used {
                let others = size - 1;
                assert!(used.pool <= encoding.pool + others * (len + SLACK), "{used:?}, {encoding:?}");
                assert!(used.heap <= others * decoding.heap + size * SLACK, "{used:?}, {decoding:?}");
            }
            Ok(())
        });
    }
}

/// A buffer of one or of several pieces needs memory only for the received message.
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
            let used = memory_of_all_ranks(&world, || match world.rank() {
                0 => world.send(&message, 1, 0),
                _ => world.recv_buffer(0, 0).map(drop),
            })?;
            if let Some(used) = used {
                assert!(used.pool <= len + SLACK && used.heap <= SLACK, "{used:?} for {len} bytes");
                assert!(used.calls <= 8, "{used:?} for {len} bytes");
            }
            Ok(())
        });
    }
}

/// A short collective allocates nothing once a communicator has made some.
fn collectives() {
    for size in [2, 4] {
        ranks(size, |world| {
            let (mine, mut sum) = ([world.rank() as u64; 4], [0u64; 4]);
            let ring = world.cart(&[Dim::periodic(size)], Reorder::No)?.expect("a cell for each rank");
            let used = memory_of_all_ranks(&world, || {
                world.allreduce(&mine, &mut sum, Op::Sum)?;
                world.bcast(&mut sum, 1)?;
                world.exscan(&mine, &mut sum, Op::Sum)?;
                world.reduce_scatter_block(&mine, &mut sum[..4 / size], Op::Sum)?;
                ring.neighbor_alltoall(&mine, &mut sum)?;
                ring.neighbor_allgather(&mine[..2], &mut sum)?;
                world.barrier()
            })?;
            if let Some(used) = used {
                assert_eq!(used.calls, 0, "{used:?} on {size} ranks");
            }
            Ok(())
        });
    }
}

#[test]
fn messages_need_no_extra_memory() {
    objects();
    buffers();
    collectives();
    persistent_messages();
}
