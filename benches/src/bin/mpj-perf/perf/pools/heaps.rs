//! Blocks of allocators that implement `GlobalAlloc`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use super::contender::{Block, BlockSource, Contender, Kind, Name, PoolContender};

/// The alignment of `malloc`. The pools guarantee more, but a general allocator is slower at larger alignments.
const ALIGN: usize = 16;

/// An allocator that implements `GlobalAlloc`, as a contender.
pub(super) struct Heap<A: 'static>(&'static A);

/// A block of a `GlobalAlloc` allocator.
///
/// # Invariants
/// 1. `at` is a live allocation of `heap`, of `len` bytes aligned to [`ALIGN`]. Only this handle refers to it.
pub(super) struct HeapBlock<A: GlobalAlloc + 'static> {
    at: NonNull<u8>,
    len: usize,
    heap: &'static A,
}

pub(super) const SYSTEM: Name = Name {
    strategy: if cfg!(target_env = "gnu") { "glibc" } else { "system" },
    storage: "heap",
    kind: Kind::General,
};

pub(super) fn system() -> Box<dyn Contender + Send> {
    static HEAP: System = System;
    contender(SYSTEM, &HEAP)
}

pub(super) fn contender<A: GlobalAlloc + Send + Sync>(
    name: Name,
    heap: &'static A,
) -> Box<dyn Contender + Send> {
    Box::new(PoolContender::new(name, Heap(heap)))
}

fn layout(len: usize) -> Option<Layout> {
    Layout::from_size_align(len, ALIGN).ok().filter(|layout| layout.size() > 0)
}

impl<A: GlobalAlloc + Send + Sync> BlockSource for Heap<A> {
    type Block = HeapBlock<A>;

    #[inline(always)]
    fn alloc(&self, len: usize) -> Option<HeapBlock<A>> {
        let layout = layout(len)?;
        // SAFETY: the layout has a size above 0.
        let at = unsafe { self.0.alloc(layout) };
        Some(HeapBlock { at: NonNull::new(at)?, len, heap: self.0 })
    }
}

// SAFETY: by invariant 1 the handle owns its bytes; the allocator may be used from any thread.
unsafe impl<A: GlobalAlloc + Send + Sync> Send for HeapBlock<A> {}

impl<A: GlobalAlloc + Send + Sync> Block for HeapBlock<A> {
    #[inline(always)]
    fn bytes(&mut self) -> &mut [MaybeUninit<u8>] {
        // SAFETY: invariant 1, and `&mut self` makes this the only view.
        unsafe { std::slice::from_raw_parts_mut(self.at.as_ptr().cast(), self.len) }
    }
}

impl<A: GlobalAlloc> Drop for HeapBlock<A> {
    #[inline(always)]
    fn drop(&mut self) {
        // SAFETY: invariant 1: `Heap::alloc` made the block with this layout.
        let layout = unsafe { Layout::from_size_align_unchecked(self.len, ALIGN) };
        // SAFETY: invariant 1; the handle is not used afterwards.
        unsafe { self.heap.dealloc(self.at.as_ptr(), layout) };
    }
}
