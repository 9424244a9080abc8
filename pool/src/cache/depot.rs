//! Free blocks on their way from full magazines to empty ones.

use super::{BlockPtr, CLASSES, Class, ThreadCache};
use crate::sync::{ByteBudget, Lock};

/// Free blocks of each class that no thread keeps, each class under a lock of its own, taken once for many blocks.
#[derive(Debug)]
pub(crate) struct Depot {
    shelves: [Lock<DepotBin>; CLASSES],
    /// Bytes of blocks that may still be put here.
    pub(super) room: ByteBudget,
    /// The value of `room` when the depot is empty.
    bytes: usize,
}

/// The blocks of one class.
#[derive(Debug)]
struct DepotBin {
    blocks: Vec<BlockPtr>,
    /// Whether a thread has requested a block since the last [`clear_for`](Depot::clear_for).
    is_used: bool,
}

impl Depot {
    /// Blocks on one shelf.
    const ENTRIES: usize = 256;

    /// Returns an empty depot for `bytes` bytes. Blocks of more than half of that go straight back to their region.
    pub(crate) fn new(bytes: usize) -> Depot {
        let shelves = core::array::from_fn(|_| Lock::new(DepotBin { blocks: Vec::new(), is_used: false }));
        Depot { shelves, room: ByteBudget::new(bytes as u64), bytes }
    }

    /// Moves blocks from the depot into an empty magazine; returns how many.
    pub(crate) fn restock(&self, local: &ThreadCache, class: Class) -> usize {
        let wanted = local.space(class);
        let Some(shelf) = self.shelves.get(class.index()) else { return 0 };
        let mut shelf = shelf.lock();
        let mut moved = 0;
        while moved < wanted
            && let Some(block) = shelf.blocks.pop()
        {
            // `space` is the number of blocks that fit.
            if !local.put(class, block) {
                shelf.blocks.push(block);
                break;
            }
            moved += 1;
        }
        shelf.is_used = true;
        drop(shelf);
        if moved > 0 {
            self.room.add((moved * class.bytes()) as u64);
        }
        moved
    }

    /// Takes one block out.
    pub(crate) fn take(&self, class: Class) -> Option<BlockPtr> {
        let mut shelf = self.shelves.get(class.index())?.lock();
        shelf.is_used = true;
        let block = shelf.blocks.pop()?;
        drop(shelf);
        self.room.add(class.bytes() as u64);
        Some(block)
    }

    /// Moves up to `count` blocks out of a magazine; returns how many fit here.
    pub(crate) fn store(&self, local: &ThreadCache, class: Class, count: usize) -> usize {
        let most = self.most(class);
        let Some(shelf) = self.shelves.get(class.index()).filter(|_| count > 0) else { return 0 };
        let mut shelf = shelf.lock();
        let shelf = &mut shelf.blocks;
        let count = count.min(most.saturating_sub(shelf.len()));
        if count == 0 || (shelf.capacity() < most && shelf.try_reserve_exact(most).is_err()) {
            return 0;
        }
        let each = class.bytes() as u64;
        let affordable = self.room.take(count as u64, each);
        let mut moved = 0;
        while moved < affordable
            && let Some(block) = local.unstock(class)
        {
            shelf.push(block);
            moved += 1;
        }
        if moved < affordable {
            self.room.add((affordable - moved) * each);
        }
        moved as usize
    }

    /// Returns how many blocks of a class its shelf may hold, at least 2 or none.
    fn most(&self, class: Class) -> usize {
        let most = (self.bytes / class.bytes()).min(Self::ENTRIES);
        if most < 2 { 0 } else { most }
    }

    /// Makes room for `count` blocks of `class` if the byte budget is the limit. Removes blocks of one class: the one
    /// with the most bytes here among those that no thread has requested since the last call.
    ///
    /// Of two calls in quick succession the second may take a class that is in use; that costs one batch.
    pub(crate) fn clear_for(&self, class: Class, count: usize) -> Vec<BlockPtr> {
        let count =
            count.min(self.most(class).saturating_sub(self.shelves[class.index()].lock().blocks.len()));
        if count == 0 {
            return Vec::new();
        }
        let mut greatest = (0, None);
        for other in (0..CLASSES).filter_map(Class::new).filter(|&other| other != class) {
            let mut shelf = self.shelves[other.index()].lock();
            let bytes = shelf.blocks.len() * other.bytes();
            if !core::mem::replace(&mut shelf.is_used, false) && bytes > greatest.0 {
                greatest = (bytes, Some(other));
            }
        }
        let mut cleared = Vec::new();
        let Some(other) = greatest.1 else { return cleared };
        // The list is allocated before the lock is taken; without memory for it nothing is cleared.
        let needed = (count * class.bytes()).div_ceil(other.bytes()).min(Self::ENTRIES);
        if cleared.try_reserve_exact(needed).is_ok() {
            let mut shelf = self.shelves[other.index()].lock();
            cleared.extend(core::iter::from_fn(|| shelf.blocks.pop()).take(needed));
        }
        self.room.add((cleared.len() * other.bytes()) as u64);
        cleared
    }

    /// Takes everything out.
    pub(crate) fn drain(&self, mut each: impl FnMut(BlockPtr)) {
        for class in (0..CLASSES).filter_map(Class::new) {
            let blocks = core::mem::take(&mut self.shelves[class.index()].lock().blocks);
            self.room.add((blocks.len() * class.bytes()) as u64);
            blocks.into_iter().for_each(&mut each);
        }
    }
}
