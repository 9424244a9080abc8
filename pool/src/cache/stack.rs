//! The free blocks of one class that a thread keeps.

use core::cell::Cell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::{BlockPtr, Budget, RegionTag};
use crate::sync::OwnerCounter;

/// The free blocks of one class that a thread keeps.
///
/// Its length is not stored but computed: `net_refills + frees - allocs`. So taking a block writes one number, and putting one
/// back writes another. If both wrote the same number, each would wait until the last store of the other had left the
/// store buffer, which takes longer than all the rest.
///
/// # Invariants
/// 1. `slots` points to the slots of this stack in `ThreadCache::slots`, which live as long.
/// 2. `len() ≤ capacity ≤ limit ≤ Budget::MAX_BLOCKS`, and the first `len()` slots are initialised.
#[repr(align(64))]
pub(super) struct Stack {
    /// Blocks handed out from here.
    pub(super) allocs: OwnerCounter,
    /// Blocks that came back to here.
    pub(super) frees: OwnerCounter,
    /// Blocks that came from the depot or a region, less those that went there.
    pub(super) net_refills: Cell<u64>,
    /// How many it may hold for now: the bytes for them are set aside from the budget.
    pub(super) capacity: Cell<u64>,
    /// Bytes of a block.
    pub(super) bytes: usize,
    pub(super) slots: NonNull<Slots>,
    /// How many it may ever hold.
    pub(super) limit: u64,
    /// The value of `allocs` when the stack was last full.
    pub(super) allocs_when_full: Cell<u64>,
}

const _: () = assert!(size_of::<Stack>() == 64, "one cache line");

/// The places of one stack, bases and tags apart: a thread that reads 16 bytes which it has just written as twice 8
/// waits until they are in the cache.
pub(super) struct Slots {
    bases: [Slot<NonNull<u8>>; Budget::MAX_BLOCKS],
    tags: [Slot<RegionTag>; Budget::MAX_BLOCKS],
}

type Slot<T> = Cell<MaybeUninit<T>>;

impl Stack {
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.net_refills.get().wrapping_add(self.frees.own()).wrapping_sub(self.allocs.own())
    }

    /// Returns the block that was put here last, to be counted as gone by the caller.
    #[inline]
    pub(super) fn peek(&self) -> Option<BlockPtr> {
        let top = self.len().checked_sub(1)? as usize;
        // SAFETY: `top < len() ≤ Budget::MAX_BLOCKS` by invariant 2.
        let (base, tag) = unsafe { self.slot(top) };
        // SAFETY: it was written, by invariant 2.
        let base = unsafe { base.get().assume_init() };
        // SAFETY: as above.
        let tag = unsafe { tag.get().assume_init() };
        Some(BlockPtr { base, tag })
    }

    /// # Safety
    /// `at` is less than `Budget::MAX_BLOCKS`.
    #[inline]
    unsafe fn slot(&self, at: usize) -> (&Slot<NonNull<u8>>, &Slot<RegionTag>) {
        debug_assert!(at < Budget::MAX_BLOCKS);
        // SAFETY: invariant 1; slots are only ever shared, as cells.
        let slots = unsafe { self.slots.as_ref() };
        // SAFETY: the caller's promise.
        let base = unsafe { slots.bases.get_unchecked(at) };
        // SAFETY: the caller's promise.
        let tag = unsafe { slots.tags.get_unchecked(at) };
        (base, tag)
    }

    /// Pushes a block, to be counted by the caller; returns false if there is no room.
    #[inline]
    pub(super) fn push_uncounted(&self, block: BlockPtr) -> bool {
        let len = self.len();
        if len >= self.capacity.get() {
            return false;
        }
        // SAFETY: `len < capacity ≤ Budget::MAX_BLOCKS` by invariant 2.
        let (base, tag) = unsafe { self.slot(len as usize) };
        base.set(MaybeUninit::new(block.base));
        tag.set(MaybeUninit::new(block.tag));
        true
    }
}
