//! Progress is made by whoever waits: the turn, and the waiting loop. Threads that find the turn taken go to `parking`.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::Engine;
use super::delivery::Delivery;
use super::inbox::Inbox;
use super::outbox::Ended;
use super::parking::Limit;
use super::peer::Table;
use super::waits::Wait;
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
const NAP: Duration = Duration::from_millis(100);

/// After so long, and as often, a rank that looks for news asks the other processes who has left.
const ASK: Duration = Duration::from_millis(100);

/// How often it asks from one check of what it shares with others to the next.
const VERIFY: u32 = 10;

/// Passes from one look at the clock to the next: of one who waits, whom the sleep reminds too, and of one who tests and
/// may do so seldom.
const LOOKS: u32 = 1024;
const TESTS: u32 = 16;

/// Passes after which ends are acted on even if frames keep coming.
const PATIENCE: u32 = 10_000;

/// Where some devices ask the system for news and others need not: passes of one who polls from one look at all of them to
/// the next, and how long one who tests does without.
const NEAR: u32 = 32;
const RECENT: Duration = Duration::from_micros(2);

/// Which devices a pass looks at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Look {
    All,
    /// Those whose looks cost little, and now and then all.
    Near,
}

/// The right to take frames from the devices, and what only its holder touches.
#[derive(Debug)]
pub(crate) struct Turn {
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
    ended: Vec<Ended>,
    /// Room for the list of peers that a flush goes through.
    peers: Vec<PeerId>,
}

impl Turn {
    pub(crate) fn new(inlets: Vec<Box<dyn Inlet>>, size: u32) -> Self {
        let asking = inlets.iter().filter(|inlet| inlet.asks_system()).count();
        Turn {
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
    fn look_of_test(&mut self) -> Look {
        if !self.is_mixed {
            return Look::All;
        }
        let now = Instant::now();
        if now.duration_since(self.tested) < RECENT {
            return Look::Near;
        }
        self.tested = now;
        Look::All
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
        let moved = self.advance();
        if moved == 0 {
            self.policy.looked_in_vain();
        }
        moved
    }

    /// As [`progress`](Self::progress), and never yields: for who looks now and then, or knows only afterwards whether it has
    /// looked in vain.
    pub fn advance(&self) -> usize {
        let moved = self.take_turn().map(|mut turn| {
            turn.tests = turn.tests.wrapping_add(1);
            if turn.tests.is_multiple_of(TESTS) {
                self.ask_for_ends(&mut turn);
            }
            let look = turn.look_of_test();
            let mut moved = self.pass(&mut turn, look);
            // Who tests seldom may find something each time, and would not act on an end for long.
            if moved > 0 && self.recheck.load(Ordering::Relaxed) {
                moved += self.pass(&mut turn, Look::All);
            }
            moved
        });
        if moved.is_some() {
            // Also if nothing has moved: who has parked meanwhile takes the turn, which this thread may not take again for long.
            self.parking.notify();
        }
        later::let_all_go();
        let moved = moved.unwrap_or(0);
        if moved > 0 {
            self.policy.found();
        }
        // Who waits may look for something else while it has the turn, and drives when it has given that up.
        if self.tasks.are_open() && !later::is_holding() {
            self.drive_all(moved > 0);
        }
        moved
    }

    fn take_turn(&self) -> Option<MutexGuard<'_, Turn>> {
        self.turn.try_lock()
    }

    #[inline]
    fn pass(&self, turn: &mut Turn, look: Look) -> usize {
        let _hold = later::Hold::begin();
        // What a rank sent before its end arrives before the end is acted on: learn first, then take frames.
        if self.roster.known() != turn.seen {
            self.learn(turn);
        }
        turn.looks = turn.looks.wrapping_add(1);
        if turn.looks.is_multiple_of(LOOKS) {
            self.ask_for_ends(turn);
        }
        let Turn { inlets, is_mixed, near, inboxes, passes, ended, peers, .. } = turn;
        // An end is acted on when nothing is left of what was sent before it, by whichever device.
        let all = !*is_mixed || look == Look::All || *near >= NEAR || self.recheck.load(Ordering::Relaxed);
        *near = if all { 0 } else { *near + 1 };
        let mut moved = 0;
        for (inlet, copied) in inlets.iter_mut().zip(&self.arrived) {
            if all || !inlet.asks_system() {
                moved += inlet.progress(&mut Delivery { engine: self, inboxes, copied });
            }
        }
        if self.is_busy() {
            moved += self.flush_all(ended, peers);
        }
        if self.recheck.load(Ordering::Relaxed) {
            *passes += 1;
            if moved == 0 || *passes > PATIENCE {
                *passes = 0;
                self.recheck.store(false, Ordering::Release);
                self.apply_all_ends();
                self.parking.notify();
                // What a device writes to is no operation that this ends: the device gives it back.
                for peer in self.dead_in_a_body(inboxes) {
                    for (inlet, copied) in inlets.iter_mut().zip(&self.arrived) {
                        inlet.bury(peer, &mut Delivery { engine: self, inboxes, copied });
                    }
                    moved += 1;
                }
            }
        }
        moved
    }

    /// Asks who has left, if this was not asked a moment ago. Nobody else says so.
    #[cold]
    fn ask_for_ends(&self, turn: &mut Turn) {
        let now = Instant::now();
        if now.duration_since(turn.asked) >= ASK {
            turn.asked = now;
            self.roster.ask();
            turn.questions = turn.questions.wrapping_add(1);
            if turn.questions.is_multiple_of(VERIFY) {
                self.verify_all(turn);
            }
        }
    }

    /// Checks what this rank has written to memory that others can write. What was overwritten there may look like nothing new, so
    /// that both ends would wait for ever; its peer ends instead.
    fn verify_all(&self, turn: &mut Turn) {
        let _hold = later::Hold::begin();
        for (inlet, copied) in turn.inlets.iter_mut().zip(&self.arrived) {
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
        if let Some(mut turn) = self.take_turn() {
            self.verify_all(&mut turn);
        }
        self.parking.notify();
        later::let_all_go();
    }

    /// Waits until `ready` answers, making progress for all threads of this rank.
    pub fn wait_until<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        self.wait_for(&mut (), |()| ready(), |()| Wait::call("an operation"))
    }

    /// Waits until `ready` answers, making progress for all threads of this rank; `what` says what for, and is asked only
    /// when the thread is about to sleep, or the rank is traced.
    pub fn wait_for<S, T>(
        &self,
        state: &mut S,
        mut ready: impl FnMut(&mut S) -> Option<T>,
        what: impl Fn(&S) -> Wait,
    ) -> T {
        if let Some(value) = ready(state) {
            return value;
        }
        let Some(trace) = self.trace() else { return self.wait_on(state, ready, what) };
        let (begun, wait) = (trace.now(), what(state));
        let value = self.wait_on(state, ready, what);
        self.trace_wait(trace, begun, &wait);
        value
    }

    fn wait_on<S, T>(
        &self,
        state: &mut S,
        mut ready: impl FnMut(&mut S) -> Option<T>,
        what: impl Fn(&S) -> Wait,
    ) -> T {
        let mut waiter = Waiter::new(&self.policy);
        let mut turn = None;
        let mut limit = Limit::default();
        let mut entered = None;
        let mut moved_asleep = false;
        loop {
            turn = turn.or_else(|| self.take_turn());
            let look = if waiter.is_polling() { Look::Near } else { Look::All };
            let moved = turn.as_mut().map_or(0, |turn| self.pass(turn, look));
            if moved > 0 {
                self.parking.notify();
                waiter.reset();
            }
            if later::is_due() {
                drop(turn.take());
                self.parking.notify();
                later::let_all_go();
            }
            if (moved > 0 || std::mem::take(&mut moved_asleep)) && self.tasks.are_open() {
                self.drive_without(turn.take(), true);
            }
            let hold = turn.is_some().then(later::Hold::begin);
            let value = ready(state);
            drop(hold);
            if let Some(value) = value {
                drop(turn);
                self.parking.notify();
                later::let_all_go();
                return value;
            }
            if moved > 0 || waiter.idle() == Next::Poll {
                continue;
            }
            entered.get_or_insert_with(|| self.waits.enter(what(state)));
            if self.tasks.are_open() {
                self.drive_without(turn.take(), false);
                turn = self.take_turn();
            }
            let mut value = None;
            match &mut turn {
                Some(turn) => {
                    let armed: Vec<BorrowedFd<'_>> = self.devices.iter().filter_map(|d| d.arm()).collect();
                    self.site.bell.sleep(&armed, NAP, || {
                        let mut moved = self.pass(turn, Look::All);
                        // What has found no room only now is told of room only if it looks once more after a fence.
                        if moved == 0 && self.is_busy() {
                            fence::heavy();
                            moved = self.pass(turn, Look::All);
                        }
                        let _hold = later::Hold::begin();
                        value = ready(state);
                        moved_asleep = moved > 0;
                        moved_asleep || value.is_some() || later::is_due()
                    });
                    if moved_asleep {
                        self.parking.notify();
                    }
                    self.ask_for_ends(turn);
                }
                // Who had the turn may have given it up before this thread was counted.
                None => self.parking.park(&mut limit, || {
                    value = ready(state);
                    turn = self.take_turn();
                    value.is_some() || turn.is_some()
                }),
            }
            if let Some(value) = value {
                drop(turn);
                self.parking.notify();
                later::let_all_go();
                if moved_asleep && self.tasks.are_open() {
                    self.drive_all(true);
                }
                return value;
            }
        }
    }

    /// Gives the turn up and drives what nobody waits for.
    #[cold]
    fn drive_without(&self, turn: Option<MutexGuard<'_, Turn>>, is_news: bool) {
        if turn.is_some() {
            drop(turn);
            self.parking.notify();
        }
        self.drive_all(is_news);
    }

    /// Tells waiting threads that a message has come which no receive was posted for: one may be probing for it.
    #[inline]
    pub(crate) fn stir(&self) {
        self.parking.notify();
    }

    /// Wakes every waiting thread of this rank, also the holder of the turn: the news came from a thread.
    pub(crate) fn rouse(&self) {
        self.stir();
        self.site.bell.ring();
    }

    /// Waits for an operation and returns its outcome.
    ///
    /// # Errors
    /// What the operation failed with.
    #[inline]
    pub fn wait(&self, started: Started) -> Result<Envelope, Fault> {
        self.wait_as(started, || Wait::call("an operation"))
    }

    /// Waits for an operation and returns its outcome; `what` says what for, as in [`wait_for`](Self::wait_for).
    ///
    /// # Errors
    /// What the operation failed with.
    #[inline]
    pub fn wait_as(&self, started: Started, what: impl Fn() -> Wait) -> Result<Envelope, Fault> {
        match started {
            Started::Done(message) => {
                self.flush_held();
                Ok(message)
            }
            Started::Pending(completion) => self.wait_and(&completion, Outcome::clone, what),
        }
    }

    /// Waits for an operation and reads its outcome; `what` says what for, as in [`wait_for`](Self::wait_for).
    #[inline]
    pub fn wait_and<T>(
        &self,
        completion: &Completion,
        read: impl Fn(&Outcome) -> T,
        what: impl Fn() -> Wait,
    ) -> T {
        self.wait_for(&mut (), |()| completion.outcome().map(&read), |()| what())
    }
}
