//! Numbers that are given out, each of which says in which of a few words it stands.

use crate::sync::{Mutex, lock};

/// How many are given out at a time: one for each word.
pub(super) const PLACES: usize = 1 << PLACE_BITS;
/// Bits of a number that say in which word it stands.
const PLACE_BITS: u32 = 10;

/// Numbers are less than this, and not 0.
pub(super) const END: u64 = 1 << 61;

/// Returns the place of the word in which a number stands.
pub(super) fn place(number: u64) -> usize {
    number as usize & (PLACES - 1)
}

/// The numbers of one rank; none is given out twice before all others were.
#[derive(Debug)]
pub(super) struct SlotIds(Mutex<Free>);

#[derive(Debug)]
struct Free {
    /// The next number, without its place.
    next: u64,
    places: Vec<u16>,
}

impl SlotIds {
    /// Begins with a number that `seed` decides.
    pub(super) fn new(seed: u64) -> Self {
        let places = (0..PLACES as u16).rev().collect();
        SlotIds(Mutex::new(Free { next: following(seed), places }))
    }

    /// Gives a number out; `None` if there is no word for it.
    pub(super) fn take(&self) -> Option<u64> {
        let mut free = lock(&self.0);
        let place = free.places.pop()?;
        let number = free.next << PLACE_BITS | u64::from(place);
        free.next = following(free.next);
        Some(number)
    }

    /// Takes a number back: another one may stand in its word.
    pub(super) fn give(&self, number: u64) {
        lock(&self.0).places.push(place(number) as u16);
    }
}

/// Returns what follows a number without its place; never 0.
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
            let all: Vec<u64> = std::iter::from_fn(|| numbers.take()).collect();
            let mut places: Vec<usize> = all.iter().map(|number| place(*number)).collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..PLACES));
            assert!(all.iter().all(|number| (PLACES as u64..END).contains(number)));
            numbers.give(all[5]);
            let again = numbers.take().unwrap();
            assert!(place(again) == place(all[5]) && !all.contains(&again));
        }
    }
}
