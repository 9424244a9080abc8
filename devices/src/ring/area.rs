//! Fragments: the memory for bodies that do not fit in a cell, owned by the sender, lent to one receiver at a time.

use crate::sync::atomic::{AtomicU32, Ordering};
use std::collections::VecDeque;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use mpj_pool::{AllocError, Pool, RawBuffer};

use super::Owner;
use crate::fence::Light;

const LINE: usize = 64;
const PAGE: usize = 4096;

/// Fragments a sender goes round while they come back in time: few enough to stay in its cache.
const ROUND: usize = 8;

/// The fragments of one sender, as the sender and its receivers see them.
///
/// ```text
///  starved 64 B | lent: u32, a line by fragment | to the next page | fragments
/// ```
///
/// # Invariants
/// 1. `base` points to [`bytes`](Self::bytes) bytes whose words were zero at first and which live as long as `_owner`.
/// 2. Fragment `i` belongs to the sender while its index is in `free` or in the sender's hand; to the receiver it was
///    sent to while `lent[i]` is 1. The receiver stores 0 (release) when it is done, and the sender takes the fragment
///    back only after it has seen that 0 (acquire).
/// 3. One process uses `hand`: the sender's.
pub(crate) struct Area {
    base: NonNull<u8>,
    count: u32,
    size: usize,
    hand: Mutex<Hand>,
    light: Light,
    _owner: Owner,
}

/// What the sender knows of its fragments.
#[derive(Debug)]
struct Hand {
    free: Vec<u32>,
    /// Those lent, the oldest first.
    out: VecDeque<u32>,
}

// SAFETY: invariant 2 gives each fragment exactly one owner at a time, handed over with release and acquire; the rest
// is atomics and a mutex.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl fmt::Debug for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Area({} × {} B)", self.count, self.size)
    }
}

impl Area {
    /// Returns the bytes that `count` fragments of `size` bytes take, states included.
    pub(crate) const fn bytes(count: u32, size: u32) -> usize {
        Area::states(count) + count as usize * size as usize
    }

    const fn states(count: u32) -> usize {
        (LINE + count as usize * LINE).next_multiple_of(PAGE)
    }

    /// Makes an area over memory.
    ///
    /// # Safety
    /// Invariants 1 and 3.
    pub(crate) unsafe fn at(base: NonNull<u8>, count: u32, size: u32, owner: Owner) -> Self {
        let hand = Hand { free: (0..count).rev().collect(), out: VecDeque::new() };
        Area { base, count, size: size as usize, hand: Mutex::new(hand), light: Light::new(), _owner: owner }
    }

    /// Makes an area in memory of this process.
    pub(crate) fn new(count: u32, size: u32) -> Result<Self, AllocError> {
        let mut block = mpj_pool::global().alloc(Area::bytes(count, size))?;
        block.as_uninit_mut()[..Area::states(count)].fill(MaybeUninit::new(0));
        let base = block.as_ptr();
        // SAFETY: the block is ours, its words have been set to zero, and the area keeps it.
        Ok(unsafe { Area::at(base, count, size, Arc::new(Mutex::new(block))) })
    }

    /// Returns the length of a fragment in bytes.
    pub(crate) fn fragment(&self) -> usize {
        self.size
    }

    #[inline]
    fn starved(&self) -> &AtomicU32 {
        // SAFETY: invariant 1: the first word of the area.
        unsafe { self.base.cast::<AtomicU32>().as_ref() }
    }

    #[inline]
    fn lent(&self, index: u32) -> &AtomicU32 {
        debug_assert!(index < self.count);
        // SAFETY: invariant 1; callers pass an index below `count`.
        let word = unsafe { self.base.add(LINE + index as usize * LINE) };
        // SAFETY: as above; the word is only used as an atomic.
        unsafe { word.cast::<AtomicU32>().as_ref() }
    }

    #[inline]
    fn start(&self, index: u32) -> *mut u8 {
        self.base.as_ptr().wrapping_add(Area::states(self.count) + index as usize * self.size)
    }

    /// Takes a free fragment, lets `fill` write its first `len` bytes, and lends it; returns its index.
    #[inline]
    pub(crate) fn lend(&self, len: usize, fill: impl FnOnce(&mut [MaybeUninit<u8>])) -> Option<u32> {
        let index = self.take()?;
        let start = self.start(index).cast::<MaybeUninit<u8>>();
        // SAFETY: invariant 1 for the bytes, invariant 2: the fragment is ours alone until its index is sent.
        let bytes = unsafe { std::slice::from_raw_parts_mut(start, len.min(self.size)) };
        fill(bytes);
        Some(index)
    }

    fn take(&self) -> Option<u32> {
        let mut hand = self.hand.lock().unwrap_or_else(PoisonError::into_inner);
        let index = match hand.out.front() {
            Some(oldest) if hand.out.len() >= ROUND && self.is_back(*oldest) => hand.out.pop_front()?,
            _ => match hand.free.pop() {
                Some(index) => index,
                None => self.reclaim(&mut hand)?,
            },
        };
        hand.out.push_back(index);
        self.lent(index).store(1, Ordering::Relaxed);
        Some(index)
    }

    #[inline]
    fn is_back(&self, index: u32) -> bool {
        // SYNC fragment-return (acquire)
        self.lent(index).load(Ordering::Acquire) == 0
    }

    /// Collects what receivers have given back. If that is nothing, raises `starved` and looks once more.
    #[cold]
    fn reclaim(&self, hand: &mut Hand) -> Option<u32> {
        let Hand { free, out } = hand;
        for last in [false, true] {
            out.retain(|index| {
                let back = self.is_back(*index);
                if back {
                    free.push(*index);
                }
                !back
            });
            if let Some(index) = free.pop() {
                return Some(index);
            }
            if !last {
                self.starved().store(1, Ordering::Relaxed);
                crate::fence::heavy();
            }
        }
        None
    }

    /// Returns the first `len` bytes of fragment `index`, or `None` if there are no such bytes.
    ///
    /// # Safety
    /// The fragment was sent to the caller, who has not given it back before the returned bytes are last used; the
    /// sender has filled `len` bytes.
    #[inline]
    pub(crate) unsafe fn received(&self, index: u32, len: usize) -> Option<&[u8]> {
        if index >= self.count || len > self.size {
            return None;
        }
        // SAFETY: the index was checked against invariant 1; by the caller's contract the bytes are filled and, by
        // invariant 2, nobody writes them.
        Some(unsafe { std::slice::from_raw_parts(self.start(index), len) })
    }

    /// Gives a fragment back to its sender, and wakes the sender by `wake` if it waits for one.
    #[inline]
    pub(crate) fn give_back(&self, index: u32, wake: impl FnOnce()) {
        // SYNC fragment-return (release)
        self.lent(index).store(0, Ordering::Release);
        self.light.fence();
        if self.starved().load(Ordering::Relaxed) != 0 {
            self.starved().store(0, Ordering::Relaxed);
            wake();
        }
    }
}
