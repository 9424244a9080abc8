//! Which leaves of one region are free: a buddy allocator in index arithmetic alone.
//!
//! Nothing here touches the managed memory, or knows where it is. See `README.md` beside this file for the picture.

mod bitmap;
mod check;
mod level;
mod part;
#[cfg(test)]
mod tests;

use core::fmt;

use crate::class::Order;
use level::{Given, GroupId, Level};

/// Levels that [`Map::MAX_LEAVES`] leaves need.
const LEVELS: usize = 7;

/// The distance of a block from the start of its region, in leaves.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Leaf(pub(crate) u64);

impl fmt::Debug for Leaf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "L{}", self.0)
    }
}

/// Why a block was not taken back. The map is as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotLive {
    /// Where a block was said to be.
    pub(crate) at: Leaf,
    /// Of which order.
    pub(crate) order: Order,
}

/// The state of all leaves of one region.
///
/// # Invariants
/// `validate` checks them; `README.md` explains them.
#[derive(Debug)]
pub(crate) struct Map {
    levels: [Level; LEVELS],
    /// The level of the one group that covers everything.
    top: usize,
    leaves: u64,
    free: u64,
    splits: u64,
    merges: u64,
    /// Keeps no whole group.
    eager: bool,
    /// No block of a greater order can be had: so far that nobody looks where there is nothing.
    best: u8,
}

impl Map {
    /// As `best`: it is not known.
    const ANY: u8 = u8::MAX;

    /// The most leaves of one region: 8 TiB.
    pub(crate) const MAX_LEAVES: u64 = 1 << 37;

    /// Returns a map of `leaves` free leaves; none if that is 0 or above [`MAX_LEAVES`](Self::MAX_LEAVES), or if there is
    /// no memory for the map itself.
    pub(crate) fn new(leaves: u64) -> Option<Map> {
        if leaves == 0 || leaves > Self::MAX_LEAVES {
            return None;
        }
        let top = leaves.ilog2() as usize / 6;
        let mut levels = core::array::from_fn(|_| Level::empty());
        for (number, level) in levels.iter_mut().enumerate().take(top + 1) {
            *level = Level::new(leaves, number, number == top)?;
        }
        Some(Map { levels, top, leaves, free: leaves, splits: 0, merges: 0, eager: false, best: Self::ANY })
    }

    /// Merges whatever can be merged, whenever a block comes back, if `eager`.
    pub(crate) fn merging(self, eager: bool) -> Map {
        Map { eager, ..self }
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

    /// Returns the order of the greatest block that an empty map can give.
    pub(crate) fn greatest(leaves: u64) -> Order {
        Order::of_block(crate::MIN_BLOCK << leaves.max(1).ilog2())
    }

    /// Takes a free block; none if no aligned run of free leaves is long enough.
    #[inline]
    pub(crate) fn alloc(&mut self, order: Order) -> Option<Leaf> {
        if order.get() > self.best { None } else { self.find(order) }
    }

    fn find(&mut self, order: Order) -> Option<Leaf> {
        let (number, run) = place(order);
        let mut child = None;
        if number <= self.top {
            child = self.levels[number].take(run).or_else(|| self.split(number, run));
        }
        let Some(child) = child else {
            // What was kept is merged by now. An order that is not even there is not told from 0.
            self.best = order.get().saturating_sub(1);
            return None;
        };
        self.free -= order.leaves();
        Some(Leaf(child << (6 * number)))
    }

    /// Takes a run on level `number` out of a block from further up.
    fn split(&mut self, number: usize, run: u32) -> Option<u64> {
        let found = (number + 1..=self.top).find_map(|above| Some((above, self.levels[above].take(0)?)));
        let Some((above, mut child)) = found else {
            // Whole groups that were kept below may be what is missing up here.
            return if self.merge_below(number) { self.look_again(number, run) } else { None };
        };
        for below in (number..above).rev() {
            self.splits += 1;
            child = self.levels[below].open(GroupId::of(child), if below == number { run } else { 0 });
        }
        Some(child)
    }

    #[cold]
    fn look_again(&mut self, number: usize, run: u32) -> Option<u64> {
        self.levels[number].take(run).or_else(|| self.split(number, run))
    }

    /// Gives a block back.
    ///
    /// # Errors
    /// [`NotLive`] if no live block starts there with exactly that order.
    #[inline]
    pub(crate) fn free(&mut self, at: Leaf, order: Order) -> Result<(), NotLive> {
        let (number, run) = place(order);
        let fits = at.0.checked_add(order.leaves()).is_some_and(|end| end <= self.leaves);
        if !fits || at.0 & (order.leaves() - 1) != 0 || number > self.top {
            return Err(NotLive { at, order });
        }
        let child = at.0 >> (6 * number);
        // A child that is split into a group of its own looks like a live block of run 0 from here.
        let is_split = run == 0 && number > 0 && self.levels[number - 1].is_open(GroupId::of(child));
        if is_split || !self.levels[number].is_live(child, run) {
            return Err(NotLive { at, order });
        }
        self.free += order.leaves();
        self.give(number, child, run);
        Ok(())
    }

    /// Gives a run of children of a level back, and merges it with what is free around it.
    #[inline]
    fn give(&mut self, number: usize, child: u64, run: u32) {
        match self.levels[number].give(child, run) {
            Given::Run(greatest) => {
                let order = (6 * number as u32 + greatest) as u8;
                if order > self.best {
                    self.best = order;
                }
            }
            Given::Whole(group) => self.keep_or_merge(number, group),
        }
    }

    /// Keeps one group that has become whole on each level, as the next request may well be alike; merges a second.
    fn keep_or_merge(&mut self, number: usize, group: GroupId) {
        // The group of the top level has less than 64 children, so it never gets here, and this ends.
        if !self.eager && self.levels[number].keep(group) {
            // It may be merged later, with what is free around it.
            self.best = Self::ANY;
            return;
        }
        self.levels[number].close(group);
        self.merges += 1;
        self.give(number + 1, group.child(), 0);
    }

    /// Merges all that can be merged.
    pub(crate) fn merge_all(&mut self) {
        self.merge_below(self.top);
    }

    /// Merges the whole groups kept on levels below `number`, and says whether there was one.
    fn merge_below(&mut self, number: usize) -> bool {
        let mut merged = false;
        for below in 0..number {
            if let Some(group) = self.levels[below].kept() {
                merged = true;
                self.levels[below].close(group);
                self.merges += 1;
                self.give(below + 1, group.child(), 0);
            }
        }
        merged
    }
}

/// Returns the level on which blocks of `order` are, and the logarithm of how many children they are there.
#[inline]
fn place(order: Order) -> (usize, u32) {
    (usize::from(order.get() / 6), u32::from(order.get() % 6))
}
