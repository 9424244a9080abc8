//! Non-blocking and persistent collectives: a task owns a schedule, which the engine polls through one call, or through
//! one call after another.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpj_devices::{Buf, Fault, KeepAlive, ProgressTask, WaitReason, drop_panic_payload};

use super::context::CollContext;
use super::course::{CallId, CollState};
use super::label::{CallDigest, is_meeting};
use super::part::{ActiveCall, flush_notices};
use super::plan::Plan;
use super::schedule::{Schedule, ScheduleStatus};
use super::turn::PANICKED;
use crate::error::{Error, ErrorClass, Result};
use crate::raw::abort_on_unwind;

/// A schedule, and the state of its active call.
#[derive(Debug)]
pub(crate) struct CollectiveTask {
    context: Arc<CollContext>,
    name: &'static str,
    label: CallDigest,
    /// [`IDLE`], [`ACTIVE`] or [`ENDED`].
    phase: AtomicU8,
    state: Mutex<State>,
}

/// No call was started, or the outcome of the last one was taken.
const IDLE: u8 = 0;
/// A call is active.
const ACTIVE: u8 = 1;
/// A call has completed, and its outcome was not taken.
const ENDED: u8 = 2;

#[derive(Debug)]
struct State {
    schedule: Schedule<'static, Arc<CollContext>>,
    part: ActiveCall,
    stage: TaskStage,
    outcome: Result<()>,
    /// Whether notices of the error were sent.
    is_told: bool,
    keep: Option<KeepAlive>,
    /// Whether the task is persistent, so that it keeps the memory for further calls.
    runs_again: bool,
}

/// The stage of a call.
#[derive(Clone, Copy, Debug)]
enum TaskStage {
    /// The call has neither checked notices nor sent anything.
    Begun,
    /// The call waits to learn whether all ranks have rejected the calls that this rank rejected.
    Refused,
    Steps,
}

impl CollectiveTask {
    /// Starts a call, whose arguments `plan` checks. `keep` is dropped when the call has completed, before the
    /// completion is visible.
    ///
    /// # Errors
    /// Those of `plan`, of which the other ranks are notified; the ranks are out of step.
    ///
    /// # Safety
    /// The contract of [`Schedule::new`], until the call has completed.
    pub(crate) unsafe fn start<'a>(
        context: &Arc<CollContext>,
        name: &'static str,
        plan: impl FnOnce() -> Result<(CallDigest, Plan<'a>)>,
        keep: Option<KeepAlive>,
    ) -> Result<Arc<Self>> {
        let (part, checked) = ActiveCall::new(context, name);
        let made = checked.and_then(|()| plan()).and_then(|(label, plan)| {
            // SAFETY: the caller's contract.
            let schedule = unsafe { Schedule::new(Arc::clone(context), part.call(label), plan.into_owned()) };
            CollectiveTask::new(context, part, label, schedule, keep, false)
        });
        let task = made.inspect_err(|error| end(context, part, error))?;
        task.launch(part);
        Ok(task)
    }

    /// Creates a task for a plan that was checked in a call of its own; [`restart`](Self::restart) runs it.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    pub(crate) fn prepare(
        context: &Arc<CollContext>,
        part: ActiveCall,
        (label, plan): (CallDigest, Plan<'_>),
        keep: Option<KeepAlive>,
    ) -> Result<Arc<Self>> {
        // SAFETY: `restart` passes the contract on to its caller, and only `restart` runs the schedule.
        let schedule = unsafe { Schedule::new(Arc::clone(context), part.call(label), plan.into_owned()) };
        CollectiveTask::new(context, part, label, schedule, keep, true)
    }

    fn new(
        context: &Arc<CollContext>,
        part: ActiveCall,
        label: CallDigest,
        mut schedule: Schedule<'static, Arc<CollContext>>,
        keep: Option<KeepAlive>,
        runs_again: bool,
    ) -> Result<Arc<Self>> {
        schedule.allocate()?;
        let (stage, outcome, is_told) = (TaskStage::Begun, Ok(()), false);
        let state = Mutex::new(State { schedule, part, stage, outcome, is_told, keep, runs_again });
        let (context, name, phase) = (Arc::clone(context), part.name(), AtomicU8::new(IDLE));
        Ok(Arc::new(CollectiveTask { context, name, label, phase, state }))
    }

    /// Starts another call, with new buffers where `bufs` has them.
    ///
    /// # Errors
    /// The last call is active, or its outcome was not taken; the items of the new buffers differ, of which the other
    /// ranks are notified; the ranks are out of step.
    ///
    /// # Safety
    /// As [`start`](Self::start).
    pub(crate) unsafe fn restart(self: &Arc<Self>, bufs: [Option<&Buf>; 2]) -> Result<()> {
        if self.phase.load(Ordering::Acquire) != IDLE {
            return Err(Error::new(
                ErrorClass::Request,
                self.name,
                "it was started, and has not been waited for",
            ));
        }
        let (part, checked) = ActiveCall::new(&self.context, self.name);
        let ready = checked.and_then(|()| self.state().schedule.lend_anew(bufs));
        ready.inspect_err(|error| end(&self.context, part, error))?;
        self.launch(part);
        Ok(())
    }

    fn launch(self: &Arc<Self>, mut part: ActiveCall) {
        let call = part.call(self.label);
        part.begin(call);
        let mut state = self.state();
        state.schedule.restart(call);
        state.part = part;
        state.stage = TaskStage::Begun;
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

    /// Returns the name of the call in errors.
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
    ///
    /// # Errors
    /// The error of the call.
    pub(crate) fn wait(&self) -> Result<()> {
        self.wait_idle();
        self.take_outcome()
    }

    /// Waits until no call is active.
    pub(crate) fn wait_idle(&self) {
        let (engine, channel) = (self.context.engine(), self.context.channel());
        let has_ended = |(): &mut ()| (self.phase.load(Ordering::Acquire) != ACTIVE).then_some(());
        let what = |(): &()| {
            let wait = WaitReason::collective(self.name, channel);
            // A thread that polls the task holds the lock. The number only serves wait reports, so do not block for it.
            match self.state.try_lock() {
                Ok(state) => wait.numbered(state.part.number()),
                Err(_) => wait,
            }
        };
        engine.wait_for(&mut (), has_ended, what);
    }

    /// Drops `keep`, when there will be no further call.
    pub(crate) fn release(&self) {
        let keep = self.state().keep.take();
        drop(keep);
    }

    /// Takes the outcome of a completed call.
    ///
    /// # Errors
    /// The error of the call.
    pub(crate) fn take_outcome(&self) -> Result<()> {
        let mut state = self.state();
        let (outcome, is_told) = (state.outcome.clone(), std::mem::take(&mut state.is_told));
        if state.runs_again {
            state.outcome = Ok(());
            self.phase.store(IDLE, Ordering::Release);
        }
        drop(state);
        if is_told {
            flush_notices(&self.context);
        }
        outcome
    }
}

/// Ends a call that was rejected.
#[cold]
fn end(context: &CollContext, part: ActiveCall, error: &Error) {
    if part.end(context, Some(error)) {
        flush_notices(context);
    }
}

impl ProgressTask for CollectiveTask {
    fn poll(&self) -> bool {
        // Other ranks and threads use the memory during the call, so a panic aborts. Panics of the user's functions are
        // caught in `advance`.
        abort_on_unwind(|| {
            let mut state = self.state();
            let call = state.part.call(self.label);
            let Some(outcome) = state.advance(&self.context, &call) else { return false };
            state.end(&self.context, outcome);
            // SYNC task-phase (release)
            self.phase.store(ENDED, Ordering::Release);
            true
        })
    }
}

impl State {
    /// Runs the call as far as possible; returns its outcome if it has completed.
    fn advance(&mut self, context: &CollContext, call: &CallId) -> Option<Result<()>> {
        let leaves = context.engine().is_closed().then(|| {
            let rank = Some(context.engine().site().rank);
            Error::from_fault(call.name, Fault::Left { rank })
        });
        loop {
            match (self.stage, &leaves) {
                (TaskStage::Begun | TaskStage::Refused, Some(error)) => return Some(Err(error.clone())),
                (TaskStage::Begun, None) => {
                    if let Err(error) = CollState::check_notices(context, call, call.number, false) {
                        return Some(Err(error));
                    }
                    self.stage = TaskStage::Refused;
                }
                (TaskStage::Refused, None) => {
                    if context.course().has_notices()
                        && let Err(error) = self.part.poll_refusals(context)?
                    {
                        return Some(Err(error));
                    }
                    if is_meeting(call.number) {
                        self.schedule.meet();
                    }
                    self.stage = TaskStage::Steps;
                }
                (TaskStage::Steps, leaves) => {
                    if let Some(error) = leaves {
                        self.schedule.fail(error.clone());
                    }
                    match self.schedule.poll()? {
                        ScheduleStatus::Complete(outcome) => return Some(outcome),
                        ScheduleStatus::LocalStep(step) => {
                            let done = catch_unwind(AssertUnwindSafe(|| self.schedule.work(&step)));
                            let panicked = |thrown| {
                                drop_panic_payload(thrown);
                                Err(Error::new(ErrorClass::Other, call.name, PANICKED))
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
        let outcome = outcome.and_then(|()| self.part.close(context));
        self.is_told = self.part.end(context, outcome.as_ref().err());
        self.outcome = outcome;
        if !self.runs_again {
            mpj_devices::with_deferred_drops(|| self.keep = None);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::raw::{Buf, Collective, collective_init};
    use crate::{Error, Op};

    /// The numbers of the calls that begin with a resync are multiples of this.
    const MEETING: u32 = 1 << 17;

    #[test]
    fn ranks_meet_before_some_calls_also_if_these_are_run_again() {
        crate::threads(3, |world| {
            let (mine, mut sum) = ([world.rank() as u64 + 1], [0u64]);
            let (send, recv) = (Buf::slice(&mine), Buf::slice_mut(&mut sum));
            let op = Op::Sum;
            let call = Collective::Allreduce { send: &send, recv: &recv, op: &op };
            let mut prepared = collective_init(world.as_raw(), call, None)?;
            let apart = world.dup()?;
            for meeting in 1..5 {
                apart.barrier()?;
                world.as_raw().collectives().course().counts().skip_to(meeting * MEETING - meeting);
                apart.barrier()?;
                for _ in 0..2 {
                    sum = [0];
                    // SAFETY: the memory is accessed only between the calls.
                    unsafe { prepared.start() }?;
                    let other = world.iallreduce([meeting], [0u32], Op::Sum)?;
                    world.barrier()?;
                    prepared.wait()?;
                    assert_eq!((sum, other.wait()?.0.1), ([6], [3 * meeting]));
                }
            }
            Ok::<(), Error>(())
        })
        .expect("all ranks meet");
    }
}
