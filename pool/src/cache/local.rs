//! The magazines of one thread for one pool: a stack of free blocks for each class.

use core::cell::Cell;
use core::fmt;
use core::ptr::NonNull;

use super::{CLASSES, Class, Entry};
use crate::block::Terms;
use crate::sync::{Count, Flag};

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
    const ENTRIES: usize = 64;
    /// Bytes in one magazine, unless a single block has more.
    const CLASS: usize = 1 << 20;
    /// Above this, magazines hold one block each, and share a budget of their own.
    const SMALL: usize = 512 << 10;

    /// Returns how many blocks of a class a magazine may hold.
    fn entries(&self, class: Class) -> usize {
        let bytes = class.bytes();
        if bytes > self.greatest || bytes > self.thread {
            return 0;
        }
        (Self::CLASS.min(self.thread) / bytes).clamp(1, Self::ENTRIES)
    }
}

/// Blocks that were handed out and came back, in one place; the sum over all places says what lives.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(crate) struct Ledger {
    pub(crate) allocs: u64,
    pub(crate) frees: u64,
    /// Bytes asked for, and bytes no longer asked for.
    pub(crate) asked: u64,
    pub(crate) dismissed: u64,
    /// Bytes granted, and bytes given back.
    pub(crate) granted: u64,
    pub(crate) returned: u64,
    /// Requests that a magazine met by itself.
    pub(crate) hits: u64,
}

impl Ledger {
    pub(crate) fn add(&mut self, other: &Ledger) {
        self.allocs += other.allocs;
        self.frees += other.frees;
        self.asked += other.asked;
        self.dismissed += other.dismissed;
        self.granted += other.granted;
        self.returned += other.returned;
        self.hits += other.hits;
    }

    pub(crate) fn live_blocks(&self) -> u64 {
        self.allocs.wrapping_sub(self.frees)
    }

    pub(crate) fn live_requested(&self) -> u64 {
        self.asked.wrapping_sub(self.dismissed)
    }

    pub(crate) fn live_granted(&self) -> u64 {
        self.granted.wrapping_sub(self.returned)
    }
}

/// The free blocks of one class that a thread keeps.
///
/// # Invariants
/// 1. `bases` and `regions` point to `limit` slots each, of `Local::bases` and `Local::regions`, which live as long.
/// 2. `len ≤ most ≤ limit`.
#[repr(align(64))]
struct Stack {
    len: Cell<usize>,
    /// How many it may hold for now: the bytes for them are set aside from the budget.
    most: Cell<usize>,
    /// Bytes of a block.
    bytes: usize,
    bases: NonNull<Cell<NonNull<u8>>>,
    regions: NonNull<Cell<NonNull<()>>>,
    allocs: Count,
    frees: Count,
    /// How many it may ever hold.
    limit: usize,
}

const _: () = assert!(size_of::<Stack>() == 64, "one cache line");

/// All magazines of one thread for one pool, and what they count.
///
/// Its own thread pushes and pops without a lock; other threads read counts, raise flags, and nothing else.
pub(crate) struct Local {
    stacks: [Stack; CLASSES],
    /// The slots of all stacks, base and region apart: a thread that reads 16 bytes which it has just written as
    /// twice 8 waits until they are in the cache, and that is longer than all the rest takes.
    #[expect(dead_code, reason = "reached through the stacks")]
    bases: Box<[Cell<NonNull<u8>>]>,
    #[expect(dead_code, reason = "reached through the stacks")]
    regions: Box<[Cell<NonNull<()>>]>,
    asked: Count,
    dismissed: Count,
    /// Requests among `allocs` that something had to be fetched for.
    misses: Count,
    /// Bytes not yet set aside, for small blocks and great.
    room: [Cell<usize>; 2],
    /// The pool is gone: nothing more is to be kept.
    pub(crate) orphaned: Flag,
    /// The memory is gone: nothing may be touched any more.
    pub(crate) closed: Flag,
}

impl Local {
    pub(crate) fn new(budget: Budget) -> Local {
        let limits: [usize; CLASSES] =
            core::array::from_fn(|index| Class::new(index).map_or(0, |class| budget.entries(class)));
        let slots = limits.iter().sum();
        let bases: Box<[_]> = vec![Cell::new(NonNull::dangling()); slots].into();
        let regions: Box<[_]> = vec![Cell::new(NonNull::dangling()); slots].into();
        let mut first = 0;
        let stacks = core::array::from_fn(|index| {
            let own = first..first + limits[index];
            first = own.end;
            Stack {
                len: Cell::new(0),
                most: Cell::new(0),
                bytes: Class::new(index).map_or(0, Class::bytes),
                bases: NonNull::from(&bases[own.clone()]).cast(),
                regions: NonNull::from(&regions[own]).cast(),
                allocs: Count::new(),
                frees: Count::new(),
                limit: limits[index],
            }
        });
        Local {
            stacks,
            bases,
            regions,
            asked: Count::new(),
            dismissed: Count::new(),
            misses: Count::new(),
            room: [Cell::new(budget.thread), Cell::new(budget.thread)],
            orphaned: Flag::new(),
            closed: Flag::new(),
        }
    }

    /// Hands a block out for `requested` bytes, and says how many it has; none if the magazine is empty.
    #[inline]
    pub(crate) fn pop(&self, class: Class, requested: usize) -> Option<(Entry, usize)> {
        let stack = self.stacks.get(class.index())?;
        let entry = stack.take()?;
        self.asked.add(requested as u64);
        stack.allocs.add(1);
        Some((entry, stack.bytes))
    }

    /// Takes a block back that was granted on `terms`; says no if it has no room for it.
    #[inline]
    pub(crate) fn push(&self, terms: Terms, entry: Entry) -> bool {
        let Some(stack) = self.stacks.get(terms.index()) else { return false };
        if self.orphaned.is_raised() || !stack.put(entry) {
            return false;
        }
        self.dismissed.add(terms.requested() as u64);
        // Last: who sees this count sees that its owner is done with the block.
        stack.frees.add(1);
        true
    }

    /// Returns how many blocks of a class are kept.
    pub(crate) fn len(&self, class: Class) -> usize {
        self.stacks.get(class.index()).map_or(0, |stack| stack.len.get())
    }

    /// Says how many blocks of a class to fetch at once.
    pub(crate) fn wanted(&self, class: Class) -> usize {
        let Some(stack) = self.stacks.get(class.index()) else { return 0 };
        stack.most.get().div_ceil(2).min(stack.most.get() - stack.len.get())
    }

    /// Keeps a block that comes from behind; says no if there is no room.
    pub(crate) fn stock(&self, class: Class, entry: Entry) -> bool {
        self.stacks.get(class.index()).is_some_and(|stack| stack.put(entry))
    }

    /// Gives a block up, to be put somewhere behind.
    pub(crate) fn unstock(&self, class: Class) -> Option<Entry> {
        self.stacks.get(class.index())?.take()
    }

    /// Lets the magazine of a class hold twice as many as now; says whether it may hold more than it does.
    ///
    /// Magazines start with nothing and double when they overflow, so bytes are set aside for what is in use only.
    pub(crate) fn enlarge(&self, class: Class) -> bool {
        let Some(stack) = self.stacks.get(class.index()) else { return false };
        let most = stack.most.get();
        let room = &self.room[stack.size()];
        let more = most.max(1).min(stack.limit - most).min(room.get() / stack.bytes);
        room.set(room.get() - more * stack.bytes);
        stack.most.set(most + more);
        stack.len.get() < most + more
    }

    /// Returns the class for which most bytes are set aside from the same budget, if that would help `class`.
    pub(crate) fn rival(&self, class: Class) -> Option<Class> {
        let stack = self.stacks.get(class.index())?;
        let aside = |other: &Stack| other.most.get() * other.bytes;
        if stack.most.get() == stack.limit {
            return None;
        }
        let others = self.stacks.iter().enumerate().filter(|(_, other)| other.size() == stack.size());
        let (index, greatest) = others.max_by_key(|(_, other)| aside(other))?;
        let helps = index != class.index() && aside(greatest) >= aside(stack).max(1);
        if helps { Class::new(index) } else { None }
    }

    /// Lets an empty magazine hold nothing any more.
    pub(crate) fn shut(&self, class: Class) {
        let Some(stack) = self.stacks.get(class.index()) else { return };
        let room = &self.room[stack.size()];
        let freed = stack.most.get() - stack.len.get();
        room.set(room.get() + freed * stack.bytes);
        stack.most.set(stack.len.get());
    }

    pub(crate) fn miss(&self) {
        self.misses.add(1);
    }

    /// Returns what this thread has counted; from another thread, what it had counted a moment ago.
    ///
    /// Frees are read before allocations: so a block that moves meanwhile looks live rather than freed twice.
    pub(crate) fn ledger(&self) -> Ledger {
        let mut sum = Ledger { dismissed: self.dismissed.get(), ..Ledger::default() };
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

impl Stack {
    #[inline]
    fn take(&self) -> Option<Entry> {
        let top = self.len.get().checked_sub(1)?;
        self.len.set(top);
        // SAFETY: `top < len ≤ limit` by invariant 2, so both slots exist by invariant 1.
        let base = unsafe { self.bases.add(top) };
        // SAFETY: as above.
        let region = unsafe { self.regions.add(top) };
        // SAFETY: as above; slots are only ever shared, as cells.
        let (base, region) = (unsafe { base.as_ref() }, unsafe { region.as_ref() });
        Some(Entry { base: base.get(), region: region.get() })
    }

    #[inline]
    fn put(&self, entry: Entry) -> bool {
        let len = self.len.get();
        if len >= self.most.get() {
            return false;
        }
        // SAFETY: `len < most ≤ limit` by invariant 2, so both slots exist by invariant 1.
        let base = unsafe { self.bases.add(len) };
        // SAFETY: as above.
        let region = unsafe { self.regions.add(len) };
        // SAFETY: as above; slots are only ever shared, as cells.
        let (base, region) = (unsafe { base.as_ref() }, unsafe { region.as_ref() });
        base.set(entry.base);
        region.set(entry.region);
        self.len.set(len + 1);
        true
    }

    /// Returns which budget counts: 0 for small blocks, 1 for great ones.
    fn size(&self) -> usize {
        usize::from(self.bytes > Budget::SMALL)
    }
}

impl fmt::Debug for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kept: usize = self.stacks.iter().map(|stack| stack.len.get()).sum();
        write!(f, "Local({kept} blocks kept)")
    }
}
