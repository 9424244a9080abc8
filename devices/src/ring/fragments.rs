//! Fragments: the memory for bodies that do not fit in a cell. The sender owns them, and at most one receiver at a time
//! holds each of them.
//!
//! # Which peer gets a fragment
//! All peers of a rank share its fragments, and a live receiver returns a fragment only when it polls. A receiver that
//! does not poll must not stop the traffic of the others:
//!
//! * the last eighth of the fragments goes only to peers that hold none;
//! * if a peer holds no fragment and none is free, its frame is split over the cells of its ring (`endpoint`). This is
//!   slower, but depends on no other peer;
//! * if a peer holds fragments and gets no other, its frame waits for one of them, unless the frame fits in a few
//!   cells.
//!
//! # How fragments come back
//! A receiver returns fragments in the order in which it received them, so it only counts them: `Ring::returned`.
//! `README.md` in this folder describes when the fragments of a peer that exits come back.

use std::collections::VecDeque;
use std::fmt;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::Arc;

use mpj_pool::AllocError;

use super::memory::Ring;
use super::{Malformed, Owner};
use crate::biased::{Bias, Mutex};
use crate::sync::atomic::Ordering;

/// Bytes of the fragments that a peer uses in rotation while it returns them in time: few enough to stay in the
/// sender's cache. The rotation has at least two fragments, but never more than half of the sender's.
const ROTATION: usize = 256 << 10;

/// One fragment in `RESERVE` goes only to peers that hold none.
const RESERVE: u32 = 8;

/// The memory of a sender's fragments, one after the other, as the sender and its receivers map it.
///
/// # Invariants
/// 1. `base` points to [`bytes`](Self::bytes) bytes that live as long as `_owner`.
/// 2. The sender writes bytes of a fragment only between its allocation and the cell that announces these bytes. From
///    then on only the receiver reads and writes them (`claim`), until it has counted the fragment as returned
///    (release). The sender reads that count (acquire), or knows that the receiver has stopped, before it allocates the
///    fragment again.
pub(crate) struct FragmentMemory {
    base: NonNull<u8>,
    count: u32,
    size: usize,
    _owner: Owner,
}

// SAFETY: invariant 2 gives each byte one user at a time, handed over with release and acquire.
unsafe impl Send for FragmentMemory {}
// SAFETY: as above.
unsafe impl Sync for FragmentMemory {}

impl fmt::Debug for FragmentMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fragments({} × {} B)", self.count, self.size)
    }
}

impl FragmentMemory {
    pub(crate) const fn bytes(count: u32, size: u32) -> usize {
        count as usize * size as usize
    }

    /// Makes fragments over memory.
    ///
    /// # Safety
    /// Invariant 1; only one [`FragmentPool`] allocates these fragments.
    pub(crate) unsafe fn at(base: NonNull<u8>, count: u32, size: u32, owner: Owner) -> Self {
        FragmentMemory { base, count, size: size as usize, _owner: owner }
    }

    #[cfg(not(loom))]
    pub(crate) fn new(count: u32, size: u32) -> Result<Self, AllocError> {
        use mpj_pool::{Pool, RawBuffer};
        let block = mpj_pool::global().alloc(FragmentMemory::bytes(count, size))?;
        let base = block.as_ptr();
        // SAFETY: the block is ours, and the fragments keep it alive. Callers make one `FragmentPool`.
        Ok(unsafe { FragmentMemory::at(base, count, size, Arc::new(std::sync::Mutex::new(block))) })
    }

    /// Makes fragments for a loom model, without the global pool, which would outlive the model.
    #[cfg(loom)]
    pub(crate) fn new(count: u32, size: u32) -> Result<Self, AllocError> {
        let block = vec![0u8; FragmentMemory::bytes(count, size)];
        let base = NonNull::from(&*block).cast::<u8>();
        // SAFETY: as for the block above.
        Ok(unsafe { FragmentMemory::at(base, count, size, Arc::new(block)) })
    }

    /// Returns the length of a fragment in bytes.
    pub(crate) fn fragment_size(&self) -> usize {
        self.size
    }

    #[inline]
    fn start(&self, index: u32) -> *mut u8 {
        self.base.as_ptr().wrapping_add(index as usize * self.size)
    }

    /// Returns the first `len` bytes of a fragment that was sent to the caller.
    ///
    /// # Errors
    /// The index or the length is out of range.
    ///
    /// # Safety
    /// The fragment was sent to the caller, which returns it only after the last use of the bytes, and has no other
    /// reference to them. The sender has filled `len` bytes.
    #[expect(clippy::mut_from_ref, reason = "the caller's promise")]
    #[inline]
    pub(super) unsafe fn received(&self, index: u32, len: u32) -> Result<&mut [u8], Malformed> {
        if index >= self.count {
            return Err(Malformed::Index { index, count: self.count });
        }
        if len as usize > self.size {
            return Err(Malformed::BodySize { len, written: None, fragment: self.size });
        }
        // SAFETY: index and length were checked, so invariant 1 covers the bytes. By the caller's contract they are
        // filled, and by invariant 2 nobody else uses them.
        Ok(unsafe { std::slice::from_raw_parts_mut(self.start(index), len as usize) })
    }
}

/// Checks whether the process of a peer has exited, so that it cannot read memory any more.
pub(crate) struct ExitCheck(Box<dyn Fn() -> bool + Send>);

impl ExitCheck {
    /// Once `has_exited` has returned true, it must always do so.
    pub(crate) fn new(has_exited: impl Fn() -> bool + Send + 'static) -> Self {
        ExitCheck(Box::new(has_exited))
    }

    /// A check that is never true, for a peer that is a thread of this process.
    pub(crate) fn never() -> Self {
        ExitCheck::new(|| false)
    }
}

impl fmt::Debug for ExitCheck {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ExitCheck")
    }
}

/// The allocator of a sender's fragments.
#[derive(Debug)]
pub(crate) struct FragmentPool {
    memory: Arc<FragmentMemory>,
    state: Mutex<PoolState>,
}

#[derive(Debug)]
struct PoolState {
    free: Vec<u32>,
    peers: Vec<PeerFragments>,
    reserve: usize,
    rotation: usize,
}

/// The fragments that one peer holds.
#[derive(Debug)]
struct PeerFragments {
    ring: Arc<Ring>,
    exit: ExitCheck,
    /// Indices of the fragments that were sent and not reclaimed, in the order in which they were sent.
    outstanding: VecDeque<u32>,
    reclaimed: u64,
    /// Number of fragments that the peer had returned when its count was last read, at least `reclaimed`.
    returned: u64,
    /// Whether all fragments were reclaimed because the peer does not read any more. From then on its count is ignored.
    has_stopped_reading: bool,
    is_released: bool,
}

/// The index of a peer in a [`FragmentPool`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerSlot(usize);

/// The outcome of a request for a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FragmentGrant {
    Fragment(u32),
    /// The peer holds fragments. It wakes this rank when it returns one, provided that this rank tries again after a
    /// [heavy fence](crate::fence::heavy_fence).
    Retry,
    /// No fragment is free, and the peer holds none that could come back.
    Exhausted,
}

impl FragmentPool {
    /// Makes the allocator of the fragments of `memory`; each memory has only one.
    pub(crate) fn new(memory: Arc<FragmentMemory>, bias: &Arc<Bias>) -> Self {
        let free = (0..memory.count).rev().collect();
        let (reserve, rotation) = (
            (memory.count / RESERVE) as usize,
            (ROTATION / memory.size).max(2).min(memory.count as usize / 2),
        );
        let state = PoolState { free, peers: Vec::new(), reserve, rotation };
        FragmentPool { memory, state: Mutex::new(bias, state) }
    }

    pub(crate) fn memory(&self) -> &Arc<FragmentMemory> {
        &self.memory
    }

    /// Returns the length of a fragment in bytes.
    #[inline]
    pub(crate) fn fragment_size(&self) -> usize {
        self.memory.size
    }

    /// Adds the peer at the other end of a ring.
    pub(crate) fn open(&self, ring: Arc<Ring>, exit: ExitCheck) -> PeerSlot {
        let mut state = self.state.lock();
        state.peers.push(PeerFragments {
            ring,
            exit,
            outstanding: VecDeque::new(),
            reclaimed: 0,
            returned: 0,
            has_stopped_reading: false,
            is_released: false,
        });
        PeerSlot(state.peers.len() - 1)
    }

    /// Allocates a fragment for a peer, and calls `fill` to write its first `len` bytes.
    ///
    /// # Errors
    /// The peer's count of returned fragments is impossible.
    #[inline]
    pub(crate) fn alloc_filled(
        &self,
        to: PeerSlot,
        len: usize,
        fill: impl FnOnce(&mut [MaybeUninit<u8>]),
    ) -> Result<FragmentGrant, Malformed> {
        let grant = self.alloc(to)?;
        if let FragmentGrant::Fragment(index) = grant {
            // SAFETY: the peer does not know of the fragment before it is sent.
            fill(unsafe { self.range_mut(index, 0, len) });
        }
        Ok(grant)
    }

    /// Allocates a fragment for a peer, to be written by [`range_mut`](Self::range_mut).
    ///
    /// # Errors
    /// The peer's count of returned fragments is impossible.
    #[inline]
    pub(crate) fn alloc(&self, to: PeerSlot) -> Result<FragmentGrant, Malformed> {
        self.state.lock().alloc(to.0)
    }

    /// Returns `len` bytes of a fragment from `at` on, or fewer if the fragment ends before.
    ///
    /// # Safety
    /// The fragment was just allocated for a peer, which does not know of these bytes yet.
    #[expect(clippy::mut_from_ref, reason = "the caller's promise")]
    #[inline]
    pub(crate) unsafe fn range_mut(&self, index: u32, at: usize, len: usize) -> &mut [MaybeUninit<u8>] {
        let at = at.min(self.memory.size);
        let start = self.memory.start(index).wrapping_add(at).cast::<MaybeUninit<u8>>();
        // SAFETY: invariant 1 for the bytes; invariant 2 and the caller's promise: nobody else uses them.
        unsafe { std::slice::from_raw_parts_mut(start, len.min(self.memory.size - at)) }
    }

    /// Stops reading the count of a peer that has died or left. Its fragments are reclaimed once it cannot read them
    /// any more.
    pub(crate) fn release_peer(&self, peer: PeerSlot) {
        let mut state = self.state.lock();
        let PoolState { free, peers, .. } = &mut *state;
        peers[peer.0].is_released = true;
        peers[peer.0].reclaim(free);
    }
}

impl PoolState {
    #[inline]
    fn alloc(&mut self, to: usize) -> Result<FragmentGrant, Malformed> {
        let peer = &mut self.peers[to];
        if peer.returned == peer.reclaimed && peer.outstanding.len() >= self.rotation {
            peer.read_returned()?;
        }
        let index = match peer.pop_returned() {
            Some(index) => index,
            None => match self.take_free(to) {
                Some(index) => index,
                None => match self.reclaim_all(to)? {
                    Some(index) => index,
                    None if self.peers[to].outstanding.is_empty() => return Ok(FragmentGrant::Exhausted),
                    None => return Ok(FragmentGrant::Retry),
                },
            },
        };
        self.peers[to].outstanding.push_back(index);
        Ok(FragmentGrant::Fragment(index))
    }

    #[inline]
    fn take_free(&mut self, to: usize) -> Option<u32> {
        if self.free.len() > self.reserve || self.peers[to].outstanding.is_empty() {
            self.free.pop()
        } else {
            None
        }
    }

    /// Reclaims the fragments that any peer has returned, and takes one for peer `to`. If that fails and `to` holds
    /// fragments, requests a wake-up from `to`.
    #[cold]
    fn reclaim_all(&mut self, to: usize) -> Result<Option<u32>, Malformed> {
        let PoolState { free, peers, .. } = &mut *self;
        for peer in peers.iter_mut() {
            peer.reclaim(free);
        }
        if let Some(index) = self.take_free(to) {
            return Ok(Some(index));
        }
        let peer = &mut self.peers[to];
        if peer.outstanding.is_empty() {
            return Ok(None);
        }
        peer.ring.request_wakeup();
        // The loop above ignored impossible counts. Here, an impossible count of this peer is an error.
        peer.read_returned()?;
        Ok(peer.pop_returned())
    }
}

impl PeerFragments {
    #[inline]
    fn read_returned(&mut self) -> Result<(), Malformed> {
        let (least, most) = (self.returned, self.reclaimed + self.outstanding.len() as u64);
        if self.has_stopped_reading {
            self.returned = most;
            return Ok(());
        }
        // SYNC fragment-return (acquire)
        let found = self.ring.returned().load(Ordering::Acquire);
        if !(least..=most).contains(&found) {
            return Err(Malformed::Count { what: "fragments returned", found, least, most });
        }
        self.returned = found;
        Ok(())
    }

    #[inline]
    fn pop_returned(&mut self) -> Option<u32> {
        if self.returned == self.reclaimed {
            return None;
        }
        self.reclaimed += 1;
        self.outstanding.pop_front()
    }

    /// Moves to `free` the fragments that the peer has returned, or all of its fragments if it does not read any more.
    fn reclaim(&mut self, free: &mut Vec<u32>) {
        if self.outstanding.is_empty() {
            return;
        }
        // SYNC ring-receiver-closed (acquire)
        self.has_stopped_reading |= self.ring.receiver_closed().load(Ordering::Acquire) != 0;
        // A system call, made only for a peer that has died or left and holds fragments.
        self.has_stopped_reading = self.has_stopped_reading || (self.is_released && (self.exit.0)());
        if self.has_stopped_reading {
            self.reclaimed += self.outstanding.len() as u64;
            self.returned = self.reclaimed;
            return free.extend(self.outstanding.drain(..));
        }
        // An impossible count is reported by the endpoint of that peer.
        if !self.is_released && self.read_returned().is_ok() {
            free.extend(std::iter::from_fn(|| self.pop_returned()));
        }
    }
}
