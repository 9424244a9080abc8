//! Non-blocking and persistent collectives: tasks that own a schedule and that the engine polls.
//!
//! ```text
//!            start            call completes           outcome taken (persistent only)
//!   IDLE ------------> ACTIVE ----------------> COMPLETE ------------> IDLE
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpj_devices::{Buf, Fault, KeepAlive, Listener, ProgressTask, WaitReason, drop_panic_payload};

use super::blocking::USER_PANIC;
use super::call_id::{CallDigest, CallId};
use super::context::CollContext;
use super::plan::Plan;
use super::schedule::{Schedule, ScheduleStatus};
use super::state::CollState;
use crate::error::{Error, ErrorClass, Result};
use crate::raw::{abort_on_unwind, still_active};

#[derive(Debug)]
pub(crate) struct CollectiveTask {
    context: Arc<CollContext>,
    name: &'static str,
    digest: CallDigest,
    /// The number of items for a trace.
    items: usize,
    phase: AtomicU8,
    state: Mutex<State>,
    /// Notified after `phase` has become [`COMPLETE`].
    listener: Mutex<Option<Listener>>,
}

const IDLE: u8 = 0;
const ACTIVE: u8 = 1;
const COMPLETE: u8 = 2;

#[derive(Debug)]
struct State {
    schedule: Schedule<'static, Arc<CollContext>>,
    /// The sequence number of the last call.
    seq: u32,
    /// Whether the call has checked notices, which it does before it sends anything.
    has_checked_notices: bool,
    outcome: Result<()>,
    /// Whether notices of the error were sent, which [`CollectiveTask::take_outcome`] flushes.
    sent_notices: bool,
    keep_alive: Option<KeepAlive>,
    /// A persistent task keeps `keep_alive` for further calls.
    is_persistent: bool,
}

impl CollectiveTask {
    /// Starts a call; `plan` checks its arguments. `keep_alive` is dropped before the completion is visible.
    ///
    /// # Errors
    /// Collectives are disabled, `plan` fails, or memory is exhausted. The other ranks are notified of the last two.
    ///
    /// # Safety
    /// The contract of [`Schedule::new`].
    pub(crate) unsafe fn start<'a>(
        context: &Arc<CollContext>,
        name: &'static str,
        plan: impl FnOnce() -> Result<Plan<'a>>,
        keep_alive: Option<KeepAlive>,
    ) -> Result<Arc<Self>> {
        let (seq, checked) = context.begin_call(name);
        let created = checked.and_then(|()| plan()).and_then(|plan| {
            // SAFETY: the caller's contract.
            unsafe { CollectiveTask::new(context, name, seq, plan, keep_alive, false) }
        });
        let task = created.map_err(|error| end_refused(context, seq, error))?;
        task.activate(seq);
        Ok(task)
    }

    /// Creates a task for the plan of an `*_init` call; [`restart`](Self::restart) runs it.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub(crate) fn prepare(
        context: &Arc<CollContext>,
        name: &'static str,
        seq: u32,
        plan: Plan<'_>,
        keep_alive: Option<KeepAlive>,
    ) -> Result<Arc<Self>> {
        // SAFETY: `restart` passes the contract on to its caller, and only `restart` runs the schedule.
        unsafe { CollectiveTask::new(context, name, seq, plan, keep_alive, true) }
    }

    /// # Safety
    /// The contract of [`Schedule::new`].
    unsafe fn new(
        context: &Arc<CollContext>,
        name: &'static str,
        seq: u32,
        plan: Plan<'_>,
        keep_alive: Option<KeepAlive>,
        is_persistent: bool,
    ) -> Result<Arc<Self>> {
        let (digest, items) = (plan.digest, plan.items());
        let call = context.call_id(name, seq, digest);
        // SAFETY: the caller's contract.
        let mut schedule = unsafe { Schedule::new(Arc::clone(context), call, plan.into_owned()) };
        schedule.allocate()?;
        let state = Mutex::new(State {
            schedule,
            seq,
            has_checked_notices: false,
            outcome: Ok(()),
            sent_notices: false,
            keep_alive,
            is_persistent,
        });
        let (context, phase) = (Arc::clone(context), AtomicU8::new(IDLE));
        let listener = Mutex::default();
        Ok(Arc::new(CollectiveTask { context, name, digest, items, phase, state, listener }))
    }

    /// Starts another call, with the old buffers, or with new ones where `bufs` has them.
    ///
    /// # Errors
    /// The last call is active, its outcome was not taken, collectives are disabled, or the new buffers do not fit. The
    /// other ranks are notified of the last.
    ///
    /// # Safety
    /// As [`start`](Self::start).
    pub(crate) unsafe fn restart(self: &Arc<Self>, bufs: Option<Result<&[Option<&Buf>]>>) -> Result<()> {
        if self.phase.load(Ordering::Acquire) != IDLE {
            return Err(still_active(self.name));
        }
        let (seq, checked) = self.context.begin_call(self.name);
        let rebind = |bufs: Result<&[Option<&Buf>]>| self.state().schedule.rebind(bufs?);
        let ready = checked.and_then(|()| bufs.map_or(Ok(()), rebind));
        ready.map_err(|error| end_refused(&self.context, seq, error))?;
        self.activate(seq);
        Ok(())
    }

    fn activate(self: &Arc<Self>, seq: u32) {
        let mut state = self.state();
        state.schedule.restart(self.context.call_id(self.name, seq, self.digest));
        state.seq = seq;
        state.has_checked_notices = false;
        self.phase.store(ACTIVE, Ordering::Release);
        drop(state);
        let (engine, channel) = (self.context.engine(), self.context.channel());
        let traced = engine.trace().map(|trace| (trace, trace.now()));
        engine.spawn(channel, Arc::clone(self) as Arc<dyn ProgressTask>);
        if let Some((trace, begun)) = traced {
            trace.collective(begun, self.name, channel, self.items, false);
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn context(&self) -> &Arc<CollContext> {
        &self.context
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Returns whether a call of a persistent task was started, and its outcome was not taken.
    pub(crate) fn is_active(&self) -> bool {
        self.phase.load(Ordering::Acquire) != IDLE
    }

    fn listener(&self) -> MutexGuard<'_, Option<Listener>> {
        self.listener.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Registers the listener of the active call, as [`Completion::listen`](mpj_devices::Completion::listen) does.
    pub(crate) fn listen(&self, listener: Listener) {
        let entry = listener.entry();
        let old = self.listener().replace(listener);
        if let Some(old) = old {
            old.notify_replaced(entry);
        }
    }

    pub(crate) fn is_listening(&self) -> bool {
        self.listener().is_some()
    }

    /// Returns the outcome if no call is active, without making progress.
    #[inline]
    pub(crate) fn outcome(&self) -> Option<Result<()>> {
        // SYNC task-phase (acquire)
        (self.phase.load(Ordering::Acquire) != ACTIVE).then(|| self.state().outcome.clone())
    }

    /// Waits until no call is active, and takes the outcome of the last one.
    pub(crate) fn wait(&self) -> Result<()> {
        self.wait_idle();
        self.take_outcome()
    }

    pub(crate) fn wait_idle(&self) {
        let (engine, channel) = (self.context.engine(), self.context.channel());
        let is_idle = |(): &mut ()| (self.phase.load(Ordering::Acquire) != ACTIVE).then_some(());
        let what = |(): &()| {
            let wait = WaitReason::collective(self.name, channel);
            // Another thread might poll the task. Only wait reports use the number, so do not wait for the lock.
            match self.state.try_lock() {
                Ok(state) => wait.numbered(state.seq),
                Err(_) => wait,
            }
        };
        engine.wait_for(&mut (), is_idle, what);
    }

    /// Drops `keep_alive`; no further call may start.
    pub(crate) fn release_memory(&self) {
        let keep_alive = self.state().keep_alive.take();
        drop(keep_alive);
    }

    pub(crate) fn take_outcome(&self) -> Result<()> {
        let mut state = self.state();
        let (outcome, sent_notices) = (state.outcome.clone(), std::mem::take(&mut state.sent_notices));
        if state.is_persistent {
            state.outcome = Ok(());
            self.phase.store(IDLE, Ordering::Release);
        }
        drop(state);
        if sent_notices {
            self.context.flush_notices();
        }
        outcome
    }
}

/// Ends a call that was refused on this rank, and returns its error.
#[cold]
fn end_refused(context: &CollContext, seq: u32, error: Error) -> Error {
    if context.end_call(seq, Some(&error)) {
        context.flush_notices();
    }
    error.on(context.channel())
}

impl ProgressTask for CollectiveTask {
    fn poll(&self) -> bool {
        // Other ranks and threads use the memory during the call, so a panic aborts. `advance` catches panics of user
        // functions.
        let is_complete = abort_on_unwind(|| {
            let mut state = self.state();
            let call = self.context.call_id(self.name, state.seq, self.digest);
            let Some(outcome) = state.advance(&self.context, &call) else { return false };
            state.end(&self.context, &call, outcome);
            // SYNC task-phase (release)
            self.phase.store(COMPLETE, Ordering::Release);
            true
        });
        if is_complete {
            let listener = self.listener().take();
            if let Some(listener) = listener {
                listener.notify();
            }
        }
        is_complete
    }
}

impl State {
    /// Runs the call as far as possible; returns its outcome if it has completed.
    fn advance(&mut self, context: &CollContext, call: &CallId) -> Option<Result<()>> {
        let engine = context.engine();
        let closed = engine.is_closed().then(|| {
            let left = || Fault::Left { rank: Some(engine.site().rank) };
            Error::from_fault(call.name, engine.failure().cloned().unwrap_or_else(left))
        });
        if !self.has_checked_notices {
            let checked =
                closed.clone().map_or_else(|| CollState::check_notices(context, call, call.seq, false), Err);
            if checked.is_err() {
                return Some(checked);
            }
            self.has_checked_notices = true;
        }
        if let Some(error) = closed {
            self.schedule.fail(error);
        }
        loop {
            if let ScheduleStatus::Complete(outcome) = self.schedule.poll()? {
                return Some(outcome);
            }
            let done = catch_unwind(AssertUnwindSafe(|| self.schedule.run_next_local_step()));
            let panicked = |thrown| {
                drop_panic_payload(thrown);
                Err(Error::new(ErrorClass::Other, call.name, USER_PANIC))
            };
            if let Err(error) = done.unwrap_or_else(panicked) {
                self.schedule.fail(error);
            }
        }
    }

    fn end(&mut self, context: &CollContext, call: &CallId, outcome: Result<()>) {
        let outcome = outcome.and_then(|()| context.final_check(call));
        self.sent_notices = context.end_call(call.seq, outcome.as_ref().err());
        self.outcome = outcome.map_err(|error| error.on(context.channel()));
        if !self.is_persistent {
            mpj_devices::with_deferred_drops(|| self.keep_alive = None);
        }
    }
}
