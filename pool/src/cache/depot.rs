//! Where magazines that are full and magazines that are empty meet.

use super::{CLASSES, Class, Entry, Local};
use crate::sync::{Lock, Stock};

/// Free blocks of each class that no thread keeps, each class under a lock of its own, taken once for many blocks.
#[derive(Debug)]
pub(crate) struct Depot {
    shelves: [Lock<Vec<Entry>>; CLASSES],
    /// Bytes of blocks that there is room for.
    pub(super) room: Stock,
    /// All that there is room for.
    bytes: usize,
}

impl Depot {
    /// Blocks on one shelf.
    const ENTRIES: usize = 256;

    /// Returns an empty depot for so many bytes; blocks of more than half as many go straight back to their region.
    pub(crate) fn new(bytes: usize) -> Depot {
        let shelves = core::array::from_fn(|_| Lock::new(Vec::new()));
        Depot { shelves, room: Stock::new(bytes as u64), bytes }
    }

    /// Moves blocks from the depot into an empty magazine; returns how many.
    pub(crate) fn restock(&self, local: &Local, class: Class) -> usize {
        let wanted = local.space(class);
        let Some(shelf) = self.shelves.get(class.index()) else { return 0 };
        let mut shelf = shelf.lock();
        let mut moved = 0;
        while moved < wanted
            && let Some(entry) = shelf.pop()
        {
            // `space` counts what there is room for.
            if !local.stock(class, entry) {
                shelf.push(entry);
                break;
            }
            moved += 1;
        }
        drop(shelf);
        if moved > 0 {
            self.room.add((moved * class.bytes()) as u64);
        }
        moved
    }

    /// Takes one block out.
    pub(crate) fn take(&self, class: Class) -> Option<Entry> {
        let entry = self.shelves.get(class.index())?.lock().pop()?;
        self.room.add(class.bytes() as u64);
        Some(entry)
    }

    /// Moves up to `count` blocks out of a magazine; returns how many found room here.
    pub(crate) fn store(&self, local: &Local, class: Class, count: usize) -> usize {
        let most = (self.bytes / class.bytes()).min(Self::ENTRIES);
        let Some(shelf) = self.shelves.get(class.index()) else { return 0 };
        let mut shelf = shelf.lock();
        let count = count.min(most.saturating_sub(shelf.len()));
        if most < 2 || count == 0 || (shelf.capacity() < most && shelf.try_reserve_exact(most).is_err()) {
            return 0;
        }
        let each = class.bytes() as u64;
        let affordable = self.room.take(count as u64, each);
        let mut moved = 0;
        while moved < affordable
            && let Some(entry) = local.unstock(class)
        {
            shelf.push(entry);
            moved += 1;
        }
        drop(shelf);
        if moved < affordable {
            self.room.add((affordable - moved) * each);
        }
        moved as usize
    }

    /// Takes everything out.
    pub(crate) fn drain(&self, mut each: impl FnMut(Entry)) {
        for shelf in &self.shelves {
            let entries = core::mem::take(&mut *shelf.lock());
            let bytes: usize = entries.iter().filter_map(|entry| entry.home.class()).map(Class::bytes).sum();
            self.room.add(bytes as u64);
            entries.into_iter().for_each(&mut each);
        }
    }
}
