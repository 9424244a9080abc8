//! Blocks for tests: poisoned heap memory, aligned or misaligned; and a pool of short blocks.
#![allow(dead_code, reason = "shared helpers")]
#![allow(unsafe_code, reason = "implements the raw block contract")]

use core::ptr::NonNull;

use mpj_buffer::pool::{AllocError, Pool, PoolStats, RawBuffer};

/// Value of unwritten bytes, which must never be sent.
pub(crate) const POISON: u8 = 0xA5;

#[repr(align(64))]
#[derive(Clone, Copy, Debug)]
struct Line([u8; 64]);

/// A heap block that begins `skew` bytes after a multiple of 64.
#[derive(Debug)]
pub(crate) struct Heap {
    lines: Vec<Line>,
    skew: usize,
    len: usize,
}

impl Heap {
    pub(crate) fn new(len: usize) -> Self {
        Self::skewed(len, 0)
    }

    pub(crate) fn skewed(len: usize, skew: usize) -> Self {
        Self { lines: vec![Line([POISON; 64]); (len + skew).div_ceil(64).max(1)], skew, len }
    }

    pub(crate) fn holding(bytes: &[u8], len: usize) -> Self {
        let mut heap = Self::new(len);
        for (to, from) in heap.as_uninit_mut().iter_mut().zip(bytes) {
            to.write(*from);
        }
        heap
    }
}

// SAFETY: 1. the vector's memory holds `skew + len` bytes and moves only when the vector grows, which it never does;
// 2. it is private to `self`; 3. no field changes; 4. `region` returns `None`.
unsafe impl RawBuffer for Heap {
    fn as_ptr(&self) -> NonNull<u8> {
        let base = NonNull::new(self.lines.as_ptr().cast_mut()).expect("a vector's pointer").cast::<u8>();
        // SAFETY: `skew` bytes are within the allocation.
        unsafe { base.add(self.skew) }
    }

    fn capacity(&self) -> usize {
        self.len
    }
}

/// A pool of short blocks, so that long values are split.
#[derive(Debug)]
pub(crate) struct ShortBlocks {
    pub(crate) max: usize,
}

impl Pool for ShortBlocks {
    type Block = Heap;

    fn alloc(&self, len: usize) -> Result<Heap, AllocError> {
        Ok(Heap::new(len))
    }

    fn max_alloc(&self) -> usize {
        self.max
    }

    fn stats(&self) -> PoolStats {
        PoolStats::default()
    }

    fn validate(&self) -> Result<(), String> {
        Ok(())
    }
}
