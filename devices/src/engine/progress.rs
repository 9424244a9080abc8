//! Progress is made by whoever waits: the turn, and the waiting loop. Threads that find the turn taken go to `parking`.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Engine;
use super::delivery::Delivery;
use super::inbox::Inbox;
use super::outbox::DeferredCompletion;
use super::parking::Limit;
use super::peer::Table;
use super::waits::WaitReason;
use crate::biased::MutexGuard;
use crate::completion::{Completion, Outcome, Started};
use crate::device::{Inlet, PeerId};
use crate::fault::Fault;
use crate::fence;
use crate::later;
use crate::layout::Envelope;
use crate::sys::BorrowedFd;
use crate::wait::{Next, Waiter};

/// The longest sleep. Frames and deaths ring the doorbell; the good end of a rank does not, and is found after so long.
const MAX_SLEEP: Duration = Duration::from_millis(100);

/// After so long, and as often, a rank that looks for news asks the other processes who has left.
const EXIT_QUERY_INTERVAL: Duration = Duration::from_millis(100);

/// How often it asks from one check of what it shares with others to the next.
const VERIFY: u32 = 10;

/// Passes from one look at the clock to the next: of one who waits, whom the sleep reminds too, and of one who tests and
/// may do so seldom.
const PASSES_PER_CLOCK_READ: u32 = 1024;
const TESTS: u32 = 16;

/// Passes after which ends are acted on even if frames keep coming.
const MAX_PASSES_BEFORE_EXITS: u32 = 10_000;

/// Where some devices ask the system for news and others need not: passes of one who polls from one look at all of them to
/// the next, and how long one who tests does without.
const CHEAP_PASSES: u32 = 32;
const SYSCALL_POLL_INTERVAL: Duration = Duration::from_micros(2);

/// Which devices a pass looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PollSet {
    All,
    /// Those whose looks cost little, and now and then all.
    Cheap,
}

/// The right to take frames from the devices, and what only its holder touches.
#[derive(Debug)]
pub(crate) struct ProgressState {
    inlets: Vec<Box<dyn Inlet>>,
    /// Whether some of them ask the system and others do not.
    is_mixed: bool,
    /// Passes since all of them were looked at, and when one who tests last did so.
    near: u32,
    tested: Instant,
    inboxes: Table<Inbox>,
    /// Events of the roster that were learned.
    pub(crate) seen: usize,
    passes: u32,
    /// Passes in all, those of tests, and when others were asked last who has left.
    looks: u32,
    tests: u32,
    asked: Instant,
    /// How often others were asked.
    questions: u32,
    /// Room for what a flush ends.
    ended: Vec<DeferredCompletion>,
    /// Room for the list of peers that a flush goes through.
    peers: Vec<PeerId>,
}

impl ProgressState {
    pub(crate) fn new(inlets: Vec<Box<dyn Inlet>>, size: u32) -> Self {
        let asking = inlets.iter().filter(|inlet| inlet.needs_syscall()).count();
        ProgressState {
            is_mixed: (1..inlets.len()).contains(&asking),
            inlets,
            near: 0,
            tested: Instant::now(),
            inboxes: Table::new(size),
            seen: 0,
            passes: 0,
            looks: 0,
            tests: 0,
            asked: Instant::now(),
            questions: 0,
            ended: Vec::new(),
            peers: Vec::new(),
        }
    }

    /// Returns how far one who tests looks, however seldom that is.
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

    /// Drops the inlets, which write where bodies land, and then what they wrote to.
    pub(super) fn close(&mut self) {
        self.inlets.clear();
        self.inboxes = Table::new(0);
    }
}

impl Engine {
    /// Moves what can be moved, once, unless another thread of this rank is at it, and drives what nobody waits for; it waits
    /// for nobody itself. Returns how many frames moved. Who does nothing but ask, again and again in vain, yields the core
    /// from time to time.
    pub fn progress(&self) -> usize {
        let moved = self.progress_no_yield();
        if moved == 0 {
            self.policy.note_empty_poll();
        }
        moved
    }

    /// As [`progress`](Self::progress), and never yields: for who looks now and then, or knows only afterwards whether it has
    /// looked in vain.
    pub fn progress_no_yield(&self) -> usize {
        let moved = self.try_lock_progress().map(|mut turn| {
            turn.tests = turn.tests.wrapping_add(1);
            if turn.tests.is_multiple_of(TESTS) {
                self.query_exits(&mut turn);
            }
            let look = turn.poll_set_of_test();
            let mut moved = self.progress_pass(&mut turn, look);
            // Who tests seldom may find something each time, and would not act on an end for long.
            if moved > 0 && self.recheck.load(Ordering::Relaxed) {
                moved += self.progress_pass(&mut turn, PollSet::All);
            }
            moved
        });
        if moved.is_some() {
            // Also if nothing has moved: who has parked meanwhile takes the turn, which this thread may not take again for long.
            self.parking.notify();
        }
        later::run_deferred_drops();
        let moved = moved.unwrap_or(0);
        if moved > 0 {
            self.policy.note_hit();
        }
        // Who waits may look for something else while it has the turn, and drives when it has given that up.
        if self.tasks.are_open() && !later::is_deferring() {
            self.poll_tasks(moved > 0);
        }
        moved
    }

    fn try_lock_progress(&self) -> Option<MutexGuard<'_, ProgressState>> {
        self.turn.try_lock()
    }

    #[inline]
    fn progress_pass(&self, turn: &mut ProgressState, look: PollSet) -> usize {
        let _hold = later::DeferDrops::begin();
        // What a rank sent before its end arrives before the end is acted on: learn first, then take frames.
        if self.roster.event_count() != turn.seen {
            self.learn(turn);
        }
        turn.looks = turn.looks.wrapping_add(1);
        if turn.looks.is_multiple_of(PASSES_PER_CLOCK_READ) {
            self.query_exits(turn);
        }
        let ProgressState { inlets, is_mixed, near, inboxes, passes, ended, peers, .. } = turn;
        // An end is acted on when nothing is left of what was sent before it, by whichever device.
        let all = !*is_mixed
            || look == PollSet::All
            || *near >= CHEAP_PASSES
            || self.recheck.load(Ordering::Relaxed);
        *near = if all { 0 } else { *near + 1 };
        let mut moved = 0;
        for (inlet, copied) in inlets.iter_mut().zip(&self.copied_out) {
            if all || !inlet.needs_syscall() {
                moved += inlet.progress(&mut Delivery { engine: self, inboxes, copied });
            }
        }
        if self.is_busy() {
            moved += self.flush_all(ended, peers);
        }
        if self.recheck.load(Ordering::Relaxed) {
            *passes += 1;
            if moved == 0 || *passes > MAX_PASSES_BEFORE_EXITS {
                *passes = 0;
                self.recheck.store(false, Ordering::Release);
                self.apply_all_ends();
                self.parking.notify();
                // What a device writes to is no operation that this ends: the device gives it back.
                for peer in self.dead_in_a_body(inboxes) {
                    for (inlet, copied) in inlets.iter_mut().zip(&self.copied_out) {
                        inlet.abort_body(peer, &mut Delivery { engine: self, inboxes, copied });
                    }
                    moved += 1;
                }
            }
        }
        moved
    }

    /// Asks who has left, if this was not asked a moment ago. Nobody else says so.
    #[cold]
    fn query_exits(&self, turn: &mut ProgressState) {
        let now = Instant::now();
        if now.duration_since(turn.asked) >= EXIT_QUERY_INTERVAL {
            turn.asked = now;
            self.roster.request_exits();
            turn.questions = turn.questions.wrapping_add(1);
            if turn.questions.is_multiple_of(VERIFY) {
                self.verify_all(turn);
            }
        }
    }

    /// Checks what this rank has written to memory that others can write. What was overwritten there may look like nothing new, so
    /// that both ends would wait for ever; its peer ends instead.
    fn verify_all(&self, turn: &mut ProgressState) {
        let _hold = later::DeferDrops::begin();
        for (inlet, copied) in turn.inlets.iter_mut().zip(&self.copied_out) {
            inlet.verify(&mut Delivery { engine: self, inboxes: &mut turn.inboxes, copied });
        }
        for peer in self.peers.iter() {
            let mut out = peer.outbox();
            if !out.gone
                && let Err(error) = out.link.verify()
            {
                drop(out);
                self.broken_link(peer, error);
            }
        }
    }

    /// Checks at once what this rank shares with others, as one does that waits for long.
    #[cfg(feature = "conformance")]
    #[doc(hidden)]
    pub fn verify(&self) {
        if let Some(mut turn) = self.try_lock_progress() {
            self.verify_all(&mut turn);
        }
        self.parking.notify();
        later::run_deferred_drops();
    }

    /// Waits until `ready` answers, making progress for all threads of this rank.
    pub fn wait_until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        self.wait_for(&mut (), |()| ready(), |()| WaitReason::call("an operation"))
    }

    /// Waits until `ready` answers, making progress for all threads of this rank; `what` says what for, and is asked only
    /// when the thread is about to sleep, or the rank is traced.
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
        let mut turn = None;
        let mut limit = Limit::default();
        let mut entered = None;
        let mut moved_asleep = false;
        loop {
            turn = turn.or_else(|| self.try_lock_progress());
            let look = if waiter.is_polling() { PollSet::Cheap } else { PollSet::All };
            let moved = turn.as_mut().map_or(0, |turn| self.progress_pass(turn, look));
            if moved > 0 {
                self.parking.notify();
                waiter.reset();
            }
            if later::has_deferred() {
                drop(turn.take());
                self.parking.notify();
                later::run_deferred_drops();
            }
            if (moved > 0 || std::mem::take(&mut moved_asleep)) && self.tasks.are_open() {
                self.poll_tasks_unlocked(turn.take(), true);
            }
            let hold = turn.is_some().then(later::DeferDrops::begin);
            let value = ready(state);
            drop(hold);
            if let Some(value) = value {
                drop(turn);
                self.parking.notify();
                later::run_deferred_drops();
                return value;
            }
            if moved > 0 || waiter.idle() == Next::Poll {
                continue;
            }
            entered.get_or_insert_with(|| self.waits.enter(what(state)));
            if self.tasks.are_open() {
                self.poll_tasks_unlocked(turn.take(), false);
                turn = self.try_lock_progress();
            }
            let mut value = None;
            match &mut turn {
                Some(turn) => {
                    let armed: Vec<BorrowedFd<'_>> = self.devices.iter().filter_map(|d| d.arm()).collect();
                    self.site.bell.sleep(&armed, MAX_SLEEP, || {
                        let mut moved = self.progress_pass(turn, PollSet::All);
                        // What has found no room only now is told of room only if it looks once more after a fence.
                        if moved == 0 && self.is_busy() {
                            fence::heavy_fence();
                            moved = self.progress_pass(turn, PollSet::All);
                        }
                        let _hold = later::DeferDrops::begin();
                        value = ready(state);
                        moved_asleep = moved > 0;
                        moved_asleep || value.is_some() || later::has_deferred()
                    });
                    if moved_asleep {
                        self.parking.notify();
                    }
                    self.query_exits(turn);
                }
                // Who had the turn may have given it up before this thread was counted.
                None => self.parking.park(&mut limit, || {
                    value = ready(state);
                    turn = self.try_lock_progress();
                    value.is_some() || turn.is_some()
                }),
            }
            if let Some(value) = value {
                drop(turn);
                self.parking.notify();
                later::run_deferred_drops();
                if moved_asleep && self.tasks.are_open() {
                    self.poll_tasks(true);
                }
                return value;
            }
        }
    }

    /// Gives the turn up and drives what nobody waits for.
    #[cold]
    fn poll_tasks_unlocked(&self, turn: Option<MutexGuard<'_, ProgressState>>, is_news: bool) {
        if turn.is_some() {
            drop(turn);
            self.parking.notify();
        }
        self.poll_tasks(is_news);
    }

    /// Tells waiting threads that a message has come which no receive was posted for: one may be probing for it.
    #[inline]
    pub(crate) fn notify_parked(&self) {
        self.parking.notify();
    }

    /// Wakes every waiting thread of this rank, also the holder of the turn: the news came from a thread.
    pub(crate) fn wake_all(&self) {
        self.notify_parked();
        self.site.bell.ring();
    }

    /// Waits for an operation and returns its outcome.
    ///
    /// # Errors
    /// What the operation failed with.
    #[inline]
    pub fn wait(&self, started: Started) -> Result<Envelope, Fault> {
        self.wait_described(started, || WaitReason::call("an operation"))
    }

    /// Waits for an operation and returns its outcome; `what` says what for, as in [`wait_for`](Self::wait_for).
    ///
    /// # Errors
    /// What the operation failed with.
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

    /// Waits for an operation and reads its outcome; `what` says what for, as in [`wait_for`](Self::wait_for).
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
