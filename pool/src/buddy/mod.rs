//! Records which leaves (units of 64 bytes) of a region are free: a buddy allocator. See `README.md` in this folder.
//!
//! The map computes with indices: it neither accesses the managed memory nor knows its address.

mod check;
mod eighths;
mod group;
mod level;
#[cfg(test)]
mod tests;
mod word;

use core::fmt;

use crate::class::Order;
use group::{GroupId, RunList};
use level::{FreeOutcome, Level};

const LEVELS: usize = 7;

/// The distance of a block from the start of its region, in leaves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Leaf(pub(crate) u64);

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{}", self.0)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotLive {
    pub(crate) at: Leaf,
    pub(crate) order: Order,
}

/// The state of all leaves of one region. `validate` checks the invariants in `README.md`.
#[derive(Debug)]
pub(crate) struct BuddyMap {
    levels: [Level; LEVELS],
    /// The level of the single group that covers the region.
    top: usize,
    leaves: u64,
    free: u64,
    splits: u64,
    merges: u64,
    /// Whether every whole group is closed at once.
    eager_merge: bool,
    /// No block with a higher `list_index` can be allocated; a search for one fails at once.
    max_list_index: u8,
}

impl BuddyMap {
    const UNKNOWN: u8 = u8::MAX;

    /// The maximum number of leaves: 8 TiB, or 1 GiB with 32-bit addresses.
    pub(crate) const MAX_LEAVES: u64 = 1 << if usize::BITS == 64 { 37 } else { 24 };

    /// Returns a map of free leaves, or `None` if `leaves` is 0 or above [`MAX_LEAVES`](Self::MAX_LEAVES), or memory is
    /// exhausted.
    pub(crate) fn new(leaves: u64) -> Option<BuddyMap> {
        if leaves == 0 || leaves > Self::MAX_LEAVES {
            return None;
        }
        let top = leaves.ilog2() as usize / 6;
        let mut levels = core::array::from_fn(|_| Level::empty());
        for (number, level) in levels.iter_mut().enumerate().take(top + 1) {
            *level = Level::new(leaves, number, number == top)?;
        }
        Some(BuddyMap {
            levels,
            top,
            leaves,
            free: leaves,
            splits: 0,
            merges: 0,
            eager_merge: false,
            max_list_index: Self::UNKNOWN,
        })
    }

    pub(crate) fn with_eager_merge(self, eager_merge: bool) -> BuddyMap {
        BuddyMap { eager_merge, ..self }
    }

    pub(crate) fn leaves(&self) -> u64 {
        self.leaves
    }

    pub(crate) fn free_leaves(&self) -> u64 {
        self.free
    }

    pub(crate) fn splits(&self) -> u64 {
        self.splits
    }

    pub(crate) fn merges(&self) -> u64 {
        self.merges
    }

    /// Returns the order of the largest power-of-two block in a map of `leaves` free leaves.
    pub(crate) fn max_order(leaves: u64) -> Order {
        Order::of_block(crate::MIN_BLOCK << leaves.max(1).ilog2())
    }

    #[inline]
    pub(crate) fn alloc(&mut self, order: Order) -> Option<Leaf> {
        self.alloc_span(Span::of(order))
    }

    #[inline]
    fn alloc_span(&mut self, span: Span) -> Option<Leaf> {
        if span.list_index() > self.max_list_index || span.level > self.top { None } else { self.find(span) }
    }

    fn find(&mut self, span: Span) -> Option<Leaf> {
        let Some(child) = self.levels[span.level].take(span.count).or_else(|| self.split(span)) else {
            self.max_list_index = span.list_index().saturating_sub(1);
            return None;
        };
        self.free -= span.leaves();
        Some(Leaf(child << (6 * span.level)))
    }

    fn split(&mut self, span: Span) -> Option<u64> {
        let Span { level, count } = span;
        let mut above = level;
        let mut child = loop {
            above += 1;
            if above > self.top {
                // Whole groups that are still open on lower levels may provide the missing block.
                return if self.merge_below(level) { self.retry_after_merge(span) } else { None };
            }
            if let Some(child) = self.levels[above].take_one() {
                break child;
            }
        };
        for below in (level..above).rev() {
            self.splits += 1;
            child = self.levels[below].open(GroupId::of(child), if below == level { count } else { 1 });
        }
        Some(child)
    }

    #[cold]
    fn retry_after_merge(&mut self, span: Span) -> Option<u64> {
        self.levels[span.level].take(span.count).or_else(|| self.split(span))
    }

    /// Frees a block.
    ///
    /// # Errors
    /// [`NotLive`] if no live block of exactly this order starts at `at`.
    #[inline]
    pub(crate) fn free(&mut self, at: Leaf, order: Order) -> Result<(), NotLive> {
        self.free_span(at, Span::of(order)).ok_or(NotLive { at, order })
    }

    #[inline]
    fn free_span(&mut self, at: Leaf, span: Span) -> Option<()> {
        let Span { level, count } = span;
        let fits = at.0.checked_add(span.leaves()).is_some_and(|end| end <= self.leaves);
        let child = at.0 >> (6 * level);
        if !fits || child << (6 * level) != at.0 || level > self.top {
            return None;
        }
        // A child that is split looks like a live block of one child at this level.
        let is_split = count == 1 && level > 0 && self.levels[level - 1].is_open(GroupId::of(child));
        if is_split || !self.levels[level].is_live(child, count) {
            return None;
        }
        self.free += span.leaves();
        self.free_children(level, child, count);
        Some(())
    }

    /// Frees children of a level, and merges them with free neighbours.
    #[inline]
    fn free_children(&mut self, mut level: usize, mut child: u64, mut count: u32) {
        // The loop ends at the top at the latest: the top group has fewer than 64 children, so it never becomes whole.
        loop {
            match self.levels[level].free_run(child, count) {
                FreeOutcome::InRun(list) => {
                    if list_index(level, list) > self.max_list_index {
                        self.max_list_index = list_index(level, list);
                    }
                    return;
                }
                // One whole group per level stays open for the next, likely similar request; a second one is merged.
                FreeOutcome::GroupFree(group) if !self.eager_merge && self.levels[level].set_whole(group) => {
                    self.max_list_index = Self::UNKNOWN;
                    return;
                }
                FreeOutcome::GroupFree(group) => {
                    self.levels[level].close(group);
                    self.merges += 1;
                    (level, child, count) = (level + 1, group.child(), 1);
                }
            }
        }
    }

    /// Returns whether all of the leaves from `at` to `at + order.leaves()` are free; `at` is a multiple of that
    /// number. Call `merge_all` before.
    pub(crate) fn is_free(&self, at: Leaf, order: Order) -> bool {
        let Span { mut level, mut count } = Span::of(order);
        loop {
            let child = at.0 >> (6 * level);
            if let Some(are_free) = self.levels[level].are_free(child, count) {
                return are_free;
            }
            // The group is closed, so it is one child of the level above. The top is not closed.
            (level, count) = (level + 1, 1);
        }
    }

    pub(crate) fn merge_all(&mut self) {
        self.merge_below(self.top);
    }

    fn merge_below(&mut self, number: usize) -> bool {
        let mut merged = false;
        for below in 0..number {
            if let Some(group) = self.levels[below].take_whole() {
                merged = true;
                self.levels[below].close(group);
                self.merges += 1;
                self.free_children(below + 1, group.child(), 1);
            }
        }
        merged
    }
}

/// A run of adjacent children of one level: the form of a block in the map.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    level: usize,
    /// The number of children, 1 to 56.
    count: u32,
}

impl Span {
    #[inline]
    fn of(order: Order) -> Span {
        Span { level: usize::from(order.get() / 6), count: 1 << (order.get() % 6) }
    }

    #[inline]
    fn leaves(self) -> u64 {
        u64::from(self.count) << (6 * self.level)
    }

    #[inline]
    fn list_index(self) -> u8 {
        list_index(self.level, RunList::of(self.count))
    }
}

/// Returns the index of a list among those of all levels. A run cut from another run never has a higher index.
#[inline]
fn list_index(level: usize, list: RunList) -> u8 {
    level as u8 * RunList::COUNT as u8 + list.0
}

const _: () = assert!(LEVELS * RunList::COUNT < BuddyMap::UNKNOWN as usize);
