//! Waits: a waiting thread makes progress for all threads of its rank, unless another thread does.

use std::time::{Duration, Instant};

use super::Engine;
use super::blocked::WaitReason;
use super::parking::ParkBackoff;
use super::progress::{PollSet, ProgressState, SLEEP};
use crate::biased::MutexGuard;
use crate::completion::{Completion, Outcome, Started};
use crate::deferred_drop;
use crate::fault::Fault;
use crate::fence;
use crate::message::Envelope;
use crate::sys::BorrowedFd;
use crate::wait::{IdleStep, Waiter};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum WaitKind {
    /// For a call of the program, which returns at this time at the latest.
    Call(Option<Instant>),
    /// For events, as the progress thread.
    Background,
}

struct Pause {
    next_sleep: Duration,
    park: ParkBackoff,
    /// Whether the last pass of the latest sleep has moved something that is not reported to tasks yet.
    has_moved: bool,
}

impl Engine {
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
        self.wait_traced(state, ready, what, None)
    }

    /// Waits in the progress thread until `ready` returns a value. The wait sleeps soon, and reports do not show it.
    pub(super) fn wait_in_background<T>(&self, mut ready: impl FnMut() -> Option<T>) -> T {
        self.wait_loop(&mut (), |()| ready(), |()| WaitReason::call("progress"), WaitKind::Background)
    }

    /// Waits as [`wait_for`](Self::wait_for) does, but returns `None` if `ready` has returned no value until `end`. If
    /// `end` has passed, it still makes a pass, unless `ready` returns a value at once or another thread has the lock.
    pub fn wait_for_until<S, T>(
        &self,
        end: Instant,
        state: &mut S,
        mut ready: impl FnMut(&mut S) -> Option<T>,
        what: impl Fn(&S) -> WaitReason,
    ) -> Option<T> {
        if let Some(value) = ready(state) {
            return Some(value);
        }
        let or_late = |state: &mut S| match ready(state) {
            Some(value) => Some(Some(value)),
            None => (Instant::now() >= end).then_some(None),
        };
        self.wait_traced(state, or_late, what, Some(end))
    }

    fn wait_traced<S, T>(
        &self,
        state: &mut S,
        ready: impl FnMut(&mut S) -> Option<T>,
        what: impl Fn(&S) -> WaitReason,
        end: Option<Instant>,
    ) -> T {
        let kind = WaitKind::Call(end);
        let Some(trace) = self.trace() else { return self.wait_loop(state, ready, what, kind) };
        let (begun, wait) = (trace.now(), what(state));
        let value = self.wait_loop(state, ready, what, kind);
        self.trace_wait(trace, begun, &wait);
        value
    }

    fn wait_loop<S, T>(
        &self,
        state: &mut S,
        mut ready: impl FnMut(&mut S) -> Option<T>,
        what: impl Fn(&S) -> WaitReason,
        kind: WaitKind,
    ) -> T {
        let (policy, end) = match kind {
            WaitKind::Call(end) => (&self.policy, end),
            WaitKind::Background => (&self.background_policy, None),
        };
        let remaining = || end.map_or(Duration::MAX, |end| end.saturating_duration_since(Instant::now()));
        let mut waiter = Waiter::new(policy);
        let mut progress = None;
        let mut entered = None;
        let mut pause = Pause { next_sleep: SLEEP, park: ParkBackoff::default(), has_moved: false };
        loop {
            progress = progress.or_else(|| self.try_lock_progress());
            if kind != WaitKind::Background && self.background.relieve() && progress.is_none() {
                self.site.bell.wake();
            }
            let poll_set = if waiter.is_polling() { PollSet::Cheap } else { PollSet::All };
            let moved = progress.as_mut().map_or(0, |progress| self.progress_pass(progress, poll_set));
            if moved > 0 {
                self.parking.notify();
                waiter.reset();
                pause.next_sleep = SLEEP;
            }
            if deferred_drop::has_deferred() {
                self.release_for_deferred_drops(progress.take());
            }
            if (moved > 0 || std::mem::take(&mut pause.has_moved)) && self.tasks.any() {
                self.poll_tasks_unlocked(progress.take(), true);
            }
            let hold = progress.is_some().then(deferred_drop::DeferDrops::begin);
            let value = ready(state);
            drop(hold);
            if let Some(value) = value {
                self.release(progress);
                return value;
            }
            if moved > 0 || waiter.idle() == IdleStep::Poll {
                continue;
            }
            if kind != WaitKind::Background {
                entered.get_or_insert_with(|| self.waits.enter(what(state)));
            }
            if self.tasks.any() {
                self.poll_tasks_unlocked(progress.take(), false);
                progress = self.try_lock_progress();
            }
            if let Some(value) = self.pause(&mut progress, &mut pause, remaining(), || ready(state)) {
                self.release(progress);
                if pause.has_moved && self.tasks.any() {
                    self.poll_tasks(true);
                }
                return value;
            }
        }
    }

    fn release_for_deferred_drops(&self, progress: Option<MutexGuard<'_, ProgressState>>) {
        self.release(progress);
        deferred_drop::run_deferred_drops_of_wait();
    }

    fn release(&self, progress: Option<MutexGuard<'_, ProgressState>>) {
        drop(progress);
        self.parking.notify();
        deferred_drop::run_deferred_drops();
    }

    /// Sleeps if this thread holds the progress lock, and otherwise parks. Returns the value of `ready`, which is
    /// called after the thread is counted as asleep or parked.
    fn pause<'e, T>(
        &'e self,
        progress: &mut Option<MutexGuard<'e, ProgressState>>,
        pause: &mut Pause,
        limit: Duration,
        mut ready: impl FnMut() -> Option<T>,
    ) -> Option<T> {
        let mut value = None;
        match progress {
            Some(progress) => {
                pause.has_moved = self.sleep(progress, pause.next_sleep.min(limit), || {
                    value = ready();
                    value.is_some()
                });
                let longer = (2 * pause.next_sleep).min(self.max_sleep);
                pause.next_sleep = if pause.has_moved { SLEEP } else { longer };
                self.query_exits_and_verify(progress);
            }
            // The holder might release the progress lock before this thread is counted as parked: try it again.
            None => {
                pause.park.cap(limit);
                self.parking.park(&mut pause.park, || {
                    value = ready();
                    *progress = self.try_lock_progress();
                    value.is_some() || progress.is_some()
                });
            }
        }
        value
    }

    /// Sleeps on the doorbell and the descriptors of the devices, unless `ready` returns true or a last pass moves
    /// something. Returns whether that pass has moved something.
    fn sleep(&self, progress: &mut ProgressState, limit: Duration, ready: impl FnOnce() -> bool) -> bool {
        let armed: Vec<BorrowedFd<'_>> = self.devices.iter().filter_map(|d| d.arm()).collect();
        self.disarm_driver();
        let mut has_moved = false;
        self.site.bell.sleep(&armed, limit, || {
            has_moved = self.last_pass(progress) > 0;
            let _hold = deferred_drop::DeferDrops::begin();
            let is_ready = ready();
            has_moved || is_ready || deferred_drop::has_deferred()
        });
        if has_moved {
            self.parking.notify();
        }
        has_moved
    }

    /// Makes a pass before a sleep that has been announced to the devices and the doorbell.
    pub(super) fn last_pass(&self, progress: &mut ProgressState) -> usize {
        let moved = self.progress_pass(progress, PollSet::All);
        if moved > 0 || !self.is_busy() {
            return moved;
        }
        // A peer that frees space rings only if it sees that this rank waits: post again after a fence.
        fence::heavy_fence();
        self.progress_pass(progress, PollSet::All)
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
