use core::ptr::NonNull;
use std::sync::Arc;

use super::{BlockPos, FreeLists, Level, PaperPool, bytes, pool};
use crate::Storage;

/// The second pool of the paper, as in mpjbuf: nothing is stored in blocks, but lists are searched.
///
/// Each region has, for each level, a list of all its blocks, live ones too. Allocating searches the list for a free
/// block, and freeing searches it for the buddy, so both take longer the more blocks are live.
///
/// For comparisons; programs use [`Magazine`](crate::Magazine).
///
/// ```
/// use mpj_pool::{Buddy2, Growth, Heap, Pool, RawBuffer};
/// let pool = Buddy2::growing(Growth::PAPER, Heap::create);
/// assert_eq!(pool.alloc(128)?.capacity(), 128);
/// # Ok::<(), mpj_pool::AllocError>(())
/// ```
#[derive(Debug)]
pub struct Buddy2<S: Storage> {
    shared: Arc<PaperPool<S, Buddy2Lists>>,
}

pool!(Buddy2, Buddy2Lists, Storage);

#[derive(Clone, Copy, Debug)]
struct Node {
    offset: usize,
    free: bool,
}

/// The blocks of each region by level.
#[derive(Default, Debug)]
pub struct Buddy2Lists {
    regions: Vec<Vec<Vec<Node>>>,
}

impl FreeLists for Buddy2Lists {
    fn overhead(_len: usize) -> usize {
        0
    }

    fn insert(&mut self, _base: NonNull<u8>, level: Level) {
        let mut levels = vec![Vec::new(); usize::from(level) + 1];
        levels[usize::from(level)].push(Node { offset: 0, free: true });
        self.regions.push(levels);
    }

    fn alloc(&mut self, level: Level) -> Option<BlockPos> {
        self.regions.iter_mut().enumerate().find_map(|(region, levels)| {
            let offset = take(levels, level)?;
            Some(BlockPos { region, offset, level })
        })
    }

    fn free(&mut self, BlockPos { region, mut offset, mut level }: BlockPos) {
        let levels = &mut self.regions[region];
        loop {
            let list = &mut levels[usize::from(level)];
            let buddy = offset ^ bytes(level);
            let free = list.iter().position(|node| node.offset == buddy && node.free);
            let own = list.iter().position(|node| node.offset == offset);
            let (Some(buddy), Some(own)) = (free, own) else {
                if let Some(own) = own {
                    list[own].free = true;
                }
                return;
            };
            // The larger index first, so that the other stays valid.
            list.swap_remove(buddy.max(own));
            list.swap_remove(buddy.min(own));
            offset &= !bytes(level);
            level += 1;
            levels[usize::from(level)].push(Node { offset, free: true });
        }
    }

    fn check(&self) -> Result<usize, String> {
        let mut free = 0;
        for (number, levels) in self.regions.iter().enumerate() {
            let mut all: Vec<(usize, usize)> = Vec::new();
            for (level, list) in (0..).zip(levels) {
                all.extend(list.iter().map(|node| (node.offset, bytes(level))));
                free += list.iter().filter(|node| node.free).count() * bytes(level);
            }
            all.sort_unstable();
            let mut end = 0;
            for (offset, size) in all {
                if offset != end {
                    return Err(format!("region {number}: a block is at +{offset:#x}, expected +{end:#x}"));
                }
                end = offset + size;
            }
            let size = (0..).zip(levels).last().map_or(0, |(level, _)| bytes(level));
            if end != size {
                return Err(format!("region {number}: its blocks end at +{end:#x}, expected +{size:#x}"));
            }
        }
        Ok(free)
    }
}

/// Allocates a free block of `level`, or half of a block of the next level.
fn take(levels: &mut [Vec<Node>], level: Level) -> Option<usize> {
    let list = levels.get_mut(usize::from(level))?;
    if let Some(node) = list.iter_mut().find(|node| node.free) {
        node.free = false;
        return Some(node.offset);
    }
    let whole = take(levels, level + 1)?;
    let above = &mut levels[usize::from(level) + 1];
    let at = above.iter().position(|node| node.offset == whole)?;
    above.swap_remove(at);
    let halves = [(whole, false), (whole + bytes(level), true)];
    levels[usize::from(level)].extend(halves.map(|(offset, free)| Node { offset, free }));
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_detects_a_missing_block() {
        for (level, offset) in [(0, 0), (0, 128), (1, 256)] {
            let mut lists = Buddy2Lists::default();
            lists.insert(NonNull::dangling(), 2);
            assert_eq!(lists.alloc(0), Some(BlockPos { region: 0, offset: 0, level: 0 }));
            assert_eq!(lists.check(), Ok(128 + 256));
            lists.regions[0][level].retain(|node| node.offset != offset);
            lists.check().unwrap_err();
        }
    }
}
