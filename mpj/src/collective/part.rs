//! One rank's part in one call of a collective, from its number to what the others are told of its end.

use std::time::Duration;

use mpj_devices::{Fault, Pattern};

use super::context::Context;
use super::course::{CallId, CollState};
use super::label::CallDigest;
use super::notice::{Cause, Notice};
use crate::error::{Error, Result};

/// How long a rank that has told the others something waits for that to be on its way.
const ON_ITS_WAY: Duration = Duration::from_millis(250);

/// One rank's part in one call.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ActiveCall {
    name: &'static str,
    number: u32,
    /// What is called, once the arguments are known to be good.
    call: Option<CallId>,
}

impl ActiveCall {
    /// Takes the number of a call, whatever follows.
    ///
    /// # Errors
    /// The ranks are out of step; the part has to be [ended](Self::end) all the same.
    #[inline]
    pub(crate) fn new(context: &Context, name: &'static str) -> (Self, Result<()>) {
        let part = ActiveCall { name, number: context.course().counts().next(), call: None };
        (part, context.course().check_usable(name))
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn number(&self) -> u32 {
        self.number
    }

    /// The call under a label.
    #[inline]
    pub(crate) fn call(&self, label: CallDigest) -> CallId {
        CallId { name: self.name, number: self.number, label }
    }

    /// Begins the call, whose arguments are good; returns whether it had begun before.
    #[inline]
    pub(crate) fn begin(&mut self, call: CallId) -> bool {
        self.call.replace(call).is_some()
    }

    /// Looks, after a refusal, whether all others have been refused, too; `None` while that is not known.
    #[cold]
    pub(crate) fn poll_refusals(&self, context: &Context) -> Option<Result<()>> {
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
        // No receive is posted that its end could fail.
        let pattern = Pattern { source: rank.cast_signed(), tag: i32::MIN };
        let probed = context.engine().iprobe(context.channel(), pattern);
        probed.err().map(|fault| Err(Error::fault(call.name, fault)))
    }

    /// Looks, at the end, for what should not be there.
    #[inline]
    pub(crate) fn close(&self, context: &Context) -> Result<()> {
        match (&self.call, context.channel().early().queued) {
            (None, _) | (_, 0) => Ok(()),
            (Some(call), _) => CollState::check_notices(context, call, call.number.wrapping_add(1), false),
        }
    }

    /// Ends the part, and tells the others of an error unless they know; returns whether they are being told.
    #[inline]
    pub(crate) fn end(&self, context: &Context, error: Option<&Error>) -> bool {
        context.course().counts().end(self.number);
        error.is_some_and(|error| self.report_failure(context, error))
    }

    #[cold]
    fn report_failure(&self, context: &Context, error: &Error) -> bool {
        let (course, engine) = (context.course(), context.engine());
        let me = engine.site().rank;
        // It came from a peer: it may be any number.
        if let Some(first) = error.first_failed().filter(|first| *first != me && *first < engine.site().size)
        {
            engine.roster().report_cause(me, first);
        }
        let is_known = match error.as_fault() {
            // The roster tells of deaths, and who took its message back tells why.
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

/// Waits a while for what the others are being told: the rank may make no call for long.
#[cold]
pub(crate) fn flush_notices(context: &Context) {
    context.engine().flush_for(ON_ITS_WAY);
}
