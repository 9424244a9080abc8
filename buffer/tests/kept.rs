//! The memory of the global pool that a cleared buffer keeps. Runs in its own process: no other test uses the pool.

use std::sync::Arc;

use mpj_buffer::Buffer;
use mpj_buffer::pool::{Buddy, Growth, Heap, Pool, global};

#[test]
fn cleared_buffer_keeps_one_chunk_of_bounded_size() {
    const MAX_KEPT_BYTES: u64 = 160 << 10;
    let held = || (global().stats().live_blocks, global().stats().live_bytes);
    let mut buffer = Buffer::with_capacity(4096).unwrap();
    let (blocks, bytes) = held();
    buffer = buffer.commit().clear();
    assert_eq!(held(), (blocks, bytes), "a message without objects needs no chunk");
    for size in [1usize, 4000, 60_000, 100_000, 200_000, 1 << 20, 20 << 20, 5] {
        buffer.write_object("first").unwrap();
        buffer.write_dynamic(&vec![1u8; size]).unwrap();
        assert!(held().1 >= bytes + size as u64);
        buffer = buffer.commit().clear();
        let (now, granted) = held();
        assert_eq!(now, blocks + 1, "{size}");
        assert!(granted > bytes && granted <= bytes + MAX_KEPT_BYTES, "{size}: {}", granted - bytes);
    }
    let mut other = Buffer::with_capacity(64).unwrap();
    let before = held();
    other.write_dynamic(&vec![1u8; 1 << 20]).unwrap();
    drop(other.commit().clear());
    assert!(held().0 < before.0);

    let allocs = || global().stats().allocs;
    let mut other = Buffer::with_capacity(64).unwrap();
    let mut before = 0;
    for round in 0..10 {
        buffer.write_object("again").unwrap();
        buffer = buffer.commit().clear();
        other.write_object("first").unwrap();
        other.write_dynamic(&[1u8; 60_000]).unwrap();
        other = other.commit().clear();
        if round == 2 {
            before = allocs();
        }
    }
    assert_eq!(allocs(), before);
    drop(other);

    let pool = Arc::new(Buddy::growing(Growth::default().limit(1 << 20), Heap::create));
    buffer.set_pool(Arc::clone(&pool));
    assert_eq!(held(), (blocks, bytes), "`set_pool` frees the kept block of the global pool");
    for _ in 0..3 {
        buffer.write_object("elsewhere").unwrap();
        assert_eq!((held(), pool.stats().live_blocks), ((blocks, bytes), 1));
        buffer = buffer.commit().clear();
        assert_eq!(pool.stats().live_blocks, 0, "all blocks of a pool set by set_pool are freed");
    }
    drop(buffer);
    assert_eq!(held().0, blocks - 1);

    #[cfg(feature = "bytes")]
    {
        let mut buffer = Buffer::with_capacity(4096).unwrap();
        buffer.write_dynamic(&[1u8; 100_000]).unwrap();
        let (blocks, before) = held();
        let bytes = buffer.commit().clear().commit().into_bytes();
        assert!(held().0 < blocks && held().1 <= before - 100_000, "`Bytes` keep only the message");
        drop(bytes);
    }
}
