//! Where magazines that are full and magazines that are empty meet.

use super::{CLASSES, Class, Entry, Local};
use crate::sync::Lock;

/// Free blocks of each class that no thread keeps, each class under a lock of its own, taken once for many blocks.
#[derive(Debug)]
pub(crate) struct Depot {
    shelves: [Lock<Vec<Entry>>; CLASSES],
}

impl Depot {
    /// Blocks on one shelf.
    const ENTRIES: usize = 256;
    /// Bytes on one shelf; greater blocks than half of that go straight back to their region.
    const BYTES: usize = 4 << 20;

    pub(crate) fn new() -> Depot {
        Depot { shelves: core::array::from_fn(|_| Lock::new(Vec::new())) }
    }

    /// Moves blocks from the depot into an empty magazine; returns how many.
    pub(crate) fn restock(&self, local: &Local, class: Class) -> usize {
        let wanted = local.wanted(class);
        let Some(shelf) = self.shelves.get(class.index()) else { return 0 };
        let mut shelf = shelf.lock();
        let mut moved = 0;
        while moved < wanted
            && let Some(entry) = shelf.pop()
        {
            // `wanted` counts what there is room for.
            if !local.stock(class, entry) {
                shelf.push(entry);
                break;
            }
            moved += 1;
        }
        moved
    }

    /// Moves up to `count` blocks out of a magazine; returns how many found room here.
    pub(crate) fn store(&self, local: &Local, class: Class, count: usize) -> usize {
        let most = (Self::BYTES / class.bytes() / 2 * 2).min(Self::ENTRIES);
        let Some(shelf) = self.shelves.get(class.index()) else { return 0 };
        let mut shelf = shelf.lock();
        let count = count.min(most.saturating_sub(shelf.len()));
        if shelf.capacity() < most && (count == 0 || shelf.try_reserve_exact(most).is_err()) {
            return 0;
        }
        let mut moved = 0;
        while moved < count
            && let Some(entry) = local.unstock(class)
        {
            shelf.push(entry);
            moved += 1;
        }
        moved
    }

    /// Takes everything out.
    pub(crate) fn drain(&self, mut each: impl FnMut(Entry)) {
        for shelf in &self.shelves {
            let entries = core::mem::take(&mut *shelf.lock());
            entries.into_iter().for_each(&mut each);
        }
    }
}
