//! Allocates ids: numbers that each name one of a fixed number of slots.

use crate::sync::{Mutex, lock};

/// Number of slots, and so the maximum number of ids that are allocated at a time.
pub(super) const SLOTS: usize = 1 << SLOT_BITS;
const SLOT_BITS: u32 = 10;

/// All ids are below this number, and none is 0.
pub(super) const ID_END: u64 = 1 << 61;

pub(super) fn slot_of(id: u64) -> usize {
    id as usize & (SLOTS - 1)
}

/// The ids of one rank. An id is not assigned again before the counter in its upper bits has wrapped.
#[derive(Debug)]
pub(super) struct SlotIds(Mutex<Free>);

#[derive(Debug)]
struct Free {
    next: u64,
    slots: Vec<u16>,
}

impl SlotIds {
    pub(super) fn new(seed: u64) -> Self {
        let slots = (0..SLOTS as u16).rev().collect();
        SlotIds(Mutex::new(Free { next: following(seed), slots }))
    }

    /// Allocates an id; returns `None` if all slots are in use.
    pub(super) fn alloc(&self) -> Option<u64> {
        let mut free = lock(&self.0);
        let slot = free.slots.pop()?;
        let id = free.next << SLOT_BITS | u64::from(slot);
        free.next = following(free.next);
        Some(id)
    }

    pub(super) fn free(&self, id: u64) {
        lock(&self.0).slots.push(slot_of(id) as u16);
    }
}

/// Returns the counter's value after `counter`. It is never 0.
fn following(counter: u64) -> u64 {
    let most = (ID_END >> SLOT_BITS) - 1;
    counter % most + 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn ids_differ_and_name_different_slots() {
        for seed in [0, 7, u64::MAX, (ID_END >> SLOT_BITS) - 1] {
            let ids = SlotIds::new(seed);
            let all: Vec<u64> = std::iter::from_fn(|| ids.alloc()).collect();
            let mut slots: Vec<usize> = all.iter().map(|id| slot_of(*id)).collect();
            slots.sort_unstable();
            assert!(slots.into_iter().eq(0..SLOTS));
            assert!(all.iter().all(|id| (SLOTS as u64..ID_END).contains(id)));
            ids.free(all[5]);
            let again = ids.alloc().unwrap();
            assert!(slot_of(again) == slot_of(all[5]) && !all.contains(&again));
        }
    }
}
