//! The segment of one job on one host: control blocks, ring locations, and each rank's rings, fragments and pool.
//!
//! A rank is identified here by its index among the ranks of the host. `README.md` in this folder shows the layout,
//! from which all offsets follow except those of rings. The sender of a ring stores the ring's location in one word.
//! The receiver reads that word, and checks that the ring is among the lines of that sender.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

use mpj_pool::StorageError;

use super::control_block::{ControlBlock, LINE, StoredCard};
use super::local_rank::{CardCallback, LocalRank};
use super::segment_layout::{MAX_EXPORTS, RingLocation, SegmentLayout};
use crate::config::Config;
use crate::fence::LightFence;
use crate::ring::{FragmentMemory, Ring};
use crate::sync::{Mutex, lock};
use crate::sys::{BorrowedFd, OwnedFd, SegmentView, SharedStorage, Wakeup};

/// The reason why the memory of a job could not be made or used.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SegmentError {
    /// The storage could not be made or attached.
    Storage(StorageError),
    /// The layout is invalid, or has another version or number of ranks.
    Layout {
        /// The property that is wrong.
        why: &'static str,
    },
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SegmentError::Storage(error) => write!(f, "shared memory of the job: {error}"),
            SegmentError::Layout { why } => write!(f, "shared memory of another job: {why}"),
        }
    }
}

impl std::error::Error for SegmentError {}

/// The memory that the processes of one job share on one host.
///
/// # Invariants
/// 1. `layout` was checked, and the memory is at least `layout.bytes()` long.
/// 2. The memory was zero when it was made, and is used only through the types at their offsets.
#[derive(Debug)]
pub struct Segment {
    layout: SegmentLayout,
    memory: SegmentView,
    /// The ranks of this process that have opened the device.
    local_ranks: Mutex<HashMap<u32, Weak<LocalRank>>>,
    cards: Mutex<HashMap<u32, Vec<u8>>>,
}

impl Segment {
    /// Makes the memory of a job that has `ranks` ranks on this host. On return, memory backs the layout, the control
    /// blocks and the ring locations, where ranks may write before the owner has opened the device. Each rank reserves
    /// its own part when it opens the device.
    ///
    /// # Errors
    /// The storage cannot be created, for example because the host has too little memory; or the layout is invalid, for
    /// example because there are too many ranks.
    pub fn create(ranks: u32, config: &Config) -> Result<Self, SegmentError> {
        let layout = SegmentLayout::new(ranks, config);
        layout.check(ranks)?;
        // If the file cannot be that long, for example because of `ulimit -f`, make the segment without pools.
        let (layout, memory) = match SharedStorage::create_unbacked(layout.bytes()) {
            Ok(memory) => (layout, memory),
            Err(_) => {
                let layout = layout.without_pools();
                (layout, SharedStorage::create_unbacked(layout.bytes()).map_err(SegmentError::Storage)?)
            }
        };
        memory.commit(0, layout.rank_area(0).start).map_err(SegmentError::Storage)?;
        // SAFETY: the first line of the memory is the layout's, and nobody else has the memory yet.
        unsafe { memory.base().cast::<SegmentLayout>().write(layout) };
        Ok(Self::over(layout, memory))
    }

    /// Attaches the segment of a descriptor.
    ///
    /// # Errors
    /// The descriptor does not refer to a segment of this version for `ranks` ranks, or the segment cannot be mapped.
    ///
    /// # Safety
    /// As long as the segment or a value made from it (a device, a message) exists, the memory is written only through
    /// [`Segment`]s, in this process and in others: ranks read memory there that other ranks have exported. The memory
    /// may have any contents at first. A descriptor from [`descriptor`](Self::descriptor) is valid if the caller of
    /// that method has kept the promise made there.
    ///
    /// ```compile_fail,E0133
    /// # use std::os::fd::OwnedFd;
    /// fn attach(file: OwnedFd) {
    ///     let _ = mpj_devices::Segment::attach(file, 2);
    /// }
    /// ```
    pub unsafe fn attach(fd: OwnedFd, ranks: u32) -> Result<Arc<Self>, SegmentError> {
        let view = SharedStorage::attach(fd).map_err(SegmentError::Storage)?;
        let short = SegmentError::Layout { why: "it is too short" };
        let layout = view.ptr_at(0, LINE).ok_or(short.clone())?.cast::<SegmentLayout>();
        // SAFETY: `ptr_at` vouches for an aligned line, and any bytes are a `SegmentLayout`. `check` follows.
        let layout = unsafe { layout.read() };
        layout.check(ranks)?;
        view.ptr_at(0, layout.bytes()).ok_or(short)?;
        Ok(Arc::new(Self::over(layout, view)))
    }

    fn over(layout: SegmentLayout, memory: SegmentView) -> Self {
        // An error has no effect except that a core dump is longer.
        let _ = memory.exclude_from_core_dumps(layout.reserved(), layout.bytes() - layout.reserved());
        Segment { layout, memory, local_ranks: Mutex::default(), cards: Mutex::default() }
    }

    /// Returns the bytes of memory that a segment takes once all ranks have reserved their parts, without pools.
    pub fn needed(ranks: u32, config: &Config) -> usize {
        SegmentLayout::new(ranks, config).reserved()
    }

    /// Returns the bytes that a process maps, including the pools, which have memory only where they are used.
    pub fn mapped(ranks: u32, config: &Config) -> usize {
        SegmentLayout::new(ranks, config).bytes()
    }

    /// Returns the bytes of memory that this segment takes once all ranks have reserved their parts, without pools.
    pub fn bytes(&self) -> usize {
        self.layout.reserved()
    }

    /// Returns the descriptor to pass to the ranks.
    ///
    /// # Safety
    /// The descriptor and its duplicates are only passed on, attached ([`attach`](Self::attach), here or in another
    /// process) or read from.
    pub unsafe fn descriptor(&self) -> BorrowedFd<'_> {
        // SAFETY: the caller's promise.
        unsafe { self.memory.borrow_fd() }
    }

    /// Returns the range of the control blocks and ring locations and then, for each rank, the ranges of its rings and
    /// of the state words of its exported blocks. Tests overwrite these ranges.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn words(&self) -> (Range<usize>, Vec<[Range<usize>; 2]>) {
        let SegmentLayout { ranks, .. } = self.layout;
        let words = |index| {
            let pool = self.layout.pool(index);
            let exported = pool.start..pool.end.min(pool.start + MAX_EXPORTS * size_of::<AtomicU64>());
            [self.layout.rings(index), exported]
        };
        (self.layout.control_block(0)..self.layout.ring_word(0, ranks), (0..ranks).map(words).collect())
    }

    pub(super) fn layout(&self) -> &SegmentLayout {
        &self.layout
    }

    pub(super) fn ranks(&self) -> u32 {
        self.layout.ranks
    }

    pub(super) fn id(&self) -> u64 {
        self.memory.epoch()
    }

    fn at(&self, offset: usize) -> NonNull<u8> {
        // SAFETY: callers take offsets from the layout, which by invariant 1 are inside.
        unsafe { self.memory.base().add(offset) }
    }

    fn assert_index(&self, index: u32) {
        assert!(index < self.layout.ranks, "index {index} of {}", self.layout.ranks);
    }

    pub(super) fn control_block(self: &Arc<Self>, index: u32) -> ControlBlock {
        self.assert_index(index);
        // SAFETY: invariants 1 and 2: a control block is there, and the owner keeps the segment alive.
        unsafe {
            ControlBlock::at(
                self.at(self.layout.control_block(index)),
                self.layout.ranks,
                Arc::clone(self) as _,
            )
        }
    }

    /// Reserves the memory of a rank's part: its rings and its fragments. The rank itself calls this, before it claims
    /// its control block.
    ///
    /// # Errors
    /// The host has too little memory.
    pub(super) fn reserve(&self, index: u32) -> Result<(), SegmentError> {
        self.assert_index(index);
        let part = self.layout.rank_area(index);
        self.memory.commit(part.start, part.len()).map_err(SegmentError::Storage)
    }

    /// Claims the control block of a rank of this process, once for the life of the job.
    pub(super) fn open_rank(self: &Arc<Self>, index: u32) -> Result<Arc<LocalRank>, String> {
        let local_rank = Arc::new(LocalRank::open(index, self.control_block(index))?);
        lock(&self.local_ranks).insert(index, Arc::downgrade(&local_rank));
        Ok(local_rank)
    }

    fn local_rank(&self, index: u32) -> Option<Arc<LocalRank>> {
        lock(&self.local_ranks).get(&index)?.upgrade()
    }

    /// Returns whether the rank's wake-up socket exists, which its device and its views of exported blocks keep open;
    /// true if that cannot be determined.
    pub(super) fn is_alive(self: &Arc<Self>, index: u32) -> bool {
        Wakeup::exists(self.control_block(index).wakeup_name())
    }

    /// Returns whether the rank has opened the device and is no longer [alive](Self::is_alive). A rank that has not
    /// opened the device may still do so, and then reads its rings.
    pub(super) fn has_exited(self: &Arc<Self>, index: u32) -> bool {
        self.control_block(index).wakeup_name() != 0 && !self.is_alive(index)
    }

    /// Publishes the card of a rank of this process to the ranks that share the memory.
    pub fn put_card(self: &Arc<Self>, index: u32, card: &[u8]) {
        lock(&self.cards).insert(index, card.to_vec());
        self.write_card(index, card);
    }

    /// Restores the wake-up name and the card of a rank of this process, in case they were overwritten.
    pub(super) fn republish(self: &Arc<Self>, local_rank: &LocalRank) {
        local_rank.republish();
        let index = local_rank.index;
        let Some(card) = lock(&self.cards).get(&index).cloned() else { return };
        let is_there = match self.control_block(index).card() {
            None => false,
            Some(StoredCard::Inline(found)) => found == card,
            Some(StoredCard::TooLong) => !ControlBlock::has_room_for(&card),
        };
        if !is_there {
            self.write_card(index, &card);
        }
    }

    fn write_card(self: &Arc<Self>, index: u32, card: &[u8]) {
        let card_waiters = self.control_block(index).put_card(card);
        let local_rank = self.local_rank(index);
        for waiter in card_waiters.into_iter().filter(|waiter| *waiter < self.layout.ranks) {
            let control_block = self.control_block(waiter);
            // A rank that has not opened the device has no socket to send with. The waiter then polls when its sleep
            // times out.
            if control_block.set_ready(index, LightFence::new())
                && let Some(local_rank) = &local_rank
            {
                local_rank.wake(&control_block);
            }
        }
    }

    /// Requests the card of a rank that shares the memory, for the rank `requester` of this process; returns at once.
    /// `then` is called with the card when it is published, on any thread, perhaps before this method returns. It is
    /// called with `None` if a card published later must be obtained in another way, and dropped if no card ever comes.
    ///
    /// # Errors
    /// Returns `then` if there is no such rank, if the card must be obtained in another way, or if the card is not
    /// published and the requester has not opened the device.
    pub fn request_card(
        self: &Arc<Self>,
        requester: u32,
        of: u32,
        then: CardCallback,
    ) -> Result<(), CardCallback> {
        if of >= self.layout.ranks {
            return Err(then);
        }
        match (self.control_block(of).card(), self.local_rank(requester)) {
            (Some(StoredCard::Inline(card)), _) => then(Some(card)),
            (Some(StoredCard::TooLong), _) | (None, None) => return Err(then),
            (None, Some(local_rank)) => local_rank.request_card(of, self.control_block(of), then),
        }
        Ok(())
    }

    fn location(&self, from: u32, to: u32) -> &AtomicU32 {
        self.assert_index(from);
        self.assert_index(to);
        let at = self.at(self.layout.ring_word(from, to)).cast::<AtomicU32>();
        // SAFETY: invariants 1 and 2: the word is inside, aligned, and only used as an atomic.
        unsafe { at.as_ref() }
    }

    fn ring(self: &Arc<Self>, from: u32, location: RingLocation) -> Arc<Ring> {
        let at = self.at(self.layout.rings(from).start + location.line as usize * LINE);
        // SAFETY: invariants 1 and 2: the lines are the sender's, zero at first, and live as long as the segment. The
        // number of cells is a power of two, and each rank makes only one end of a ring.
        Arc::new(unsafe { Ring::at(at, location.cells, Arc::clone(self) as _) })
    }

    /// Stores the location of the ring from one rank to another, and returns the ring. Returns `None` if the word
    /// already held a location. The sender has allocated the lines.
    pub(super) fn publish_ring(
        self: &Arc<Self>,
        from: u32,
        to: u32,
        location: RingLocation,
    ) -> Option<Arc<Ring>> {
        // SYNC ring-location (release)
        let stored = self.location(from, to).compare_exchange(
            0,
            location.word(),
            Ordering::Release,
            Ordering::Relaxed,
        );
        stored.is_ok().then(|| self.ring(from, location))
    }

    /// Returns the ring from one rank to another, if the sender has made one. The receiver makes only one consumer of
    /// it.
    ///
    /// # Errors
    /// The location that the sender has written is invalid.
    pub(super) fn find_ring(self: &Arc<Self>, from: u32, to: u32) -> Option<Result<Arc<Ring>, String>> {
        // SYNC ring-location (acquire)
        let word = self.location(from, to).load(Ordering::Acquire);
        let location =
            || RingLocation::from_word(word, self.layout.lines).map(|location| self.ring(from, location));
        let wrong =
            || format!("it wrote an invalid ring location: {word:#x} (of {} lines)", self.layout.lines);
        (word != 0).then(|| location().ok_or_else(wrong))
    }

    /// Checks that the location of the ring from one rank to another is still the one that was written.
    ///
    /// # Errors
    /// The location was overwritten: the receiver might have missed the ring, or might read other memory in its place.
    pub(super) fn verify_location(&self, from: u32, to: u32, location: RingLocation) -> Result<(), String> {
        let (found, written) = (self.location(from, to).load(Ordering::Relaxed), location.word());
        if found == written {
            return Ok(());
        }
        Err(format!(
            "the shared memory was overwritten: the location of the ring to it is {found:#x} instead of {written:#x}"
        ))
    }

    /// Reserves the memory of `range` of the segment, which is in one rank's pool; that rank calls this.
    pub(super) fn reserve_blocks(&self, range: &Range<usize>) -> Result<(), StorageError> {
        self.memory.commit(range.start, range.len())
    }

    /// # Safety
    /// The range is in one rank's pool, and nobody uses it.
    pub(super) unsafe fn release_blocks(&self, range: &Range<usize>) {
        // SAFETY: the caller's promise. If the system does not release the memory, it is reused or freed with
        // the segment.
        let _ = unsafe { self.memory.decommit(range.start, range.len()) };
    }

    /// Returns the address of `range` of the segment, which is in one rank's pool.
    pub(super) fn address(&self, range: &Range<usize>) -> NonNull<u8> {
        assert!(range.start <= range.end && range.end <= self.layout.bytes(), "{range:?} lies inside");
        self.at(range.start)
    }

    /// Returns the address of `len` bytes at `offset` of a rank's pool, if they are inside.
    pub(super) fn in_pool(&self, index: u32, offset: usize, len: usize) -> Option<NonNull<u8>> {
        let pool = self.layout.pool(index);
        let is_inside = index < self.layout.ranks && offset.checked_add(len)? <= pool.len();
        is_inside.then(|| self.at(pool.start + offset))
    }

    /// Returns the state words of a rank's exported blocks; the slice is empty if the rank has no pool.
    pub(super) fn block_states(&self, index: u32) -> &[AtomicU64] {
        let Some(at) = self.in_pool(index, 0, MAX_EXPORTS * size_of::<AtomicU64>()) else { return &[] };
        // SAFETY: invariants 1 and 2: the words are inside, at the beginning of a page, and are only used as atomics.
        unsafe { std::slice::from_raw_parts(at.cast().as_ptr(), MAX_EXPORTS) }
    }

    pub(super) fn fragments(self: &Arc<Self>, index: u32) -> FragmentMemory {
        self.assert_index(index);
        let at = self.at(self.layout.fragments(index));
        // SAFETY: invariants 1 and 2: the fragments live as long as the segment, and only that rank allocates them.
        unsafe {
            FragmentMemory::at(at, self.layout.fragments, self.layout.fragment_size, Arc::clone(self) as _)
        }
    }
}

// SAFETY: the memory is used only through atomics, rings, fragments and exported blocks, which are made for sharing.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}
