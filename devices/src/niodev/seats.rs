//! The places of connections that do not stand yet, and who must give way when they are few.
//!
//! A *stranger* has been accepted and has said nothing that makes sense: all strangers together have [`STRANGERS`]
//! places, and a new one takes the place of the oldest. Who has named the job and a rank of it has a place that is that
//! rank's alone, for as long as it likes; so strangers cost no rank its place, and ranks that look seldom keep theirs.

use std::time::{Duration, Instant};

use super::half::HalfOpen;

/// Places of strangers.
pub(super) const STRANGERS: usize = 64;

/// A stranger goes when it has said nothing for so long and during so many looks.
const LONG: Duration = Duration::from_secs(2);
const LOOKS: u64 = 64;

/// Half-open connections, each at its place; the poller knows them by it.
#[derive(Debug)]
pub(super) struct HalfOpenTable {
    seats: Vec<Option<HalfOpen>>,
    taken: usize,
    strangers: usize,
    /// Places of strangers.
    pub(super) room: usize,
    looks: u64,
}

impl HalfOpenTable {
    pub(super) fn new() -> Self {
        HalfOpenTable { seats: Vec::new(), taken: 0, strangers: 0, room: STRANGERS, looks: 0 }
    }

    /// Returns a place that is free.
    pub(super) fn free(&self) -> usize {
        self.seats.iter().position(Option::is_none).unwrap_or(self.seats.len())
    }

    /// Gives a free place to a connection.
    pub(super) fn put(&mut self, at: usize, mut half: HalfOpen) {
        half.seen.get_or_insert((self.looks, Instant::now()));
        self.taken += 1;
        self.strangers += usize::from(half.is_stranger());
        if at >= self.seats.len() {
            self.seats.resize_with(at + 1, || None);
        }
        self.seats[at] = Some(half);
    }

    /// Takes a connection out.
    pub(super) fn take(&mut self, at: usize) -> Option<HalfOpen> {
        let half = self.seats.get_mut(at)?.take()?;
        self.taken -= 1;
        self.strangers -= usize::from(half.is_stranger());
        while self.seats.last().is_some_and(Option::is_none) {
            self.seats.pop();
        }
        Some(half)
    }

    /// Takes out the first connection of which `which` is true.
    pub(super) fn take_if(&mut self, mut which: impl FnMut(&HalfOpen) -> bool) -> Option<HalfOpen> {
        if self.taken == 0 {
            return None;
        }
        let at = self.seats.iter().position(|half| half.as_ref().is_some_and(&mut which))?;
        self.take(at)
    }

    pub(super) fn any(&self, which: impl FnMut(&HalfOpen) -> bool) -> bool {
        self.seats.iter().flatten().any(which)
    }

    /// Whether there are others than strangers.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.taken > self.strangers
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// Whether a new stranger must take the place of an old one.
    pub(super) fn is_crowded(&self) -> bool {
        self.strangers >= self.room
    }

    /// Takes out the stranger that has been here for longest.
    pub(super) fn take_oldest_stranger(&mut self) -> Option<HalfOpen> {
        if self.strangers == 0 {
            return None;
        }
        let here = self.seats.iter().enumerate().filter_map(|(at, half)| Some((at, half.as_ref()?)));
        let (at, _) = here.filter(|(_, half)| half.is_stranger()).min_by_key(|(_, half)| half.seen)?;
        self.take(at)
    }

    /// Counts one more look in which every connection could speak.
    pub(super) fn looked(&mut self) {
        self.looks += 1;
    }

    /// Takes out a stranger that has been silent for too long.
    pub(super) fn take_late_stranger(&mut self, now: Instant) -> Option<HalfOpen> {
        if self.strangers == 0 {
            return None;
        }
        let looks = self.looks;
        let is_late = |(look, at): (u64, Instant)| looks - look > LOOKS && now - at > LONG;
        self.take_if(|half| half.is_stranger() && half.seen.is_some_and(is_late))
    }
}
