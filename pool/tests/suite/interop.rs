//! Filled blocks, and blocks in types of other crates.

use std::io::Write;

use mpj_pool::{FilledBlock, Growth, Heap, Magazine, Overflow, Pool};

fn pool() -> Magazine<Heap> {
    Magazine::growing(Growth::default(), Heap::create)
}

#[test]
fn filled_bytes_are_readable() {
    let mut written = FilledBlock::new(pool().alloc(64).unwrap());
    written.extend_from_slice(&[1; 60]).unwrap();
    assert_eq!(written.extend_from_slice(&[2; 5]), Err(Overflow { needed: 5, available: 4 }));
    assert_eq!(written.write(&[2; 5]).unwrap(), 4);
    assert!(written.write_all(&[3]).is_err());
    written.as_mut()[0] = 9;
    assert_eq!((written.as_ref()[0], written.as_ref()[63], written.as_ref().len()), (9, 2, 64));
    written.truncate(1);
    assert_eq!((written.as_ref(), written.remaining_capacity()), (&[9][..], 63));
}

#[cfg(feature = "bytes")]
#[test]
fn a_block_becomes_bytes_and_is_freed_with_the_last_clone() {
    use bytes::{Buf, BufMut, Bytes};
    let pool = pool();
    let mut written = FilledBlock::new(pool.alloc(1000).unwrap());
    written.put_u32(7);
    written.put_slice(b"payload");
    assert_eq!(written.remaining_mut(), 1024 - 11);
    let mut bytes = Bytes::from(written);
    let other = bytes.clone();
    assert_eq!((bytes.get_u32(), &bytes[..], other.len()), (7, &b"payload"[..], 11));
    drop(bytes);
    assert_eq!(pool.stats().live_blocks, 1);
    std::thread::spawn(move || drop(other)).join().unwrap();
    assert_eq!(pool.stats().live_blocks, 0);
}

#[cfg(feature = "allocator-api2")]
#[test]
fn collections_live_in_a_pool() {
    use allocator_api2::vec::Vec;
    use mpj_pool::PoolAllocator;
    let pool = pool();
    let mut numbers = Vec::new_in(PoolAllocator::new(&pool));
    let mut map = hashbrown::HashMap::new_in(PoolAllocator::new(&pool));
    for n in 0..20_000u64 {
        numbers.push(n);
        map.insert(n, n * n);
        if n % 3 == 0 {
            map.remove(&(n / 2));
        }
    }
    assert!(numbers.iter().copied().eq(0..20_000));
    assert_eq!(map[&19_999], 19_999 * 19_999);
    assert_eq!(pool.stats().live_blocks, 2);
    numbers.shrink_to_fit();
    drop((numbers, map));
    assert_eq!(pool.stats().live_blocks, 0);
    pool.validate().unwrap();
}

#[cfg(feature = "allocator-api2")]
#[test]
fn alignments_are_met_or_rejected() {
    use allocator_api2::alloc::{Allocator, Layout};
    use mpj_pool::PoolAllocator;
    let pool = pool();
    let memory = PoolAllocator::new(&pool);
    for align in (0..=12).map(|bits| 1 << bits) {
        for size in [0, 1, 100, 5000] {
            let layout = Layout::from_size_align(size, align).unwrap();
            match memory.allocate(layout) {
                Ok(bytes) => {
                    assert!(align <= 2048 && bytes.len() >= size);
                    assert_eq!(bytes.cast::<u8>().addr().get() % align, 0, "{size} {align}");
                    // SAFETY: just allocated with this layout, and not used again.
                    #[allow(unsafe_code, reason = "the allocator's contract")]
                    unsafe {
                        memory.deallocate(bytes.cast(), layout);
                    }
                }
                Err(_) => assert_eq!(align, 4096),
            }
        }
    }
    assert_eq!(pool.stats().live_blocks, 0);
}
