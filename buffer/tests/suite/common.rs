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
    _lines: Vec<Line>,
    /// The first byte of the block, in the vector's memory.
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: `base` points to memory that the value owns.
unsafe impl Send for Heap {}
// SAFETY: as above; `&Heap` gives only read access.
unsafe impl Sync for Heap {}

impl Heap {
    pub(crate) fn new(len: usize) -> Self {
        Self::skewed(len, 0)
    }

    pub(crate) fn skewed(len: usize, skew: usize) -> Self {
        let mut lines = vec![Line([POISON; 64]); (len + skew).div_ceil(64).max(1)];
        let base = NonNull::new(lines.as_mut_ptr().cast::<u8>().wrapping_add(skew));
        Self { _lines: lines, base: base.expect("a vector's pointer"), len }
    }

    pub(crate) fn with_contents(bytes: &[u8], len: usize) -> Self {
        let mut heap = Self::new(len);
        for (to, from) in heap.as_uninit_mut().iter_mut().zip(bytes) {
            to.write(*from);
        }
        heap
    }
}

// SAFETY: 1. the vector's memory holds `len` bytes from `base` on, and moves only when the vector grows, which it never
// does; 2. it is private to `self`; 3. no field changes; 4. `region` returns `None`.
unsafe impl RawBuffer for Heap {
    fn as_ptr(&self) -> NonNull<u8> {
        self.base
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
