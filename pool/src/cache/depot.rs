use super::{BlockPtr, CLASSES, Class, ThreadCache};
use crate::sync::{ByteBudget, Lock};

/// Free blocks that threads exchange. Each class has its own lock, which is taken once for a batch of blocks.
#[derive(Debug)]
pub(crate) struct Depot {
    bins: [Lock<DepotBin>; CLASSES],
    pub(super) budget: ByteBudget,
    /// The budget of an empty depot.
    capacity: usize,
}

#[derive(Debug)]
struct DepotBin {
    blocks: Vec<BlockPtr>,
    /// Whether a thread has requested a block since [`clear_for`](Depot::clear_for) last examined this bin.
    is_used: bool,
    /// Whether a thread has requested or stored a block since the last call of [`take_stale`](Depot::take_stale).
    is_fresh: bool,
}

impl Depot {
    const MAX_BLOCKS: usize = 256;

    /// Returns an empty depot for `bytes` bytes. It takes no blocks of more than half of that.
    pub(crate) fn new(bytes: usize) -> Depot {
        let bins = core::array::from_fn(|_| {
            Lock::new(DepotBin { blocks: Vec::new(), is_used: false, is_fresh: false })
        });
        Depot { bins, budget: ByteBudget::new(bytes as u64), capacity: bytes }
    }

    /// Moves blocks into a magazine until it has no free slot. Returns the number moved.
    pub(crate) fn refill(&self, cache: &ThreadCache, class: Class) -> usize {
        let wanted = cache.free_slots(class);
        let Some(bin) = self.bins.get(class.index()) else { return 0 };
        let mut bin = bin.lock();
        let mut moved = 0;
        while moved < wanted
            && let Some(block) = bin.blocks.pop()
        {
            if !cache.put(class, block) {
                bin.blocks.push(block);
                break;
            }
            moved += 1;
        }
        (bin.is_used, bin.is_fresh) = (true, true);
        drop(bin);
        if moved > 0 {
            self.budget.add((moved * class.bytes()) as u64);
        }
        moved
    }

    pub(crate) fn take(&self, class: Class) -> Option<BlockPtr> {
        let mut bin = self.bins.get(class.index())?.lock();
        (bin.is_used, bin.is_fresh) = (true, true);
        let block = bin.blocks.pop()?;
        drop(bin);
        self.budget.add(class.bytes() as u64);
        Some(block)
    }

    /// Moves up to `count` blocks out of a magazine, as far as they fit here. Returns the number moved.
    pub(crate) fn store(&self, cache: &ThreadCache, class: Class, count: usize) -> usize {
        let max_blocks = self.max_blocks(class);
        let Some(bin) = self.bins.get(class.index()).filter(|_| count > 0) else { return 0 };
        let mut bin = bin.lock();
        bin.is_fresh = true;
        let bin = &mut bin.blocks;
        let count = count.min(max_blocks.saturating_sub(bin.len()));
        if count == 0 || (bin.capacity() < max_blocks && bin.try_reserve_exact(max_blocks).is_err()) {
            return 0;
        }
        let each = class.bytes() as u64;
        let affordable = self.budget.take(count as u64, each);
        let mut moved = 0;
        while moved < affordable
            && let Some(block) = cache.take(class)
        {
            bin.push(block);
            moved += 1;
        }
        if moved < affordable {
            self.budget.add((affordable - moved) * each);
        }
        moved as usize
    }

    fn max_blocks(&self, class: Class) -> usize {
        let max_blocks = (self.capacity / class.bytes()).min(Self::MAX_BLOCKS);
        if max_blocks < 2 { 0 } else { max_blocks }
    }

    /// Makes room for up to `count` blocks of `class` in the byte budget. Removes and returns blocks of another class:
    /// the one with the most bytes here among those that no thread has requested since the last call.
    pub(crate) fn clear_for(&self, class: Class, count: usize) -> Vec<BlockPtr> {
        let count =
            count.min(self.max_blocks(class).saturating_sub(self.bins[class.index()].lock().blocks.len()));
        if count == 0 {
            return Vec::new();
        }
        let mut greatest = (0, None);
        for other in (0..CLASSES).filter_map(Class::new).filter(|&other| other != class) {
            let mut bin = self.bins[other.index()].lock();
            let bytes = bin.blocks.len() * other.bytes();
            if !core::mem::replace(&mut bin.is_used, false) && bytes > greatest.0 {
                greatest = (bytes, Some(other));
            }
        }
        let mut cleared = Vec::new();
        let Some(other) = greatest.1 else { return cleared };
        // The list is allocated before the lock is taken. Without memory for it, nothing is removed.
        let needed = (count * class.bytes()).div_ceil(other.bytes()).min(Self::MAX_BLOCKS);
        if cleared.try_reserve_exact(needed).is_ok() {
            let mut bin = self.bins[other.index()].lock();
            cleared.extend(core::iter::from_fn(|| bin.blocks.pop()).take(needed));
        }
        self.budget.add((cleared.len() * other.bytes()) as u64);
        cleared
    }

    /// Removes and returns all blocks of the classes that no thread has requested or stored since the last call.
    pub(crate) fn take_stale(&self) -> Vec<BlockPtr> {
        let mut stale = Vec::new();
        for class in (0..CLASSES).filter_map(Class::new) {
            let mut bin = self.bins[class.index()].lock();
            if !core::mem::replace(&mut bin.is_fresh, false) {
                let blocks = core::mem::take(&mut bin.blocks);
                drop(bin);
                self.budget.add((blocks.len() * class.bytes()) as u64);
                stale.extend(blocks);
            }
        }
        stale
    }

    pub(crate) fn drain(&self, mut each: impl FnMut(BlockPtr)) {
        for class in (0..CLASSES).filter_map(Class::new) {
            let blocks = core::mem::take(&mut self.bins[class.index()].lock().blocks);
            self.budget.add((blocks.len() * class.bytes()) as u64);
            blocks.into_iter().for_each(&mut each);
        }
    }
}
