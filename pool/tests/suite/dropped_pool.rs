//! A dropped pool frees its memory when a thread that has not allocated from it frees the last block.
#![allow(unsafe_code, reason = "implements a storage")]

use std::sync::Arc;

use mpj_pool::{Backing, Growth, Heap, Magazine, Pool, Storage};

#[derive(Debug)]
struct Watched(Heap, #[expect(dead_code, reason = "counted, not read")] Arc<()>);

// SAFETY: all as the heap does.
unsafe impl Storage for Watched {
    fn base(&self) -> std::ptr::NonNull<u8> {
        self.0.base()
    }

    fn size(&self) -> usize {
        self.0.size()
    }

    fn backing(&self) -> Backing {
        self.0.backing()
    }
}

#[test]
fn a_thread_that_only_frees_caches_no_block_of_a_dropped_pool() {
    let watch = Arc::new(());
    let source = {
        let watch = Arc::clone(&watch);
        move |len| Heap::create(len).map(|heap| Watched(heap, Arc::clone(&watch)))
    };
    let pool = Magazine::growing(Growth::default(), source);
    let block = std::thread::scope(|scope| scope.spawn(|| pool.alloc(1000).unwrap()).join().unwrap());
    drop(pool);
    drop(block);
    assert_eq!(Arc::strong_count(&watch), 1, "the memory of the dropped pool is freed");
}
