//! Heap storage on an allocator that aligns no more than requested, and checks the alignment of each free.
#![allow(unsafe_code, reason = "an allocator")]

#[path = "suite/contracts.rs"]
mod contracts;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use mpj_pool::{Growth, Heap, Magazine};

/// Puts every allocation at an odd multiple of its alignment.
struct Odd;

impl Odd {
    fn widened(layout: Layout) -> Layout {
        let align = layout.align() * 2;
        Layout::from_size_align(layout.size() + align, align).unwrap_or(layout)
    }
}

// SAFETY: each allocation starts one alignment after the start of a system allocation, which is larger by twice the
// alignment and starts at a multiple of that.
unsafe impl GlobalAlloc for Odd {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the layout is larger than the caller's, which is not empty.
        let start = unsafe { System.alloc(Self::widened(layout)) };
        if start.is_null() { start } else { start.wrapping_add(layout.align()) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        let start = at.wrapping_sub(layout.align());
        MISMATCHED_FREES
            .fetch_add(usize::from(!start.addr().is_multiple_of(layout.align() * 2)), Ordering::Relaxed);
        // SAFETY: `alloc` got it from the system with this layout.
        unsafe { System.dealloc(start, Self::widened(layout)) }
    }
}

/// The number of frees whose address is not an odd multiple of the given alignment.
static MISMATCHED_FREES: AtomicUsize = AtomicUsize::new(0);

#[global_allocator]
static ODD: Odd = Odd;

#[test]
fn pools_need_only_the_requested_alignment() {
    contracts::pool(3 << 20, || Magazine::growing(Growth::default().limit(3 << 20), Heap::create));
    contracts::storage(Heap::create);
    assert_eq!(MISMATCHED_FREES.load(Ordering::Relaxed), 0);
}
