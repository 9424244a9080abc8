//! Blocking collective calls.

use super::active_call::{ActiveCall, flush_notices};
use super::call_tag::{CallDigest, is_resync};
use super::context::CollContext;
use super::plan::Plan;
use super::schedule::Schedule;
use super::state::CollState;
use crate::error::{Error, ErrorClass, Result};

/// A successful call whose sequence number is a multiple of this number makes progress at its end. So a rank that only
/// sends makes progress, too.
const CALLS_PER_POLL: u32 = 16;

#[derive(Debug)]
pub(crate) struct BlockingCall<'a> {
    context: &'a CollContext,
    active: ActiveCall,
    has_ended: bool,
}

/// Runs a collective call: `body` checks its arguments, and then runs its plans. Reports an error to the other ranks.
pub(crate) fn run_blocking<T>(
    context: &CollContext,
    name: &'static str,
    body: impl FnOnce(&mut BlockingCall<'_>) -> Result<T>,
) -> Result<T> {
    let (active, checked) = ActiveCall::new(context, name);
    let mut blocking = BlockingCall { context, active, has_ended: false };
    let outcome = checked.and_then(|()| body(&mut blocking));
    let outcome = outcome.and_then(|value| blocking.final_check().map(|()| value));
    blocking.end(outcome.as_ref().err());
    outcome
}

impl BlockingCall<'_> {
    pub(crate) fn rank(&self) -> u32 {
        self.context.rank()
    }

    pub(crate) fn size(&self) -> u32 {
        self.context.size()
    }

    pub(crate) fn active_call(&self) -> ActiveCall {
        self.active
    }

    /// Runs a plan until it completes. All plans of one call have the same digest.
    ///
    /// # Safety
    /// The contract of [`Schedule::new`].
    #[inline]
    pub(crate) unsafe fn run(&mut self, digest: CallDigest, plan: Plan<'_>) -> Result<()> {
        let Some(trace) = self.context.engine().trace() else {
            // SAFETY: the caller's contract.
            return unsafe { self.run_untraced(digest, plan) };
        };
        let (begun, items, name) = (trace.now(), plan.items(), self.active.name());
        // SAFETY: as above.
        let outcome = unsafe { self.run_untraced(digest, plan) };
        trace.collective(begun, name, self.context.channel(), items, outcome.is_err());
        outcome
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn run_untraced(&mut self, digest: CallDigest, plan: Plan<'_>) -> Result<()> {
        let call = self.active.id(digest);
        // SAFETY: the caller's contract; `run` returns after the schedule has completed.
        let mut schedule = unsafe { Schedule::new(self.context, call, plan) };
        schedule.allocate()?;
        if !self.active.start(call) {
            CollState::check_notices(self.context, &call, call.seq, false)?;
            if self.context.coll_state().has_notices() {
                let BlockingCall { context, active, .. } = self;
                context.engine().wait_until(|| active.poll_rejections(context))?;
            }
            if is_resync(call.seq) {
                schedule.prepend_resync();
            }
        }
        schedule.run()
    }

    #[inline]
    fn final_check(&self) -> Result<()> {
        if self.active.seq().is_multiple_of(CALLS_PER_POLL) {
            self.context.engine().progress_no_yield();
        }
        self.active.final_check(self.context)
    }

    #[inline]
    fn end(&mut self, error: Option<&Error>) {
        self.has_ended = true;
        if self.active.end(self.context, error) {
            flush_notices(self.context);
        }
    }
}

impl Drop for BlockingCall<'_> {
    /// Ends the call if a user function (an operation or a serializer) has panicked, and notifies the other ranks.
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(Some(&Error::new(ErrorClass::Other, self.active.name(), USER_PANIC)));
        }
    }
}

pub(crate) const USER_PANIC: &str = "a user function panicked";
