//! [`PoolAllocator`] keeps the contract of an allocator in every call that a collection makes.
#![cfg(feature = "allocator-api2")]
#![allow(unsafe_code, reason = "the allocator's contract is unsafe to call")]

use allocator_api2::alloc::{Allocator, Layout};
use core::ptr::NonNull;
use mpj_pool::{Growth, Heap, Magazine, Pool, PoolAllocator};
use proptest::collection::vec;
use proptest::prelude::*;

const ALIGN_EXPONENTS: u32 = 12;

fn pool() -> Magazine<Heap> {
    Magazine::growing(Growth::default(), Heap::create)
}

fn layout(size: usize, align_exponent: u32) -> Layout {
    Layout::from_size_align(size, 1 << align_exponent).expect("a small layout")
}

struct Allocation {
    at: NonNull<u8>,
    layout: Layout,
    expected: Vec<u8>,
}

impl Allocation {
    /// Checks the allocation and its `kept` bytes, and fills all bytes after them with `fill`.
    fn new(got: NonNull<[u8]>, layout: Layout, kept: &[u8], zeroed: bool, fill: u8) -> Self {
        assert!(got.len() >= layout.size(), "{} bytes for {layout:?}", got.len());
        let at = got.cast::<u8>();
        assert_eq!(at.addr().get() % layout.align(), 0, "{at:?} for {layout:?}");
        let mut allocation = Self { at, layout, expected: kept.to_vec() };
        allocation.check();
        for i in kept.len()..got.len() {
            // SAFETY: within the bytes that the allocator gave.
            let byte = unsafe { at.add(i) };
            if zeroed {
                // SAFETY: the allocator has promised zeros.
                assert_eq!(unsafe { byte.read() }, 0, "byte {i} of {layout:?}");
            }
            // SAFETY: all returned bytes may be written, also those beyond the size of the layout.
            unsafe { byte.write(fill) };
        }
        allocation.expected.resize(layout.size(), fill);
        allocation
    }

    fn check(&self) {
        for (i, byte) in self.expected.iter().enumerate() {
            // SAFETY: within the layout.
            let at = unsafe { self.at.add(i) };
            // SAFETY: written before.
            let found = unsafe { at.read() };
            assert_eq!(found, *byte, "byte {i} of {:?}", self.layout);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Change {
    Grow,
    GrowZeroed,
    Shrink,
}

/// Changes the layout of `allocation` to `new`, which has a valid size for `change_kind`.
fn change(
    memory: &PoolAllocator<'_, Heap>,
    allocation: Allocation,
    new: Layout,
    change_kind: Change,
    fill: u8,
) -> Allocation {
    allocation.check();
    let (at, old) = (allocation.at, allocation.layout);
    let got = match change_kind {
        // SAFETY: allocated with `old`, not used again; `new` is no smaller.
        Change::Grow => unsafe { memory.grow(at, old, new) },
        // SAFETY: the same.
        Change::GrowZeroed => unsafe { memory.grow_zeroed(at, old, new) },
        // SAFETY: allocated with `old`, not used again; `new` is no larger.
        Change::Shrink => unsafe { memory.shrink(at, old, new) },
    };
    let kept = &allocation.expected[..old.size().min(new.size())];
    Allocation::new(got.expect("memory"), new, kept, matches!(change_kind, Change::GrowZeroed), fill)
}

fn free(memory: &PoolAllocator<'_, Heap>, allocation: Allocation) {
    allocation.check();
    // SAFETY: allocated with this layout, and not used again.
    unsafe { memory.deallocate(allocation.at, allocation.layout) };
}

#[test]
fn memory_moves_between_any_two_alignments() {
    let pool = pool();
    let memory = PoolAllocator::new(&pool);
    for (from, to) in (0..ALIGN_EXPONENTS).flat_map(|from| (0..ALIGN_EXPONENTS).map(move |to| (from, to))) {
        for (less, more) in [(0, 0), (0, 1), (1, 1), (100, 150), (100, 100), (60, 5000), (4000, 70_000)] {
            for change_kind in [Change::Grow, Change::GrowZeroed, Change::Shrink] {
                let (old, new) =
                    if matches!(change_kind, Change::Shrink) { (more, less) } else { (less, more) };
                let (old, new) = (layout(old, from), layout(new, to));
                let allocation = Allocation::new(memory.allocate(old).expect("memory"), old, &[], false, 1);
                let allocation = change(&memory, allocation, new, change_kind, 2);
                free(&memory, allocation);
                assert_eq!(pool.stats().live_blocks, 0, "{old:?} to {new:?} by {change_kind:?}");
            }
        }
    }
    pool.validate().expect("a valid pool");
}

#[test]
fn rejected_alignment_leaves_the_memory_unchanged() {
    let pool = pool();
    let memory = PoolAllocator::new(&pool);
    let (old, new) = (layout(100, 3), layout(200, ALIGN_EXPONENTS));
    let allocation = Allocation::new(memory.allocate(old).expect("memory"), old, &[], false, 7);
    // SAFETY: allocated with `old`; `new` is larger. A failed call leaves the memory to the caller.
    unsafe { memory.grow(allocation.at, old, new) }
        .expect_err("the pool allocator supports only alignments up to 2048");
    // SAFETY: the same, with a layout that is no larger.
    unsafe { memory.shrink(allocation.at, old, layout(50, ALIGN_EXPONENTS)) }
        .expect_err("the pool allocator supports only alignments up to 2048");
    free(&memory, allocation);
    assert_eq!(pool.stats().live_blocks, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn random_changes_keep_the_content(
        steps in vec(
            (0usize..4, any::<u8>(), prop_oneof![Just(0usize), 0usize..300, 0usize..40_000], 0..ALIGN_EXPONENTS),
            1..40,
        ),
    ) {
        let pool = pool();
        let memory = PoolAllocator::new(&pool);
        let mut all: [Option<Allocation>; 4] = Default::default();
        for (which, choice, size, align) in steps {
            let next = match all[which].take() {
                None if choice & 1 == 0 => {
                    let layout = layout(size, align);
                    Some(Allocation::new(memory.allocate(layout).expect("memory"), layout, &[], false, choice))
                }
                None => {
                    let layout = layout(size, align);
                    Some(Allocation::new(memory.allocate_zeroed(layout).expect("memory"), layout, &[], true, choice))
                }
                Some(allocation) if choice % 8 == 7 => {
                    free(&memory, allocation);
                    None
                }
                Some(allocation) => {
                    let change_kind = match (size < allocation.layout.size(), choice & 1) {
                        (true, _) => Change::Shrink,
                        (false, 0) => Change::Grow,
                        (false, _) => Change::GrowZeroed,
                    };
                    Some(change(&memory, allocation, layout(size, align), change_kind, choice))
                }
            };
            all[which] = next;
            all.iter().flatten().for_each(Allocation::check);
            prop_assert_eq!(pool.stats().live_blocks as usize, all.iter().flatten().count());
        }
        all.into_iter().flatten().for_each(|allocation| free(&memory, allocation));
        prop_assert_eq!(pool.stats().live_blocks, 0);
        pool.validate().expect("a valid pool");
    }
}
