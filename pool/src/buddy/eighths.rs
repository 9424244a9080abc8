//! Blocks of five, six or seven eighths of a power of two.
//!
//! Most are 3, 5, 6, 7, 10, … 56 adjacent children of a level. If the size is not a multiple of a child, such as 5 KiB
//! with children of 4 KiB, the block is cut from an *outer block* of the whole power, and freed in pieces:
//!
//! ```text
//! 0               4       6   7   8 eighths of the outer block
//! |---------------|---|---|-------|     5: a half, an eighth; free: an eighth, a quarter
//! |---------------|-------|-------|     6: a half, a quarter; free: a quarter
//! |---------------|-------|---|---|     7: a half, a quarter, an eighth; free: an eighth
//! ```
//! Each piece is an ordinary block of the map, so the rest of the code is unaffected.

use super::{BuddyMap, GroupId, Leaf, NotLive, Span};
use crate::class::{Class, Order};

impl Span {
    #[inline]
    pub(super) fn of_class(class: Class) -> Option<Span> {
        let (order, eighths) = (u32::from(class.outer_order().get()), class.eighths());
        if eighths == 8 {
            return Some(Span::of(class.outer_order()));
        }
        // A single child of a level is 64 children of the level below.
        let (level, run) = if order.is_multiple_of(6) { (order / 6 - 1, 6) } else { (order / 6, order % 6) };
        let count = eighths << run;
        count.is_multiple_of(8).then_some(Span { level: level as usize, count: count / 8 })
    }
}

impl BuddyMap {
    /// Allocates a block of a class. Returns `None` if no free run holds it, or the outer block from which it is cut.
    #[inline]
    pub(crate) fn alloc_class(&mut self, class: Class) -> Option<Leaf> {
        match Span::of_class(class) {
            Some(span) => self.alloc_span(span),
            None => self.alloc_pieces(class),
        }
    }

    fn alloc_pieces(&mut self, class: Class) -> Option<Leaf> {
        let outer = class.outer_order();
        let at = self.alloc(outer)?;
        self.free_last_eighths(at, outer, class.eighths());
        Some(at)
    }

    /// Frees a block of a class.
    ///
    /// # Errors
    /// [`NotLive`] if no live block of this class starts at `at`; the pieces before the missing one are freed
    /// nevertheless.
    #[inline]
    pub(crate) fn free_class(&mut self, at: Leaf, class: Class) -> Result<(), NotLive> {
        match Span::of_class(class) {
            Some(span) => self.free_span(at, span).ok_or(NotLive { at, order: class.outer_order() }),
            None => pieces(at, class).try_for_each(|(at, order)| self.free(at, order)),
        }
    }

    pub(crate) fn grow(&mut self, at: Leaf, from: Class, to: Class) -> bool {
        // The map is exclusively borrowed, so no other block can take the memory between the free and the claim.
        if self.free_class(at, from).is_err() {
            return false;
        }
        // The claim might need a whole group that is still open as one child of the level above.
        self.merge_all();
        if self.claim_class(at, to) {
            return true;
        }
        let again = self.claim_class(at, from);
        debug_assert!(again, "it was free just now");
        false
    }

    /// Allocates the block at `at`, or returns false and allocates nothing.
    fn claim_class(&mut self, at: Leaf, class: Class) -> bool {
        if let Some(span) = Span::of_class(class) {
            return self.claim(at, span);
        }
        let failed = pieces(at, class).find(|&(at, order)| !self.claim(at, Span::of(order)));
        if let Some((end, _)) = failed {
            for (at, order) in pieces(at, class).take_while(|&(at, _)| at < end) {
                let freed = self.free(at, order);
                debug_assert_eq!(freed, Ok(()));
            }
        }
        failed.is_none()
    }

    /// Allocates the run at `at`. Returns false if it is not all free, or no such run can start there.
    fn claim(&mut self, at: Leaf, span: Span) -> bool {
        let Span { level, count } = span;
        let fits = at.0.checked_add(span.leaves()).is_some_and(|end| end <= self.leaves);
        let child = at.0 >> (6 * level);
        let claimed = fits
            && child << (6 * level) == at.0
            && level <= self.top
            && self.open_above(level, child)
            && self.levels[level].claim(child, count);
        if claimed {
            self.free -= span.leaves();
        }
        claimed
    }

    /// Opens the group of a child if it is closed. Returns false if the group is part of a live block.
    fn open_above(&mut self, number: usize, child: u64) -> bool {
        let group = GroupId::of(child >> 6);
        // The group of the top level is always open, so the recursion ends.
        if self.levels[number].is_open(group) {
            return true;
        }
        let opened =
            self.open_above(number + 1, group.child()) && self.levels[number + 1].claim(group.child(), 1);
        if opened {
            self.levels[number].open_free(group);
            self.splits += 1;
        }
        opened
    }

    /// Frees all but the first `keep` eighths, 5 to 7, of a live block.
    fn free_last_eighths(&mut self, at: Leaf, outer: Order, keep: u32) {
        let (half, quarter) = (outer.half(), outer.half().half());
        let eighth = quarter.half();
        let middle = self.halve(at, outer);
        let last = self.halve(middle, half);
        // The pieces were just cut and are live, so freeing them succeeds.
        let freed = match keep {
            5 => {
                let rest = self.halve(middle, quarter);
                self.free(rest, eighth).and_then(|()| self.free(last, quarter))
            }
            6 => self.free(last, quarter),
            _ => {
                let rest = self.halve(last, quarter);
                self.free(rest, eighth)
            }
        };
        debug_assert_eq!(freed, Ok(()));
    }

    fn halve(&mut self, at: Leaf, order: Order) -> Leaf {
        let Span { level, count } = Span::of(order);
        let child = at.0 >> (6 * level);
        if count > 1 {
            self.levels[level].mark_start(child + u64::from(count / 2));
        } else {
            self.levels[level - 1].open_halved(GroupId::of(child));
            self.splits += 1;
        }
        Leaf(at.0 + order.half().leaves())
    }
}

/// Returns the blocks of the map that make up a block of a class.
pub(super) fn pieces(at: Leaf, class: Class) -> impl Iterator<Item = (Leaf, Order)> {
    let outer = class.outer_order();
    let mut at = at.0;
    let mut order = outer;
    // Each set bit of the number of eighths is a piece, largest first.
    (0..4).rev().filter_map(move |bit| {
        let piece = order;
        order = order.half();
        (class.eighths() >> bit & 1 == 1).then(|| {
            let start = Leaf(at);
            at += piece.leaves();
            (start, piece)
        })
    })
}
