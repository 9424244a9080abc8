//! Random operations on a pool, checked against the list of live blocks.

use crate::contracts::{Extents, check, check_block, fill};
use mpj_pool::{
    AllocErrorKind, Block, Buddy, Buddy1, Buddy2, Growth, Heap, Magazine, Pages, Pool, RawBuffer, Storage,
    StorageError, Unpooled,
};
use proptest::prelude::*;

const MIB: usize = 1 << 20;

/// An operation on a pool. Indices are taken modulo the number of live blocks.
#[derive(Clone, Debug)]
enum Operation {
    Alloc(usize),
    Free(usize),
    FreeOnOtherThread(usize),
    /// A new thread allocates up to five blocks, frees all except one, and exits.
    AllocOnOtherThread(usize),
    Grow(usize, usize),
    Trim,
    Validate,
}

fn operation() -> impl Strategy<Value = Operation> {
    // Sizes of all magnitudes, sometimes a power of two or a neighbour of it, and sometimes 0.
    let size = prop_oneof![
        4 => (0u32..18, any::<prop::sample::Index>()).prop_map(|(bits, at)| at.index(1 << bits) + (1 << bits >> 1)),
        2 => (6u32..18, 0usize..3).prop_map(|(bits, near)| (1 << bits) + near - 1),
        1 => Just(0),
    ];
    prop_oneof![
        10 => size.clone().prop_map(Operation::Alloc),
        2 => (any::<usize>(), size.clone()).prop_map(|(at, len)| Operation::Grow(at, len)),
        1 => size.prop_map(Operation::AllocOnOtherThread),
        6 => any::<usize>().prop_map(Operation::Free),
        2 => any::<usize>().prop_map(Operation::FreeOnOtherThread),
        1 => Just(Operation::Trim),
        1 => Just(Operation::Validate),
    ]
}

trait Grows: Sized {
    fn grow(self, _len: usize) -> Self {
        self
    }
}

impl<S: Storage> Grows for Block<S> {
    fn grow(self, len: usize) -> Self {
        self.try_grow(len).unwrap_or_else(|block| block)
    }
}

impl<S: Storage, B> Grows for mpj_pool::strategy::PaperBlock<S, B> {}
impl<S: Storage> Grows for mpj_pool::strategy::UnpooledBlock<S> {}

fn walk<P: Pool<Block: Grows> + 'static>(pool: P, operations: Vec<Operation>) {
    let mut live: Vec<(P::Block, u64)> = Vec::new();
    let mut extents = Extents::default();
    let mut seed = 0;
    for operation in operations {
        match operation {
            Operation::Alloc(len) => match pool.alloc(len) {
                Ok(mut block) => {
                    check_block(&block, len);
                    extents.insert(&block);
                    fill(&mut block, seed);
                    live.push((block, seed));
                    seed += 1;
                }
                Err(error) => {
                    assert!(
                        error.live_bytes > 0 || matches!(error.kind, AllocErrorKind::Storage(_)),
                        "{error} on an empty pool"
                    )
                }
            },
            Operation::Grow(at, len) if !live.is_empty() => {
                let (block, seed) = live.swap_remove(at % live.len());
                extents.remove(&block);
                let (start, before) = (block.as_ptr(), block.capacity());
                let mut block = block.grow(len);
                assert!(block.as_ptr() == start && block.capacity() >= before);
                extents.insert(&block);
                let old = &block.as_uninit()[..before];
                crate::contracts::check_bytes(old, seed);
                fill(&mut block, seed);
                live.push((block, seed));
            }
            Operation::AllocOnOtherThread(len) => std::thread::scope(|scope| {
                let thread = scope.spawn(|| {
                    let blocks: Vec<_> = (0..5).map_while(|_| pool.alloc(len).ok()).collect();
                    blocks.into_iter().next()
                });
                if let Some(mut block) = thread.join().unwrap() {
                    extents.insert(&block);
                    fill(&mut block, seed);
                    live.push((block, seed));
                    seed += 1;
                }
            }),
            Operation::Free(at) | Operation::FreeOnOtherThread(at) if !live.is_empty() => {
                let (block, seed) = live.swap_remove(at % live.len());
                check(&block, seed);
                extents.remove(&block);
                match operation {
                    Operation::Free(_) => drop(block),
                    _ => std::thread::spawn(move || drop(block)).join().unwrap(),
                }
            }
            Operation::Free(_) | Operation::FreeOnOtherThread(_) | Operation::Grow(..) => {}
            Operation::Trim => {
                pool.trim();
            }
            Operation::Validate => pool.validate().unwrap(),
        }
        assert_eq!(pool.stats().live_blocks, live.len() as u64);
    }
    pool.validate().unwrap();
    drop(pool);
    for (block, seed) in live {
        check(&block, seed);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn buddy_growing_on_heap_keeps_live_blocks(operations in prop::collection::vec(operation(), 0..200)) {
        walk(Buddy::growing(Growth::default().first_region(4096).max_region(128 << 10).limit(MIB), Heap::create), operations);
    }

    #[test]
    fn buddy_growing_on_pages_keeps_live_blocks(operations in prop::collection::vec(operation(), 0..200)) {
        walk(Buddy::growing(Growth::default().first_region(64 << 10).limit(2 * MIB), Pages::create), operations);
    }

    #[test]
    fn buddy1_on_heap_keeps_live_blocks(operations in prop::collection::vec(operation(), 0..100)) {
        walk(Buddy1::growing(Growth::default().first_region(64 << 10).limit(2 * MIB), Heap::create), operations);
    }

    #[test]
    fn buddy2_on_heap_keeps_live_blocks(operations in prop::collection::vec(operation(), 0..100)) {
        walk(Buddy2::growing(Growth::default().first_region(64 << 10).limit(2 * MIB), Heap::create), operations);
    }

    #[test]
    fn unpooled_on_heap_keeps_live_blocks(operations in prop::collection::vec(operation(), 0..100)) {
        walk(Unpooled::new(4 * MIB, Heap::create), operations);
    }

    #[test]
    fn magazine_on_failing_storage_keeps_live_blocks(
        operations in prop::collection::vec(operation(), 0..100),
        fails in prop::collection::vec(any::<bool>(), 1..8),
    ) {
        let next = std::sync::atomic::AtomicUsize::new(0);
        let source = move |len| {
            let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let refused = StorageError::Refused { asked: len, call: "mmap", errno: 12 };
            if fails[at % fails.len()] { Err(refused) } else { Heap::create(len) }
        };
        walk(Magazine::growing(Growth::default().first_region(4096).max_region(128 << 10).limit(MIB), source), operations);
    }

    #[test]
    fn magazine_on_heap_keeps_live_blocks(operations in prop::collection::vec(operation(), 0..200)) {
        walk(Magazine::growing(Growth::default().first_region(4096).max_region(128 << 10).limit(MIB), Heap::create), operations);
    }

    #[cfg(all(target_os = "linux", not(mpj_portable)))]
    #[test]
    fn magazine_on_shared_keeps_live_blocks(operations in prop::collection::vec(operation(), 0..200)) {
        walk(Magazine::fixed(mpj_pool::SharedStorage::create(4 * MIB).unwrap()).unwrap(), operations);
    }

    #[cfg(all(target_os = "linux", not(mpj_portable)))]
    #[test]
    fn buddy_fixed_on_shared_keeps_live_blocks(operations in prop::collection::vec(operation(), 0..200)) {
        walk(Buddy::fixed(mpj_pool::SharedStorage::create(MIB / 2).unwrap()).unwrap(), operations);
    }
}
