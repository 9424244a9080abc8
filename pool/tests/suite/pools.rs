//! Every pool in the conformance suite, and tests of single pools.

#![allow(unsafe_code, reason = "implements a storage")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use mpj_pool::{
    AllocErrorKind, Buddy, Buddy1, Buddy2, Growth, Heap, MIN_BLOCK, Magazine, Pages, Pool, RawBuffer,
    Storage, StorageError, Unpooled, strategy,
};

const MIB: usize = 1 << 20;

#[test]
fn buddy_growing_on_heap_conforms() {
    crate::contracts::pool(3 * MIB, || Buddy::growing(Growth::default().limit(3 * MIB), Heap::create));
}

#[test]
fn buddy_growing_on_pages_conforms() {
    crate::contracts::pool(8 * MIB, || Buddy::growing(Growth::default().limit(8 * MIB), Pages::create));
}

#[test]
fn buddy_growing_by_small_regions_conforms() {
    let growth = Growth::default().first_region(1).max_region(64 << 10).limit(2 * MIB + 12_345);
    crate::contracts::pool(2 * MIB + 12_345, || Buddy::growing(growth, Heap::create));
}

#[test]
fn buddy_fixed_on_heap_conforms() {
    crate::contracts::pool(MIB, || Buddy::fixed(Heap::create(MIB).unwrap()).unwrap());
}

#[test]
fn buddy_fixed_on_a_size_between_powers_of_two_conforms() {
    crate::contracts::pool(MIB + 12_288, || Buddy::fixed(Heap::create(MIB + 12_288).unwrap()).unwrap());
}

#[test]
fn buddy_fixed_on_pages_conforms() {
    crate::contracts::pool(4 * MIB, || Buddy::fixed(Pages::create(4 * MIB).unwrap()).unwrap());
}

#[cfg(all(target_os = "linux", not(mpj_portable)))]
#[test]
fn buddy_fixed_on_shared_conforms() {
    crate::contracts::pool(2 * MIB, || {
        Buddy::fixed(mpj_pool::SharedStorage::create(2 * MIB).unwrap()).unwrap()
    });
}

#[test]
fn magazine_growing_on_heap_conforms() {
    crate::contracts::pool(3 * MIB, || Magazine::growing(Growth::default().limit(3 * MIB), Heap::create));
}

#[test]
fn magazine_growing_on_pages_conforms() {
    crate::contracts::pool(80 * MIB, || Magazine::growing(Growth::default().limit(80 * MIB), Pages::create));
}

#[test]
fn magazine_growing_by_small_regions_conforms() {
    let growth = Growth::default().first_region(1).max_region(64 << 10).limit(2 * MIB + 12_345);
    crate::contracts::pool(2 * MIB + 12_345, || Magazine::growing(growth, Heap::create));
}

#[test]
fn magazine_fixed_on_heap_conforms() {
    crate::contracts::pool(MIB, || Magazine::fixed(Heap::create(MIB).unwrap()).unwrap());
}

#[cfg(all(target_os = "linux", not(mpj_portable)))]
#[test]
fn magazine_fixed_on_shared_conforms() {
    crate::contracts::pool(2 * MIB, || {
        Magazine::fixed(mpj_pool::SharedStorage::create(2 * MIB).unwrap()).unwrap()
    });
}

#[test]
fn buddy1_on_heap_conforms() {
    let growth = Growth::PAPER.limit(8 * MIB);
    crate::contracts::pool_with_tags(8 * MIB, 2, || Buddy1::growing(growth, Heap::create));
}

#[test]
fn buddy1_on_pages_conforms() {
    let growth = Growth::default().first_region(64 << 10).limit(5 * MIB);
    crate::contracts::pool_with_tags(5 * MIB, 2, || Buddy1::growing(growth, Pages::create));
}

#[test]
fn the_links_of_buddy1_reach_every_block_of_its_largest_region() {
    static ASKED: AtomicUsize = AtomicUsize::new(0);
    let source = |size| {
        ASKED.store(size, Ordering::Relaxed);
        Err(StorageError::Size { asked: size, most: 0 })
    };
    let pool = Buddy1::<Pages>::growing(Growth::default().first_region(usize::MAX), source);
    assert!(pool.alloc(1).is_err());
    let asked = ASKED.load(Ordering::Relaxed);
    assert!(asked > MIB && asked / 128 <= u32::MAX as usize, "links are numbers of 128 bytes: {asked:#x}");
}

#[test]
fn buddy2_on_heap_conforms() {
    crate::contracts::pool(8 * MIB, || Buddy2::growing(Growth::PAPER.limit(8 * MIB), Heap::create));
}

#[cfg(all(target_os = "linux", not(mpj_portable)))]
#[test]
fn buddy2_on_shared_conforms() {
    crate::contracts::pool(4 * MIB, || {
        Buddy2::growing(Growth::default().limit(4 * MIB), mpj_pool::SharedStorage::create)
    });
}

#[test]
fn unpooled_on_heap_conforms() {
    crate::contracts::pool(128 * MIB, || Unpooled::new(128 * MIB, Heap::create));
}

#[test]
fn every_pool_can_be_made_by_name() {
    for strategy in strategy::STRATEGIES {
        for storage in strategy::STORAGES {
            let growth = Growth::default().first_region(64 << 10).limit(4 * MIB);
            let pool = match strategy::by_name(strategy, storage, growth) {
                Err(error) => {
                    assert_eq!(error, strategy::PoolNameError::Pair("buddy1", "shared"));
                    continue;
                }
                Ok(pool) => pool,
            };
            let mut block = pool.alloc(5000).unwrap();
            block.as_uninit_mut()[4999].write(1);
            assert_eq!(pool.stats().requested_bytes, 5000);
            drop(block);
            pool.validate().unwrap();
        }
    }
    let error = strategy::by_name("magazin", "heap", Growth::default()).unwrap_err();
    assert!(error.to_string().contains("expected one of magazine, buddy,"), "{error}");
    assert!(strategy::by_name("buddy", "disk", Growth::default()).is_err());
}

#[test]
fn blocks_grow_in_place() {
    let pool = Magazine::growing(Growth::default().first_region(MIB), Heap::create);
    let block = pool.alloc(1000).unwrap();
    let at = block.as_ptr();
    let mut block = block.try_grow(1024).unwrap();
    assert_eq!((block.as_ptr(), block.capacity()), (at, 1024));
    crate::contracts::fill(&mut block, 1);
    let block = block.try_grow(5000).unwrap();
    assert_eq!((block.as_ptr(), block.capacity()), (at, 5120));
    for (index, byte) in block.as_uninit()[..1024].iter().enumerate() {
        // SAFETY: `fill` has written it.
        assert_eq!(unsafe { byte.assume_init_read() }, crate::contracts::pattern(1, index));
    }
    let stats = pool.stats();
    assert_eq!((stats.live_blocks, stats.live_bytes), (1, 5120));
    assert_eq!((stats.requested_bytes, stats.granted_bytes, stats.waste()), (6000, 6144, 144));
    let neighbours: Vec<_> = (0..64).map(|_| pool.alloc(1000).unwrap()).collect();
    let block = block.try_grow(MIB / 2).unwrap_err();
    assert_eq!((block.as_ptr(), block.capacity()), (at, 5120));
    assert!(block.try_grow(usize::MAX).is_err());
    drop(neighbours);
    assert_eq!((pool.stats().live_blocks, pool.stats().live_bytes), (0, 0));
    pool.trim();
    assert_eq!((pool.stats().regions, pool.stats().cached_bytes), (0, 0));
    pool.validate().unwrap();
}

#[test]
fn zeroed_blocks_are_zero() {
    let pool = Magazine::growing(Growth::default(), Heap::create);
    let mut block = pool.alloc(3000).unwrap();
    crate::contracts::fill(&mut block, 7);
    drop(block);
    let block = pool.alloc_zeroed(3000).unwrap();
    // SAFETY: `alloc_zeroed` has written every byte.
    assert!(block.as_uninit().iter().all(|byte| unsafe { byte.assume_init_read() } == 0));
}

#[cfg(all(debug_assertions, not(miri)))]
#[test]
fn freed_bytes_are_poisoned_in_debug_builds() {
    let pool = Magazine::growing(Growth::default(), Heap::create);
    let mut block = pool.alloc(3000).unwrap();
    crate::contracts::fill(&mut block, 7);
    drop(block);
    let block = pool.alloc(3000).unwrap();
    // SAFETY: the block that was freed here was written, and so was the poison.
    assert!(block.as_uninit().iter().all(|byte| unsafe { byte.assume_init_read() } == 0xdb));
}

#[test]
fn at_most_eight_idle_single_block_regions_are_kept() {
    let pool = Magazine::growing(Growth::default().max_region(MIB), Heap::create);
    let blocks: Vec<_> = (1..20).map(|at| pool.alloc(MIB + at * 4096).unwrap()).collect();
    assert_eq!(pool.stats().regions, 19);
    drop(blocks);
    assert_eq!(pool.stats().regions, 8);
    assert_eq!(
        pool.alloc(MIB + 19 * 4096).unwrap().capacity(),
        MIB + 19 * 4096,
        "the regions freed last are kept"
    );
    assert_eq!(pool.stats().regions, 8);
    pool.validate().unwrap();
}

#[test]
fn cached_blocks_return_when_their_thread_exits() {
    let pool = Magazine::growing(Growth::default(), Heap::create);
    let bytes = std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            drop((0..100).map(|_| pool.alloc(1000).unwrap()).collect::<Vec<_>>());
            pool.stats().cached_bytes
        });
        thread.join().unwrap()
    });
    assert!(bytes >= 64 << 10, "cached while the thread lived");
    // Waits until the thread's destructor has returned its blocks.
    while pool.stats().cached_bytes > 128 << 10 {
        std::thread::yield_now();
    }
    pool.trim();
    assert_eq!((pool.stats().cached_bytes, pool.stats().regions), (0, 0));
}

#[test]
fn dropping_pool_frees_blocks_cached_by_other_threads() {
    use std::sync::Barrier;
    static REGIONS: AtomicUsize = AtomicUsize::new(0);
    #[derive(Debug)]
    struct Counted(Heap);
    impl Drop for Counted {
        fn drop(&mut self) {
            REGIONS.fetch_sub(1, Ordering::SeqCst);
        }
    }
    // SAFETY: all as the heap does.
    unsafe impl Storage for Counted {
        fn base(&self) -> std::ptr::NonNull<u8> {
            self.0.base()
        }
        fn size(&self) -> usize {
            self.0.size()
        }
        fn backing(&self) -> mpj_pool::Backing {
            self.0.backing()
        }
    }
    let make = |len| {
        REGIONS.fetch_add(1, Ordering::SeqCst);
        Heap::create(len).map(Counted)
    };
    let (freed, gone) = (Barrier::new(2), Barrier::new(2));
    for live in [false, true] {
        let pool = Magazine::growing(Growth::default(), make);
        let block = live.then(|| pool.alloc(5000).unwrap());
        let other = pool.alloc(100).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                drop(other);
                freed.wait();
                gone.wait();
                // Another pool, so that this thread frees its closed caches.
                drop(Magazine::growing(Growth::default(), Heap::create).alloc(1).unwrap());
            });
            freed.wait();
            drop(pool);
            assert_eq!(REGIONS.load(Ordering::SeqCst), usize::from(live));
            drop(block);
            assert_eq!(REGIONS.load(Ordering::SeqCst), 0, "the last block frees all regions");
            gone.wait();
        });
    }
}

#[test]
fn blocks_can_be_freed_while_a_thread_exits() {
    use std::cell::RefCell;
    thread_local! { static LATE: RefCell<Vec<mpj_pool::Block<Heap>>> = const { RefCell::new(Vec::new()) } }
    let pool = std::sync::Arc::new(Magazine::growing(Growth::default(), Heap::create));
    for early in [true, false] {
        let there = pool.clone();
        let work = move || {
            if early {
                drop(there.alloc(64).unwrap());
            }
            LATE.with_borrow_mut(|late| late.extend((0..10).map(|_| there.alloc(3000).unwrap())));
        };
        std::thread::spawn(work).join().unwrap();
    }
    assert_eq!(pool.stats().live_blocks, 0);
    pool.trim();
    assert_eq!(pool.stats().regions, 0);
    pool.validate().unwrap();
}

#[test]
fn many_pools_share_the_table_of_a_thread() {
    let pools: Vec<_> = (0..40).map(|_| Magazine::growing(Growth::default(), Heap::create)).collect();
    for round in 0..20 {
        let blocks: Vec<_> = pools.iter().map(|pool| pool.alloc(100 << (round % 5)).unwrap()).collect();
        drop(blocks);
    }
    for pool in &pools {
        assert_eq!((pool.stats().allocs, pool.stats().live_blocks), (20, 0));
        pool.validate().unwrap();
    }
}

#[test]
fn drain_returns_blocks_although_the_thread_has_used_many_other_pools_since() {
    let pool = Magazine::growing(Growth::default(), Heap::create);
    drop(pool.alloc(100).unwrap());
    let others: Vec<_> = (0..40).map(|_| Magazine::growing(Growth::default(), Heap::create)).collect();
    others.iter().for_each(|other| drop(other.alloc(100).unwrap()));
    assert!(pool.stats().cached_bytes > 0);
    pool.drain();
    assert_eq!(pool.stats().cached_bytes, 0);
    assert!(pool.trim() > 0 && pool.stats().regions == 0);
    pool.validate().unwrap();
}

#[test]
fn regions_double_until_the_largest() {
    let pool = Buddy::growing(Growth::default().first_region(64 << 10).max_region(256 << 10), Heap::create);
    let mut blocks = Vec::new();
    let mut sizes = Vec::new();
    while pool.stats().regions < 5 {
        blocks.push(pool.alloc(1 << 15).unwrap());
        let bytes = pool.stats().region_bytes;
        if sizes.last() != Some(&bytes) {
            sizes.push(bytes);
        }
    }
    let kib: Vec<u64> = sizes.iter().map(|bytes| bytes >> 10).collect();
    assert_eq!(kib, [64, 192, 448, 704, 960]);
}

#[test]
fn large_blocks_get_regions_of_their_size() {
    let pool = Buddy::growing(Growth::default().max_region(4 * MIB), Pages::create);
    let len = 9 * MIB + 1;
    let block = pool.alloc(len).unwrap();
    assert_eq!(block.capacity(), 9 * MIB + 4096);
    let at = block.as_ptr();
    drop(block);
    let stats = pool.stats();
    assert_eq!((stats.regions, stats.region_bytes), (1, 9 * MIB as u64 + 4096), "kept for the next request");
    let again = pool.alloc(6 * MIB).unwrap();
    assert_eq!(again.as_ptr(), at, "reused for a request of similar size");
    assert!(pool.alloc(6 * MIB).is_ok_and(|other| other.as_ptr() != at));
    drop(again);
    assert_eq!(pool.trim(), 15 * MIB + 4096);
    assert_eq!(pool.stats().regions, 0);
    pool.validate().unwrap();
}

#[test]
fn idle_regions_are_freed_when_the_limit_is_reached() {
    let pool = Buddy::growing(Growth::default().max_region(2 * MIB).limit(8 * MIB), Heap::create);
    drop(pool.alloc(5 * MIB).unwrap());
    assert_eq!(pool.stats().region_bytes, 5 * MIB as u64);
    let other = pool.alloc(8 * MIB).unwrap();
    assert_eq!(pool.stats().region_bytes, 8 * MIB as u64, "the idle 5 MiB were freed");
    let error = pool.alloc(1).unwrap_err();
    assert_eq!((error.kind, error.live_bytes), (AllocErrorKind::Full { capacity: 8 * MIB }, 8 * MIB));
    assert_eq!(error.to_string(), "cannot allocate 1 bytes: 8388608 of 8388608 bytes are in use");
    drop(other);
    assert!(pool.alloc(1).is_ok());
}

#[test]
fn trim_frees_idle_regions() {
    let pool = Buddy::growing(Growth::default(), Heap::create);
    let first = pool.alloc(MIB).unwrap();
    drop(pool.alloc(MIB).unwrap());
    assert_eq!(pool.stats().region_bytes, 3 * MIB as u64);
    assert_eq!(pool.trim(), 2 * MIB);
    assert_eq!(pool.trim(), 0, "the other is in use");
    drop(first);
    assert_eq!(pool.trim(), MIB);
    assert_eq!(pool.stats().allocs, 2, "counters continue");
    let fixed = Buddy::fixed(Heap::create(MIB).unwrap()).unwrap();
    assert_eq!(fixed.trim(), 0, "the region of a fixed pool stays");
}

#[test]
fn errors_of_the_storage_are_passed_on() {
    let pool = Buddy::growing(Growth::default(), |len| {
        if len > MIB { Err(StorageError::Size { asked: len, most: MIB }) } else { Heap::create(len) }
    });
    let block = pool.alloc(MIB).unwrap();
    let error = pool.alloc(MIB).unwrap_err();
    assert_eq!(error.kind, AllocErrorKind::Storage(StorageError::Size { asked: 2 * MIB, most: MIB }));
    assert_eq!((error.requested, error.live_bytes), (MIB, MIB));
    assert!(std::error::Error::source(&error).is_some());
    drop(block);
    assert!(pool.alloc(MIB).is_ok(), "the pool is still usable");
    let short = Buddy::growing(Growth::default(), |_| Heap::create(4096));
    assert!(matches!(short.alloc(1).unwrap_err().kind, AllocErrorKind::Storage(StorageError::Size { .. })));
    // With 32-bit addresses, the system might grant any size.
    #[cfg(target_pointer_width = "64")]
    {
        let greedy = Buddy::growing(Growth::default(), Pages::create);
        let error = greedy.alloc(1 << 54).unwrap_err();
        assert!(matches!(error.kind, AllocErrorKind::Storage(StorageError::Refused { .. })), "{error:?}");
    }
}

#[test]
fn threads_that_need_a_region_together_make_one() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    let pool = Buddy::growing(Growth::default(), |len| {
        MADE.fetch_add(1, Ordering::Relaxed);
        Heap::create(len)
    });
    let all_started = std::sync::Barrier::new(8);
    let alloc = || {
        all_started.wait();
        pool.alloc(1000).unwrap()
    };
    let blocks: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..8).map(|_| scope.spawn(alloc)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!((blocks.len(), MADE.load(Ordering::Relaxed)), (8, 1));
}

#[cfg(all(target_os = "linux", not(mpj_portable)))]
#[test]
fn shared_blocks_know_their_offset() {
    let segment = mpj_pool::SharedStorage::create(MIB).unwrap();
    let (key, base) = (segment.key().unwrap(), segment.base());
    let pool = Buddy::fixed(segment).unwrap();
    let blocks = [100, 5000, 64].map(|len| pool.alloc(len).unwrap());
    for block in &blocks {
        let offset = block.as_ptr().addr().get() - base.addr().get();
        assert_eq!(block.region_offset(), Some((key, offset)));
    }
    assert_eq!(Buddy::fixed(Heap::create(1).unwrap()).unwrap().alloc(1).unwrap().region_offset(), None);
}

#[test]
fn a_pool_can_be_filled_leaf_by_leaf() {
    let pool = Buddy::fixed(Heap::create(12_288).unwrap()).unwrap();
    let blocks: Vec<_> = (0..12_288 / MIN_BLOCK).map(|_| pool.alloc(1).unwrap()).collect();
    assert_eq!(pool.alloc(0).unwrap_err().kind, AllocErrorKind::Full { capacity: 12_288 });
    drop(blocks);
    assert_eq!(pool.max_alloc(), 8192);
    assert_eq!(format!("{pool:?}"), "Buddy(0 of 12288 B live in 0 blocks, 1 regions)");
}

#[test]
fn all_threads_share_the_global_pool() {
    let one = mpj_pool::global();
    let other = std::thread::spawn(mpj_pool::global).join().unwrap();
    assert!(std::ptr::eq(one, other));
    let block = one.alloc(70_000).unwrap();
    assert_eq!(block.capacity(), 80 << 10);
}

#[test]
fn a_limit_below_a_page_allows_no_block() {
    for limit in [0, 1, 4095] {
        let pool = Buddy::growing(Growth::default().limit(limit), Heap::create);
        assert_eq!(pool.max_alloc(), 0);
        for len in [0, 1, 4096] {
            assert_eq!(pool.alloc(len).unwrap_err().kind, AllocErrorKind::TooLarge);
        }
        assert_eq!(pool.stats().regions, 0);
    }
}

#[test]
fn a_thread_caches_large_blocks_whatever_others_cache() {
    let pool = Magazine::growing(Growth::default(), Heap::create);
    let hits = |pool: &Magazine<Heap>| {
        std::thread::scope(|scope| {
            let fresh = scope.spawn(|| {
                drop(pool.alloc(MIB).unwrap());
                let before = pool.stats().hits;
                (0..100).for_each(|_| drop(pool.alloc(MIB).unwrap()));
                pool.stats().hits - before
            });
            fresh.join().unwrap()
        })
    };
    // One thread caches blocks, another holds live ones, and both keep running.
    let (ready, end) = (std::sync::Barrier::new(3), std::sync::Barrier::new(3));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            drop((0..64).map(|_| pool.alloc(MIB).unwrap()).collect::<Vec<_>>());
            ready.wait();
            end.wait();
        });
        scope.spawn(|| {
            let held: Vec<_> = (1..16).map(|size| pool.alloc(size * MIB / 2).unwrap()).collect();
            ready.wait();
            end.wait();
            drop(held);
        });
        ready.wait();
        assert_eq!(hits(&pool), 100);
        pool.trim();
        assert_eq!(hits(&pool), 100);
        end.wait();
    });
}

#[test]
fn reused_blocks_of_a_larger_class_are_replaced() {
    let pool = Magazine::growing(Growth::default(), Heap::create);
    for len in [8 << 10, 2 * MIB] {
        drop((0..4).map(|_| pool.alloc(len / 4 * 5).unwrap()).collect::<Vec<_>>());
        let mut live: Vec<_> = (0..3).map(|_| pool.alloc(len).unwrap()).collect();
        assert!(live.iter().any(|block| block.capacity() > len), "the thread has these cached");
        for _ in 0..2_000 {
            drop(live.remove(0));
            live.push(pool.alloc(len).unwrap());
        }
        assert!(live.iter().all(|block| block.capacity() == len), "{live:?}");
    }
}

#[test]
fn streams_between_threads_get_full_batches_after_mixed_sizes() {
    let pool = Magazine::growing(Growth::default(), Heap::create);
    let (mut seed, mut live) = (1u64, Vec::new());
    live.resize_with(256, || None);
    let mut below = |end: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((seed >> 32) * end) >> 32
    };
    // Blocks of all sizes fill the budgets of this thread and of the depot.
    for _ in 0..20_000 {
        let (place, len) = (below(256) as usize, (64u64 << below(18)) - below(50));
        live[place] = None;
        live[place] = Some(pool.alloc(len as usize).unwrap());
    }
    let (send, receive) = std::sync::mpsc::channel::<Vec<_>>();
    let (done, all_freed) = std::sync::mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for blocks in receive {
                drop(blocks);
                done.send(()).unwrap();
            }
        });
        for (len, batch) in [(8 << 10, 64), (256 << 10, 16), (64, 64)] {
            let round = || {
                let before = pool.stats().misses;
                send.send((0..batch).map(|_| pool.alloc(len).unwrap()).collect()).unwrap();
                all_freed.recv().unwrap();
                pool.stats().misses - before
            };
            let misses: u64 = (0..2_100).map(|_| round()).skip(2_000).sum();
            assert!(misses <= 200, "{misses} misses in 100 batches of {batch} blocks of {len} bytes");
        }
        drop(send);
    });
}

#[test]
fn single_block_regions_do_not_raise_the_cache_budget() {
    let pool = Magazine::growing(Growth::default(), Heap::create);
    drop(pool.alloc(256 * MIB).unwrap());
    pool.trim();
    let sizes =
        [MIB / 2, MIB, 2 * MIB, 4 * MIB].into_iter().flat_map(|power| (5..=8).map(move |k| power / 4 * k));
    drop(sizes.flat_map(|size| [size; 2]).map(|size| pool.alloc(size).unwrap()).collect::<Vec<_>>());
    let stats = pool.stats();
    assert!(stats.cached_bytes <= 16 * MIB as u64 + stats.region_bytes / 4, "{stats:?}");
}

#[test]
fn pending_storages_count_against_the_limit() {
    static POOL: OnceLock<Unpooled<Heap>> = OnceLock::new();
    let within = || {
        // Simulates a concurrent call of another thread.
        let error = POOL.get().unwrap().alloc(40 << 10).unwrap_err();
        assert_eq!(error.kind, AllocErrorKind::Full { capacity: 96 << 10 });
    };
    let pool = POOL.get_or_init(|| {
        Unpooled::new(96 << 10, move |len| {
            if len == 64 << 10 {
                within();
            }
            Heap::create(len)
        })
    });
    let block = pool.alloc(64 << 10).unwrap();
    assert_eq!(pool.stats().live_blocks, 1);
    drop(block);
}

#[test]
fn storage_counts_against_the_limit_until_it_is_dropped() {
    static POOL: OnceLock<Unpooled<Observed>> = OnceLock::new();
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    #[derive(Debug)]
    struct Observed(Heap);
    impl Drop for Observed {
        fn drop(&mut self) {
            SEEN.store(POOL.get().unwrap().stats().region_bytes as usize, Ordering::Relaxed);
        }
    }
    // SAFETY: as for `Heap`.
    unsafe impl Storage for Observed {
        fn base(&self) -> std::ptr::NonNull<u8> {
            self.0.base()
        }
        fn size(&self) -> usize {
            self.0.size()
        }
        fn backing(&self) -> mpj_pool::Backing {
            self.0.backing()
        }
    }
    let pool = POOL.get_or_init(|| Unpooled::new(4096, |len| Heap::create(len).map(Observed)));
    drop(pool.alloc(1).unwrap());
    assert_eq!((SEEN.load(Ordering::Relaxed), pool.stats().region_bytes), (4096, 0));
}

#[test]
fn concurrent_blocks_within_the_limit_are_allocated() {
    let pool = Unpooled::new(2 * 4096, Heap::create);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| (0..20_000).for_each(|_| drop(pool.alloc(4096).unwrap())));
        }
    });
    pool.validate().unwrap();
}
