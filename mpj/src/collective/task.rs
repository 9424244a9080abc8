//! Non-blocking and persistent collectives: tasks that own a schedule and that the engine polls.
//!
//! ```text
//!            start            call completes           outcome taken (persistent only)
//!   IDLE ------------> ACTIVE ----------------> COMPLETE ------------> IDLE
//! ```

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpj_devices::{Buf, Fault, KeepAlive, ProgressTask, WaitReason, drop_panic_payload};

use super::active_call::{ActiveCall, flush_notices};
use super::blocking::USER_PANIC;
use super::call_tag::{CallDigest, is_resync};
use super::context::CollContext;
use super::plan::Plan;
use super::schedule::{Schedule, ScheduleStatus};
use super::state::{CallId, CollState};
use crate::error::{Error, ErrorClass, Result};
use crate::raw::abort_on_unwind;

#[derive(Debug)]
pub(crate) struct CollectiveTask {
    context: Arc<CollContext>,
    name: &'static str,
    digest: CallDigest,
    phase: AtomicU8,
    state: Mutex<State>,
}

const IDLE: u8 = 0;
const ACTIVE: u8 = 1;
const COMPLETE: u8 = 2;

#[derive(Debug)]
struct State {
    schedule: Schedule<'static, Arc<CollContext>>,
    active: ActiveCall,
    stage: TaskStage,
    outcome: Result<()>,
    /// Whether notices of the error were sent, which [`CollectiveTask::take_outcome`] flushes.
    sent_notices: bool,
    keep_alive: Option<KeepAlive>,
    /// A persistent task keeps `keep_alive` for further calls.
    is_persistent: bool,
}

#[derive(Clone, Copy, Debug)]
enum TaskStage {
    /// The call has sent nothing, and checks notices first.
    CheckNotices,
    /// The call waits until all ranks have rejected the calls that this rank has rejected.
    AwaitRejections,
    Steps,
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
        plan: impl FnOnce() -> Result<(CallDigest, Plan<'a>)>,
        keep_alive: Option<KeepAlive>,
    ) -> Result<Arc<Self>> {
        let (active, checked) = ActiveCall::new(context, name);
        let created = checked.and_then(|()| plan()).and_then(|(digest, plan)| {
            // SAFETY: the caller's contract.
            let schedule =
                unsafe { Schedule::new(Arc::clone(context), active.id(digest), plan.into_owned()) };
            CollectiveTask::new(context, active, digest, schedule, keep_alive, false)
        });
        let task = created.inspect_err(|error| end_rejected(context, active, error))?;
        task.activate(active);
        Ok(task)
    }

    /// Creates a task for the plan of an `*_init` call; [`restart`](Self::restart) runs it.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub(crate) fn prepare(
        context: &Arc<CollContext>,
        active: ActiveCall,
        (digest, plan): (CallDigest, Plan<'_>),
        keep_alive: Option<KeepAlive>,
    ) -> Result<Arc<Self>> {
        // SAFETY: `restart` passes the contract on to its caller, and only `restart` runs the schedule.
        let schedule = unsafe { Schedule::new(Arc::clone(context), active.id(digest), plan.into_owned()) };
        CollectiveTask::new(context, active, digest, schedule, keep_alive, true)
    }

    fn new(
        context: &Arc<CollContext>,
        active: ActiveCall,
        digest: CallDigest,
        mut schedule: Schedule<'static, Arc<CollContext>>,
        keep_alive: Option<KeepAlive>,
        is_persistent: bool,
    ) -> Result<Arc<Self>> {
        schedule.allocate()?;
        let (stage, outcome, sent_notices) = (TaskStage::CheckNotices, Ok(()), false);
        let state =
            Mutex::new(State { schedule, active, stage, outcome, sent_notices, keep_alive, is_persistent });
        let (context, name, phase) = (Arc::clone(context), active.name(), AtomicU8::new(IDLE));
        Ok(Arc::new(CollectiveTask { context, name, digest, phase, state }))
    }

    /// Starts another call, with new buffers where `bufs` has them.
    ///
    /// # Errors
    /// The last call is active, its outcome was not taken, collectives are disabled, or the new buffers do not fit. The
    /// other ranks are notified of the last.
    ///
    /// # Safety
    /// As [`start`](Self::start).
    pub(crate) unsafe fn restart(self: &Arc<Self>, bufs: [Option<&Buf>; 2]) -> Result<()> {
        if self.phase.load(Ordering::Acquire) != IDLE {
            return Err(Error::new(
                ErrorClass::Request,
                self.name,
                "the persistent request is active: wait for it before the next start",
            ));
        }
        let (active, checked) = ActiveCall::new(&self.context, self.name);
        let ready = checked.and_then(|()| self.state().schedule.rebind(bufs));
        ready.inspect_err(|error| end_rejected(&self.context, active, error))?;
        self.activate(active);
        Ok(())
    }

    fn activate(self: &Arc<Self>, mut active: ActiveCall) {
        let call = active.id(self.digest);
        active.start(call);
        let mut state = self.state();
        state.schedule.restart(call);
        state.active = active;
        state.stage = TaskStage::CheckNotices;
        self.phase.store(ACTIVE, Ordering::Release);
        let items = state.schedule.items();
        drop(state);
        let (engine, channel) = (self.context.engine(), self.context.channel());
        let traced = engine.trace().map(|trace| (trace, trace.now()));
        engine.spawn(channel, Arc::clone(self) as Arc<dyn ProgressTask>);
        if let Some((trace, begun)) = traced {
            trace.collective(begun, self.name, channel, items, false);
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
                Ok(state) => wait.numbered(state.active.seq()),
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
            flush_notices(&self.context);
        }
        outcome
    }
}

#[cold]
fn end_rejected(context: &CollContext, active: ActiveCall, error: &Error) {
    if active.end(context, Some(error)) {
        flush_notices(context);
    }
}

impl ProgressTask for CollectiveTask {
    fn poll(&self) -> bool {
        // Other ranks and threads use the memory during the call, so a panic aborts. `advance` catches panics of user
        // functions.
        abort_on_unwind(|| {
            let mut state = self.state();
            let call = state.active.id(self.digest);
            let Some(outcome) = state.advance(&self.context, &call) else { return false };
            state.end(&self.context, outcome);
            // SYNC task-phase (release)
            self.phase.store(COMPLETE, Ordering::Release);
            true
        })
    }
}

impl State {
    /// Runs the call as far as possible; returns its outcome if it has completed.
    fn advance(&mut self, context: &CollContext, call: &CallId) -> Option<Result<()>> {
        let closed = context.engine().is_closed().then(|| {
            let rank = Some(context.engine().site().rank);
            Error::from_fault(call.name, Fault::Left { rank })
        });
        loop {
            match (self.stage, &closed) {
                (TaskStage::CheckNotices | TaskStage::AwaitRejections, Some(error)) => {
                    return Some(Err(error.clone()));
                }
                (TaskStage::CheckNotices, None) => {
                    if let Err(error) = CollState::check_notices(context, call, call.seq, false) {
                        return Some(Err(error));
                    }
                    self.stage = TaskStage::AwaitRejections;
                }
                (TaskStage::AwaitRejections, None) => {
                    if context.coll_state().has_notices()
                        && let Err(error) = self.active.poll_rejections(context)?
                    {
                        return Some(Err(error));
                    }
                    if is_resync(call.seq) {
                        self.schedule.prepend_resync();
                    }
                    self.stage = TaskStage::Steps;
                }
                (TaskStage::Steps, closed) => {
                    if let Some(error) = closed {
                        self.schedule.fail(error.clone());
                    }
                    match self.schedule.poll()? {
                        ScheduleStatus::Complete(outcome) => return Some(outcome),
                        ScheduleStatus::LocalStep(step) => {
                            let done = catch_unwind(AssertUnwindSafe(|| self.schedule.run_local_step(&step)));
                            let panicked = |thrown| {
                                drop_panic_payload(thrown);
                                Err(Error::new(ErrorClass::Other, call.name, USER_PANIC))
                            };
                            if let Err(error) = done.unwrap_or_else(panicked) {
                                self.schedule.fail(error);
                            }
                        }
                    }
                }
            }
        }
    }

    fn end(&mut self, context: &CollContext, outcome: Result<()>) {
        let outcome = outcome.and_then(|()| self.active.final_check(context));
        self.sent_notices = self.active.end(context, outcome.as_ref().err());
        self.outcome = outcome;
        if !self.is_persistent {
            mpj_devices::with_deferred_drops(|| self.keep_alive = None);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::raw::{Buf, Collective, collective_init};
    use crate::{Error, Op};

    const RESYNC_INTERVAL: u32 = 1 << 17;

    #[test]
    fn persistent_calls_resync_too() {
        crate::threads(3, |world| {
            let (mine, mut sum) = ([world.rank() as u64 + 1], [0u64]);
            let (send, recv) = (Buf::slice(&mine), Buf::slice_mut(&mut sum));
            let op = Op::Sum;
            let call = Collective::Allreduce { send: &send, recv: &recv, op: &op };
            let mut persistent = collective_init(world.as_raw(), call, None)?;
            let dup = world.dup()?;
            for resync in 1..5 {
                dup.barrier()?;
                world
                    .as_raw()
                    .collectives()
                    .coll_state()
                    .sequence()
                    .skip_to(resync * RESYNC_INTERVAL - resync);
                dup.barrier()?;
                for _ in 0..2 {
                    sum = [0];
                    // SAFETY: the memory is accessed only between the calls.
                    unsafe { persistent.start() }?;
                    let other = world.iallreduce([resync], [0u32], Op::Sum)?;
                    world.barrier()?;
                    persistent.wait()?;
                    assert_eq!((sum, other.wait()?.0.1), ([6], [3 * resync]));
                }
            }
            Ok::<(), Error>(())
        })
        .expect("all ranks resynchronize");
    }
}
