use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;

use super::{BlockPos, CHUNK, FreeLists, Level, MAX_REGION, PaperBlock, PaperPool, bytes, pool};
use crate::class::alignment;
use crate::{Heap, Huge, Pages, RawBuffer, RegionKey, Storage};

/// Storage that no other process can change.
///
/// # Safety
/// Only a pool over this storage and the handles of its live blocks write to the memory of this storage.
pub unsafe trait PrivateStorage: Storage {}

// SAFETY: memory of this process's allocator.
unsafe impl PrivateStorage for Heap {}
// SAFETY: a private mapping.
unsafe impl PrivateStorage for Pages {}
// SAFETY: a private mapping, or one of a file that no other process has.
unsafe impl PrivateStorage for Huge {}

/// The first pool of the paper, as in mpjbuf: its tags and free lists are in the blocks.
///
/// Each block starts with a tag: live, or free and its level. In a free block, links to the previous and the next free
/// block of its level and region follow. The tag is one byte, but the user's bytes start at their alignment after it,
/// so a request for a power of two takes twice as much, as in mpjbuf. A write to a free block breaks the pool, so the
/// pool needs [`PrivateStorage`].
///
/// For comparisons; programs use [`Magazine`](crate::Magazine).
///
/// ```
/// use mpj_pool::{Buddy1, Growth, Heap, Pool, RawBuffer};
/// let pool = Buddy1::growing(Growth::PAPER, Heap::create);
/// let block = pool.alloc(128)?;
/// assert_eq!(block.capacity(), 128, "and 128 for a tag");
/// # Ok::<(), mpj_pool::AllocError>(())
/// ```
///
/// ```compile_fail
/// use mpj_pool::{Buddy1, Growth, SharedStorage};
/// let pool = Buddy1::growing(Growth::PAPER, SharedStorage::create); // a peer could write to the links
/// ```
#[derive(Debug)]
pub struct Buddy1<S: PrivateStorage> {
    shared: Arc<PaperPool<S, Buddy1Lists>>,
}

pool!(Buddy1, Buddy1Lists, PrivateStorage);

const NIL: u32 = u32::MAX;
const _: () = assert!(MAX_REGION / CHUNK <= NIL as usize);
/// The tag of a live block; the tag of a free block is its level.
const LIVE: u8 = 255;

/// Lists through the free blocks of all regions.
///
/// # Invariants
/// 1. Each of `bases` is the start of a private region of `bytes(level)` bytes, which outlives this value's last use.
/// 2. Each block starts with its tag, which in a free block is followed by its links, all written by this value. Users
///    of live blocks do not access the first `overhead` bytes, at least 64.
#[derive(Default)]
pub struct Buddy1Lists {
    bases: Vec<(NonNull<u8>, Level)>,
    /// For each level: each region with a free block of this level, and the position of its first one, in chunks.
    lists: Vec<Vec<(usize, u32)>>,
}

// SAFETY: regions may be used from any thread, and the value is used under a lock.
unsafe impl Send for Buddy1Lists {}

impl Buddy1Lists {
    /// Returns the address at offset `at` of a region: the first or the second byte of a block.
    fn address(&self, region: usize, at: usize) -> NonNull<u8> {
        let (base, level) = self.bases[region];
        debug_assert!(at + 9 <= bytes(level));
        // SAFETY: invariant 1; a block has at least a chunk, so its first and its second byte are inside.
        unsafe { base.add(at) }
    }

    fn tag(&self, region: usize, offset: usize) -> u8 {
        // SAFETY: invariants 1 and 2: a block starts there, so its tag has been written.
        unsafe { self.address(region, offset).read() }
    }

    fn set_tag(&mut self, region: usize, offset: usize, tag: u8) {
        // SAFETY: invariants 1 and 2: a block starts there, and its user does not touch the tag.
        unsafe { self.address(region, offset).write(tag) }
    }

    /// Returns the positions of the previous and the next free block, in chunks.
    fn links(&self, region: usize, offset: usize) -> [u32; 2] {
        let at = self.address(region, offset + 1).cast::<[u32; 2]>();
        // SAFETY: invariants 1 and 2: a free block starts there, so its links have been written; not aligned.
        unsafe { at.read_unaligned() }
    }

    fn set_links(&mut self, region: usize, offset: usize, links: [u32; 2]) {
        let at = self.address(region, offset + 1).cast::<[u32; 2]>();
        // SAFETY: invariants 1 and 2: a free block starts there, and a chunk has room for tag and links; not aligned.
        unsafe { at.write_unaligned(links) }
    }

    fn push(&mut self, region: usize, offset: usize, level: Level) {
        let here = (offset / CHUNK) as u32;
        let list = &mut self.lists[usize::from(level)];
        let next = match list.iter_mut().find(|(of, _)| *of == region) {
            Some((_, first)) => core::mem::replace(first, here),
            None => {
                list.push((region, here));
                NIL
            }
        };
        self.set_tag(region, offset, level);
        self.set_links(region, offset, [NIL, next]);
        if next != NIL {
            let [_, after] = self.links(region, next as usize * CHUNK);
            self.set_links(region, next as usize * CHUNK, [here, after]);
        }
    }

    fn unlink(&mut self, region: usize, offset: usize, level: Level) {
        let [prev, next] = self.links(region, offset);
        if next != NIL {
            let [_, after] = self.links(region, next as usize * CHUNK);
            self.set_links(region, next as usize * CHUNK, [prev, after]);
        }
        if prev != NIL {
            let [before, _] = self.links(region, prev as usize * CHUNK);
            self.set_links(region, prev as usize * CHUNK, [before, next]);
            return;
        }
        let list = &mut self.lists[usize::from(level)];
        if let Some(at) = list.iter().position(|(of, _)| *of == region) {
            if next == NIL {
                list.swap_remove(at);
            } else {
                list[at].1 = next;
            }
        }
    }
}

impl FreeLists for Buddy1Lists {
    fn overhead(len: usize) -> usize {
        alignment(len)
    }

    fn insert(&mut self, base: NonNull<u8>, level: Level) {
        let region = self.bases.len();
        self.bases.push((base, level));
        let levels = self.lists.len().max(usize::from(level) + 1);
        self.lists.resize_with(levels, Vec::new);
        self.push(region, 0, level);
    }

    fn alloc(&mut self, level: Level) -> Option<BlockPos> {
        let from = (usize::from(level)..self.lists.len()).find(|&from| !self.lists[from].is_empty())?;
        let &(region, first) = self.lists[from].first()?;
        let offset = first as usize * CHUNK;
        self.unlink(region, offset, from as Level);
        for below in (level..from as Level).rev() {
            self.push(region, offset + bytes(below), below);
        }
        self.set_tag(region, offset, LIVE);
        Some(BlockPos { region, offset, level })
    }

    fn free(&mut self, BlockPos { region, mut offset, mut level }: BlockPos) {
        let (_, top) = self.bases[region];
        while level < top && self.tag(region, offset ^ bytes(level)) == level {
            let buddy = offset ^ bytes(level);
            self.unlink(region, buddy, level);
            offset &= !bytes(level);
            level += 1;
        }
        self.push(region, offset, level);
    }

    fn check(&self) -> Result<usize, String> {
        let mut free = 0;
        for (level, list) in (0..).zip(&self.lists) {
            for &(region, first) in list {
                let (mut prev, mut at) = (NIL, first);
                while at != NIL {
                    let offset = at as usize * CHUNK;
                    let [before, next] = self.links(region, offset);
                    if self.tag(region, offset) != level || before != prev {
                        return Err(format!("level {level}: the list is broken at +{offset:#x}"));
                    }
                    free += bytes(level);
                    (prev, at) = (at, next);
                }
            }
        }
        Ok(free)
    }
}

impl fmt::Debug for Buddy1Lists {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Buddy1Lists({} regions)", self.bases.len())
    }
}

/// Returns an address in a storage, which has more than `offset` bytes.
pub(super) fn within<S: Storage>(storage: &S, offset: usize) -> NonNull<u8> {
    debug_assert!(offset < storage.size());
    // SAFETY: the free lists return positions in their regions only, and blocks are longer than their overhead.
    unsafe { storage.base().add(offset) }
}

// SAFETY: the block owns its bytes; what it shares with its pool is under a lock.
unsafe impl<S: Storage, B: Send> Send for PaperBlock<S, B> {}
// SAFETY: through a shared block, only fields that never change are read, and the pool's regions, under its lock.
unsafe impl<S: Storage, B: Send> Sync for PaperBlock<S, B> {}

// SAFETY: 1: the position lies in a region, which `shared` keeps; regions are only ever added. 2: the free lists grant
// each position to one block until it is freed, and keep their own data in front of `base` or elsewhere. 3, 4: no
// field changes, and `region` returns `None`.
unsafe impl<S: Storage, B: Send + 'static> RawBuffer for PaperBlock<S, B> {
    fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    fn capacity(&self) -> usize {
        self.capacity
    }

    fn region_offset(&self) -> Option<(RegionKey, usize)> {
        self.key_and_offset()
    }
}
