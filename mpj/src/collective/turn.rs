//! A blocking collective call on one rank.

use super::context::CollContext;
use super::course::CollState;
use super::label::{CallDigest, is_meeting};
use super::part::{ActiveCall, flush_notices};
use super::plan::Plan;
use super::schedule::Schedule;
use crate::error::{Error, ErrorClass, Result};

/// Every call whose number is a multiple of this makes progress at its end, even on a rank that only sends.
const SELDOM: u32 = 16;

/// A collective call on one rank, until it returns.
#[derive(Debug)]
pub(crate) struct BlockingCall<'a> {
    context: &'a CollContext,
    part: ActiveCall,
    is_over: bool,
}

/// Runs a collective call: `body` checks its arguments, and then runs its plans.
///
/// The sequence number is allocated first, in any case, and an error is reported to the other ranks.
///
/// # Errors
/// Those of `body`; another rank has failed; the ranks are out of step.
pub(crate) fn run_blocking<T>(
    context: &CollContext,
    name: &'static str,
    body: impl FnOnce(&mut BlockingCall<'_>) -> Result<T>,
) -> Result<T> {
    let (part, checked) = ActiveCall::new(context, name);
    let mut turn = BlockingCall { context, part, is_over: false };
    let outcome = checked.and_then(|()| body(&mut turn));
    let outcome = outcome.and_then(|value| turn.close().map(|()| value));
    turn.end(outcome.as_ref().err());
    outcome
}

impl BlockingCall<'_> {
    pub(crate) fn rank(&self) -> u32 {
        self.context.rank()
    }

    pub(crate) fn size(&self) -> u32 {
        self.context.size()
    }

    /// Returns the state of the call.
    pub(crate) fn part(&self) -> ActiveCall {
        self.part
    }

    /// Runs a plan until it completes. All plans of one call have the same digest.
    ///
    /// # Safety
    /// The contract of [`Schedule::new`].
    #[inline]
    pub(crate) unsafe fn run(&mut self, label: CallDigest, plan: Plan<'_>) -> Result<()> {
        let Some(trace) = self.context.engine().trace() else {
            // SAFETY: the caller's contract.
            return unsafe { self.go(label, plan) };
        };
        let (begun, items, name) = (trace.now(), plan.items(), self.part.name());
        // SAFETY: as above.
        let outcome = unsafe { self.go(label, plan) };
        trace.collective(begun, name, self.context.channel(), items, outcome.is_err());
        outcome
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn go(&mut self, label: CallDigest, plan: Plan<'_>) -> Result<()> {
        let call = self.part.call(label);
        // SAFETY: the caller's contract; `run` returns after the schedule has completed.
        let mut schedule = unsafe { Schedule::new(self.context, call, plan) };
        schedule.allocate()?;
        if !self.part.begin(call) {
            CollState::check_notices(self.context, &call, call.number, false)?;
            if self.context.course().has_notices() {
                let BlockingCall { context, part, .. } = self;
                context.engine().wait_until(|| part.poll_refusals(context))?;
            }
            if is_meeting(call.number) {
                schedule.meet();
            }
        }
        schedule.run()
    }

    #[inline]
    fn close(&self) -> Result<()> {
        if self.part.number().is_multiple_of(SELDOM) {
            self.context.engine().progress_no_yield();
        }
        self.part.close(self.context)
    }

    #[inline]
    fn end(&mut self, error: Option<&Error>) {
        self.is_over = true;
        if self.part.end(self.context, error) {
            flush_notices(self.context);
        }
    }
}

impl Drop for BlockingCall<'_> {
    /// Ends the call if a function of the user has panicked, so that the other ranks do not wait for this one.
    fn drop(&mut self) {
        if !self.is_over {
            self.end(Some(&Error::new(ErrorClass::Other, self.part.name(), PANICKED)));
        }
    }
}

/// The error text of a call in which a function of the user has panicked.
pub(crate) const PANICKED: &str = "a function of the user's panicked";
