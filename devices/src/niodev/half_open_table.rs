//! The table of half-open connections, and the rule by which strangers are evicted.
//!
//! A *stranger* is an accepted connection that has not sent a valid hello. All strangers share [`STRANGERS`] entries.
//! When all are used, a new stranger replaces the oldest. A connection with a valid hello has the entry of the rank
//! that it claims. So strangers cannot displace ranks. Neither has a time limit: a rank that polls rarely might take
//! minutes to send its hello.

use std::time::Instant;

use super::half_open::HalfOpen;

pub(super) const STRANGERS: usize = 64;

/// Half-open connections. Each one's index is in its poller token.
#[derive(Debug)]
pub(super) struct HalfOpenTable {
    entries: Vec<Option<HalfOpen>>,
    count: usize,
    strangers: usize,
    pub(super) max_strangers: usize,
}

impl HalfOpenTable {
    pub(super) fn new() -> Self {
        HalfOpenTable { entries: Vec::new(), count: 0, strangers: 0, max_strangers: STRANGERS }
    }

    pub(super) fn free_index(&self) -> usize {
        self.entries.iter().position(Option::is_none).unwrap_or(self.entries.len())
    }

    pub(super) fn put(&mut self, at: usize, mut half: HalfOpen) {
        half.since.get_or_insert_with(Instant::now);
        self.count += 1;
        self.strangers += usize::from(half.is_stranger());
        if at >= self.entries.len() {
            self.entries.resize_with(at + 1, || None);
        }
        self.entries[at] = Some(half);
    }

    pub(super) fn take(&mut self, at: usize) -> Option<HalfOpen> {
        let half = self.entries.get_mut(at)?.take()?;
        self.count -= 1;
        self.strangers -= usize::from(half.is_stranger());
        while self.entries.last().is_some_and(Option::is_none) {
            self.entries.pop();
        }
        Some(half)
    }

    /// Removes and returns the first connection for which `which` returns true.
    pub(super) fn take_if(&mut self, mut which: impl FnMut(&HalfOpen) -> bool) -> Option<HalfOpen> {
        if self.count == 0 {
            return None;
        }
        let at = self.entries.iter().position(|half| half.as_ref().is_some_and(&mut which))?;
        self.take(at)
    }

    pub(super) fn any(&self, which: impl FnMut(&HalfOpen) -> bool) -> bool {
        self.entries.iter().flatten().any(which)
    }

    /// Returns whether the table has a connection that is not a stranger.
    #[inline]
    pub(super) fn has_ranks(&self) -> bool {
        self.count > self.strangers
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Returns whether a new stranger must replace the oldest.
    pub(super) fn is_crowded(&self) -> bool {
        self.strangers >= self.max_strangers
    }

    pub(super) fn take_oldest_stranger(&mut self) -> Option<HalfOpen> {
        if self.strangers == 0 {
            return None;
        }
        let here = self.entries.iter().enumerate().filter_map(|(at, half)| Some((at, half.as_ref()?)));
        let (at, _) = here.filter(|(_, half)| half.is_stranger()).min_by_key(|(_, half)| half.since)?;
        self.take(at)
    }
}
