//! Progress: the state behind the progress lock, and the wait loop. Threads that find the lock taken wait in `parking`.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Engine;
use super::blocked::WaitReason;
use super::delivery::Delivery;
use super::flush::DeferredCompletion;
use super::inbox::Inbox;
use super::parking::ParkBackoff;
use super::peer::PeerTable;
use crate::biased::MutexGuard;
use crate::completion::{Completion, Outcome, Started};
use crate::deferred_drop;
use crate::device::{Inlet, PeerId};
use crate::fault::Fault;
use crate::fence;
use crate::message::Envelope;
use crate::sys::BorrowedFd;
use crate::wait::{IdleStep, Waiter};

/// The limit of the first sleep of a wait, and of all sleeps on a host with at most [`RANKS_PER_SLEEP`] ranks. Frames
/// and deaths end a sleep. An orderly exit does not: the thread queries exits after the sleep.
const SLEEP: Duration = Duration::from_millis(100);

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
enum PollSet {
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
        let moved = self.try_lock_progress().map(|mut progress| {
            progress.tests = progress.tests.wrapping_add(1);
            if progress.tests.is_multiple_of(TESTS_PER_CLOCK_READ) {
                self.query_exits(&mut progress);
            }
            let poll_set = progress.poll_set_of_test();
            let mut moved = self.progress_pass(&mut progress, poll_set);
            // If each of a few tests moved a frame, exits would be applied late. So make a second pass.
            if moved > 0 && self.exits_pending.load(Ordering::Relaxed) {
                moved += self.progress_pass(&mut progress, PollSet::All);
            }
            moved
        });
        if moved.is_some() {
            // Notify even if nothing moved: a parked thread must take over the progress lock, because this thread
            // might not take it again for a long time.
            self.parking.notify();
        }
        deferred_drop::run_deferred_drops();
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

    fn try_lock_progress(&self) -> Option<MutexGuard<'_, ProgressState>> {
        self.progress_lock.try_lock()
    }

    #[inline]
    fn progress_pass(&self, progress: &mut ProgressState, poll_set: PollSet) -> usize {
        let _hold = deferred_drop::DeferDrops::begin();
        // A rank's frames arrive before its exit is applied: learn exits first, then take frames.
        if self.roster.event_count() != progress.roster_seen {
            self.learn_exits(progress);
        }
        progress.pass_count = progress.pass_count.wrapping_add(1);
        if progress.pass_count.is_multiple_of(PASSES_PER_CLOCK_READ) {
            self.query_exits(progress);
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
        moved
    }

    /// Queries the orderly exits, which are not broadcast, at most once per [`EXIT_QUERY_INTERVAL`], and verifies the
    /// shared memory at most once per [`VERIFY_INTERVAL`].
    #[cold]
    fn query_exits(&self, progress: &mut ProgressState) {
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

    /// Waits until `ready` returns a value, and makes progress for all threads of this rank.
    pub fn wait_until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        self.wait_for(&mut (), |()| ready(), |()| WaitReason::call("an operation"))
    }

    /// Waits as [`wait_until`](Self::wait_until) does. `what` describes the wait; it is called only when the thread is
    /// about to sleep or park, or if the rank is traced.
    pub fn wait_for<S, T>(
        &self,
        state: &mut S,
        mut ready: impl FnMut(&mut S) -> Option<T>,
        what: impl Fn(&S) -> WaitReason,
    ) -> T {
        if let Some(value) = ready(state) {
            return value;
        }
        let Some(trace) = self.trace() else { return self.wait_loop(state, ready, what) };
        let (begun, wait) = (trace.now(), what(state));
        let value = self.wait_loop(state, ready, what);
        self.trace_wait(trace, begun, &wait);
        value
    }

    fn wait_loop<S, T>(
        &self,
        state: &mut S,
        mut ready: impl FnMut(&mut S) -> Option<T>,
        what: impl Fn(&S) -> WaitReason,
    ) -> T {
        let mut waiter = Waiter::new(&self.policy);
        let mut progress = None;
        let mut limit = ParkBackoff::default();
        let mut entered = None;
        let mut moved_asleep = false;
        let mut sleep = SLEEP;
        loop {
            progress = progress.or_else(|| self.try_lock_progress());
            let poll_set = if waiter.is_polling() { PollSet::Cheap } else { PollSet::All };
            let moved = progress.as_mut().map_or(0, |progress| self.progress_pass(progress, poll_set));
            if moved > 0 {
                self.parking.notify();
                waiter.reset();
                sleep = SLEEP;
            }
            if deferred_drop::has_deferred() {
                drop(progress.take());
                self.parking.notify();
                deferred_drop::run_deferred_drops();
            }
            if (moved > 0 || std::mem::take(&mut moved_asleep)) && self.tasks.any() {
                self.poll_tasks_unlocked(progress.take(), true);
            }
            let hold = progress.is_some().then(deferred_drop::DeferDrops::begin);
            let value = ready(state);
            drop(hold);
            if let Some(value) = value {
                drop(progress);
                self.parking.notify();
                deferred_drop::run_deferred_drops();
                return value;
            }
            if moved > 0 || waiter.idle() == IdleStep::Poll {
                continue;
            }
            entered.get_or_insert_with(|| self.waits.enter(what(state)));
            if self.tasks.any() {
                self.poll_tasks_unlocked(progress.take(), false);
                progress = self.try_lock_progress();
            }
            let mut value = None;
            match &mut progress {
                Some(progress) => {
                    let armed: Vec<BorrowedFd<'_>> = self.devices.iter().filter_map(|d| d.arm()).collect();
                    self.site.bell.sleep(&armed, sleep, || {
                        let mut moved = self.progress_pass(progress, PollSet::All);
                        // A peer that frees space rings only if it sees that this rank waits: post again after a fence.
                        if moved == 0 && self.is_busy() {
                            fence::heavy_fence();
                            moved = self.progress_pass(progress, PollSet::All);
                        }
                        let _hold = deferred_drop::DeferDrops::begin();
                        value = ready(state);
                        moved_asleep = moved > 0;
                        moved_asleep || value.is_some() || deferred_drop::has_deferred()
                    });
                    if moved_asleep {
                        self.parking.notify();
                    }
                    sleep = if moved_asleep { SLEEP } else { (2 * sleep).min(self.max_sleep) };
                    self.query_exits(progress);
                }
                // The holder might release the progress lock before this thread is counted as parked: try it again.
                None => self.parking.park(&mut limit, || {
                    value = ready(state);
                    progress = self.try_lock_progress();
                    value.is_some() || progress.is_some()
                }),
            }
            if let Some(value) = value {
                drop(progress);
                self.parking.notify();
                deferred_drop::run_deferred_drops();
                if moved_asleep && self.tasks.any() {
                    self.poll_tasks(true);
                }
                return value;
            }
        }
    }

    #[cold]
    fn poll_tasks_unlocked(&self, progress: Option<MutexGuard<'_, ProgressState>>, has_progress: bool) {
        if progress.is_some() {
            drop(progress);
            self.parking.notify();
        }
        self.poll_tasks(has_progress);
    }

    /// Notifies parked threads, for example of an unexpected message that one of them probes for.
    #[inline]
    pub(crate) fn notify_parked(&self) {
        self.parking.notify();
    }

    /// Wakes all waiting threads of this rank, including the holder of the progress lock, to check their conditions.
    pub fn wake_all(&self) {
        self.notify_parked();
        self.site.bell.ring();
    }

    /// Waits for an operation and returns its outcome.
    ///
    /// # Errors
    /// The fault of the operation, if it failed.
    #[inline]
    pub fn wait(&self, started: Started) -> Result<Envelope, Fault> {
        self.wait_described(started, || WaitReason::call("an operation"))
    }

    /// Waits for an operation and returns its outcome; `what` describes the wait, as in [`wait_for`](Self::wait_for).
    ///
    /// # Errors
    /// The fault of the operation, if it failed.
    #[inline]
    pub fn wait_described(&self, started: Started, what: impl Fn() -> WaitReason) -> Result<Envelope, Fault> {
        match started {
            Started::Done(message) => {
                self.flush_coalesced();
                Ok(message)
            }
            Started::Pending(completion) => self.wait_map(&completion, Outcome::clone, what),
        }
    }

    /// Waits for an operation and reads its outcome; `what` describes the wait, as in [`wait_for`](Self::wait_for).
    #[inline]
    pub fn wait_map<T>(
        &self,
        completion: &Completion,
        read: impl Fn(&Outcome) -> T,
        what: impl Fn() -> WaitReason,
    ) -> T {
        self.wait_for(&mut (), |()| completion.outcome().map(&read), |()| what())
    }
}
