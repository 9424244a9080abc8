//! Returns memory to the system that was not used for a while; see `Growth::return_after`.

use std::time::{Duration, Instant};

use super::region::{Division, RegionEntry};
use super::state::{Returning, State};
use super::{Arena, CacheShared};
use crate::Storage;
use crate::cache::{Teardown, ThreadCache};

/// A pool with at most this many resident bytes discards nothing when a thread ends.
const MIN_RESIDENT: usize = 16 << 20;

impl<S: Storage> State<S> {
    /// If a pass is due, discards idle pages of the next region. Returns an idle region of one block, and whether the
    /// pass has ended.
    fn return_next(&mut self, now: Instant, after: Duration) -> (Option<RegionEntry<S>>, bool) {
        let frees = self.direct_frees();
        let Returning { next, due, frees_at_last_pass: last, .. } = &mut self.returning;
        if due.is_some_and(|due| now < due) {
            return (None, false);
        }
        let Some(slot) = self.slots.get_mut(*next) else {
            (*next, *due, *last) = (0, Some(now + after), frees);
            return (None, true);
        };
        *next += 1;
        let last = *last;
        let idle = slot.take_if(|entry| {
            entry.discard_idle(false);
            matches!(entry.division, Division::Whole { is_live: false }) && entry.idle_since <= last
        });
        (idle, false)
    }

    /// Returns whether more than `MIN_RESIDENT` bytes of the pool are resident, and blocks use at most a quarter of them.
    fn is_mostly_free(&self) -> bool {
        let resident: usize = self.slots.iter().flatten().map(|entry| entry.chunks.resident_bytes()).sum();
        resident > MIN_RESIDENT && self.granted_bytes() <= resident / 4
    }
}

impl CacheShared {
    pub(super) fn add_large<S: Storage>(&self, state: &mut State<S>, more: u64) {
        state.returning.large_added += more;
        self.large.add(more);
    }

    /// Sets the total of `large` to a share of the live bytes. A later pass removes the bytes that threads now borrow.
    fn adjust_large<S: Storage>(&self, state: &mut State<S>) {
        let wanted = state.alloc_counters().live_bytes() / Self::LARGE_SHARE;
        let now = state.returning.large_added;
        if wanted > now {
            self.add_large(state, wanted - now);
        } else {
            state.returning.large_added -= self.large.take(now - wanted, 1);
        }
    }
}

impl<S: Storage> Arena<S> {
    /// Returns unused memory to the system, if it is time to: the thread's blocks of sizes that it has not used since
    /// its last turn, blocks of the depot, and idle parts of a region. The caller holds no lock.
    pub(super) fn return_unused(&self, caching: &CacheShared, cache: &ThreadCache) {
        let Some(after) = self.growth.return_after.filter(|_| cache.should_read_clock()) else { return };
        let now = Instant::now();
        if cache.is_turn(now, after) {
            for class in cache.unused_classes() {
                self.flush_to_regions(cache, class, cache.len(class));
                cache.shrink(class, &caching.large);
            }
        }
        let (idle, has_ended) = self.lock.lock().return_next(now, after);
        drop(idle);
        if has_ended {
            let stale = caching.depot.take_stale();
            let mut state = self.lock.lock();
            stale.into_iter().for_each(|block| Self::return_to_region(&mut state, block));
            caching.adjust_large(&mut state);
        }
    }

    /// Returns all free memory to the system after the caller, an exiting thread, has returned its blocks: no other
    /// thread might do so later.
    ///
    /// The caller has the `Teardown`, so that the arena lives.
    pub(super) fn return_at_exit(&self, caching: &CacheShared, _teardown: &mut Teardown) {
        if self.growth.return_after.is_none() || !self.lock.lock().is_mostly_free() {
            return;
        }
        let mut stored = Vec::new();
        caching.depot.drain(|block| stored.push(block));
        let mut state = self.lock.lock();
        stored.into_iter().for_each(|block| Self::return_to_region(&mut state, block));
        let count = state.slots.len();
        drop(state);
        for slot in 0..count {
            let mut state = self.lock.lock();
            let idle = state.slots.get_mut(slot).and_then(|slot| {
                slot.take_if(|entry| {
                    entry.discard_idle(true);
                    matches!(entry.division, Division::Whole { is_live: false })
                })
            });
            drop(state);
            drop(idle);
        }
    }
}
