//! Memory that a pool returns to the system; see `Growth::return_after`.
#![allow(unsafe_code, reason = "a storage whose discarded bytes are overwritten")]

use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use mpj_pool::{
    Backing, Growth, Heap, Magazine, Pool, RawBuffer, RegionRegistration, RegisterError, Storage,
    StorageError,
};

const MIB: usize = 1 << 20;

/// Returns memory at every chance.
const EAGER: Growth = Growth::DEFAULT.return_after(Duration::ZERO);

/// Overwrites the bytes that it discards, and counts them.
#[derive(Debug)]
struct Overwriting {
    memory: Heap,
    discarded: Arc<AtomicUsize>,
}

// SAFETY: the contract is that of `memory`. `discard` writes only bytes that nothing accesses, by its own contract.
unsafe impl Storage for Overwriting {
    fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }

    fn size(&self) -> usize {
        self.memory.size()
    }

    fn backing(&self) -> Backing {
        self.memory.backing()
    }

    unsafe fn discard(&self, at: usize, len: usize) -> bool {
        assert!(at.is_multiple_of(self.page_size()) && len.is_multiple_of(self.page_size()) && len > 0);
        assert!(at + len <= self.size());
        // SAFETY: the range lies in the storage, as just checked.
        let first = unsafe { self.base().add(at) };
        // SAFETY: the caller promises that nothing accesses the range.
        unsafe { first.write_bytes(0xdd, len) };
        self.discarded.fetch_add(len, Ordering::Relaxed);
        true
    }
}

/// Returns a pool, and the number of bytes that it has discarded.
fn pool(growth: Growth) -> (Magazine<Overwriting>, Arc<AtomicUsize>) {
    let discarded = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&discarded);
    let source = move |size| -> Result<Overwriting, StorageError> {
        Ok(Overwriting { memory: Heap::create(size)?, discarded: Arc::clone(&count) })
    };
    (Magazine::growing(growth, source), discarded)
}

/// Writes some bytes of each page.
fn fill(block: &mut impl RawBuffer, seed: u64) {
    block.as_uninit_mut().iter_mut().step_by(2048).for_each(|byte| _ = byte.write(seed as u8));
}

fn check(block: &impl RawBuffer, seed: u64) {
    for byte in block.as_uninit().iter().step_by(2048) {
        // SAFETY: `fill` has written it.
        assert_eq!(unsafe { byte.assume_init() }, seed as u8);
    }
}

/// Allocates and frees more blocks than a thread caches, until `done`.
fn use_slow_paths(pool: &Magazine<Overwriting>, done: impl Fn() -> bool) {
    for _ in 0..10_000 {
        if done() {
            return;
        }
        drop((0..200).map(|_| pool.alloc(1000).unwrap()).collect::<Vec<_>>());
    }
    panic!("nothing is returned");
}

#[test]
#[cfg_attr(miri, ignore = "much memory")]
fn idle_memory_is_returned_while_other_blocks_are_in_use() {
    let (pool, discarded) = pool(EAGER);
    let mut kept: Vec<_> = (0..40).map(|_| pool.alloc(MIB).unwrap()).collect();
    for (seed, block) in (0..).zip(&mut kept) {
        fill(block, seed);
    }
    let spare: Vec<_> = (0..100).map(|_| pool.alloc(MIB).unwrap()).collect();
    drop(spare);
    use_slow_paths(&pool, || discarded.load(Ordering::Relaxed) > 30 * MIB);
    for (seed, block) in (0..).zip(&kept) {
        check(block, seed);
    }
    pool.validate().unwrap();
}

#[test]
fn live_blocks_keep_their_bytes_while_threads_free_and_allocate() {
    let (pool, discarded) = pool(EAGER.max_region(4 * MIB));
    let (steps, max_blocks) = if cfg!(miri) { (25, 4) } else { (2000, 40) };
    std::thread::scope(|s| {
        for thread in 0..4u64 {
            let pool = &pool;
            s.spawn(move || {
                let (mut random, mut live) = (thread + 1, Vec::new());
                for step in 0..steps {
                    // Knuth's MMIX generator. The low bits have short periods, so only the upper half is used.
                    random = random
                        .wrapping_mul(6_364_136_223_846_793_005)
                        .wrapping_add(1_442_695_040_888_963_407);
                    let (len, at) = (1usize << (random >> 60) << 6, (random >> 32) as usize);
                    let mut block = pool.alloc(len + at % len).unwrap();
                    fill(&mut block, step);
                    live.push((block, step));
                    if live.len() > max_blocks {
                        let (block, seed) = live.swap_remove(at % live.len());
                        check(&block, seed);
                    }
                }
                live.iter().for_each(|(block, seed)| check(block, *seed));
            });
        }
    });
    assert!(cfg!(miri) || discarded.load(Ordering::Relaxed) > 0);
    pool.validate().unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "much memory")]
fn last_thread_that_ends_returns_everything() {
    let (pool, discarded) = pool(Growth::default().return_after(Duration::from_secs(3600)));
    let pool = Arc::new(pool);
    let used = Arc::clone(&pool);
    let user = std::thread::spawn(move || {
        drop((0..100).map(|_| used.alloc(MIB).unwrap()).collect::<Vec<_>>());
    });
    user.join().unwrap();
    let regions = pool.stats().region_bytes as usize;
    // Regions shorter than 2 MiB, here the first, cannot be returned in part.
    assert!(discarded.load(Ordering::Relaxed) >= regions - 2 * MIB, "of {regions}");
}

#[test]
#[cfg_attr(miri, ignore = "much memory")]
fn regions_of_one_block_are_freed_when_they_are_idle() {
    let (pool, _) = pool(EAGER);
    drop(pool.alloc(40 * MIB).unwrap());
    assert!(pool.stats().region_bytes >= 40 << 20, "kept for the next request");
    use_slow_paths(&pool, || pool.stats().region_bytes < 40 << 20);
}

/// The registration with a device that does nothing.
#[derive(Debug)]
struct Registered;

// SAFETY: it never accesses memory.
unsafe impl RegionRegistration for Registered {
    fn deregister(&self) -> Result<(), RegisterError> {
        Ok(())
    }
}

#[test]
#[cfg_attr(miri, ignore = "much memory")]
fn registered_regions_keep_their_pages() {
    let (pool, discarded) = pool(EAGER.first_region(16 * MIB));
    let block = pool.alloc(MIB).unwrap();
    let registrations = &block.region().unwrap().registrations;
    registrations.get_or_register(1, || Ok(Arc::new(Registered))).unwrap();
    drop(block);
    for _ in 0..200 {
        drop((0..200).map(|_| pool.alloc(1000).unwrap()).collect::<Vec<_>>());
    }
    assert_eq!((pool.stats().regions, discarded.load(Ordering::Relaxed)), (1, 0));
}
