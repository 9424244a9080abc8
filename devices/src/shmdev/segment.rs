//! The memory of one job on one host: who has said hello to whom, doorbell flags, rings and fragments.
//!
//! A *rank* is here the index of a rank among those of this host, and *n* is how many there are: nothing in the memory is counted
//! by the ranks of the job.
//!
//! ```text
//!  header page (of the storage)
//!  Plan                    64 B       ranks, cells, fragments: read once, checked, then only the copy is used
//!  by rank:   Desk         256 B      doorbell flag, count of new senders, whether somebody sits there
//!             hello        n words    hello[s] = 1: the ring from s to this rank is in use
//!  by pair:   ring s → r              64 B × (4 + cells)
//!  by rank:   fragments               32 KiB × fragments
//! ```
//! The launcher reserves what comes before the rings, which anybody may write to before its owner has come. A rank reserves
//! the rings that it sends by, and its fragments, when it opens the device: it writes there first, and so the memory is near
//! its own processor.
//!
//! Everything is at a fixed offset that both sides compute from the plan; no offset is ever read from the memory.

use crate::sync::atomic::{AtomicU32, Ordering};
use std::fmt;
use std::ops::RangeInclusive;
use std::ptr::NonNull;
use std::sync::Arc;

use mpj_pool::StorageError;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::SHM_FRAGMENTS;
use crate::doorbell::Flag;
use crate::ring::{Fragments, Ring};
use crate::sys::{BorrowedFd, OwnedFd, Shared, SharedView};

/// Why the memory of a job could not be made or used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SegmentError {
    /// The storage refused.
    Storage(StorageError),
    /// The memory was made for another job.
    Plan {
        /// What is wrong with it.
        why: &'static str,
    },
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SegmentError::Storage(error) => write!(f, "shared memory of the job: {error}"),
            SegmentError::Plan { why } => write!(f, "shared memory of another job: {why}"),
        }
    }
}

impl std::error::Error for SegmentError {}

const MAGIC: u64 = u64::from_le_bytes(*b"mpj-shm\x02");
const LINE: usize = 64;

/// How the memory is laid out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Plan {
    magic: u64,
    ranks: u32,
    cells: u32,
    fragments: u32,
    fragment: u32,
}

/// Bytes of a fragment.
pub(super) const FRAGMENT: u32 = 32 << 10;

/// The sizes that fragments of a segment of this version may have.
const FRAGMENT_SIZES: RangeInclusive<u32> = 4096..=1 << 20;
const _: () = assert!(*FRAGMENT_SIZES.start() <= FRAGMENT && FRAGMENT <= *FRAGMENT_SIZES.end());

/// Bytes of a rank's desk.
const DESK: usize = 4 * LINE;

impl Plan {
    /// The plan for so many ranks: rings get shorter when there are many, so that all of them stay within megabytes.
    fn new(ranks: u32, fragments: u32) -> Self {
        let cells = (4096 / ranks.max(1)).next_power_of_two().clamp(16, 256);
        Plan { magic: MAGIC, ranks, cells, fragments, fragment: FRAGMENT }
    }

    fn check(&self, ranks: u32) -> Result<(), SegmentError> {
        let wrong = |why| Err(SegmentError::Plan { why });
        if self.magic != MAGIC {
            return wrong("it has another version");
        }
        if self.ranks != ranks {
            return wrong("it has another number of ranks");
        }
        if !self.cells.is_power_of_two() || !(16..=4096).contains(&self.cells) {
            return wrong("its rings make no sense");
        }
        let (least, most) = SHM_FRAGMENTS.range;
        if !(least..=most).contains(&u64::from(self.fragments)) || !FRAGMENT_SIZES.contains(&self.fragment) {
            return wrong("its fragments make no sense");
        }
        Ok(())
    }

    fn desks(&self) -> usize {
        LINE
    }

    fn hellos(&self) -> usize {
        self.desks() + self.ranks as usize * DESK
    }

    fn hello_bytes(&self) -> usize {
        (self.ranks as usize * 4).next_multiple_of(LINE)
    }

    fn rings(&self) -> usize {
        self.hellos() + self.ranks as usize * self.hello_bytes()
    }

    /// Bytes of the rings that one rank sends by, which lie in a row.
    fn row_bytes(&self) -> usize {
        self.ranks as usize * Ring::bytes(self.cells)
    }

    fn areas(&self) -> usize {
        (self.rings() + self.ranks as usize * self.row_bytes()).next_multiple_of(4096)
    }

    fn area_bytes(&self) -> usize {
        Fragments::bytes(self.fragments, self.fragment)
    }

    fn bytes(&self) -> usize {
        self.areas() + self.ranks as usize * self.area_bytes()
    }
}

/// The memory that the processes of one job share on one host.
///
/// # Invariants
/// 1. `plan` was checked, and the memory is at least `plan.bytes()` long.
/// 2. The memory was zero when it was made, and is only used through the types at their places.
#[derive(Debug)]
pub struct Segment {
    plan: Plan,
    memory: SharedView,
}

impl Segment {
    /// Makes the memory of a job that has `ranks` ranks on this host. Of the memory only what comes before the
    /// rings is there when it returns; ranks reserve the rest.
    ///
    /// # Errors
    /// No memory, or more ranks than can be counted.
    pub fn create(ranks: u32, fragments: u32) -> Result<Self, SegmentError> {
        let plan = Plan::new(ranks, fragments);
        plan.check(ranks)?;
        let memory = Shared::lay_out(plan.bytes()).map_err(SegmentError::Storage)?;
        memory.reserve(0, plan.rings()).map_err(SegmentError::Storage)?;
        // SAFETY: the first line of the memory is the plan's, and nobody else has the memory yet.
        unsafe { memory.base().cast::<Plan>().write(plan) };
        Ok(Segment { plan, memory })
    }

    /// Attaches the memory that came by descriptor.
    ///
    /// # Errors
    /// It is not such memory, or another job's.
    pub fn attach(fd: OwnedFd, ranks: u32) -> Result<Arc<Self>, SegmentError> {
        let view = Shared::attach(fd).map_err(SegmentError::Storage)?;
        let short = SegmentError::Plan { why: "it is too short" };
        let plan = view.at(0, LINE).ok_or(short.clone())?.cast::<Plan>();
        // SAFETY: `at` vouches for a line of memory; the launcher wrote the plan before it gave the memory away.
        let plan = unsafe { plan.read() };
        plan.check(ranks)?;
        view.at(0, plan.bytes()).ok_or(short)?;
        Ok(Arc::new(Segment { plan, memory: view }))
    }

    /// Returns the bytes of memory that a segment takes when all ranks have reserved theirs.
    pub fn needed(ranks: u32, fragments: u32) -> usize {
        Plan::new(ranks, fragments).bytes()
    }

    /// Returns the bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        self.plan.bytes()
    }

    /// Returns the descriptor to hand to the ranks.
    ///
    /// # Safety
    /// It and every duplicate of it are handed over, attached ([`attach`](Self::attach), here or in another process) or
    /// read from, and nothing else.
    pub unsafe fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the caller's promise.
        unsafe { self.memory.descriptor() }
    }

    pub(crate) fn ranks(&self) -> u32 {
        self.plan.ranks
    }

    /// Returns what tells this memory from any other on the host.
    pub(crate) fn id(&self) -> u64 {
        self.memory.epoch()
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        // SAFETY: callers compute offsets from the plan, which invariant 1 says lie inside.
        unsafe { self.memory.base().add(offset) }
    }

    fn word(&self, offset: usize) -> &AtomicU32 {
        // SAFETY: invariants 1 and 2: the word lies inside, is aligned, and is only used as an atomic.
        unsafe { self.at(offset).cast::<AtomicU32>().as_ref() }
    }

    fn desk(&self, rank: u32) -> usize {
        assert!(rank < self.plan.ranks, "rank {rank} of {}", self.plan.ranks);
        self.plan.desks() + rank as usize * DESK
    }

    /// Returns the word that says whether a rank sleeps, for its doorbell.
    pub fn flag(self: &Arc<Self>, rank: u32) -> Flag {
        let word = NonNull::from(self.word(self.desk(rank)));
        // SAFETY: invariant 2, and the segment is held.
        unsafe { Flag::lent(word, Arc::clone(self) as _) }
    }

    fn callers(&self, rank: u32) -> &AtomicU32 {
        self.word(self.desk(rank) + LINE)
    }

    /// Takes a rank's desk, once for the life of the job: its rings have one end each. Returns whether it was free.
    pub(super) fn sit_down(&self, rank: u32) -> bool {
        self.word(self.desk(rank) + 2 * LINE).swap(1, Ordering::Relaxed) == 0
    }

    /// Puts memory behind what a rank writes first: the rings that it sends by, and its fragments. The rank itself calls it,
    /// before anything else here but its doorbell.
    ///
    /// # Errors
    /// The host has no more memory.
    pub(super) fn reserve(&self, rank: u32) -> Result<(), SegmentError> {
        let (plan, index) = (&self.plan, rank as usize);
        let _ = self.desk(rank);
        let row = (plan.rings() + index * plan.row_bytes(), plan.row_bytes());
        let area = (plan.areas() + index * plan.area_bytes(), plan.area_bytes());
        [row, area]
            .into_iter()
            .try_for_each(|(at, len)| self.memory.reserve(at, len))
            .map_err(SegmentError::Storage)
    }

    fn hello(&self, to: u32, from: u32) -> &AtomicU32 {
        assert!(from < self.plan.ranks, "rank {from} of {}", self.plan.ranks);
        let _ = self.desk(to);
        self.word(self.plan.hellos() + to as usize * self.plan.hello_bytes() + from as usize * 4)
    }

    /// Tells `to` that the ring from `from` is in use; once.
    pub(crate) fn say_hello(&self, from: u32, to: u32) {
        self.hello(to, from).store(1, Ordering::Relaxed);
        // SYNC segment-hello (release)
        self.callers(to).fetch_add(1, Ordering::Release);
    }

    /// Returns how many senders have said hello to `rank`.
    #[inline]
    pub(crate) fn hellos(&self, rank: u32) -> u32 {
        // SYNC segment-hello (acquire)
        self.callers(rank).load(Ordering::Acquire)
    }

    /// Returns whether `from` has said hello to `to`.
    pub(crate) fn has_said_hello(&self, from: u32, to: u32) -> bool {
        self.hello(to, from).load(Ordering::Relaxed) != 0
    }

    /// Returns the ring from one rank to another; each side makes its own end of it, once.
    pub(crate) fn ring(self: &Arc<Self>, from: u32, to: u32) -> Arc<Ring> {
        let _ = (self.desk(from), self.desk(to));
        let row = self.plan.rings() + from as usize * self.plan.row_bytes();
        let at = self.at(row + to as usize * Ring::bytes(self.plan.cells));
        // SAFETY: invariants 1 and 2: the ring's lines are its own, zero at first, and live as long as the segment.
        Arc::new(unsafe { Ring::at(at, self.plan.cells, Arc::clone(self) as _) })
    }

    /// Returns a rank's fragments.
    pub(crate) fn fragments(self: &Arc<Self>, rank: u32) -> Fragments {
        let _ = self.desk(rank);
        let at = self.at(self.plan.areas() + rank as usize * self.plan.area_bytes());
        // SAFETY: as for `ring`.
        unsafe { Fragments::at(at, self.plan.fragments, self.plan.fragment, Arc::clone(self) as _) }
    }
}

// SAFETY: the memory is only used through atomics, rings and areas, which are made for sharing.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}
