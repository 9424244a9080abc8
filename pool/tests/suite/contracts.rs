//! The conformance suites: the behaviour that every storage and every pool must have.
#![allow(unsafe_code, reason = "the tests write to memory and read it back")]
#![allow(dead_code, reason = "each test binary uses a part")]

use std::collections::BTreeMap;

use mpj_pool::{AllocErrorKind, MIN_BLOCK, Pool, RawBuffer, Storage, StorageError, alignment};

pub(crate) fn storage<S: Storage + 'static>(create: fn(usize) -> Result<S, StorageError>) {
    for len in [0, 1, 4095, 4096, 4097, 1 << 20, (2 << 20) + 1, 5 << 20] {
        let storage = create(len).unwrap();
        let (base, size) = (storage.base(), storage.size());
        assert!(size >= len && size >= 1, "{len}: at least the requested size");
        assert!(size - len < 4096 || size.is_multiple_of(storage.page_size()), "{len}: {size} is too much");
        assert_eq!(base.addr().get() % 4096, 0, "{len}: on a page");
        assert!(storage.page_size().is_power_of_two());
        for (at, value) in [(0, 1), (size / 2, 2), (size - 1, 3)] {
            // SAFETY: `at < size`, and contract 1 of Storage.
            let byte = unsafe { base.add(at) };
            // SAFETY: contracts 1 and 4 of Storage: writable, and not used by other code.
            unsafe { byte.write(value) };
            // SAFETY: as above; just written.
            assert_eq!(unsafe { byte.read() }, value);
        }
        let same = (storage.base(), storage.size(), storage.key(), storage.backing(), storage.page_size());
        let moved = std::thread::spawn(move || storage).join().unwrap();
        let after = (moved.base(), moved.size(), moved.key(), moved.backing(), moved.page_size());
        assert_eq!(same.0, after.0, "does not move");
        assert_eq!((same.1, same.2, same.3, same.4), (after.1, after.2, after.3, after.4));
    }
    let (one, two) = (create(1 << 16).unwrap(), create(1 << 16).unwrap());
    assert!(one.base().addr().get().abs_diff(two.base().addr().get()) >= 1 << 16, "apart");
    assert!(one.key().is_none() || one.key() != two.key(), "each storage has its own key");
    for len in [usize::MAX, usize::MAX - 4096, isize::MAX as usize + 1, isize::MAX as usize] {
        match create(len).map(|storage| storage.size()) {
            Err(StorageError::Size { asked, .. } | StorageError::Refused { asked, .. }) => {
                assert_eq!(asked, len)
            }
            other => panic!("{len}: {other:?}"),
        }
    }
}

pub(crate) fn fill(block: &mut impl RawBuffer, seed: u64) {
    for (at, byte) in block.as_uninit_mut().iter_mut().enumerate() {
        byte.write(pattern(seed, at));
    }
}

pub(crate) fn check(block: &impl RawBuffer, seed: u64) {
    check_bytes(block.as_uninit(), seed);
}

pub(crate) fn check_bytes(bytes: &[std::mem::MaybeUninit<u8>], seed: u64) {
    for (at, byte) in bytes.iter().enumerate() {
        // SAFETY: `fill` has written every byte.
        let byte = unsafe { byte.assume_init_read() };
        assert_eq!(byte, pattern(seed, at), "byte {at} of {}", bytes.len());
    }
}

pub(crate) fn pattern(seed: u64, at: usize) -> u8 {
    ((seed ^ at as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8
}

pub(crate) fn check_block(block: &impl RawBuffer, len: usize) {
    assert!(block.capacity() >= len.max(1));
    assert_eq!(block.as_ptr().addr().get() % alignment(len), 0, "{len} bytes at {:?}", block.as_ptr());
    assert_eq!(block.as_uninit().len(), block.capacity());
}

/// Live blocks by address; panics if two overlap.
#[derive(Default)]
pub(crate) struct Extents(BTreeMap<usize, usize>);

impl Extents {
    pub(crate) fn insert(&mut self, block: &impl RawBuffer) {
        let (start, len) = (block.as_ptr().addr().get(), block.capacity());
        let before = self.0.range(..start + len).next_back();
        assert!(before.is_none_or(|(&other, &size)| other + size <= start), "blocks overlap");
        self.0.insert(start, len);
    }

    pub(crate) fn remove(&mut self, block: &impl RawBuffer) {
        assert_eq!(self.0.remove(&block.as_ptr().addr().get()), Some(block.capacity()));
    }
}

/// Runs the pool suite on pools that can hold at least 1 MiB and at most `limit` bytes.
pub(crate) fn pool<P: Pool + 'static>(limit: usize, make: impl Fn() -> P) {
    pool_with_tags(limit, 1, make);
}

/// As `pool`, for pools in which a block of 64 KiB takes up to `tag_factor` times as much memory.
pub(crate) fn pool_with_tags<P: Pool + 'static>(limit: usize, tag_factor: usize, make: impl Fn() -> P) {
    sizes(&make());
    limits(&make(), limit, tag_factor);
    merging(&make());
    threads(&make());
    blocks_outlive_pool(make());
}

fn sizes(pool: &impl Pool) {
    let mut extents = Extents::default();
    let mut blocks = Vec::new();
    let mut requested = 0;
    for (seed, len) in (0..).zip([0, 1, 63, 64, 65, 100, 128, 1000, 4095, 4096, 4097, 30_000, 1 << 16]) {
        let mut block = pool.alloc(len).unwrap();
        check_block(&block, len);
        extents.insert(&block);
        fill(&mut block, seed);
        blocks.push(block);
        requested += len as u64;
    }
    let stats = pool.stats();
    assert_eq!(
        (stats.live_blocks, stats.requested_bytes, stats.waste()),
        (13, requested, stats.granted_bytes - requested)
    );
    assert_eq!(stats.live_bytes, blocks.iter().map(|block| block.capacity() as u64).sum());
    assert!(stats.region_bytes >= stats.live_bytes && stats.regions >= 1);
    pool.validate().unwrap();
    pool.trim();
    for (seed, block) in (0..).zip(&blocks) {
        check(block, seed);
        assert!(format!("{block:?}").len() < 80, "Debug is short: {block:?}");
    }
    blocks.clear();
    let stats = pool.stats();
    assert_eq!((stats.live_blocks, stats.live_bytes), (0, 0));
    assert_eq!(stats.allocs, stats.frees);
    assert!(stats.peak_bytes >= requested);
    pool.validate().unwrap();
}

fn limits(pool: &impl Pool, limit: usize, tag_factor: usize) {
    for len in [usize::MAX, usize::MAX - 63, isize::MAX as usize, limit + 1] {
        let error = pool.alloc(len).unwrap_err();
        assert_eq!((error.requested, error.live_bytes), (len, 0));
        assert_eq!(error.kind, AllocErrorKind::TooLarge, "{error}");
    }
    let largest = pool.max_alloc();
    assert!(largest <= limit);
    let whole = pool.alloc(largest).unwrap();
    check_block(&whole, largest);
    drop(whole);
    let mut blocks = Vec::new();
    let error = loop {
        match pool.alloc(1 << 16) {
            Ok(block) => blocks.push(block),
            Err(error) => break error,
        }
        assert!(blocks.len() << 16 <= limit, "the limit is exceeded");
    };
    let granted: usize = blocks.iter().map(RawBuffer::capacity).sum();
    assert!(matches!(error.kind, AllocErrorKind::Full { capacity } if capacity <= limit), "{error:?}");
    assert_eq!(error.live_bytes, granted);
    assert!(((blocks.len() + 1) * tag_factor) << 16 > largest, "all memory can be allocated");
    drop(blocks.pop());
    blocks.push(pool.alloc(1 << 16).unwrap());
    pool.validate().unwrap();
    drop(blocks);
    assert_eq!(pool.alloc(largest).map(|block| block.capacity() >= largest), Ok(true), "merged again");
    pool.validate().unwrap();
}

fn merging(pool: &impl Pool) {
    let blocks: Vec<_> = (0..(1 << 20) / MIN_BLOCK).map(|_| pool.alloc(1).unwrap()).collect();
    pool.validate().unwrap();
    // Every other block first, so that nothing can merge until the second half is freed.
    let mut rest = Vec::new();
    for (at, block) in blocks.into_iter().enumerate() {
        if at % 2 == 0 {
            drop(block);
        } else {
            rest.push(block);
        }
    }
    pool.validate().unwrap();
    drop(rest);
    pool.alloc(1 << 20).unwrap();
    pool.trim();
    pool.validate().unwrap();
}

fn threads(pool: &(impl Pool + 'static)) {
    let (give, take) = std::sync::mpsc::sync_channel(16);
    std::thread::scope(|scope| {
        for thread in 0..3u64 {
            let give = give.clone();
            scope.spawn(move || {
                for round in 0..300 {
                    let seed = thread * 1000 + round;
                    let mut block = pool.alloc(64 << (seed % 8)).unwrap();
                    fill(&mut block, seed);
                    if round % 3 == 0 {
                        check(&block, seed);
                    } else {
                        give.send((block, seed)).unwrap();
                    }
                }
            });
        }
        drop(give);
        scope.spawn(move || {
            for (block, seed) in take {
                check(&block, seed);
            }
        });
    });
    assert_eq!(pool.stats().live_blocks, 0);
    pool.validate().unwrap();
}

fn blocks_outlive_pool<P: Pool + 'static>(pool: P) {
    let mut blocks: Vec<_> = (0..10u64).map(|seed| (pool.alloc(5000).unwrap(), seed)).collect();
    drop(pool);
    for (block, seed) in &mut blocks {
        fill(block, *seed);
    }
    let half = blocks.split_off(5);
    for blocks in [blocks, half] {
        std::thread::spawn(move || blocks.iter().for_each(|(block, seed)| check(block, *seed)))
            .join()
            .unwrap();
    }
}
