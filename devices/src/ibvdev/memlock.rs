//! The limit on the memory that operations and pool regions lock: the limit of the process minus the bytes that the
//! slots for all peers, connected or not, can need; at least a quarter of the process's limit. README.md says why.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::sys;

/// The counts of the devices of all ranks of this process, because the limit is per process.
static PROCESS: Counts = Counts::new();

#[derive(Debug)]
struct Counts {
    /// The bytes that slots can need.
    slots: AtomicUsize,
    /// The bytes that operations and pool regions have locked.
    operations: AtomicUsize,
}

impl Counts {
    const fn new() -> Self {
        Counts { slots: AtomicUsize::new(0), operations: AtomicUsize::new(0) }
    }
}

/// Counts the memory that the operations and regions of a device lock towards the limit of the process.
#[derive(Debug)]
pub(super) struct MemlockBudget {
    counts: &'static Counts,
    /// The limit of the process in bytes, if there is one.
    limit: Option<usize>,
    /// The bytes that the slots of this device can need.
    slots: usize,
    /// The size of a page in bytes. The system counts whole pages as locked.
    page: usize,
}

impl MemlockBudget {
    /// Creates the budget of a device whose slots can need `slots` bytes, in a process that may lock `limit` bytes.
    pub(super) fn with_slots_reserved(slots: usize, limit: Option<usize>) -> Arc<Self> {
        MemlockBudget::of(&PROCESS, slots, limit, sys::page_size())
    }

    fn of(counts: &'static Counts, slots: usize, limit: Option<usize>, page: usize) -> Arc<Self> {
        counts.slots.fetch_add(slots, Ordering::Relaxed);
        Arc::new(MemlockBudget { counts, limit, slots, page })
    }

    /// Reserves the pages of the `len` bytes at address `at`. Returns `None` if that would exceed the limit.
    pub(super) fn reserve(self: &Arc<Self>, at: usize, len: usize) -> Option<MemlockShare> {
        let bytes = at.saturating_add(len).checked_next_multiple_of(self.page)? - at / self.page * self.page;
        let limit = self.limit.unwrap_or(usize::MAX);
        // Leave operations at least a quarter of the limit: the slots of many peers could need all of it, even if only
        // a few of these peers ever connect.
        let slots = self.counts.slots.load(Ordering::Relaxed).min(limit / 4 * 3);
        let add = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= limit - slots);
        self.counts.operations.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(MemlockShare { budget: Arc::clone(self), bytes })
    }
}

impl Drop for MemlockBudget {
    fn drop(&mut self) {
        self.counts.slots.fetch_sub(self.slots, Ordering::Relaxed);
    }
}

/// A reservation of bytes, until it is dropped. It must outlive the registration of the memory.
#[derive(Debug)]
pub(super) struct MemlockShare {
    budget: Arc<MemlockBudget>,
    bytes: usize,
}

impl Drop for MemlockShare {
    fn drop(&mut self) {
        self.budget.counts.operations.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;
    const PAGE: usize = 64 << 10;

    #[test]
    fn operations_cannot_lock_memory_that_slots_need() {
        static COUNTS: Counts = Counts::new();
        let one = MemlockBudget::of(&COUNTS, MIB, Some(8 * MIB), PAGE);
        let held = one.reserve(0, 7 * MIB).unwrap();
        assert!(one.reserve(0, 1).is_none());
        drop(held);
        let other = MemlockBudget::of(&COUNTS, 2 * MIB, Some(8 * MIB), PAGE);
        assert!(one.reserve(0, 5 * MIB + 1).is_none());
        let held = one.reserve(PAGE - 1, 5 * MIB - PAGE).unwrap();
        assert_eq!(held.bytes, 5 * MIB, "whole pages count");
        assert!(other.reserve(0, 1).is_none(), "the limit applies to the process");
        drop((held, other));
        assert!(one.reserve(0, 7 * MIB).is_some());
    }

    #[test]
    fn operations_can_lock_at_least_a_quarter() {
        static COUNTS: Counts = Counts::new();
        let all = MemlockBudget::of(&COUNTS, 100 * MIB, Some(8 * MIB), PAGE);
        assert!(all.reserve(0, 2 * MIB).is_some());
        assert!(all.reserve(0, 2 * MIB + 1).is_none());
    }

    #[test]
    fn without_a_limit_only_a_range_beyond_the_address_space_is_refused() {
        static COUNTS: Counts = Counts::new();
        let all = MemlockBudget::of(&COUNTS, 100 * MIB, None, PAGE);
        assert!(all.reserve(0, 1 << 40).is_some());
        assert!(all.reserve(usize::MAX, usize::MAX).is_none());
    }
}
