//! One collective call on one rank, from the allocation of its sequence number to the report of its outcome.

use std::time::Duration;

use mpj_devices::{Fault, Pattern};

use super::context::CollContext;
use super::course::{CallId, CollState};
use super::label::CallDigest;
use super::notice::{Cause, Notice};
use crate::error::{Error, Result};

/// How long a rank makes progress for the notices that it has sent.
const ON_ITS_WAY: Duration = Duration::from_millis(250);

/// One collective call on one rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActiveCall {
    name: &'static str,
    number: u32,
    /// The identity of the call, after its arguments were found valid.
    call: Option<CallId>,
}

impl ActiveCall {
    /// Allocates the sequence number of a call, even if the call then fails.
    ///
    /// # Errors
    /// The ranks are out of step; the call must be [ended](Self::end) nevertheless.
    #[inline]
    pub(crate) fn new(context: &CollContext, name: &'static str) -> (Self, Result<()>) {
        let part = ActiveCall { name, number: context.course().counts().next(), call: None };
        (part, context.course().check_usable(name))
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// Returns the identity of the call with a digest.
    #[inline]
    pub(crate) fn call(&self, label: CallDigest) -> CallId {
        CallId { name: self.name, number: self.number, label }
    }

    /// Starts the call, whose arguments are valid; returns whether it had been started before.
    #[inline]
    pub(crate) fn begin(&mut self, call: CallId) -> bool {
        self.call.replace(call).is_some()
    }

    /// Checks, after this rank has rejected a call, whether all others have rejected it as well; `None` while that is
    /// unknown.
    #[cold]
    pub(crate) fn poll_refusals(&self, context: &CollContext) -> Option<Result<()>> {
        let Some(call) = &self.call else { return Some(Ok(())) };
        let course = context.course();
        let awaited = || {
            if course.has_notices() {
                course.next_unconfirmed_rank(context.size(), context.rank())
            } else {
                None
            }
        };
        if awaited().is_none() {
            return Some(Ok(()));
        }
        if let Err(error) = CollState::check_notices(context, call, call.number, true) {
            return Some(Err(error));
        }
        let Some(rank) = awaited() else { return Some(Ok(())) };
        // No receive is posted that the rank's exit could fail, so probe to learn of an exit.
        let pattern = Pattern { source: rank.cast_signed(), tag: i32::MIN };
        let probed = context.engine().iprobe(context.channel(), pattern);
        probed.err().map(|fault| Err(Error::from_fault(call.name, fault)))
    }

    /// Checks, after the last step, for notices and for messages of this call that were not received.
    #[inline]
    pub(crate) fn close(&self, context: &CollContext) -> Result<()> {
        match (&self.call, context.channel().unexpected_counts().queued) {
            (None, _) | (_, 0) => Ok(()),
            (Some(call), _) => CollState::check_notices(context, call, call.number.wrapping_add(1), false),
        }
    }

    /// Ends the call, and reports an error to the other ranks unless they know it; returns whether notices were sent.
    #[inline]
    pub(crate) fn end(&self, context: &CollContext, error: Option<&Error>) -> bool {
        context.course().counts().end(self.number);
        error.is_some_and(|error| self.report_failure(context, error))
    }

    #[cold]
    fn report_failure(&self, context: &CollContext, error: &Error) -> bool {
        let (course, engine) = (context.course(), context.engine());
        let me = engine.site().rank;
        // The number came from a peer and may be invalid.
        if let Some(first) = error.origin_rank().filter(|first| *first != me && *first < engine.site().size) {
            engine.roster().report_cause(me, first);
        }
        let is_known = match error.as_fault() {
            // The roster reports deaths, and a rank that cancels its send reports the reason itself.
            Some(Fault::Dead { .. } | Fault::Unreachable { .. }) => return false,
            Some(Fault::SendCancelled { .. }) => true,
            _ => context.size() == 1,
        };
        let (number, cause) = course.take_origin().unwrap_or((self.number, None));
        let cause = cause.unwrap_or_else(|| Cause::of(&format!("rank {}", context.rank()), me, error));
        let notice = if self.call.is_some() {
            (course.set_broken(&cause) && !is_known).then_some(Notice::Failed(cause))
        } else {
            (!is_known && course.record_rejection(number, &cause)).then_some(Notice::Rejected(cause))
        };
        let Some(notice) = notice else { return false };
        notice.send(context, number, (0..context.size()).filter(|rank| *rank != context.rank()));
        true
    }
}

/// Makes progress for a while so that the notices are sent: this rank might not make another call for long.
#[cold]
pub(crate) fn flush_notices(context: &CollContext) {
    context.engine().drain_for(ON_ITS_WAY);
}
