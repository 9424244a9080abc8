//! Blocking collective calls.

use super::call_id::CallDigest;
use super::context::CollContext;
use super::plan::Plan;
use super::schedule::Schedule;
use super::state::CollState;
use crate::error::{Error, ErrorClass, Result};

/// A successful call whose sequence number is a multiple of this number makes progress at its end. So a rank that only
/// sends makes progress, too.
const CALLS_PER_POLL: u32 = 16;

/// A blocking call in progress. It runs one plan or several, which have the same digest.
#[derive(Debug)]
pub(crate) struct BlockingCall<'a> {
    context: &'a CollContext,
    name: &'static str,
    seq: u32,
    /// The digest of the plans; `None` before the first.
    digest: Option<CallDigest>,
    has_ended: bool,
}

/// Runs a collective call: `body` checks its arguments, and then runs its plans. Reports an error to the other ranks.
pub(crate) fn run_blocking<T>(
    context: &CollContext,
    name: &'static str,
    body: impl FnOnce(&mut BlockingCall<'_>) -> Result<T>,
) -> Result<T> {
    let (seq, checked) = context.begin_call(name);
    let mut blocking = BlockingCall { context, name, seq, digest: None, has_ended: false };
    let outcome = checked.and_then(|()| body(&mut blocking));
    let outcome = outcome.and_then(|value| blocking.final_check().map(|()| value));
    blocking.end(outcome.as_ref().err());
    outcome.map_err(|error| error.on(context.channel()))
}

impl BlockingCall<'_> {
    pub(crate) fn rank(&self) -> u32 {
        self.context.rank()
    }

    pub(crate) fn size(&self) -> u32 {
        self.context.size()
    }

    pub(crate) fn seq(&self) -> u32 {
        self.seq
    }

    /// Runs a plan until it completes.
    ///
    /// # Safety
    /// The contract of [`Schedule::new`].
    #[inline]
    pub(crate) unsafe fn run(&mut self, plan: Plan<'_>) -> Result<()> {
        let Some(trace) = self.context.engine().trace() else {
            // SAFETY: the caller's contract.
            return unsafe { self.run_untraced(plan) };
        };
        let (begun, items) = (trace.now(), plan.items());
        // SAFETY: as above.
        let outcome = unsafe { self.run_untraced(plan) };
        trace.collective(begun, self.name, self.context.channel(), items, outcome.is_err());
        outcome
    }

    /// # Safety
    /// As [`run`](Self::run).
    unsafe fn run_untraced(&mut self, plan: Plan<'_>) -> Result<()> {
        let call = self.context.call_id(self.name, self.seq, plan.digest);
        // SAFETY: the caller's contract; `run` returns after the schedule has completed.
        let mut schedule = unsafe { Schedule::new(self.context, call, plan) };
        schedule.allocate()?;
        if self.digest.replace(call.digest).is_none() {
            CollState::check_notices(self.context, &call, call.seq, false)?;
        }
        schedule.run()
    }

    #[inline]
    fn final_check(&self) -> Result<()> {
        if self.seq.is_multiple_of(CALLS_PER_POLL) {
            self.context.engine().progress_no_yield();
        }
        match self.digest {
            Some(digest) => self.context.final_check(&self.context.call_id(self.name, self.seq, digest)),
            None => Ok(()),
        }
    }

    #[inline]
    fn end(&mut self, error: Option<&Error>) {
        self.has_ended = true;
        if self.context.end_call(self.seq, error) {
            self.context.flush_notices();
        }
    }
}

impl Drop for BlockingCall<'_> {
    /// Ends the call if a user function (an operation or a serializer) has panicked, and notifies the other ranks.
    fn drop(&mut self) {
        if !self.has_ended {
            self.end(Some(&Error::new(ErrorClass::Other, self.name, USER_PANIC)));
        }
    }
}

pub(crate) const USER_PANIC: &str = "a user function panicked";
