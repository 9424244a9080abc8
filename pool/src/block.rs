//! The handle of one block of a pool.

use core::fmt;
use core::hint::black_box;
use core::ptr::NonNull;

use crate::arena::{Arena, Region};
use crate::cache::Entry;
use crate::class::{Class, MIN_BLOCK, MOST};
use crate::{RawBuffer, RegionKey, Storage};

/// One block of a [`Buddy`](crate::Buddy) pool; dropping it, on any thread, gives the memory back.
///
/// A block may outlive its pool, which then keeps its memory until the last block goes.
///
/// ```
/// use mpj_pool::{DefaultBlock, Pool, RawBuffer};
/// let mut block: DefaultBlock = mpj_pool::global().alloc(100)?;
/// assert_eq!(block.capacity(), 128);
/// block.as_uninit_mut()[0].write(7);
/// std::thread::spawn(move || drop(block)).join().unwrap();
/// # Ok::<(), mpj_pool::AllocError>(())
/// ```
///
/// # Invariants
/// 1. `region` lives, and with it its arena, for as long as this block is counted as live in the arena.
/// 2. `base..base + capacity` lies in the region, and is granted to this block alone until the arena takes it back.
///    It is at least [`MIN_BLOCK`] long.
/// 3. `class` is that of the block, or none, if the region is this block.
pub struct Block<S: Storage> {
    base: NonNull<u8>,
    region: NonNull<Region<S>>,
    capacity: usize,
    terms: Terms,
}

/// What was asked for, and the class of what was granted, in one word: handles are moved often.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Terms(usize);

impl Terms {
    const NO_CLASS: usize = 255;

    /// `requested` is at most [`MOST`].
    #[inline]
    pub(crate) fn new(requested: usize, class: Option<Class>) -> Terms {
        Terms(requested << 8 | class.map_or(Self::NO_CLASS, Class::index))
    }

    /// `class` is the index of one that is kept, and holds `requested` bytes.
    #[inline]
    pub(crate) fn kept(requested: usize, class: usize) -> Terms {
        Terms(requested << 8 | class)
    }

    #[inline]
    pub(crate) fn requested(self) -> usize {
        self.0 >> 8
    }

    /// Returns the place of the class in the list of all; there is none at 255.
    #[inline]
    pub(crate) fn index(self) -> usize {
        self.0 & 255
    }
}

const _: () = assert!(MOST <= usize::MAX >> 8);

/// What freed bytes become in debug builds.
const POISON: u8 = 0xdb;
/// How many bytes of a block: most of those who read what is freed read its beginning.
const POISONED: usize = 64 << 10;

impl<S: Storage> Block<S> {
    /// # Safety
    /// The arena of `region` has just granted these bytes on these terms, and counts them as one live block.
    #[inline]
    pub(crate) unsafe fn new(
        base: NonNull<u8>,
        region: NonNull<Region<S>>,
        capacity: usize,
        terms: Terms,
    ) -> Block<S> {
        Block { base, region, capacity, terms }
    }

    /// # Safety
    /// As for `new`; the region is that of `entry`, and its storage of type `S`.
    #[inline]
    pub(crate) unsafe fn granted(entry: Entry, class: Class, requested: usize) -> Block<S> {
        let terms = Terms::new(requested, Some(class));
        // SAFETY: the caller's promise.
        unsafe { Block::new(entry.base, entry.region.cast(), class.bytes(), terms) }
    }

    /// Returns the same block, out of registers.
    ///
    /// For the slow way of a function with a fast one: if both wrote their result to memory, whoever uses it would have
    /// to read it back from there, too early and in other portions than it was written, which takes ten times as long as
    /// the fast way itself.
    #[inline(always)]
    pub(crate) fn rebuilt(self) -> Block<S> {
        let Block { base, region, capacity, terms } = *core::mem::ManuallyDrop::new(self);
        let (base, region) = (black_box(base), black_box(region));
        Block { base, region, capacity: black_box(capacity), terms: black_box(terms) }
    }

    /// Returns the number of bytes that were asked for.
    ///
    /// ```
    /// use mpj_pool::{Pool, RawBuffer};
    /// let block = mpj_pool::global().alloc(100)?;
    /// assert_eq!((block.requested(), block.capacity()), (100, 128));
    /// # Ok::<(), mpj_pool::AllocError>(())
    /// ```
    pub fn requested(&self) -> usize {
        self.terms.requested()
    }

    /// Makes room for `len` bytes where the block is, if what follows it is free; the bytes in it stay.
    ///
    /// A block that has the room already just takes note. The handle that comes back, either way, is the only one.
    ///
    /// ```
    /// use mpj_pool::{Growth, Heap, Magazine, Pool, RawBuffer};
    /// let pool = Magazine::growing(Growth::default(), Heap::create);
    /// let block = pool.alloc(1 << 19)?;
    /// let at = block.as_ptr();
    /// let block = block.try_grow(3 << 18).expect("the pool is empty otherwise");
    /// assert_eq!((block.as_ptr(), block.capacity()), (at, 3 << 18));
    /// # Ok::<(), mpj_pool::AllocError>(())
    /// ```
    ///
    /// # Errors
    /// The block as it was.
    pub fn try_grow(self, len: usize) -> Result<Block<S>, Block<S>> {
        let Block { base, region, capacity, terms } = *core::mem::ManuallyDrop::new(self);
        // SAFETY: invariants 1 to 3; the handle below says what is returned.
        match unsafe { Arena::grow(region, base, capacity, terms, len) } {
            Some((capacity, terms)) => Ok(Block { base, region, capacity, terms }),
            None => Err(Block { base, region, capacity, terms }),
        }
    }

    /// Overwrites what was freed, so that in debug builds who still reads it notices.
    fn poison(&mut self) {
        let bytes = self.as_uninit_mut();
        let len = bytes.len().min(POISONED);
        bytes[..len].fill(core::mem::MaybeUninit::new(POISON));
    }

    fn home(&self) -> &Region<S> {
        // SAFETY: invariant 1: this block is live, so the region lives.
        unsafe { self.region.as_ref() }
    }
}

// SAFETY: the block owns its bytes, the region is `Sync` as storages are, and the arena may be used from any thread.
unsafe impl<S: Storage> Send for Block<S> {}
// SAFETY: through `&Block` only fields that never change are read, and the region, which is `Sync` as storages are.
unsafe impl<S: Storage> Sync for Block<S> {}

// SAFETY: 1: invariants 1 and 2, and the contract of Storage: the region's bytes neither move nor unmap while it lives.
// 2: invariant 2, and point 4 of Storage. 3: no field changes.
unsafe impl<S: Storage> RawBuffer for Block<S> {
    #[inline]
    fn as_ptr(&self) -> NonNull<u8> {
        self.base
    }

    #[inline]
    fn capacity(&self) -> usize {
        // So that who looks at the first byte needs no check, and no way out in case it fails.
        // SAFETY: invariant 2.
        unsafe { core::hint::assert_unchecked(self.capacity >= MIN_BLOCK) };
        self.capacity
    }

    fn region(&self) -> Option<(RegionKey, usize)> {
        let region = self.home();
        region.storage.key().map(|key| (key, region.offset(self.base)))
    }

    fn local_key(&self) -> Option<u32> {
        self.home().storage.local_key()
    }
}

impl<S: Storage> Drop for Block<S> {
    #[inline]
    fn drop(&mut self) {
        if cfg!(debug_assertions) {
            self.poison();
        }
        // SAFETY: invariants 1 and 2; this runs once, so the block is live until here and not used afterwards.
        unsafe { Arena::keep(self.region, self.base, self.capacity, self.terms) }
    }
}

impl<S: Storage> fmt::Debug for Block<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let offset = self.home().offset(self.base);
        write!(f, "Block({} of {} B at +{offset:#x})", self.requested(), self.capacity)
    }
}
