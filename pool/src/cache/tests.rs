use super::*;
use crate::sync::ByteBudget;

fn class(bytes: usize) -> Class {
    Class::for_len(bytes).unwrap()
}

/// A region as a block sees it.
#[repr(align(256))]
struct Region(#[expect(dead_code, reason = "only its address is used")] [u8; RegionTag::ALIGN]);

static REGION: Region = Region([0; RegionTag::ALIGN]);

fn block<T>(at: &T, class: Class) -> BlockPtr {
    // SAFETY: it is as long and as aligned as it must be.
    let home = unsafe { RegionTag::new(NonNull::from(&REGION).cast(), Some(class)) };
    BlockPtr { base: NonNull::from(at).cast(), home }
}

#[cfg(not(loom))]
#[test]
fn homes_say_which_class_and_region() {
    let region = NonNull::from(&REGION).cast();
    for class in (0..RegionTag::ALIGN - 1).map(|index| Class::at(index as u8)) {
        // SAFETY: as above.
        let home = unsafe { RegionTag::new(region, Some(class)) };
        assert_eq!((home.class(), home.index(), home.region()), (Some(class), class.index(), region));
    }
    // SAFETY: as above.
    let whole = unsafe { RegionTag::new(region, None) };
    assert_eq!((whole.class(), whole.region()), (None, region));
    assert!(whole.index() >= CLASSES);
}

#[cfg(not(loom))]
#[test]
fn magazines_double_within_their_budget() {
    let local = ThreadCache::new(Budget { thread: 64 << 10, greatest: 1 << 30 });
    let (small, big) = (class(64), class(60 << 10));
    let bytes = [0u8; 256];
    let large = ByteBudget::new(0);
    assert!(!local.push(block(&bytes[0], small)), "they start with nothing");
    let mut kept = 0;
    while local.grow(small, &large) {
        while local.push(block(&bytes[kept], small)) {
            kept += 1;
        }
    }
    assert_eq!((kept, local.victim(small)), (64, None));
    assert!(!local.grow(big, &large), "4 KiB of 64 are set aside");
    assert_eq!(local.victim(big), Some(small));
    assert_eq!(local.overflow(small), 64, "nobody has asked for one");
    assert!(local.push(local.pop(small.index(), 1).unwrap()));
    assert_eq!((local.overflow(small), local.overflow(small)), (32, 64));
    while local.unstock(small).is_some() {}
    local.shut(small, &large);
    assert!(local.grow(big, &large));
    assert!(!local.grow(class(128 << 10), &large), "more than the budget");
    let ledger = local.ledger();
    assert_eq!((ledger.allocs, ledger.frees, ledger.returned), (1, 65, 65 * 64));
}

#[cfg(not(loom))]
#[test]
fn great_magazines_borrow_and_give_back() {
    const MIB: usize = 1 << 20;
    let local = ThreadCache::new(Budget { thread: 2 * MIB, greatest: 8 * MIB });
    let (large, one, two) = (ByteBudget::new(5 << 20), class(MIB), class(2 * MIB));
    assert!(local.grow(one, &large) && local.grow(one, &large));
    assert_eq!(local.space(one), 2, "of its own budget");
    assert!(local.grow(two, &large) && local.grow(two, &large));
    assert_eq!((local.space(two), local.grow(class(8 * MIB), &large)), (2, false));
    assert_eq!(large.take(u64::MAX, 1), 1 << 20, "two of 2 MiB are borrowed");
    local.shut(one, &large);
    local.shut(two, &large);
    assert_eq!(large.take(u64::MAX, 1), 4 << 20);
    assert!(local.grow(two, &large), "its own budget is whole again");
}

#[cfg(not(loom))]
#[test]
fn who_is_idle_gives_way_first() {
    let local = ThreadCache::new(Budget { thread: 4 << 10, greatest: 1 << 20 });
    let (busy, idle, new) = (class(1 << 10), class(256), class(512));
    let (bytes, large) = ([0u8; 8], ByteBudget::new(0));
    (0..2).for_each(|_| assert!(local.grow(busy, &large)));
    (0..3).for_each(|_| assert!(local.grow(idle, &large)));
    while local.grow(new, &large) {}
    assert!(local.push(block(&bytes[0], busy)) && local.push(block(&bytes[1], idle)));
    assert_eq!(local.victim(new), Some(busy), "both were used, so the one with most bytes");
    assert!(local.push(local.pop(busy.index(), 1).unwrap()));
    assert_eq!(local.victim(new), Some(idle), "although it has less");
    assert_eq!(local.victim(new), Some(busy), "none was used");
    while local.unstock(busy).is_some() || local.unstock(idle).is_some() {}
}

#[cfg(not(loom))]
#[test]
fn who_gives_way_must_help() {
    let local = ThreadCache::new(Budget { thread: (3 << 10) + 64, greatest: 1 << 20 });
    let (busy, tiny, new) = (class(1 << 10), class(64), class(512));
    let (bytes, large) = ([0u8; 8], ByteBudget::new(0));
    assert!(local.grow(tiny, &large));
    while local.grow(busy, &large) {}
    assert!(local.push(block(&bytes[0], busy)));
    assert_eq!(local.victim(new), Some(busy), "64 bytes are too few for one of 512");
    while local.unstock(busy).is_some() {}
}

#[cfg(not(loom))]
#[test]
fn the_depot_makes_room_with_what_nobody_takes() {
    let (local, depot) =
        (ThreadCache::new(Budget { thread: 1 << 20, greatest: 1 << 20 }), Depot::new(4 << 10));
    let (taken, left, new) = (class(256), class(128), class(1 << 10));
    let (bytes, large) = ([0u8; 8], ByteBudget::new(0));
    let keep = |class, count: usize| {
        for byte in &bytes[..count] {
            while !local.push(block(byte, class)) {
                assert!(local.grow(class, &large));
            }
        }
    };
    for class in [taken, left] {
        keep(class, 8);
        assert_eq!(depot.store(&local, class, 8), 8);
    }
    assert!(depot.take(taken).is_some_and(|block| local.pass(block, 1)));
    keep(new, 3);
    assert_eq!(depot.store(&local, new, 3), 1, "1280 bytes are left");
    let cleared = depot.clear_for(new, 1);
    assert_eq!(cleared.len(), 8, "as many as it takes");
    assert!(cleared.iter().all(|block| block.home.class() == Some(left)));
    assert_eq!((depot.store(&local, new, 2), local.len(new)), (1, 1));
    assert_eq!(depot.clear_for(class(4 << 10), 1).len(), 0, "its shelf has no place for one");
    let other = ThreadCache::new(Budget { thread: 1 << 20, greatest: 1 << 20 });
    assert!(other.grow(taken, &large));
    assert_eq!(depot.restock(&other, taken), 1);
    assert_eq!(depot.clear_for(new, 1).len(), 0, "somebody asked since the last time");
    assert_eq!(depot.clear_for(new, 1).len(), 4, "but not since then");
    depot.drain(drop);
    assert_eq!(depot.room.take(u64::MAX, 1), 4 << 10, "all room is there again");
}

#[cfg(not(loom))]
#[test]
fn the_depot_moves_what_fits() {
    let (from, to) = (ThreadCache::new(Budget { thread: 1 << 20, greatest: 1 << 20 }), Depot::new(1 << 20));
    let bytes = [0u8; 8];
    let class = class(128);
    for byte in &bytes {
        while !from.push(block(byte, class)) {
            assert!(from.grow(class, &ByteBudget::new(0)));
        }
    }
    assert_eq!(to.store(&from, class, 5), 5);
    assert_eq!(from.len(class), 3);
    let other = ThreadCache::new(Budget { thread: 1 << 20, greatest: 1 << 20 });
    assert_eq!(to.restock(&other, class), 0, "no room yet");
    assert!(other.grow(class, &ByteBudget::new(0)) && other.grow(class, &ByteBudget::new(0)));
    assert_eq!((to.restock(&other, class), other.len(class)), (2, 2));
    assert!(to.take(class).is_some_and(|block| other.pass(block, 100)));
    assert_eq!((other.ledger().allocs, other.len(class)), (1, 2));
    let mut rest = 0;
    to.drain(|block| {
        assert_eq!(block.home.class(), Some(class));
        rest += 1;
    });
    assert_eq!(rest, 2);
    assert_eq!(to.room.take(u64::MAX, 1), 1 << 20, "all room is there again");
}

#[cfg(loom)]
mod models {
    use super::*;
    use crate::sync::ByteBudget;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;

    const BUDGET: Budget = Budget { thread: 256, greatest: 128 };

    /// Uses the bytes of a block, which loom watches.
    fn touch(block: BlockPtr) {
        // SAFETY: the models keep their cells to the end; loom checks that no other thread uses them now.
        let cell: &UnsafeCell<u32> = unsafe { block.base.cast().as_ref() };
        // SAFETY: as above.
        cell.with_mut(|value| unsafe { *value += 1 });
    }

    fn keep(local: &ThreadCache, block: BlockPtr) {
        while !local.push(block) {
            assert!(local.grow(class(64), &ByteBudget::new(0)));
        }
    }

    #[test]
    fn blocks_freed_here_are_allocated_there() {
        loom::model(|| {
            let depot = Arc::new(Depot::new(1 << 20));
            let cells = Arc::new([UnsafeCell::new(0), UnsafeCell::new(0)]);
            let consumer = {
                let (depot, cells) = (depot.clone(), cells.clone());
                loom::thread::spawn(move || {
                    let local = ThreadCache::new(BUDGET);
                    for cell in &*cells {
                        touch(block(cell, class(64)));
                        keep(&local, block(cell, class(64)));
                    }
                    assert_eq!(depot.store(&local, class(64), 2), 2);
                })
            };
            let local = ThreadCache::new(BUDGET);
            while local.grow(class(64), &ByteBudget::new(0)) && local.wanted(class(64)) < 2 {}
            if depot.restock(&local, class(64)) > 0 {
                while let Some(block) = local.pop(class(64).index(), 1) {
                    touch(block);
                }
            }
            consumer.join().unwrap();
        });
    }

    /// The magazines, as a pool and a thread share them.
    struct Seen(ThreadCache);
    // SAFETY: as in a pool, only counts are read and flags raised from elsewhere.
    unsafe impl Send for Seen {}
    // SAFETY: as above.
    unsafe impl Sync for Seen {}

    #[test]
    fn who_counts_the_last_free_may_unmap() {
        loom::model(|| {
            let cell = Arc::new(UnsafeCell::new(0));
            let seen = Arc::new(Seen(ThreadCache::new(BUDGET)));
            let user = {
                let (cell, seen) = (cell.clone(), seen.clone());
                loom::thread::spawn(move || {
                    let Seen(local) = &*seen;
                    local.grow(class(64), &ByteBudget::new(0));
                    touch(block(&*cell, class(64)));
                    local.push(block(&*cell, class(64)));
                })
            };
            seen.0.orphaned.raise();
            if seen.0.ledger().frees == 1 {
                // The memory is freed; loom would detect a user that is not done.
                touch(block(&*cell, class(64)));
            }
            user.join().unwrap();
        });
    }
}
