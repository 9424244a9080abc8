use core::fmt;

use super::word::Word;

/// The index of a group in its level, and so of a child of the level above.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct GroupId(u32);

impl GroupId {
    pub(super) const NONE: GroupId = GroupId(u32::MAX);

    /// Returns the group into which child number `child` of the level above is split.
    #[inline]
    pub(super) const fn of(child: u64) -> GroupId {
        GroupId(child as u32)
    }

    #[inline]
    pub(super) const fn child(self) -> u64 {
        self.0 as u64
    }

    #[inline]
    pub(super) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE { f.write_str("G-") } else { write!(f, "G{}", self.0) }
    }
}

/// The list of a group: an upper bound of the longest block that its free runs can hold.
///
/// There is a list for each run length of a block: 1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, … 56.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct RunList(pub(super) u8);

impl RunList {
    /// All 64 children are free, but the group is still open.
    pub(super) const WHOLE: RunList = RunList(19);
    /// Open, in no list: no child is free.
    pub(super) const FULL: RunList = RunList(20);
    /// Closed: one undivided child of the level above.
    pub(super) const CLOSED: RunList = RunList(21);
    pub(super) const COUNT: usize = 20;

    /// Returns the list for runs of `len` children, 1 to 64.
    #[inline]
    pub(super) const fn of(len: u32) -> RunList {
        if len < 4 {
            return RunList(len as u8 - 1);
        }
        let bits = len.ilog2();
        RunList((bits * 4 + (len >> (bits - 2)) - 9) as u8)
    }

    #[inline]
    pub(super) fn is_linked(self) -> bool {
        self.0 <= Self::WHOLE.0
    }

    /// Returns the list for a group whose runs hold no block of this list; its longest run has the length `longest`.
    pub(super) fn next_lower(self, longest: u32) -> RunList {
        match self.0.checked_sub(1) {
            Some(below) if longest > 0 => RunList(below).min(RunList::of(longest)),
            _ => RunList::FULL,
        }
    }
}

const _: () = assert!(RunList::of(4).0 == 3 && RunList::of(9).0 == 7 && RunList::of(10).0 == 8);
const _: () = assert!(RunList::of(63).0 == 18 && RunList::of(64).0 == RunList::WHOLE.0);

/// 64 adjacent children. Aligned, because some 32-bit CPUs align 64-bit words to 4 bytes only.
#[derive(Clone, Debug)]
#[repr(align(8))]
pub(super) struct Group {
    /// The free children; empty while closed.
    pub(super) free: Word,
    /// The children where a live block starts, or that are split into a group of the level below; empty while closed.
    pub(super) starts: Word,
    pub(super) links: Links,
    pub(super) list: RunList,
}

/// The neighbours in the list, in one word: a load of two words that were stored separately waits for both stores.
#[derive(Clone, Copy)]
pub(super) struct Links(u64);

impl Links {
    pub(super) const NONE: Links = Links::new(GroupId::NONE, GroupId::NONE);

    #[inline]
    pub(super) const fn new(prev: GroupId, next: GroupId) -> Links {
        Links((prev.0 as u64) << 32 | next.0 as u64)
    }

    #[inline]
    pub(super) const fn prev(self) -> GroupId {
        GroupId((self.0 >> 32) as u32)
    }

    #[inline]
    pub(super) const fn next(self) -> GroupId {
        GroupId(self.0 as u32)
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}..{:?}", self.prev(), self.next())
    }
}

const _: () = assert!(size_of::<Group>() == 32, "two groups a cache line");

impl Group {
    #[inline]
    pub(super) fn take(&mut self, bit: u32, count: u32) {
        self.free = self.free.without(Word::run(bit, count));
        self.starts = self.starts.with(Word::run(bit, 1));
    }
}
