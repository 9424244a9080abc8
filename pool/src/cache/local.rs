//! The magazines of one thread for one pool: a stack of free blocks for each class.

use core::cell::Cell;
use core::fmt;
use core::ptr::NonNull;

use super::stack::{Slots, Stack};
use super::{CLASSES, Class, Entry, Ledger};
use crate::sync::{Count, Flag, Stock};

/// How much a thread may keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Budget {
    /// Bytes in all magazines of a thread for classes of up to `Budget::SMALL` bytes, and again in all those above.
    pub(crate) thread: usize,
    /// The greatest block that is kept at all.
    pub(crate) greatest: usize,
}

impl Budget {
    /// Entries of the largest magazines.
    pub(super) const ENTRIES: usize = 64;
    /// Bytes in one magazine, unless a single block has more.
    const CLASS: usize = 4 << 20;
    /// Greater blocks are great: threads have a budget for themselves, and one together.
    const SMALL: usize = 512 << 10;

    /// Says whether blocks of so many bytes are kept one by one.
    pub(crate) fn is_great(bytes: usize) -> bool {
        bytes > Self::SMALL
    }

    /// Returns how many blocks of a class a magazine may hold.
    fn entries(&self, class: Class) -> usize {
        let bytes = class.bytes();
        let most = if Self::is_great(bytes) { Self::CLASS } else { Self::CLASS.min(self.thread) };
        let is_kept = bytes <= self.greatest && (Self::is_great(bytes) || bytes <= self.thread);
        if is_kept { (most / bytes).clamp(1, Self::ENTRIES) } else { 0 }
    }
}

/// The index of the first class of great blocks.
#[cfg(not(loom))]
const FIRST_GREAT: usize = match Class::for_len(Budget::SMALL) {
    Some(class) => class.index() + 1,
    None => panic!("a block may have so many bytes"),
};
#[cfg(loom)]
const FIRST_GREAT: usize = CLASSES;

/// All magazines of one thread for one pool, and what they count.
///
/// Its own thread pushes and pops without a lock; other threads read counts, raise flags, and nothing else.
pub(crate) struct Local {
    stacks: [Stack; CLASSES],
    #[expect(dead_code, reason = "reached through the stacks")]
    slots: Box<[Slots]>,
    /// Bytes that were asked for.
    asked: Count,
    /// Requests among `allocs` that something had to be fetched for.
    misses: Count,
    /// Bytes not yet set aside for small blocks, and for great ones.
    room: [Cell<usize>; 2],
    /// Bytes set aside for great blocks of those that all threads have together.
    borrowed: Cell<usize>,
    /// How often the budget did not suffice.
    pressure: Cell<u32>,
    /// How often a block of another class was handed out.
    strange: Cell<u32>,
    /// How often each magazine had been used when its thread last looked for one to rob.
    seen: Box<[Cell<u64>]>,
    /// The pool is gone: nothing more is to be kept.
    pub(crate) orphaned: Flag,
    /// The memory is gone: nothing may be touched any more.
    pub(crate) closed: Flag,
}

impl Local {
    pub(crate) fn new(budget: Budget) -> Local {
        // Not written here, so that a thread has memory only for the classes that it uses.
        let slots = Box::<[Slots]>::new_uninit_slice(CLASSES);
        // SAFETY: a `MaybeUninit` may be uninitialised, and there is nothing else in slots.
        let slots = unsafe { slots.assume_init() };
        let stacks = core::array::from_fn(|index| {
            let class = Class::new(index);
            Stack {
                allocs: Count::new(),
                frees: Count::new(),
                kept: Cell::new(0),
                most: Cell::new(0),
                bytes: class.map_or(0, Class::bytes),
                slots: NonNull::from(&slots[index]),
                limit: class.map_or(0, |class| budget.entries(class)) as u64,
                at_full: Cell::new(0),
            }
        });
        Local {
            stacks,
            slots,
            asked: Count::new(),
            misses: Count::new(),
            room: [Cell::new(budget.thread), Cell::new(budget.thread)],
            borrowed: Cell::new(0),
            pressure: Cell::new(0),
            strange: Cell::new(0),
            seen: (0..CLASSES).map(|_| Cell::new(0)).collect(),
            orphaned: Flag::new(),
            closed: Flag::new(),
        }
    }

    /// Hands a block of the class of that index out for `requested` bytes; none if the magazine is empty, or there is
    /// none.
    #[inline]
    pub(crate) fn pop(&self, class: usize, requested: usize) -> Option<Entry> {
        let stack = self.stacks.get(class)?;
        let entry = stack.top()?;
        self.asked.add(requested as u64);
        stack.allocs.add(1);
        Some(entry)
    }

    /// Takes a block back that was handed out; says no if it has no room for it.
    #[inline]
    pub(crate) fn push(&self, entry: Entry) -> bool {
        let Some(stack) = self.stacks.get(entry.home.index()) else { return false };
        if self.orphaned.is_seen() || !stack.lay(entry) {
            return false;
        }
        // Last: who sees this count sees that its owner is done with the block.
        stack.frees.add(1);
        true
    }

    /// Returns how many blocks of a class are kept.
    pub(crate) fn len(&self, class: Class) -> usize {
        self.stacks.get(class.index()).map_or(0, |stack| stack.len() as usize)
    }

    /// Returns the smallest class that there is a block of, from `class` to one of at most half as many bytes again.
    ///
    /// That much is wasted as long as the block lives, but nobody else had the bytes either, and what is wasted is less
    /// than a region that must be split for it.
    pub(crate) fn near(&self, class: Class) -> Option<Class> {
        let index = class.index();
        let has = |at: usize| u32::from(self.stacks.get(at).is_some_and(|stack| stack.len() > 0));
        // Two steps of a quarter, all looked at before anything is decided: nobody can guess which of them it will be.
        let found = has(index) | has(index + 1) << 1 | has(index + 2) << 2;
        (found != 0).then(|| Class::at((index + found.trailing_zeros() as usize) as u8))
    }

    /// Says how many blocks of a full magazine are to be put elsewhere now: half, or all if none was asked for since the
    /// last time, which this notes.
    pub(crate) fn overflow(&self, class: Class) -> usize {
        let Some(stack) = self.stacks.get(class.index()) else { return 0 };
        let allocs = stack.allocs.own();
        let is_used = stack.at_full.replace(allocs) != allocs;
        let len = stack.len() as usize;
        if is_used { len.div_ceil(2) } else { len }
    }

    /// Says how many blocks of a class to fetch at once.
    pub(crate) fn wanted(&self, class: Class) -> usize {
        let Some(stack) = self.stacks.get(class.index()) else { return 0 };
        stack.most.get().div_ceil(2).min(stack.most.get() - stack.len()) as usize
    }

    /// Says how many blocks of a class there is room for.
    pub(crate) fn space(&self, class: Class) -> usize {
        self.stacks.get(class.index()).map_or(0, |stack| (stack.most.get() - stack.len()) as usize)
    }

    /// Hands a block out for `requested` bytes that comes straight from behind.
    pub(crate) fn pass(&self, entry: Entry, requested: usize) -> bool {
        let Some(stack) = self.stacks.get(entry.home.index()) else { return false };
        stack.kept.set(stack.kept.get().wrapping_add(1));
        self.asked.add(requested as u64);
        stack.allocs.add(1);
        true
    }

    /// Keeps a block that comes from behind; says no if there is no room.
    pub(crate) fn stock(&self, class: Class, entry: Entry) -> bool {
        self.stacks.get(class.index()).is_some_and(|stack| {
            let has_room = stack.lay(entry);
            stack.kept.set(stack.kept.get().wrapping_add(has_room.into()));
            has_room
        })
    }

    /// Gives a block up, to be put somewhere behind.
    pub(crate) fn unstock(&self, class: Class) -> Option<Entry> {
        let stack = self.stacks.get(class.index())?;
        let entry = stack.top()?;
        stack.kept.set(stack.kept.get().wrapping_sub(1));
        Some(entry)
    }

    /// Lets the magazine of a class hold twice as many as now, or some more; says no if it may not.
    ///
    /// Magazines start with nothing and double when they overflow, so bytes are set aside for what is in use only; those
    /// for great blocks also from what all threads have together.
    pub(crate) fn enlarge(&self, class: Class, great: &Stock) -> bool {
        let Some(stack) = self.stacks.get(class.index()) else { return false };
        let most = stack.most.get();
        let wanted = most.max(1).min(stack.limit - most);
        let is_great = Budget::is_great(stack.bytes);
        let room = &self.room[usize::from(is_great)];
        let affordable = room.get().checked_div(stack.bytes).unwrap_or(0) as u64;
        let mut more = wanted.min(affordable);
        room.set(room.get() - more as usize * stack.bytes);
        if is_great && more < wanted {
            let borrowed = great.take(wanted - more, stack.bytes as u64);
            self.borrowed.set(self.borrowed.get() + borrowed as usize * stack.bytes);
            more += borrowed;
        }
        stack.most.set(most + more);
        more > 0
    }

    /// Says whether the magazine of a class could be larger, had the budget the bytes.
    pub(crate) fn may_grow(&self, class: Class) -> bool {
        self.stacks.get(class.index()).is_some_and(|stack| stack.most.get() < stack.limit)
    }

    /// Says, after every so manyth time that the budget did not suffice, that it is to be spent otherwise.
    ///
    /// Not every time: where sizes come at random, what is kept for one is worth as much as what is kept for another.
    pub(crate) fn is_pressed(&self) -> bool {
        let pressure = self.pressure.get().wrapping_add(1);
        self.pressure.set(pressure);
        pressure.is_multiple_of(64)
    }

    /// Says, after every so manyth block of another class, that it is time to get some of the right one.
    ///
    /// Otherwise a thread that uses one size goes round with the blocks of another for ever, the slow way each time.
    pub(crate) fn is_fed_up(&self) -> bool {
        let strange = self.strange.get().wrapping_add(1);
        self.strange.set(strange);
        strange.is_multiple_of(64)
    }

    /// Returns the class to take room from for `class`: of those that share its budget, and have enough for one block of it,
    /// the one for which most bytes are set aside among those that were not used since the last time; otherwise among all,
    /// if it has as many as `class`.
    pub(crate) fn rival(&self, class: Class) -> Option<Class> {
        let stack = self.stacks.get(class.index())?;
        if stack.most.get() == stack.limit {
            return None;
        }
        let aside = |other: &Stack| other.most.get() as usize * other.bytes;
        let is_great = Budget::is_great(stack.bytes);
        let (first, end) = if is_great { (FIRST_GREAT, CLASSES) } else { (0, FIRST_GREAT) };
        let mut best = ((false, aside(stack).max(1) - 1), None);
        for index in (first..end).filter(|&index| index != class.index()) {
            let other = &self.stacks[index];
            let used = other.allocs.own() + other.frees.own();
            let is_idle = self.seen[index].replace(used) == used && other.most.get() > 0;
            // Otherwise tiny ones would give way again and again, and what they leave would serve nobody but themselves.
            let helps = is_great || self.room[0].get() + aside(other) >= stack.bytes;
            if helps && (is_idle, aside(other)) > best.0 {
                best = ((is_idle, aside(other)), Some(index));
            }
        }
        best.1.and_then(Class::new)
    }

    /// Lets an empty magazine hold nothing any more.
    pub(crate) fn shut(&self, class: Class, great: &Stock) {
        let Some(stack) = self.stacks.get(class.index()) else { return };
        let freed = (stack.most.get() - stack.len()) as usize * stack.bytes;
        stack.most.set(stack.len());
        let is_great = Budget::is_great(stack.bytes);
        let due = if is_great { freed.min(self.borrowed.get()) } else { 0 };
        if due > 0 {
            self.borrowed.set(self.borrowed.get() - due);
            great.add(due as u64);
        }
        let room = &self.room[usize::from(is_great)];
        room.set(room.get() + freed - due);
    }

    pub(crate) fn miss(&self) {
        self.misses.add(1);
    }

    /// Returns what this thread has counted; from another thread, what it had counted a moment ago.
    ///
    /// Frees are read before allocations: so a block that moves meanwhile looks live rather than freed twice.
    pub(crate) fn ledger(&self) -> Ledger {
        let mut sum = Ledger::default();
        for stack in &self.stacks {
            let frees = stack.frees.get();
            sum.frees += frees;
            sum.returned += frees * stack.bytes as u64;
        }
        for stack in &self.stacks {
            let allocs = stack.allocs.get();
            sum.allocs += allocs;
            sum.granted += allocs * stack.bytes as u64;
        }
        sum.asked = self.asked.get();
        sum.hits = sum.allocs.saturating_sub(self.misses.get());
        sum
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept: u64 = self.stacks.iter().map(Stack::len).sum();
        write!(f, "Local({kept} blocks kept)")
    }
}
