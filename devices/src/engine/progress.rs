//! Progress: the state behind the progress lock, and the passes of its holder.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Engine;
use super::delivery::Delivery;
use super::flush::DeferredCompletion;
use super::inbox::Inbox;
use super::parking::Parking;
use super::peer::PeerTable;
use crate::biased::MutexGuard;
use crate::deferred_drop;
use crate::device::{Inlet, PeerId};

/// The limit of the first sleep of a wait, and of all sleeps on a host with at most [`RANKS_PER_SLEEP`] ranks. Frames
/// and deaths end a sleep. An orderly exit does not: the thread queries exits after the sleep.
pub(super) const SLEEP: Duration = Duration::from_millis(100);

/// On a host with more ranks, each sleep without progress doubles the limit of the next, up to [`max_sleep`], so that
/// many sleeping ranks do not wake too often.
const RANKS_PER_SLEEP: u32 = 64;

pub(super) fn max_sleep(ranks: u32) -> Duration {
    SLEEP * ranks.div_ceil(RANKS_PER_SLEEP).clamp(1, 64)
}

/// The shortest time between two queries of the other processes for ranks that are closing or have left.
const EXIT_QUERY_INTERVAL: Duration = Duration::from_millis(100);

/// The shortest time between two checks of the memory that this rank shares with others.
const VERIFY_INTERVAL: Duration = Duration::from_secs(1);

/// Number of passes, and of tests, between two checks whether an exit query is due. Tests can be rare.
const PASSES_PER_CLOCK_READ: u32 = 1024;
const TESTS_PER_CLOCK_READ: u32 = 16;

/// Number of passes after which exits are applied even if frames keep coming.
const MAX_PASSES_BEFORE_EXITS: u32 = 10_000;

/// If only some devices need a system call to poll, at most `CHEAP_PASSES` passes of spinning waits and tests skip
/// these devices in a row. A test also polls them if `SYSCALL_POLL_INTERVAL` has elapsed since a test polled them.
const CHEAP_PASSES: u32 = 32;
const SYSCALL_POLL_INTERVAL: Duration = Duration::from_micros(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PollSet {
    All,
    /// Inlets that need no system call. After [`CHEAP_PASSES`] such passes, and while exits are pending: all inlets.
    Cheap,
}

/// The state that the progress lock protects: the inlets of the devices, and the data that only the holder uses.
#[derive(Debug)]
pub(crate) struct ProgressState {
    inlets: Vec<Box<dyn Inlet>>,
    /// Whether only some inlets need a system call to poll.
    is_mixed: bool,
    cheap_passes: u32,
    /// The time when a test last polled all inlets; unused unless `is_mixed`.
    tested: Instant,
    inboxes: PeerTable<Inbox>,
    pub(crate) roster_seen: usize,
    passes_with_exits: u32,
    pass_count: u32,
    tests: u32,
    exits_queried: Instant,
    /// The time of the last check of shared memory.
    verified: Instant,
    /// This and `peers` are buffers of a flush, empty between flushes.
    completions: Vec<DeferredCompletion>,
    peers: Vec<PeerId>,
}

impl ProgressState {
    pub(crate) fn new(inlets: Vec<Box<dyn Inlet>>, size: u32) -> Self {
        let with_syscall = inlets.iter().filter(|inlet| inlet.needs_syscall()).count();
        ProgressState {
            is_mixed: (1..inlets.len()).contains(&with_syscall),
            inlets,
            cheap_passes: 0,
            tested: Instant::now(),
            inboxes: PeerTable::new(size),
            roster_seen: 0,
            passes_with_exits: 0,
            pass_count: 0,
            tests: 0,
            exits_queried: Instant::now(),
            verified: Instant::now(),
            completions: Vec::new(),
            peers: Vec::new(),
        }
    }

    #[inline]
    fn poll_set_of_test(&mut self) -> PollSet {
        if !self.is_mixed {
            return PollSet::All;
        }
        let now = Instant::now();
        if now.duration_since(self.tested) < SYSCALL_POLL_INTERVAL {
            return PollSet::Cheap;
        }
        self.tested = now;
        PollSet::All
    }

    /// Drops the inlets, which write to the memory of incoming bodies, and then that memory.
    pub(super) fn close(&mut self) {
        self.inlets.clear();
        self.inboxes = PeerTable::new(0);
    }
}

impl Engine {
    /// Makes progress, unless another thread holds the progress lock, and polls the tasks; does not sleep. Returns the
    /// number of events, such as arrived frames. A thread that calls this repeatedly without effect sometimes yields.
    pub fn progress(&self) -> usize {
        let moved = self.progress_no_yield();
        if moved == 0 {
            self.policy.note_empty_poll();
        }
        moved
    }

    /// Makes progress as [`progress`](Self::progress) does, but never yields: for callers that poll rarely, or that
    /// decide afterwards whether to yield.
    pub fn progress_no_yield(&self) -> usize {
        self.progress_and_notify(Parking::notify)
    }

    /// Makes progress for the owner of the driver descriptor, which must not be kicked by its own progress.
    pub(super) fn progress_as_driver(&self) -> usize {
        self.progress_and_notify(Parking::notify_threads)
    }

    fn progress_and_notify(&self, notify: impl FnOnce(&Parking)) -> usize {
        let moved = self.try_lock_progress().map(|mut progress| {
            progress.tests = progress.tests.wrapping_add(1);
            if progress.tests.is_multiple_of(TESTS_PER_CLOCK_READ) {
                self.query_exits_and_verify(&mut progress);
            }
            let poll_set = progress.poll_set_of_test();
            let mut moved = self.progress_pass(&mut progress, poll_set);
            // Exits are applied in a pass that moves nothing. Rare tests might each move a frame and so apply the
            // exits late. So make a second pass.
            if moved > 0 && self.exits_pending.load(Ordering::Relaxed) {
                moved += self.progress_pass(&mut progress, PollSet::All);
            }
            moved
        });
        if moved.is_some() {
            // Notify even if nothing moved: a parked thread must take over the progress lock, because this thread
            // might not take it again for a long time.
            notify(&self.parking);
        }
        deferred_drop::run_deferred_drops_of_wait();
        let moved = moved.unwrap_or(0);
        if moved > 0 {
            self.policy.note_hit();
        }
        // A wait whose condition calls this polls the tasks itself, after it has released the progress lock.
        if self.tasks.any() && !deferred_drop::is_deferring() {
            self.poll_tasks(moved > 0);
        }
        moved
    }

    pub(super) fn try_lock_progress(&self) -> Option<MutexGuard<'_, ProgressState>> {
        self.progress_lock.try_lock()
    }

    #[inline]
    pub(super) fn progress_pass(&self, progress: &mut ProgressState, poll_set: PollSet) -> usize {
        let _hold = deferred_drop::DeferDrops::begin();
        // A rank's frames arrive before its exit is applied: learn exits first, then take frames.
        if self.roster.event_count() != progress.roster_seen {
            self.learn_exits(progress);
        }
        progress.pass_count = progress.pass_count.wrapping_add(1);
        if progress.pass_count.is_multiple_of(PASSES_PER_CLOCK_READ) {
            self.query_exits_and_verify(progress);
        }
        let ProgressState {
            inlets,
            is_mixed,
            cheap_passes,
            inboxes,
            passes_with_exits,
            completions,
            peers,
            ..
        } = progress;
        // An exit is applied after the rank's earlier frames, on all devices.
        let all = !*is_mixed
            || poll_set == PollSet::All
            || *cheap_passes >= CHEAP_PASSES
            || self.exits_pending.load(Ordering::Relaxed);
        *cheap_passes = if all { 0 } else { *cheap_passes + 1 };
        let mut moved = 0;
        for (inlet, copied) in inlets.iter_mut().zip(&self.copied_by_device) {
            if all || !inlet.needs_syscall() {
                moved += inlet.progress(&mut Delivery { engine: self, inboxes, copied });
            }
        }
        if self.is_busy() {
            moved += self.flush_all(completions, peers);
        }
        if self.exits_pending.load(Ordering::Relaxed) {
            *passes_with_exits += 1;
            if moved == 0 || *passes_with_exits > MAX_PASSES_BEFORE_EXITS {
                *passes_with_exits = 0;
                self.exits_pending.store(false, Ordering::Release);
                self.apply_all_exits();
                self.parking.notify();
                // A receive that a device writes to has not failed yet: `abort_body` makes the device return it.
                for peer in self.dead_mid_body(inboxes) {
                    for (inlet, copied) in inlets.iter_mut().zip(&self.copied_by_device) {
                        inlet.abort_body(peer, &mut Delivery { engine: self, inboxes, copied });
                    }
                    moved += 1;
                }
            }
        }
        if moved > 0 {
            self.disarm_driver();
        }
        moved
    }

    /// Returns the number of progress passes, or `None` if another thread holds the progress lock.
    pub(super) fn pass_count(&self) -> Option<u32> {
        let count = self.try_lock_progress()?.pass_count;
        self.parking.notify();
        Some(count)
    }

    /// Queries the orderly exits, which are not broadcast, at most once per [`EXIT_QUERY_INTERVAL`], and verifies the
    /// shared memory at most once per [`VERIFY_INTERVAL`].
    #[cold]
    pub(super) fn query_exits_and_verify(&self, progress: &mut ProgressState) {
        let now = Instant::now();
        if now.duration_since(progress.exits_queried) >= EXIT_QUERY_INTERVAL {
            progress.exits_queried = now;
            self.roster.request_exits();
            if now.duration_since(progress.verified) >= VERIFY_INTERVAL {
                progress.verified = now;
                self.verify_all(progress);
            }
        }
    }

    /// Checks the values that this rank has written to memory that others can write. If they were overwritten, reports
    /// the peer at the other end dead. Without that, both ends might see nothing new and wait for ever.
    fn verify_all(&self, progress: &mut ProgressState) {
        let _hold = deferred_drop::DeferDrops::begin();
        for (inlet, copied) in progress.inlets.iter_mut().zip(&self.copied_by_device) {
            inlet.verify(&mut Delivery { engine: self, inboxes: &mut progress.inboxes, copied });
        }
        for peer in self.peers.iter() {
            let mut out = peer.outbox();
            if !out.is_closed
                && let Err(error) = out.endpoint.verify()
            {
                drop(out);
                self.endpoint_broken(peer, error);
            }
        }
    }

    /// Checks the memory that this rank shares with others, unless another thread makes progress.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn verify(&self) {
        if let Some(mut progress) = self.try_lock_progress() {
            self.verify_all(&mut progress);
        }
        self.parking.notify();
        deferred_drop::run_deferred_drops();
    }
}
