//! Fragments: the memory for bodies that do not fit in a cell, owned by the sender, lent to one receiver at a time.
//!
//! # Whose turn it is
//! All peers of a rank share its fragments, and a fragment comes back only when its receiver has looked at it. So that a
//! receiver that does not look cannot stop the traffic between others,
//!
//! * the last eighth of the fragments goes only to peers that hold none;
//! * a frame for a peer that holds none, when none is left, is cut to pieces that go through the cells of its ring
//!   (`link`), of which every pair has its own: slower, but it asks nothing of anybody else. A segment of 512 ranks with 64
//!   fragments for each needs no more memory for that than one of two ranks;
//! * a frame for a peer that holds some waits for those, unless it is short and a few cells do: that peer alone decides
//!   how fast.
//!
//! # How they come back
//! A receiver gives fragments back in the order in which they came, so it only counts them, in its own ring. What a
//! peer holds comes back when its receiving end says that it has gone. A process that is killed does not say so: after
//! the link was told to [forget](crate::device::Link::peer_gone) the peer, its fragments also come back once its process has
//! exited ([`Exit`]). A report of a death is not enough. The report may be false, and what a living peer reads must not be
//! written. Of a peer that was forgotten nobody reads the counts any more.

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

/// Fragments that a peer is sent in turn while they come back in time, where there are twice as many: few enough to stay in the
/// sender's cache.
const ROUND: usize = 8;

/// The part of the fragments that goes only to peers that hold none.
const RESERVE: u32 = 8;

/// The memory of a sender's fragments, one behind the other, as the sender and its receivers see it.
///
/// # Invariants
/// 1. `base` points to [`bytes`](Self::bytes) bytes that live as long as `_owner`.
/// 2. A fragment is written by its sender while it is in no [`Loan`]'s `out`, and read by the receiver to which it was
///    sent from then until that receiver has counted it as returned (release), which the sender reads (acquire) before
///    it writes the fragment again.
pub(crate) struct Fragments {
    base: NonNull<u8>,
    count: u32,
    size: usize,
    _owner: Owner,
}

// SAFETY: invariant 2 gives each fragment either one writer or one reader at a time, handed over with release and acquire.
unsafe impl Send for Fragments {}
// SAFETY: as above.
unsafe impl Sync for Fragments {}

impl fmt::Debug for Fragments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fragments({} × {} B)", self.count, self.size)
    }
}

impl Fragments {
    /// Returns the bytes that `count` fragments of `size` bytes take.
    pub(crate) const fn bytes(count: u32, size: u32) -> usize {
        count as usize * size as usize
    }

    /// Makes fragments over memory.
    ///
    /// # Safety
    /// Invariant 1; one [`FragmentPool`] lends them.
    pub(crate) unsafe fn at(base: NonNull<u8>, count: u32, size: u32, owner: Owner) -> Self {
        Fragments { base, count, size: size as usize, _owner: owner }
    }

    /// Makes fragments in memory of this process.
    #[cfg(not(loom))]
    pub(crate) fn new(count: u32, size: u32) -> Result<Self, AllocError> {
        use mpj_pool::{Pool, RawBuffer};
        let block = mpj_pool::global().alloc(Fragments::bytes(count, size))?;
        let base = block.as_ptr();
        // SAFETY: the block is ours, and the fragments keep it.
        Ok(unsafe { Fragments::at(base, count, size, Arc::new(std::sync::Mutex::new(block))) })
    }

    /// Makes fragments for a model: a pool outlives it.
    #[cfg(loom)]
    pub(crate) fn new(count: u32, size: u32) -> Result<Self, AllocError> {
        let block = vec![0u8; Fragments::bytes(count, size)];
        let base = NonNull::from(&*block).cast::<u8>();
        // SAFETY: as for the pool's.
        Ok(unsafe { Fragments::at(base, count, size, Arc::new(block)) })
    }

    /// Returns the length of a fragment in bytes.
    pub(crate) fn fragment(&self) -> usize {
        self.size
    }

    #[inline]
    fn start(&self, index: u32) -> *mut u8 {
        self.base.as_ptr().wrapping_add(index as usize * self.size)
    }

    /// Returns the first `len` bytes of a fragment that a receiver was sent.
    ///
    /// # Errors
    /// There are no such bytes.
    ///
    /// # Safety
    /// The fragment was sent to the caller, who has not returned it before the bytes are last used; the sender has
    /// filled `len` bytes.
    #[inline]
    pub(super) unsafe fn received(&self, index: u32, len: u32) -> Result<&[u8], Malformed> {
        if index >= self.count {
            return Err(Malformed::Index { index, count: self.count });
        }
        if len as usize > self.size {
            return Err(Malformed::Size { len, fragment: self.size });
        }
        // SAFETY: the index was checked against invariant 1; by the caller's contract the bytes are filled and, by
        // invariant 2, nobody writes them.
        Ok(unsafe { std::slice::from_raw_parts(self.start(index), len as usize) })
    }
}

/// Tells whether the process of a peer has exited, so that it reads nothing any more.
pub(crate) struct Exit(Box<dyn Fn() -> bool + Send>);

impl Exit {
    /// Makes what asks `has_exited`, which once true stays true.
    pub(crate) fn new(has_exited: impl Fn() -> bool + Send + 'static) -> Self {
        Exit(Box::new(has_exited))
    }

    /// Returns the exit of a peer that is a thread of this process.
    pub(crate) fn never() -> Self {
        Exit::new(|| false)
    }
}

impl fmt::Debug for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Exit")
    }
}

/// A sender's fragments, and to whom they are lent.
#[derive(Debug)]
pub(crate) struct FragmentPool {
    memory: Arc<Fragments>,
    hand: Mutex<Hand>,
}

#[derive(Debug)]
struct Hand {
    free: Vec<u32>,
    loans: Vec<PeerFragments>,
    reserve: usize,
    round: usize,
}

/// What one peer holds.
#[derive(Debug)]
struct PeerFragments {
    ring: Arc<Ring>,
    exit: Exit,
    /// What was sent and not taken back, in the order in which it was sent.
    out: VecDeque<u32>,
    /// How many were taken back.
    reclaimed: u64,
    /// How many the peer had returned when last looked at.
    returned: u64,
    /// Whether all was taken back since its receiving end went: the count in the ring stays behind `returned` from then on.
    is_gone: bool,
    is_retired: bool,
}

/// The place of a peer in an [`FragmentPool`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerSlot(usize);

/// What became of a wish for a fragment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FragmentGrant {
    /// The fragment, filled.
    Fragment(u32),
    /// The peer holds some: it will wake this rank when it returns one, provided that this rank asks once more after a
    /// [heavy fence](crate::fence::heavy).
    Retry,
    /// None is left, and the peer holds none that could come back.
    Exhausted,
}

impl FragmentPool {
    /// Makes what lends the fragments of `memory`; one for it.
    pub(crate) fn new(memory: Arc<Fragments>, bias: &Arc<Bias>) -> Self {
        let free = (0..memory.count).rev().collect();
        let (reserve, round) = ((memory.count / RESERVE) as usize, ROUND.min(memory.count as usize / 2));
        let hand = Hand { free, loans: Vec::new(), reserve, round };
        FragmentPool { memory, hand: Mutex::new(bias, hand) }
    }

    pub(crate) fn memory(&self) -> &Arc<Fragments> {
        &self.memory
    }

    /// Returns the length of a fragment in bytes.
    #[inline]
    pub(crate) fn fragment(&self) -> usize {
        self.memory.size
    }

    /// Makes a place for the peer at the other end of a ring.
    pub(crate) fn open(&self, ring: Arc<Ring>, exit: Exit) -> PeerSlot {
        let mut hand = self.hand.lock();
        hand.loans.push(PeerFragments {
            ring,
            exit,
            out: VecDeque::new(),
            reclaimed: 0,
            returned: 0,
            is_gone: false,
            is_retired: false,
        });
        PeerSlot(hand.loans.len() - 1)
    }

    /// Takes a free fragment for a peer, and lets `fill` write its first `len` bytes.
    ///
    /// # Errors
    /// The peer's count makes no sense.
    #[inline]
    pub(crate) fn alloc_filled(
        &self,
        to: PeerSlot,
        len: usize,
        fill: impl FnOnce(&mut [MaybeUninit<u8>]),
    ) -> Result<FragmentGrant, Malformed> {
        let lent = self.lend_part(to)?;
        if let FragmentGrant::Fragment(index) = lent {
            // SAFETY: the peer does not know of the fragment before it is sent.
            fill(unsafe { self.part(index, 0, len) });
        }
        Ok(lent)
    }

    /// Takes a free fragment for a peer, to be written in [parts](Self::part).
    ///
    /// # Errors
    /// The peer's count makes no sense.
    #[inline]
    pub(crate) fn lend_part(&self, to: PeerSlot) -> Result<FragmentGrant, Malformed> {
        self.hand.lock().take(to.0)
    }

    /// Returns `len` bytes of a fragment from `at` on, as far as it reaches.
    ///
    /// # Safety
    /// The fragment was just lent to a peer, that has not been told of these bytes.
    #[expect(clippy::mut_from_ref, reason = "the caller's promise")]
    #[inline]
    pub(crate) unsafe fn part(&self, index: u32, at: usize, len: usize) -> &mut [MaybeUninit<u8>] {
        let at = at.min(self.memory.size);
        let start = self.memory.start(index).wrapping_add(at).cast::<MaybeUninit<u8>>();
        // SAFETY: invariant 1 for the bytes; invariant 2 and the caller's promise: nobody else uses them.
        unsafe { std::slice::from_raw_parts_mut(start, len.min(self.memory.size - at)) }
    }

    /// Reads the ring of a peer that has died or left no more; takes back what it holds as soon as it reads nothing.
    pub(crate) fn release_peer(&self, peer: PeerSlot) {
        let mut hand = self.hand.lock();
        let Hand { free, loans, .. } = &mut *hand;
        loans[peer.0].is_retired = true;
        loans[peer.0].collect(free);
    }
}

impl Hand {
    #[inline]
    fn take(&mut self, to: usize) -> Result<FragmentGrant, Malformed> {
        let loan = &mut self.loans[to];
        if loan.returned == loan.reclaimed && loan.out.len() >= self.round {
            loan.look()?;
        }
        let index = match loan.oldest() {
            Some(index) => index,
            None => match self.spare(to) {
                Some(index) => index,
                None => match self.gather(to)? {
                    Some(index) => index,
                    None if self.loans[to].out.is_empty() => return Ok(FragmentGrant::Exhausted),
                    None => return Ok(FragmentGrant::Retry),
                },
            },
        };
        self.loans[to].out.push_back(index);
        Ok(FragmentGrant::Fragment(index))
    }

    /// Takes a free fragment, unless it is kept for a peer that holds none.
    #[inline]
    fn spare(&mut self, to: usize) -> Option<u32> {
        if self.free.len() > self.reserve || self.loans[to].out.is_empty() { self.free.pop() } else { None }
    }

    /// Collects what all peers have returned. If that does not help, has this peer wake the rank.
    #[cold]
    fn gather(&mut self, to: usize) -> Result<Option<u32>, Malformed> {
        let Hand { free, loans, .. } = &mut *self;
        for loan in loans.iter_mut() {
            loan.collect(free);
        }
        if let Some(index) = self.spare(to) {
            return Ok(Some(index));
        }
        let loan = &mut self.loans[to];
        if loan.out.is_empty() {
            return Ok(None);
        }
        loan.ring.starve();
        // Above, a count that makes no sense was passed over. It is this peer's end.
        loan.look()?;
        Ok(loan.oldest())
    }
}

impl PeerFragments {
    /// Looks how many the peer has returned: all, if it reads no more.
    #[inline]
    fn look(&mut self) -> Result<(), Malformed> {
        let (least, most) = (self.returned, self.reclaimed + self.out.len() as u64);
        if self.is_gone {
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

    /// Takes the oldest fragment back, if the peer has returned it.
    #[inline]
    fn oldest(&mut self) -> Option<u32> {
        if self.returned == self.reclaimed {
            return None;
        }
        self.reclaimed += 1;
        self.out.pop_front()
    }

    /// Moves to `free` what the peer has returned, or all of it if the peer reads no more.
    fn collect(&mut self, free: &mut Vec<u32>) {
        if self.out.is_empty() {
            return;
        }
        // SYNC ring-gone (acquire)
        self.is_gone |= self.ring.gone().load(Ordering::Acquire) != 0;
        // It is a call of the system, for a peer that was reported dead and holds fragments.
        self.is_gone = self.is_gone || (self.is_retired && (self.exit.0)());
        if self.is_gone {
            self.reclaimed += self.out.len() as u64;
            self.returned = self.reclaimed;
            return free.extend(self.out.drain(..));
        }
        // A count that makes no sense is the business of the peer's own link.
        if !self.is_retired && self.look().is_ok() {
            free.extend(std::iter::from_fn(|| self.oldest()));
        }
    }
}
