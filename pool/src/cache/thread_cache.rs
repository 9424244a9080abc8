use core::cell::Cell;
use core::fmt;
use core::ptr::NonNull;
use std::time::{Duration, Instant};

use super::stack::{Slots, Stack};
use super::{AllocCounters, BlockPtr, CLASSES, Class};
use crate::sync::{ByteBudget, Flag, OwnerCounter};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Budget {
    /// The maximum number of bytes that a thread caches in small blocks, and again in large ones, which can also use
    /// the shared budget.
    pub(crate) per_thread: usize,
    /// The size of the largest cached block.
    pub(crate) max_block: usize,
}

impl Budget {
    pub(super) const MAX_BLOCKS: usize = 64;
    /// The maximum number of bytes in one magazine, unless a single block has more.
    const MAX_BYTES: usize = 4 << 20;
    /// Blocks above this size are *large*: each thread has a second budget for them, and all threads share another one.
    const MAX_SMALL: usize = 512 << 10;

    pub(crate) fn is_large(bytes: usize) -> bool {
        bytes > Self::MAX_SMALL
    }

    fn max_blocks(&self, class: Class) -> usize {
        let bytes = class.bytes();
        let max_bytes =
            if Self::is_large(bytes) { Self::MAX_BYTES } else { Self::MAX_BYTES.min(self.per_thread) };
        let is_cached = bytes <= self.max_block && (Self::is_large(bytes) || bytes <= self.per_thread);
        if is_cached { (max_bytes / bytes).clamp(1, Self::MAX_BLOCKS) } else { 0 }
    }
}

#[cfg(not(loom))]
const FIRST_LARGE: usize = match Class::for_len(Budget::MAX_SMALL) {
    Some(class) => class.index() + 1,
    None => panic!("`MAX_SMALL` bytes must have a class"),
};
#[cfg(loom)]
const FIRST_LARGE: usize = CLASSES;

/// All magazines of one thread for one pool, and their counters.
///
/// The owning thread pushes and pops without a lock; other threads only read counters and raise flags.
pub(crate) struct ThreadCache {
    stacks: [Stack; CLASSES],
    /// Owns the slots that the stacks point to. Not a `Box`: moving a box invalidates pointers to its content.
    #[expect(dead_code, reason = "reached through the stacks")]
    slots: Vec<Slots>,
    requested_bytes: OwnerCounter,
    /// Allocations of a fetched block, or of a larger cached one after the fetch of a small block failed.
    misses: OwnerCounter,
    /// The bytes that no magazine has reserved, for small blocks and for large ones.
    budget_left: [Cell<usize>; 2],
    /// Bytes for large blocks taken from the budget that all threads share.
    borrowed: Cell<usize>,
    rebalance_calls: Cell<u32>,
    refetch_calls: Cell<u32>,
    clock_calls: Cell<u32>,
    /// The time of the last call of `is_turn` that returned true.
    last_turn: Cell<Option<Instant>>,
    /// The sum of allocations and frees of each class at the last call of `unused_classes`.
    used_at_turn: Box<[Cell<u64>]>,
    /// The sum of allocations and frees of each class at the last call of `victim` that examined the class.
    used_at_scan: Box<[Cell<u64>]>,
    /// The pool is dropped: cache no more blocks.
    pub(crate) pool_dropped: Flag,
    /// The memory of the pool is freed: do not access it any more.
    pub(crate) closed: Flag,
}

impl ThreadCache {
    pub(crate) fn new(budget: Budget) -> ThreadCache {
        // The slots are not written, so pages of unused classes take no memory.
        let mut slots = Vec::with_capacity(CLASSES);
        let places = slots.spare_capacity_mut();
        let stacks = core::array::from_fn(|index| {
            let class = Class::new(index);
            Stack {
                allocs: OwnerCounter::new(),
                frees: OwnerCounter::new(),
                net_refills: Cell::new(0),
                capacity: Cell::new(0),
                bytes: class.map_or(0, Class::bytes),
                slots: NonNull::from(&mut places[index]).cast(),
                max_capacity: class.map_or(0, |class| budget.max_blocks(class)) as u64,
                allocs_when_full: Cell::new(0),
            }
        });
        ThreadCache {
            stacks,
            slots,
            requested_bytes: OwnerCounter::new(),
            misses: OwnerCounter::new(),
            budget_left: [Cell::new(budget.per_thread), Cell::new(budget.per_thread)],
            borrowed: Cell::new(0),
            rebalance_calls: Cell::new(0),
            refetch_calls: Cell::new(0),
            clock_calls: Cell::new(0),
            last_turn: Cell::new(None),
            used_at_turn: (0..CLASSES).map(|_| Cell::new(0)).collect(),
            used_at_scan: (0..CLASSES).map(|_| Cell::new(0)).collect(),
            pool_dropped: Flag::new(),
            closed: Flag::new(),
        }
    }

    /// Allocates a block of the class with index `class`, for a request of `requested` bytes. Returns `None` if its
    /// magazine is empty or the class does not exist.
    #[inline]
    pub(crate) fn pop(&self, class: usize, requested: usize) -> Option<BlockPtr> {
        let stack = self.stacks.get(class)?;
        let block = stack.peek()?;
        self.requested_bytes.add(requested as u64);
        stack.allocs.add(1);
        Some(block)
    }

    /// Caches a freed block. Returns false if there is no room, or the pool was dropped.
    #[inline]
    pub(crate) fn push(&self, block: BlockPtr) -> bool {
        let Some(stack) = self.stacks.get(block.tag.index()) else { return false };
        if self.pool_dropped.is_raised_relaxed() || !stack.push_uncounted(block) {
            return false;
        }
        // Last, with release: a thread that reads this count also sees everything that the owner did with the block.
        stack.frees.add(1);
        true
    }

    pub(crate) fn len(&self, class: Class) -> usize {
        self.stacks.get(class.index()).map_or(0, |stack| stack.len() as usize)
    }

    /// Returns the smallest class with a cached block, from `class` to one that is at most 50 % larger.
    pub(crate) fn nearest_class(&self, class: Class) -> Option<Class> {
        let index = class.index();
        let has = |at: usize| u32::from(self.stacks.get(at).is_some_and(|stack| stack.len() > 0));
        // All three classes, a quarter apart, are read without a branch: which of them has a block is unpredictable.
        let found = has(index) | has(index + 1) << 1 | has(index + 2) << 2;
        (found != 0).then(|| Class::from_index((index + found.trailing_zeros() as usize) as u8))
    }

    /// Returns how many blocks of a full magazine to move: half, or all if no block was allocated since the last call.
    pub(crate) fn excess(&self, class: Class) -> usize {
        let Some(stack) = self.stacks.get(class.index()) else { return 0 };
        let allocs = stack.allocs.get_own();
        let is_used = stack.allocs_when_full.replace(allocs) != allocs;
        let len = stack.len() as usize;
        if is_used { len.div_ceil(2) } else { len }
    }

    /// Returns how many blocks to fetch from a region: half the capacity, or fewer if there is less room.
    pub(crate) fn batch_size(&self, class: Class) -> usize {
        let Some(stack) = self.stacks.get(class.index()) else { return 0 };
        stack.capacity.get().div_ceil(2).min(stack.capacity.get() - stack.len()) as usize
    }

    pub(crate) fn free_slots(&self, class: Class) -> usize {
        self.stacks.get(class.index()).map_or(0, |stack| (stack.capacity.get() - stack.len()) as usize)
    }

    /// Counts a block that goes straight to the user. Returns false if the class has no magazine.
    pub(crate) fn count_direct(&self, block: BlockPtr, requested: usize) -> bool {
        let Some(stack) = self.stacks.get(block.tag.index()) else { return false };
        stack.net_refills.set(stack.net_refills.get().wrapping_add(1));
        self.requested_bytes.add(requested as u64);
        stack.allocs.add(1);
        true
    }

    /// Caches a block from the depot or a region. Returns false if there is no room.
    pub(crate) fn put(&self, class: Class, block: BlockPtr) -> bool {
        self.stacks.get(class.index()).is_some_and(|stack| {
            let has_room = stack.push_uncounted(block);
            stack.net_refills.set(stack.net_refills.get().wrapping_add(has_room.into()));
            has_room
        })
    }

    pub(crate) fn take(&self, class: Class) -> Option<BlockPtr> {
        let stack = self.stacks.get(class.index())?;
        let block = stack.peek()?;
        stack.net_refills.set(stack.net_refills.get().wrapping_sub(1));
        Some(block)
    }

    /// Doubles the capacity of a magazine, or raises it as far as the budget allows. Returns whether it has grown.
    ///
    /// For large blocks the thread also takes from `large`, the budget that all threads share.
    pub(crate) fn grow(&self, class: Class, large: &ByteBudget) -> bool {
        let Some(stack) = self.stacks.get(class.index()) else { return false };
        let capacity = stack.capacity.get();
        let wanted = capacity.max(1).min(stack.max_capacity - capacity);
        let is_large = Budget::is_large(stack.bytes);
        let left = &self.budget_left[usize::from(is_large)];
        let affordable = left.get().checked_div(stack.bytes).unwrap_or(0) as u64;
        let mut more = wanted.min(affordable);
        left.set(left.get() - more as usize * stack.bytes);
        if is_large && more < wanted {
            let borrowed = large.take(wanted - more, stack.bytes as u64);
            self.borrowed.set(self.borrowed.get() + borrowed as usize * stack.bytes);
            more += borrowed;
        }
        stack.capacity.set(capacity + more);
        more > 0
    }

    pub(crate) fn may_grow(&self, class: Class) -> bool {
        self.stacks.get(class.index()).is_some_and(|stack| stack.capacity.get() < stack.max_capacity)
    }

    /// Returns true on every 64th call; then the caller takes budget of another class for a magazine that cannot grow.
    pub(crate) fn should_rebalance(&self) -> bool {
        let calls = self.rebalance_calls.get().wrapping_add(1);
        self.rebalance_calls.set(calls);
        calls.is_multiple_of(64)
    }

    /// Returns true on every 64th call; then the caller does not use a larger block, but fetches one of the right size.
    pub(crate) fn should_refetch(&self) -> bool {
        let calls = self.refetch_calls.get().wrapping_add(1);
        self.refetch_calls.set(calls);
        calls.is_multiple_of(64)
    }

    /// Returns true on every 32nd call; then the caller reads the clock.
    pub(crate) fn should_read_clock(&self) -> bool {
        let calls = self.clock_calls.get().wrapping_add(1);
        self.clock_calls.set(calls);
        calls.is_multiple_of(32)
    }

    /// Returns true in the first call, and then when `after` has passed since the last call that returned true.
    pub(crate) fn is_turn(&self, now: Instant, after: Duration) -> bool {
        let is_turn = self.last_turn.get().is_none_or(|last| now.saturating_duration_since(last) >= after);
        if is_turn {
            self.last_turn.set(Some(now));
        }
        is_turn
    }

    /// Returns the classes whose cached blocks should return to the regions: small classes that the thread has not used
    /// since the last call, and all large ones, which are few, but may hold most of the memory.
    pub(crate) fn unused_classes(&self) -> impl Iterator<Item = Class> {
        let is_unused = |(stack, last): (&Stack, &Cell<u64>)| {
            let used = stack.allocs.get_own() + stack.frees.get_own();
            (last.replace(used) == used || Budget::is_large(stack.bytes)) && stack.capacity.get() > 0
        };
        let classes = self.stacks.iter().zip(&self.used_at_turn).map(is_unused).enumerate();
        classes.filter_map(|(index, is_unused)| is_unused.then(|| Class::new(index)).flatten())
    }

    /// Returns the class from which to take budget for `class`, or `None` if no class qualifies or `class` needs none.
    ///
    /// Candidates are small if `class` is small, and otherwise large. A small candidate must free enough for one block
    /// of `class`, together with the unreserved budget. Classes that were not used since the last call come first, then
    /// those with the largest part of the budget. A class in use is taken only if its part is at least that of `class`.
    pub(crate) fn victim(&self, class: Class) -> Option<Class> {
        let stack = self.stacks.get(class.index())?;
        if stack.capacity.get() == stack.max_capacity {
            return None;
        }
        let reserved = |other: &Stack| other.capacity.get() as usize * other.bytes;
        let is_large = Budget::is_large(stack.bytes);
        let (first, end) = if is_large { (FIRST_LARGE, CLASSES) } else { (0, FIRST_LARGE) };
        let mut best = ((false, reserved(stack).max(1) - 1), None);
        for index in (first..end).filter(|&index| index != class.index()) {
            let other = &self.stacks[index];
            let used = other.allocs.get_own() + other.frees.get_own();
            let is_idle = self.used_at_scan[index].replace(used) == used && other.capacity.get() > 0;
            // Otherwise, tiny classes would be emptied again and again for less than one block of `class`.
            let helps = is_large || self.budget_left[0].get() + reserved(other) >= stack.bytes;
            if helps && (is_idle, reserved(other)) > best.0 {
                best = ((is_idle, reserved(other)), Some(index));
            }
        }
        best.1.and_then(Class::new)
    }

    /// Lowers the capacity of a magazine to its length, and gives the rest back to the budgets.
    pub(crate) fn shrink(&self, class: Class, large: &ByteBudget) {
        let Some(stack) = self.stacks.get(class.index()) else { return };
        let freed = (stack.capacity.get() - stack.len()) as usize * stack.bytes;
        stack.capacity.set(stack.len());
        let is_large = Budget::is_large(stack.bytes);
        let due = if is_large { freed.min(self.borrowed.get()) } else { 0 };
        if due > 0 {
            self.borrowed.set(self.borrowed.get() - due);
            large.add(due as u64);
        }
        let left = &self.budget_left[usize::from(is_large)];
        left.set(left.get() + freed - due);
    }

    pub(crate) fn count_miss(&self) {
        self.misses.add(1);
    }

    /// Returns the counts of the owning thread. Another thread may read slightly old counts.
    ///
    /// Frees are read first: otherwise, a block that the owner allocates and frees meanwhile could count as freed only.
    pub(crate) fn counters(&self) -> AllocCounters {
        let mut sum = AllocCounters::default();
        for stack in &self.stacks {
            let frees = stack.frees.get();
            sum.frees += frees;
            sum.freed_bytes += frees * stack.bytes as u64;
        }
        for stack in &self.stacks {
            let allocs = stack.allocs.get();
            sum.allocs += allocs;
            sum.granted_bytes += allocs * stack.bytes as u64;
        }
        sum.requested_bytes = self.requested_bytes.get();
        sum.hits = sum.allocs.saturating_sub(self.misses.get());
        sum
    }
}

impl fmt::Debug for ThreadCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let cached: u64 = self.stacks.iter().map(Stack::len).sum();
        write!(f, "ThreadCache({cached} blocks)")
    }
}
