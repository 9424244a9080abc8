//! The magazines of one thread for one pool: a stack of free blocks for each class.

use core::cell::Cell;
use core::fmt;
use core::ptr::NonNull;

use super::stack::{Slots, Stack};
use super::{AllocCounters, BlockPtr, CLASSES, Class};
use crate::sync::{ByteBudget, Flag, OwnerCounter};

/// How much a thread may keep.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Budget {
    /// Bytes in all magazines of a thread for classes of up to `Budget::SMALL` bytes, and the same number again in
    /// those above.
    pub(crate) thread: usize,
    /// The greatest block that is cached.
    pub(crate) greatest: usize,
}

impl Budget {
    /// The most blocks in one magazine.
    pub(super) const ENTRIES: usize = 64;
    /// Bytes in one magazine, unless a single block has more.
    const CLASS: usize = 4 << 20;
    /// Blocks above this many bytes are *large*. For them each thread has a second budget, and all threads share a
    /// third.
    const SMALL: usize = 512 << 10;

    /// Returns whether blocks of this many bytes are large, and so fetched and cached one by one.
    pub(crate) fn is_large(bytes: usize) -> bool {
        bytes > Self::SMALL
    }

    /// Returns how many blocks of a class a magazine may hold.
    fn blocks(&self, class: Class) -> usize {
        let bytes = class.bytes();
        let most = if Self::is_large(bytes) { Self::CLASS } else { Self::CLASS.min(self.thread) };
        let is_kept = bytes <= self.greatest && (Self::is_large(bytes) || bytes <= self.thread);
        if is_kept { (most / bytes).clamp(1, Self::ENTRIES) } else { 0 }
    }
}

/// The index of the first class of large blocks.
#[cfg(not(loom))]
const FIRST_LARGE: usize = match Class::for_len(Budget::SMALL) {
    Some(class) => class.index() + 1,
    None => panic!("a block may have so many bytes"),
};
#[cfg(loom)]
const FIRST_LARGE: usize = CLASSES;

/// All magazines of one thread for one pool, and what they count.
///
/// Its own thread pushes and pops without a lock; other threads only read counts and raise flags.
pub(crate) struct ThreadCache {
    stacks: [Stack; CLASSES],
    /// The memory of the slots, which the stacks point to. Not a `Box`: moving one invalidates pointers made before.
    #[expect(dead_code, reason = "reached through the stacks")]
    slots: Vec<Slots>,
    /// Bytes requested.
    asked: OwnerCounter,
    /// Requests among `allocs` for which blocks had to be fetched from the depot or a region.
    misses: OwnerCounter,
    /// The rest of the thread's two budgets in bytes: for small blocks, and for large ones.
    room: [Cell<usize>; 2],
    /// Bytes for large blocks that this thread has taken from the budget of all threads.
    borrowed: Cell<usize>,
    /// How often the budget was exhausted.
    pressure: Cell<u32>,
    /// How often a block of a larger class could have been handed out.
    mismatched: Cell<u32>,
    /// By class: the use count of its magazine when the thread last searched for one whose budget it could take.
    seen: Box<[Cell<u64>]>,
    /// The pool is dropped: cache no more blocks.
    pub(crate) orphaned: Flag,
    /// The memory is freed: do not access it any more.
    pub(crate) closed: Flag,
}

impl ThreadCache {
    pub(crate) fn new(budget: Budget) -> ThreadCache {
        // The slots are not written here, so that a thread has memory only for the classes that it uses.
        let mut slots = Vec::with_capacity(CLASSES);
        let places = slots.spare_capacity_mut();
        let stacks = core::array::from_fn(|index| {
            let class = Class::new(index);
            Stack {
                allocs: OwnerCounter::new(),
                frees: OwnerCounter::new(),
                kept: Cell::new(0),
                most: Cell::new(0),
                bytes: class.map_or(0, Class::bytes),
                slots: NonNull::from(&mut places[index]).cast(),
                limit: class.map_or(0, |class| budget.blocks(class)) as u64,
                at_full: Cell::new(0),
            }
        });
        ThreadCache {
            stacks,
            slots,
            asked: OwnerCounter::new(),
            misses: OwnerCounter::new(),
            room: [Cell::new(budget.thread), Cell::new(budget.thread)],
            borrowed: Cell::new(0),
            pressure: Cell::new(0),
            mismatched: Cell::new(0),
            seen: (0..CLASSES).map(|_| Cell::new(0)).collect(),
            orphaned: Flag::new(),
            closed: Flag::new(),
        }
    }

    /// Hands out a block of the class with index `class`, for a request of `requested` bytes; none if its magazine is
    /// empty, or there is no such class.
    #[inline]
    pub(crate) fn pop(&self, class: usize, requested: usize) -> Option<BlockPtr> {
        let stack = self.stacks.get(class)?;
        let block = stack.top()?;
        self.asked.add(requested as u64);
        stack.allocs.add(1);
        Some(block)
    }

    /// Caches a freed block; returns false if it has no room for it.
    #[inline]
    pub(crate) fn push(&self, block: BlockPtr) -> bool {
        let Some(stack) = self.stacks.get(block.home.index()) else { return false };
        if self.orphaned.is_seen() || !stack.push_uncounted(block) {
            return false;
        }
        // Last, with release: a thread that reads this count also sees everything its owner did with the block.
        stack.frees.add(1);
        true
    }

    /// Returns how many blocks of a class are cached.
    pub(crate) fn len(&self, class: Class) -> usize {
        self.stacks.get(class.index()).map_or(0, |stack| stack.len() as usize)
    }

    /// Returns the smallest class with a cached block, from `class` to one that is at most 50 % larger.
    ///
    /// The difference is wasted as long as the block lives. But the thread caches those bytes anyway, and a block split
    /// off a region would cost more.
    pub(crate) fn near(&self, class: Class) -> Option<Class> {
        let index = class.index();
        let has = |at: usize| u32::from(self.stacks.get(at).is_some_and(|stack| stack.len() > 0));
        // The class and the next two, a quarter apart. All three are read without a branch: which of them has a block
        // is unpredictable.
        let found = has(index) | has(index + 1) << 1 | has(index + 2) << 2;
        (found != 0).then(|| Class::at((index + found.trailing_zeros() as usize) as u8))
    }

    /// Returns how many blocks of a full magazine to move elsewhere: half, or all if none was requested since the last
    /// call, which this records.
    pub(crate) fn overflow(&self, class: Class) -> usize {
        let Some(stack) = self.stacks.get(class.index()) else { return 0 };
        let allocs = stack.allocs.own();
        let is_used = stack.at_full.replace(allocs) != allocs;
        let len = stack.len() as usize;
        if is_used { len.div_ceil(2) } else { len }
    }

    /// Returns how many blocks of a class to fetch at once.
    pub(crate) fn wanted(&self, class: Class) -> usize {
        let Some(stack) = self.stacks.get(class.index()) else { return 0 };
        stack.most.get().div_ceil(2).min(stack.most.get() - stack.len()) as usize
    }

    /// Returns how many more blocks of a class fit.
    pub(crate) fn space(&self, class: Class) -> usize {
        self.stacks.get(class.index()).map_or(0, |stack| (stack.most.get() - stack.len()) as usize)
    }

    /// Counts a block that comes from the depot or a region and goes straight to the user, for `requested` bytes.
    pub(crate) fn pass(&self, block: BlockPtr, requested: usize) -> bool {
        let Some(stack) = self.stacks.get(block.home.index()) else { return false };
        stack.kept.set(stack.kept.get().wrapping_add(1));
        self.asked.add(requested as u64);
        stack.allocs.add(1);
        true
    }

    /// Caches a block from the depot or a region; returns false if there is no room.
    pub(crate) fn put(&self, class: Class, block: BlockPtr) -> bool {
        self.stacks.get(class.index()).is_some_and(|stack| {
            let has_room = stack.push_uncounted(block);
            stack.kept.set(stack.kept.get().wrapping_add(has_room.into()));
            has_room
        })
    }

    /// Takes a block out of a magazine, to be put into the depot or back into its region.
    pub(crate) fn unstock(&self, class: Class) -> Option<BlockPtr> {
        let stack = self.stacks.get(class.index())?;
        let block = stack.top()?;
        stack.kept.set(stack.kept.get().wrapping_sub(1));
        Some(block)
    }

    /// Doubles the capacity of a class's magazine, or raises it by as much as the budget allows; returns false if by
    /// nothing.
    ///
    /// Magazines start with no capacity and double when they overflow, so budget goes only to classes in use. For large
    /// blocks the thread also takes from the budget that all threads share.
    pub(crate) fn grow(&self, class: Class, large: &ByteBudget) -> bool {
        let Some(stack) = self.stacks.get(class.index()) else { return false };
        let most = stack.most.get();
        let wanted = most.max(1).min(stack.limit - most);
        let is_large = Budget::is_large(stack.bytes);
        let room = &self.room[usize::from(is_large)];
        let affordable = room.get().checked_div(stack.bytes).unwrap_or(0) as u64;
        let mut more = wanted.min(affordable);
        room.set(room.get() - more as usize * stack.bytes);
        if is_large && more < wanted {
            let borrowed = large.take(wanted - more, stack.bytes as u64);
            self.borrowed.set(self.borrowed.get() + borrowed as usize * stack.bytes);
            more += borrowed;
        }
        stack.most.set(most + more);
        more > 0
    }

    /// Returns whether the magazine of a class is below its greatest capacity, whatever the budget.
    pub(crate) fn may_grow(&self, class: Class) -> bool {
        self.stacks.get(class.index()).is_some_and(|stack| stack.most.get() < stack.limit)
    }

    /// Returns true on every 64th call. The caller calls it when a magazine cannot grow, and on true takes budget from
    /// another class.
    ///
    /// Not every time: with sizes at random, a block cached for one class is worth as much as one cached for another.
    pub(crate) fn should_rebalance(&self) -> bool {
        let pressure = self.pressure.get().wrapping_add(1);
        self.pressure.set(pressure);
        pressure.is_multiple_of(64)
    }

    /// Returns true on every 64th call. The caller calls it when it could hand out a block of a larger class, and on
    /// true fetches blocks of the right class instead.
    ///
    /// Otherwise a thread that uses one size would reuse the blocks of another forever, by the slow path each time.
    pub(crate) fn should_refetch(&self) -> bool {
        let mismatched = self.mismatched.get().wrapping_add(1);
        self.mismatched.set(mismatched);
        mismatched.is_multiple_of(64)
    }

    /// Returns the class from which to take budget for `class`, if there is one.
    ///
    /// Candidates share the budget of `class` and would free enough for one of its blocks. Those that were not used
    /// since the last call come first, then those that hold most of the budget; a class in use is taken only if it
    /// holds at least as much as `class`.
    pub(crate) fn victim(&self, class: Class) -> Option<Class> {
        let stack = self.stacks.get(class.index())?;
        if stack.most.get() == stack.limit {
            return None;
        }
        let aside = |other: &Stack| other.most.get() as usize * other.bytes;
        let is_large = Budget::is_large(stack.bytes);
        let (first, end) = if is_large { (FIRST_LARGE, CLASSES) } else { (0, FIRST_LARGE) };
        let mut best = ((false, aside(stack).max(1) - 1), None);
        for index in (first..end).filter(|&index| index != class.index()) {
            let other = &self.stacks[index];
            let used = other.allocs.own() + other.frees.own();
            let is_idle = self.seen[index].replace(used) == used && other.most.get() > 0;
            // Without this, classes of tiny blocks would be emptied again and again for less than one block of `class`.
            let helps = is_large || self.room[0].get() + aside(other) >= stack.bytes;
            if helps && (is_idle, aside(other)) > best.0 {
                best = ((is_idle, aside(other)), Some(index));
            }
        }
        best.1.and_then(Class::new)
    }

    /// Lowers the capacity of a class's magazine to what it holds, and gives the budget back.
    pub(crate) fn shut(&self, class: Class, large: &ByteBudget) {
        let Some(stack) = self.stacks.get(class.index()) else { return };
        let freed = (stack.most.get() - stack.len()) as usize * stack.bytes;
        stack.most.set(stack.len());
        let is_large = Budget::is_large(stack.bytes);
        let due = if is_large { freed.min(self.borrowed.get()) } else { 0 };
        if due > 0 {
            self.borrowed.set(self.borrowed.get() - due);
            large.add(due as u64);
        }
        let room = &self.room[usize::from(is_large)];
        room.set(room.get() + freed - due);
    }

    pub(crate) fn miss(&self) {
        self.misses.add(1);
    }

    /// Returns what this thread has counted; from another thread, what it had counted a moment ago.
    ///
    /// Frees are read before allocations, so a block that moves meanwhile looks live rather than freed twice.
    pub(crate) fn ledger(&self) -> AllocCounters {
        let mut sum = AllocCounters::default();
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
        sum.requested = self.asked.get();
        sum.hits = sum.allocs.saturating_sub(self.misses.get());
        sum
    }
}

impl fmt::Debug for ThreadCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept: u64 = self.stacks.iter().map(Stack::len).sum();
        write!(f, "Local({kept} blocks kept)")
    }
}
