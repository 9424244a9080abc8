//! How much memory operations lock: what the process may, less what the slots for all peers may come to need.
//!
//! The system counts what a process has locked, for whatever, and refuses more than `ulimit -l` says. An operation that is
//! refused sends its body in frames. A peer whose slots are refused is lost. So slots, of peers met late as well, go first.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What the devices of the process's ranks lock, all together. The limit is the process's.
static PROCESS: Counts = Counts::new();

/// Pages as the system counts them, or parts of such.
const PAGE: usize = 4096;

#[derive(Debug)]
struct Counts {
    /// What slots may come to need.
    slots: AtomicUsize,
    /// What operations and regions of pools have locked.
    operations: AtomicUsize,
}

impl Counts {
    const fn new() -> Self {
        Counts { slots: AtomicUsize::new(0), operations: AtomicUsize::new(0) }
    }
}

/// What the operations of one device may lock.
#[derive(Debug)]
pub(super) struct Allowance {
    counts: &'static Counts,
    /// The most that the process locks, if there is a limit.
    limit: Option<usize>,
    /// What this device's slots may come to need.
    slots: usize,
}

impl Allowance {
    /// Gives what `credit_limit` leaves beside so many bytes of slots, and those of the process's other devices.
    pub(super) fn beside(slots: usize, limit: Option<usize>) -> Arc<Self> {
        Allowance::of(&PROCESS, slots, limit)
    }

    fn of(counts: &'static Counts, slots: usize, limit: Option<usize>) -> Arc<Self> {
        counts.slots.fetch_add(slots, Ordering::Relaxed);
        Arc::new(Allowance { counts, limit, slots })
    }

    /// Takes a part for `len` bytes at an address; `None` if it is not there.
    pub(super) fn take(self: &Arc<Self>, at: usize, len: usize) -> Option<Locked> {
        let bytes = at.saturating_add(len).checked_next_multiple_of(PAGE)? - at / PAGE * PAGE;
        let limit = self.limit.unwrap_or(usize::MAX);
        // Many peers would leave nothing, also where few are ever met.
        let slots = self.counts.slots.load(Ordering::Relaxed).min(limit / 4 * 3);
        let add = |taken: usize| taken.checked_add(bytes).filter(|sum| *sum <= limit - slots);
        self.counts.operations.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Locked { allowance: Arc::clone(self), bytes })
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        self.counts.slots.fetch_sub(self.slots, Ordering::Relaxed);
    }
}

/// A part of it, until it is dropped: after the registration.
#[derive(Debug)]
pub(super) struct Locked {
    allowance: Arc<Allowance>,
    bytes: usize,
}

impl Drop for Locked {
    fn drop(&mut self) {
        self.allowance.counts.operations.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    #[test]
    fn operations_leave_what_slots_need() {
        static COUNTS: Counts = Counts::new();
        let one = Allowance::of(&COUNTS, MIB, Some(8 * MIB));
        let held = one.take(0, 7 * MIB).unwrap();
        assert!(one.take(0, 1).is_none());
        drop(held);
        let other = Allowance::of(&COUNTS, 2 * MIB, Some(8 * MIB));
        assert!(one.take(0, 5 * MIB + 1).is_none());
        let held = one.take(PAGE - 1, 5 * MIB - PAGE).unwrap();
        assert_eq!(held.bytes, 5 * MIB, "whole pages count");
        assert!(other.take(0, 1).is_none(), "the limit is the process's");
        drop((held, other));
        assert!(one.take(0, 7 * MIB).is_some());
    }

    #[test]
    fn many_peers_leave_a_quarter() {
        static COUNTS: Counts = Counts::new();
        let all = Allowance::of(&COUNTS, 100 * MIB, Some(8 * MIB));
        assert!(all.take(0, 2 * MIB).is_some());
        assert!(all.take(0, 2 * MIB + 1).is_none());
    }

    #[test]
    fn without_a_limit_there_is_no_end() {
        static COUNTS: Counts = Counts::new();
        let all = Allowance::of(&COUNTS, 100 * MIB, None);
        assert!(all.take(0, 1 << 40).is_some());
        assert!(all.take(usize::MAX, usize::MAX).is_none());
    }
}
