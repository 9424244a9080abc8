//! The table of half-open connections, and the rule by which strangers are evicted.
//!
//! A *stranger* is an accepted connection that has not sent a valid hello. All strangers together have [`STRANGERS`]
//! entries, and a new one replaces the oldest. A connection that has named the job and a rank of it has an entry that
//! is reserved for that rank, without a time limit. So strangers cannot take a rank's entry, and ranks that poll rarely
//! keep theirs.

use std::time::{Duration, Instant};

use super::half_open::HalfOpen;

/// Maximum number of strangers.
pub(super) const STRANGERS: usize = 64;

/// A stranger is rejected when it has been silent for this time and for this number of polls.
const STRANGER_TIMEOUT: Duration = Duration::from_secs(2);
const LOOKS: u64 = 64;

/// Half-open connections. The index of each is its poller token.
#[derive(Debug)]
pub(super) struct HalfOpenTable {
    seats: Vec<Option<HalfOpen>>,
    taken: usize,
    strangers: usize,
    /// The maximum number of strangers.
    pub(super) room: usize,
    looks: u64,
}

impl HalfOpenTable {
    pub(super) fn new() -> Self {
        HalfOpenTable { seats: Vec::new(), taken: 0, strangers: 0, room: STRANGERS, looks: 0 }
    }

    /// Returns a free index.
    pub(super) fn free(&self) -> usize {
        self.seats.iter().position(Option::is_none).unwrap_or(self.seats.len())
    }

    /// Puts a connection at a free index.
    pub(super) fn put(&mut self, at: usize, mut half: HalfOpen) {
        half.seen.get_or_insert((self.looks, Instant::now()));
        self.taken += 1;
        self.strangers += usize::from(half.is_stranger());
        if at >= self.seats.len() {
            self.seats.resize_with(at + 1, || None);
        }
        self.seats[at] = Some(half);
    }

    /// Removes and returns a connection.
    pub(super) fn take(&mut self, at: usize) -> Option<HalfOpen> {
        let half = self.seats.get_mut(at)?.take()?;
        self.taken -= 1;
        self.strangers -= usize::from(half.is_stranger());
        while self.seats.last().is_some_and(Option::is_none) {
            self.seats.pop();
        }
        Some(half)
    }

    /// Removes and returns the first connection for which `which` returns true.
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

    /// Returns whether there are connections that are not strangers'.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.taken > self.strangers
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// Returns whether a new stranger must replace an old one.
    pub(super) fn is_crowded(&self) -> bool {
        self.strangers >= self.room
    }

    /// Removes and returns the oldest stranger.
    pub(super) fn take_oldest_stranger(&mut self) -> Option<HalfOpen> {
        if self.strangers == 0 {
            return None;
        }
        let here = self.seats.iter().enumerate().filter_map(|(at, half)| Some((at, half.as_ref()?)));
        let (at, _) = here.filter(|(_, half)| half.is_stranger()).min_by_key(|(_, half)| half.seen)?;
        self.take(at)
    }

    /// Counts one more poll, in which every connection could have been read.
    pub(super) fn looked(&mut self) {
        self.looks += 1;
    }

    /// Removes and returns a stranger that has been silent for too long.
    pub(super) fn take_late_stranger(&mut self, now: Instant) -> Option<HalfOpen> {
        if self.strangers == 0 {
            return None;
        }
        let looks = self.looks;
        let is_late = |(look, at): (u64, Instant)| looks - look > LOOKS && now - at > STRANGER_TIMEOUT;
        self.take_if(|half| half.is_stranger() && half.seen.is_some_and(is_late))
    }
}
