//! The free blocks of one class that a thread keeps.

use core::cell::Cell;
use core::mem::MaybeUninit;
use core::ptr::NonNull;

use super::{BlockPtr, Budget, RegionTag};
use crate::sync::OwnerCounter;

/// The free blocks of one class that a thread keeps.
///
/// Its length is not stored but computed: `kept + frees - allocs`. So taking a block writes one number, and putting one
/// back writes another. If both wrote the same number, each would wait until the last store of the other had left the
/// store buffer, which takes longer than all the rest.
///
/// # Invariants
/// 1. `slots` points to the slots of this stack in `ThreadCache::slots`, which live as long.
/// 2. `len() ≤ most ≤ limit ≤ Budget::ENTRIES`, and the first `len()` slots are initialised.
#[repr(align(64))]
pub(super) struct Stack {
    /// Blocks handed out from here.
    pub(super) allocs: OwnerCounter,
    /// Blocks that came back to here.
    pub(super) frees: OwnerCounter,
    /// Blocks that came from the depot or a region, less those that went there.
    pub(super) kept: Cell<u64>,
    /// How many it may hold for now: the bytes for them are set aside from the budget.
    pub(super) most: Cell<u64>,
    /// Bytes of a block.
    pub(super) bytes: usize,
    pub(super) slots: NonNull<Slots>,
    /// How many it may ever hold.
    pub(super) limit: u64,
    /// The value of `allocs` when the stack was last full.
    pub(super) at_full: Cell<u64>,
}

const _: () = assert!(size_of::<Stack>() == 64, "one cache line");

/// The places of one stack, bases and homes apart: a thread that reads 16 bytes which it has just written as twice 8
/// waits until they are in the cache.
pub(super) struct Slots {
    bases: [Slot<NonNull<u8>>; Budget::ENTRIES],
    homes: [Slot<RegionTag>; Budget::ENTRIES],
}

type Slot<T> = Cell<MaybeUninit<T>>;

impl Stack {
    #[inline]
    pub(super) fn len(&self) -> u64 {
        self.kept.get().wrapping_add(self.frees.own()).wrapping_sub(self.allocs.own())
    }

    /// Returns the block that was put here last, to be counted as gone by the caller.
    #[inline]
    pub(super) fn top(&self) -> Option<BlockPtr> {
        let top = self.len().checked_sub(1)? as usize;
        // SAFETY: `top < len() ≤ Budget::ENTRIES` by invariant 2.
        let (base, home) = unsafe { self.slot(top) };
        // SAFETY: it was written, by invariant 2.
        let base = unsafe { base.get().assume_init() };
        // SAFETY: as above.
        let home = unsafe { home.get().assume_init() };
        Some(BlockPtr { base, home })
    }

    /// # Safety
    /// `at` is less than `Budget::ENTRIES`.
    #[inline]
    unsafe fn slot(&self, at: usize) -> (&Slot<NonNull<u8>>, &Slot<RegionTag>) {
        debug_assert!(at < Budget::ENTRIES);
        // SAFETY: invariant 1; slots are only ever shared, as cells.
        let slots = unsafe { self.slots.as_ref() };
        // SAFETY: the caller's promise.
        let base = unsafe { slots.bases.get_unchecked(at) };
        // SAFETY: the caller's promise.
        let home = unsafe { slots.homes.get_unchecked(at) };
        (base, home)
    }

    /// Pushes a block, to be counted by the caller; returns false if there is no room.
    #[inline]
    pub(super) fn push_uncounted(&self, block: BlockPtr) -> bool {
        let len = self.len();
        if len >= self.most.get() {
            return false;
        }
        // SAFETY: `len < most ≤ Budget::ENTRIES` by invariant 2.
        let (base, home) = unsafe { self.slot(len as usize) };
        base.set(MaybeUninit::new(block.base));
        home.set(MaybeUninit::new(block.home));
        true
    }
}
