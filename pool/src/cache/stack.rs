use core::cell::Cell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::{BlockPtr, Budget, RegionTag};
use crate::sync::OwnerCounter;

/// The free blocks of one class.
///
/// The length is computed: `net_refills + frees - allocs`. With a stored length, `pop` and `push` would each wait for
/// the number that the other has just stored; here each increments its own counter.
///
/// # Invariants
/// 1. `slots` points to the slots of this stack in `ThreadCache::slots`, which live as long as the stack.
/// 2. `len() ≤ capacity ≤ max_capacity ≤ Budget::MAX_BLOCKS`, and the first `len()` slots are initialised.
#[repr(align(64))]
pub(super) struct Stack {
    pub(super) allocs: OwnerCounter,
    pub(super) frees: OwnerCounter,
    /// Blocks taken from the depot or a region, minus those returned there.
    pub(super) net_refills: Cell<u64>,
    /// The current maximum length, for which bytes of the budget are reserved.
    pub(super) capacity: Cell<u64>,
    pub(super) bytes: usize,
    pub(super) slots: NonNull<Slots>,
    pub(super) max_capacity: u64,
    /// The value of `allocs` at the last call of `ThreadCache::excess`.
    pub(super) allocs_when_full: Cell<u64>,
}

const _: () = assert!(size_of::<Stack>() == 64, "one cache line");

/// The slots of one stack. Addresses and tags are in separate arrays: a 16-byte load of two words that were just stored
/// separately would wait until both are in the cache.
pub(super) struct Slots {
    bases: [Slot<NonNull<u8>>; Budget::MAX_BLOCKS],
    tags: [Slot<RegionTag>; Budget::MAX_BLOCKS],
}

type Slot<T> = Cell<MaybeUninit<T>>;

impl Stack {
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.net_refills.get().wrapping_add(self.frees.get_own()).wrapping_sub(self.allocs.get_own())
    }

    /// Returns the block pushed last; the caller counts it as removed.
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

    /// Pushes a block, which the caller counts. Returns false if there is no room.
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
