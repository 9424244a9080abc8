//! Allocates ids (numbers), each of which names one of a fixed count of slots (words).

use crate::sync::{Mutex, lock};

/// Number of slots, and so of ids that can be assigned at one time.
pub(super) const PLACES: usize = 1 << PLACE_BITS;
/// Bits of an id that name its slot.
const PLACE_BITS: u32 = 10;

/// Ids are less than this, and not 0.
pub(super) const END: u64 = 1 << 61;

/// Returns the index of the slot that an id names.
pub(super) fn slot_of(number: u64) -> usize {
    number as usize & (PLACES - 1)
}

/// The ids of one rank. An id is not assigned again before the counter in its upper bits has wrapped.
#[derive(Debug)]
pub(super) struct SlotIds(Mutex<Free>);

#[derive(Debug)]
struct Free {
    /// The upper bits of the next id.
    next: u64,
    places: Vec<u16>,
}

impl SlotIds {
    /// Makes the ids; `seed` determines the first one.
    pub(super) fn new(seed: u64) -> Self {
        let places = (0..PLACES as u16).rev().collect();
        SlotIds(Mutex::new(Free { next: following(seed), places }))
    }

    /// Assigns an id; returns `None` if all slots are in use.
    pub(super) fn alloc(&self) -> Option<u64> {
        let mut free = lock(&self.0);
        let place = free.places.pop()?;
        let number = free.next << PLACE_BITS | u64::from(place);
        free.next = following(free.next);
        Some(number)
    }

    /// Frees the slot of an id for another id.
    pub(super) fn give(&self, number: u64) {
        lock(&self.0).places.push(slot_of(number) as u16);
    }
}

/// Returns the upper bits of the id after the one with the upper bits `number`; they are never 0.
fn following(number: u64) -> u64 {
    let most = (END >> PLACE_BITS) - 1;
    number % most + 1
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn numbers_differ_and_stand_in_different_words() {
        for seed in [0, 7, u64::MAX, (END >> PLACE_BITS) - 1] {
            let numbers = SlotIds::new(seed);
            let all: Vec<u64> = std::iter::from_fn(|| numbers.alloc()).collect();
            let mut places: Vec<usize> = all.iter().map(|number| slot_of(*number)).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..PLACES));
            assert!(all.iter().all(|number| (PLACES as u64..END).contains(number)));
            numbers.give(all[5]);
            let again = numbers.alloc().unwrap();
            assert!(slot_of(again) == slot_of(all[5]) && !all.contains(&again));
        }
    }
}
