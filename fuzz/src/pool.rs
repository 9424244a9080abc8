use std::sync::atomic::{AtomicUsize, Ordering};

use mpj_pool::{
    AllocErrorKind, Block, Buddy, Buddy1, Buddy2, Growth, Heap, Magazine, Pages, Pool, RawBuffer,
    SharedStorage, Storage, StorageError, Unpooled,
};

use crate::contracts::{self, Extents, check, check_block, fill};
use crate::input::Input;

const MIB: usize = 1 << 20;

/// Allocates and grows blocks, frees them on this or another thread, and trims the pool. Live blocks keep their bytes
/// and do not overlap, and `validate` succeeds.
pub fn pool(bytes: &[u8]) {
    let mut input = Input::new(bytes);
    let small = Growth::default().first_region(4096).max_region(128 << 10).limit(MIB);
    match input.below(8) {
        0 => run_operations(Magazine::growing(small, Heap::create), input),
        1 => run_operations(Buddy::growing(small, Heap::create), input),
        2 => run_operations(
            Buddy::growing(Growth::default().first_region(64 << 10).limit(2 * MIB), Pages::create),
            input,
        ),
        3 => run_operations(
            Buddy1::growing(Growth::default().first_region(64 << 10).limit(2 * MIB), Heap::create),
            input,
        ),
        4 => run_operations(
            Buddy2::growing(Growth::default().first_region(64 << 10).limit(2 * MIB), Heap::create),
            input,
        ),
        5 => run_operations(Unpooled::new(4 * MIB, Heap::create), input),
        6 => {
            let (fails, next) = (input.byte(), AtomicUsize::new(0));
            let source = move |len| {
                let refused = StorageError::Refused { asked: len, call: "mmap", errno: 12 };
                let turn = next.fetch_add(1, Ordering::Relaxed) % 8;
                if fails >> turn & 1 == 1 { Err(refused) } else { Heap::create(len) }
            };
            run_operations(Magazine::growing(small, source), input);
        }
        _ => {
            let segment = SharedStorage::create(MIB).expect("memory");
            run_operations(Magazine::fixed(segment).expect("a segment of this size"), input);
        }
    }
}

trait Grows: Sized {
    /// Whether the pool frees idle regions to allocate within its limit. `Buddy1` and `Buddy2` do not.
    const FREES_IDLE_REGIONS: bool = true;

    fn grow(self, _len: usize) -> Self {
        self
    }
}

impl<S: Storage> Grows for Block<S> {
    fn grow(self, len: usize) -> Self {
        self.try_grow(len).unwrap_or_else(|block| block)
    }
}

impl<S: Storage, B> Grows for mpj_pool::strategy::PaperBlock<S, B> {
    const FREES_IDLE_REGIONS: bool = false;
}

impl<S: Storage> Grows for mpj_pool::strategy::UnpooledBlock<S> {}

/// Returns a length below 256 KiB, a length near a power of two, or an edge value, which can be too large for any pool.
fn len(input: &mut Input<'_>) -> usize {
    match input.below(8) {
        0..4 => (input.u32() as usize) >> (14 + input.below(18)),
        4..7 => ((1 << input.within(6, 18)) + input.below(3)) - 1,
        _ => input.edge() as usize,
    }
}

fn run_operations<P: Pool<Block: Grows> + 'static>(pool: P, mut input: Input<'_>) {
    let mut live: Vec<(P::Block, u64)> = Vec::new();
    let mut extents = Extents::default();
    let mut seed = 0;
    for _ in 0..200 {
        if input.is_empty() {
            break;
        }
        match input.below(24) {
            0..10 => {
                let len = len(&mut input);
                match pool.alloc(len) {
                    Ok(mut block) => {
                        check_block(&block, len);
                        extents.insert(&block);
                        fill(&mut block, seed);
                        live.push((block, seed));
                        seed += 1;
                    }
                    Err(error) => {
                        let why = matches!(error.kind, AllocErrorKind::Storage(_) | AllocErrorKind::TooLarge);
                        let empty = error.live_bytes == 0 && P::Block::FREES_IDLE_REGIONS;
                        assert!(!empty || why, "{error} on an empty pool");
                        assert_eq!(error.requested, len);
                        assert!(
                            !matches!(error.kind, AllocErrorKind::TooLarge) || len > pool.max_alloc(),
                            "{error}"
                        );
                    }
                }
            }
            kind @ 10..18 if !live.is_empty() => {
                let at = input.below(live.len());
                let (block, seed) = live.swap_remove(at);
                check(&block, seed);
                extents.remove(&block);
                if kind < 15 {
                    drop(block);
                } else {
                    std::thread::scope(|scope| drop(scope.spawn(move || drop(block))));
                }
            }
            18 | 19 if !live.is_empty() => {
                let at = input.below(live.len());
                let (block, seed) = live.swap_remove(at);
                extents.remove(&block);
                let (start, before) = (block.as_ptr(), block.capacity());
                let mut block = block.grow(len(&mut input));
                assert!(block.as_ptr() == start && block.capacity() >= before);
                extents.insert(&block);
                contracts::check_bytes(&block.as_uninit()[..before], seed);
                fill(&mut block, seed);
                live.push((block, seed));
            }
            20 => {
                // A thread allocates, frees all blocks but one, and exits.
                let len = len(&mut input);
                let left = std::thread::scope(|scope| {
                    let visit = scope.spawn(|| {
                        let blocks: Vec<_> = (0..5).map_while(|_| pool.alloc(len).ok()).collect();
                        blocks.into_iter().next()
                    });
                    visit.join().expect("no panic")
                });
                if let Some(mut block) = left {
                    extents.insert(&block);
                    fill(&mut block, seed);
                    live.push((block, seed));
                    seed += 1;
                }
            }
            21 => {
                pool.trim();
            }
            22 => pool.validate().expect("a valid pool"),
            _ => (),
        }
        let stats = pool.stats();
        assert_eq!(stats.live_blocks, live.len() as u64);
        assert_eq!(stats.live_bytes, live.iter().map(|(block, _)| block.capacity() as u64).sum::<u64>());
    }
    pool.validate().expect("a valid pool");
    drop(pool);
    live.iter().for_each(|(block, seed)| check(block, *seed));
}
