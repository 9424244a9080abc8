//! One level of the map: groups of 64 children, and lists of the groups with free children.

use super::group::{Group, GroupId, Links, RunList};
use super::word::Word;

#[derive(Clone, Copy, Debug)]
pub(super) enum FreeOutcome {
    /// The children are part of a free run that belongs in this list.
    InRun(RunList),
    /// All 64 children of this group are free, and the group is in no list.
    GroupFree(GroupId),
}

#[derive(Debug)]
pub(super) struct Level {
    pub(super) groups: Box<[Group]>,
    pub(super) heads: [GroupId; RunList::COUNT],
    /// Bit n is set if `heads[n]` is not empty.
    pub(super) linked: u32,
    /// Whether this is level 0, where a run must start at an aligned leaf (`valid_starts`). The children of the other
    /// levels are aligned enough for every block.
    is_lowest: bool,
}

impl Level {
    pub(super) fn empty() -> Level {
        Level { groups: Box::default(), heads: [GroupId::NONE; RunList::COUNT], linked: 0, is_lowest: false }
    }

    /// Returns level `number` of a region of `leaves` free leaves, or `None` if memory is exhausted.
    pub(super) fn new(leaves: u64, number: usize, is_top: bool) -> Option<Level> {
        let children = leaves >> (6 * number);
        let count = leaves.div_ceil(64 << (6 * number)) as usize;
        let closed =
            Group { free: Word::NONE, starts: Word::NONE, links: Links::NONE, list: RunList::CLOSED };
        let mut groups = Vec::new();
        groups.try_reserve_exact(count).ok()?;
        groups.resize(count, closed);
        let mut level = Level { groups: groups.into_boxed_slice(), is_lowest: number == 0, ..Level::empty() };
        // At the end of the region, a group can have fewer than 64 whole children. It stays open forever, and its
        // partial and missing children are marked in `starts`.
        let last = count as u64 - 1;
        let whole = children - last * 64;
        if is_top || whole < 64 {
            let free = Word::first(whole as u32);
            let group = &mut level.groups[last as usize];
            group.free = free;
            group.starts = Word::ALL.without(free);
            group.list = RunList::FULL;
            if whole > 0 {
                level.move_to_list(GroupId::of(last), RunList::of(whole as u32));
            }
        }
        Some(level)
    }

    #[inline]
    pub(super) fn is_open(&self, group: GroupId) -> bool {
        self.groups[group.index()].list != RunList::CLOSED
    }

    /// Returns whether `count` adjacent children of one group are free, or `None` if the group is closed.
    pub(super) fn are_free(&self, child: u64, count: u32) -> Option<bool> {
        let (id, bit) = locate(child);
        let run = Word::run(bit, count);
        self.is_open(id).then(|| self.groups[id.index()].free.with(run) == self.groups[id.index()].free)
    }

    /// Returns whether a live block of exactly `count` children (or, if that is 1, a split child) starts at `child`.
    #[inline]
    pub(super) fn is_live(&self, child: u64, count: u32) -> bool {
        let (group, bit) = locate(child);
        let Group { free, starts, .. } = self.groups[group.index()];
        let end = bit + count;
        if end > 64 {
            return false;
        }
        let block = Word::run(bit, count);
        // A block ends where another one begins.
        starts.has(bit)
            && !free.intersects(block)
            && !starts.without(Word::run(bit, 1)).intersects(block)
            && (end == 64 || free.with(starts).has(end))
    }

    /// Allocates `count` adjacent children from the lowest list that has a long enough run. Returns `None` if none has.
    ///
    /// Unless it was whole, the group stays in its list, although its longest run may be shorter now: the children are
    /// usually freed before such a run is requested again. The first `take` that finds no long enough run in the group moves it.
    #[inline]
    pub(super) fn take(&mut self, count: u32) -> Option<u64> {
        let (list, starts) = (RunList::of(count), self.valid_starts(count));
        loop {
            let enough = self.linked >> list.0 << list.0;
            if enough == 0 {
                return None;
            }
            let id = self.heads[enough.trailing_zeros() as usize];
            let group = &mut self.groups[id.index()];
            if let Some(bit) = group.free.find(count, starts) {
                group.take(bit, count);
                if group.list == RunList::WHOLE {
                    let list = RunList::of(64 - count);
                    self.move_to_list(id, list);
                }
                return Some(id.child() << 6 | u64::from(bit));
            }
            let list = list.next_lower(group.free.longest_run());
            self.move_to_list(id, list);
        }
    }

    /// Allocates one child, as [`take`](Self::take) does.
    #[inline]
    pub(super) fn take_one(&mut self) -> Option<u64> {
        while self.linked != 0 {
            let id = self.heads[self.linked.trailing_zeros() as usize];
            let group = &mut self.groups[id.index()];
            if group.free != Word::NONE {
                let bit = group.free.0.trailing_zeros();
                group.take(bit, 1);
                if group.list == RunList::WHOLE {
                    self.move_to_list(id, RunList::of(63));
                }
                return Some(id.child() << 6 | u64::from(bit));
            }
            self.move_to_list(id, RunList::FULL);
        }
        None
    }

    /// Returns where blocks of `count` children may start: leaves at multiples of the largest power of two ≤ `count`.
    #[inline]
    fn valid_starts(&self, count: u32) -> Word {
        const EACH: [Word; 6] = {
            let mut each = [Word::ALL; 6];
            let mut power = 1;
            while power < 6 {
                each[power] = Word(u64::MAX / ((1 << (1 << power)) - 1));
                power += 1;
            }
            each
        };
        if self.is_lowest { EACH[count.ilog2() as usize] } else { Word::ALL }
    }

    /// Opens a closed group that is not in use, and allocates its first `count` children. Returns the first child.
    pub(super) fn open(&mut self, id: GroupId, count: u32) -> u64 {
        let group = &mut self.groups[id.index()];
        group.free = Word::ALL.without(Word::run(0, count));
        group.starts = Word::run(0, 1);
        self.link(id, RunList::of(64 - count));
        id.child() << 6
    }

    /// Splits a closed group, which is one live block, into two live halves.
    pub(super) fn open_halved(&mut self, id: GroupId) {
        let group = &mut self.groups[id.index()];
        group.starts = Word::run(0, 1).with(Word::run(32, 1));
        group.list = RunList::FULL;
    }

    /// Splits a closed group that is not in use into 64 free children.
    pub(super) fn open_free(&mut self, id: GroupId) {
        let group = &mut self.groups[id.index()];
        group.free = Word::ALL;
        group.starts = Word::NONE;
        self.link(id, RunList::WHOLE);
    }

    /// Allocates the `count` children from `child` on. Returns false if they are not all free or cannot be one block.
    pub(super) fn claim(&mut self, child: u64, count: u32) -> bool {
        let (id, bit) = locate(child);
        let fits = bit + count <= 64 && self.valid_starts(count).has(bit);
        let group = &mut self.groups[id.index()];
        if !fits || group.free.with(Word::run(bit, count)) != group.free {
            return false;
        }
        group.take(bit, count);
        if group.list == RunList::WHOLE {
            let list = RunList::of(group.free.longest_run());
            self.move_to_list(id, list);
        }
        true
    }

    /// Marks the start of a second live block in the middle of one.
    #[inline]
    pub(super) fn mark_start(&mut self, child: u64) {
        let (id, bit) = locate(child);
        let group = &mut self.groups[id.index()];
        group.starts = group.starts.with(Word::run(bit, 1));
    }

    /// Frees `count` children. If all 64 are free then, unlinks the group; the caller must call `set_whole` or `close`.
    #[inline]
    pub(super) fn free_run(&mut self, child: u64, count: u32) -> FreeOutcome {
        let (id, bit) = locate(child);
        let group = &mut self.groups[id.index()];
        group.free = group.free.with(Word::run(bit, count));
        group.starts = group.starts.without(Word::run(bit, 1));
        if group.free == Word::ALL {
            self.unlink(id);
            return FreeOutcome::GroupFree(id);
        }
        // Only the run of these children can be longer than before.
        let part = RunList::of(group.free.run_around(bit, count));
        let list = if group.list == RunList::FULL { part } else { group.list.max(part) };
        self.move_to_list(id, list);
        FreeOutcome::InRun(part)
    }

    /// Keeps a whole group open, or returns false if this level has one already.
    pub(super) fn set_whole(&mut self, id: GroupId) -> bool {
        let is_first = self.whole().is_none();
        if is_first {
            self.link(id, RunList::WHOLE);
        }
        is_first
    }

    pub(super) fn take_whole(&mut self) -> Option<GroupId> {
        let id = self.whole()?;
        self.unlink(id);
        Some(id)
    }

    pub(super) fn whole(&self) -> Option<GroupId> {
        let id = self.heads[usize::from(RunList::WHOLE.0)];
        (id != GroupId::NONE).then_some(id)
    }

    /// Closes a whole group that is in no list. The caller must then free the child of the level above that this group
    /// is.
    #[inline]
    pub(super) fn close(&mut self, id: GroupId) {
        let group = &mut self.groups[id.index()];
        group.free = Word::NONE;
        group.list = RunList::CLOSED;
    }

    #[inline]
    fn move_to_list(&mut self, id: GroupId, to: RunList) {
        if self.groups[id.index()].list != to {
            self.unlink(id);
            if to.is_linked() {
                self.link(id, to);
            }
        }
    }

    #[inline]
    fn unlink(&mut self, id: GroupId) {
        let group = &mut self.groups[id.index()];
        let (links, list) = (group.links, group.list);
        group.list = RunList::FULL;
        if !list.is_linked() {
            return;
        }
        let (prev, next) = (links.prev(), links.next());
        if prev == GroupId::NONE {
            self.heads[usize::from(list.0)] = next;
            self.linked &= !(u32::from(next == GroupId::NONE) << list.0);
        } else {
            let before = &mut self.groups[prev.index()].links;
            *before = Links::new(before.prev(), next);
        }
        if next != GroupId::NONE {
            let after = &mut self.groups[next.index()].links;
            *after = Links::new(prev, after.next());
        }
    }

    /// Inserts an open group that is in no list at the head of `to`.
    #[inline]
    fn link(&mut self, id: GroupId, to: RunList) {
        let first = core::mem::replace(&mut self.heads[usize::from(to.0)], id);
        self.linked |= 1 << to.0;
        if first != GroupId::NONE {
            let after = &mut self.groups[first.index()].links;
            *after = Links::new(id, after.next());
        }
        let group = &mut self.groups[id.index()];
        group.links = Links::new(GroupId::NONE, first);
        group.list = to;
    }
}

#[inline]
fn locate(child: u64) -> (GroupId, u32) {
    (GroupId::of(child >> 6), (child & 63) as u32)
}
