use super::*;
use crate::sync::ByteBudget;

fn class(bytes: usize) -> Class {
    Class::for_len(bytes).unwrap()
}

#[repr(align(256))]
struct Region(#[expect(dead_code, reason = "only its address is used")] [u8; RegionTag::ALIGN]);

static REGION: Region = Region([0; RegionTag::ALIGN]);

fn block<T>(at: &T, class: Class) -> BlockPtr {
    // SAFETY: `REGION` has the required size and alignment.
    let tag = unsafe { RegionTag::new(NonNull::from(&REGION).cast(), Some(class)) };
    BlockPtr { base: NonNull::from(at).cast(), tag }
}

#[cfg(not(loom))]
#[test]
fn region_tags_hold_class_and_region() {
    let region = NonNull::from(&REGION).cast();
    for class in (0..RegionTag::ALIGN - 1).map(|index| Class::from_index(index as u8)) {
        // SAFETY: as above.
        let tag = unsafe { RegionTag::new(region, Some(class)) };
        assert_eq!((tag.class(), tag.index(), tag.region()), (Some(class), class.index(), region));
    }
    // SAFETY: as above.
    let whole = unsafe { RegionTag::new(region, None) };
    assert_eq!((whole.class(), whole.region()), (None, region));
    assert!(whole.index() >= CLASSES);
}

#[cfg(not(loom))]
#[test]
fn magazines_double_within_their_budget() {
    let cache = ThreadCache::new(Budget { per_thread: 64 << 10, max_block: 1 << 30 });
    let (small, big) = (class(64), class(60 << 10));
    let bytes = [0u8; 256];
    let large = ByteBudget::new(0);
    assert!(!cache.push(block(&bytes[0], small)), "magazines start with no capacity");
    let mut kept = 0;
    while cache.grow(small, &large) {
        while cache.push(block(&bytes[kept], small)) {
            kept += 1;
        }
    }
    assert_eq!((kept, cache.victim(small)), (64, None));
    assert!(!cache.grow(big, &large), "4 KiB of 64 are reserved");
    assert_eq!(cache.victim(big), Some(small));
    assert_eq!(cache.excess(small), 64, "no block was requested");
    assert!(cache.push(cache.pop(small.index(), 1).unwrap()));
    assert_eq!((cache.excess(small), cache.excess(small)), (32, 64));
    while cache.take(small).is_some() {}
    cache.shrink(small, &large);
    assert!(cache.grow(big, &large));
    assert!(!cache.grow(class(128 << 10), &large), "more than the budget");
    let counters = cache.counters();
    assert_eq!((counters.allocs, counters.frees, counters.freed_bytes), (1, 65, 65 * 64));
}

#[cfg(not(loom))]
#[test]
fn large_magazines_borrow_and_return_budget() {
    const MIB: usize = 1 << 20;
    let cache = ThreadCache::new(Budget { per_thread: 2 * MIB, max_block: 8 * MIB });
    let (large, one, two) = (ByteBudget::new(5 << 20), class(MIB), class(2 * MIB));
    assert!(cache.grow(one, &large) && cache.grow(one, &large));
    assert_eq!(cache.free_slots(one), 2, "of its own budget");
    assert!(cache.grow(two, &large) && cache.grow(two, &large));
    assert_eq!((cache.free_slots(two), cache.grow(class(8 * MIB), &large)), (2, false));
    assert_eq!(large.take(u64::MAX, 1), 1 << 20, "two of 2 MiB are borrowed");
    cache.shrink(one, &large);
    cache.shrink(two, &large);
    assert_eq!(large.take(u64::MAX, 1), 4 << 20);
    assert!(cache.grow(two, &large), "its own budget is free again");
}

#[cfg(not(loom))]
#[test]
fn idle_class_is_first_victim() {
    let cache = ThreadCache::new(Budget { per_thread: 4 << 10, max_block: 1 << 20 });
    let (busy, idle, new) = (class(1 << 10), class(256), class(512));
    let (bytes, large) = ([0u8; 8], ByteBudget::new(0));
    (0..2).for_each(|_| assert!(cache.grow(busy, &large)));
    (0..3).for_each(|_| assert!(cache.grow(idle, &large)));
    while cache.grow(new, &large) {}
    assert!(cache.push(block(&bytes[0], busy)) && cache.push(block(&bytes[1], idle)));
    assert_eq!(cache.victim(new), Some(busy), "both were used, so the one with most bytes");
    assert!(cache.push(cache.pop(busy.index(), 1).unwrap()));
    assert_eq!(cache.victim(new), Some(idle), "idle, although it has fewer bytes");
    assert_eq!(cache.victim(new), Some(busy), "none was used");
    while cache.take(busy).is_some() || cache.take(idle).is_some() {}
}

#[cfg(not(loom))]
#[test]
fn victim_must_free_enough_budget() {
    let cache = ThreadCache::new(Budget { per_thread: (3 << 10) + 64, max_block: 1 << 20 });
    let (busy, tiny, new) = (class(1 << 10), class(64), class(512));
    let (bytes, large) = ([0u8; 8], ByteBudget::new(0));
    assert!(cache.grow(tiny, &large));
    while cache.grow(busy, &large) {}
    assert!(cache.push(block(&bytes[0], busy)));
    assert_eq!(cache.victim(new), Some(busy), "64 bytes are too few for one of 512");
    while cache.take(busy).is_some() {}
}

#[cfg(not(loom))]
#[test]
fn depot_evicts_unused_classes_first() {
    let (cache, depot) =
        (ThreadCache::new(Budget { per_thread: 1 << 20, max_block: 1 << 20 }), Depot::new(4 << 10));
    let (taken, left, new) = (class(256), class(128), class(1 << 10));
    let (bytes, large) = ([0u8; 8], ByteBudget::new(0));
    let keep = |class, count: usize| {
        for byte in &bytes[..count] {
            while !cache.push(block(byte, class)) {
                assert!(cache.grow(class, &large));
            }
        }
    };
    for class in [taken, left] {
        keep(class, 8);
        assert_eq!(depot.store(&cache, class, 8), 8);
    }
    assert!(depot.take(taken).is_some_and(|block| cache.count_direct(block, 1)));
    keep(new, 3);
    assert_eq!(depot.store(&cache, new, 3), 1, "1280 bytes are left");
    let cleared = depot.clear_for(new, 1);
    assert_eq!(cleared.len(), 8, "as many as necessary");
    assert!(cleared.iter().all(|block| block.tag.class() == Some(left)));
    assert_eq!((depot.store(&cache, new, 2), cache.len(new)), (1, 1));
    assert_eq!(depot.clear_for(class(4 << 10), 1).len(), 0, "its bin has no room");
    let other = ThreadCache::new(Budget { per_thread: 1 << 20, max_block: 1 << 20 });
    assert!(other.grow(taken, &large));
    assert_eq!(depot.refill(&other, taken), 1);
    assert_eq!(depot.clear_for(new, 1).len(), 0, "requested since the last call");
    assert_eq!(depot.clear_for(new, 1).len(), 4, "not requested since then");
    depot.drain(drop);
    assert_eq!(depot.budget.take(u64::MAX, 1), 4 << 10, "the budget is complete again");
}

#[cfg(not(loom))]
#[test]
fn depot_moves_blocks_that_fit() {
    let (from, to) =
        (ThreadCache::new(Budget { per_thread: 1 << 20, max_block: 1 << 20 }), Depot::new(1 << 20));
    let bytes = [0u8; 8];
    let class = class(128);
    for byte in &bytes {
        while !from.push(block(byte, class)) {
            assert!(from.grow(class, &ByteBudget::new(0)));
        }
    }
    assert_eq!(to.store(&from, class, 5), 5);
    assert_eq!(from.len(class), 3);
    let other = ThreadCache::new(Budget { per_thread: 1 << 20, max_block: 1 << 20 });
    assert_eq!(to.refill(&other, class), 0, "no room yet");
    assert!(other.grow(class, &ByteBudget::new(0)) && other.grow(class, &ByteBudget::new(0)));
    assert_eq!((to.refill(&other, class), other.len(class)), (2, 2));
    assert!(to.take(class).is_some_and(|block| other.count_direct(block, 100)));
    assert_eq!((other.counters().allocs, other.len(class)), (1, 2));
    let mut rest = 0;
    to.drain(|block| {
        assert_eq!(block.tag.class(), Some(class));
        rest += 1;
    });
    assert_eq!(rest, 2);
    assert_eq!(to.budget.take(u64::MAX, 1), 1 << 20, "the budget is complete again");
}

#[cfg(loom)]
mod models {
    use super::*;
    use crate::sync::ByteBudget;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    const BUDGET: Budget = Budget { per_thread: 256, max_block: 128 };

    /// Writes to a block, which loom checks.
    fn touch(block: BlockPtr) {
        // SAFETY: the models keep their cells to the end; loom checks that no other thread uses them now.
        let cell: &UnsafeCell<u32> = unsafe { block.base.cast().as_ref() };
        // SAFETY: as above.
        cell.with_mut(|value| unsafe { *value += 1 });
    }

    fn keep(cache: &ThreadCache, block: BlockPtr) {
        while !cache.push(block) {
            assert!(cache.grow(class(64), &ByteBudget::new(0)));
        }
    }

    #[test]
    fn blocks_freed_on_one_thread_are_allocated_on_another() {
        loom::model(|| {
            let depot = Arc::new(Depot::new(1 << 20));
            let cells = Arc::new([UnsafeCell::new(0), UnsafeCell::new(0)]);
            let consumer = {
                let (depot, cells) = (depot.clone(), cells.clone());
                loom::thread::spawn(move || {
                    let cache = ThreadCache::new(BUDGET);
                    for cell in &*cells {
                        touch(block(cell, class(64)));
                        keep(&cache, block(cell, class(64)));
                    }
                    assert_eq!(depot.store(&cache, class(64), 2), 2);
                })
            };
            let cache = ThreadCache::new(BUDGET);
            while cache.grow(class(64), &ByteBudget::new(0)) && cache.batch_size(class(64)) < 2 {}
            if depot.refill(&cache, class(64)) > 0 {
                while let Some(block) = cache.pop(class(64).index(), 1) {
                    touch(block);
                }
            }
            consumer.join().unwrap();
        });
    }

    struct SharedCache(ThreadCache);
    // SAFETY: as in a pool, other threads only read counters and raise flags.
    unsafe impl Send for SharedCache {}
    // SAFETY: as above.
    unsafe impl Sync for SharedCache {}

    #[test]
    fn last_counted_free_allows_unmap() {
        loom::model(|| {
            let cell = Arc::new(UnsafeCell::new(0));
            let shared = Arc::new(SharedCache(ThreadCache::new(BUDGET)));
            let user = {
                let (cell, shared) = (cell.clone(), shared.clone());
                loom::thread::spawn(move || {
                    let SharedCache(cache) = &*shared;
                    cache.grow(class(64), &ByteBudget::new(0));
                    touch(block(&*cell, class(64)));
                    cache.push(block(&*cell, class(64)));
                })
            };
            shared.0.pool_dropped.raise();
            if shared.0.counters().frees == 1 {
                // Loom detects a user that has not finished when the memory is freed.
                touch(block(&*cell, class(64)));
            }
            user.join().unwrap();
        });
    }
}
