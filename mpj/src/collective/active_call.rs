//! One collective call on one rank, from the allocation of its sequence number to the report of its outcome.

use std::time::Duration;

use mpj_devices::{Fault, Pattern};

use super::call_tag::CallDigest;
use super::context::CollContext;
use super::notice::{Cause, Notice};
use super::state::{CallId, CollState};
use crate::error::{Error, Result};

/// The maximum time for which a failed call makes progress to send its notices.
const NOTICE_FLUSH_LIMIT: Duration = Duration::from_millis(250);

#[derive(Clone, Copy, Debug)]
pub(crate) struct ActiveCall {
    name: &'static str,
    seq: u32,
    /// Set by [`start`](Self::start).
    id: Option<CallId>,
}

impl ActiveCall {
    /// Allocates the sequence number of a call. Also returns an error if collectives are disabled; even then the call
    /// must be [ended](Self::end).
    #[inline]
    pub(crate) fn new(context: &CollContext, name: &'static str) -> (Self, Result<()>) {
        let active = ActiveCall { name, seq: context.coll_state().sequence().next(), id: None };
        (active, context.coll_state().check_usable(name))
    }

    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    pub(crate) fn seq(&self) -> u32 {
        self.seq
    }

    #[inline]
    pub(crate) fn id(&self, digest: CallDigest) -> CallId {
        CallId { name: self.name, seq: self.seq, digest }
    }

    /// Starts the call, whose arguments are valid; returns whether it was started before.
    #[inline]
    pub(crate) fn start(&mut self, call: CallId) -> bool {
        self.id.replace(call).is_some()
    }

    /// Checks whether all other ranks have also rejected the calls that this rank has rejected; `None` while that is
    /// unknown.
    #[cold]
    pub(crate) fn poll_rejections(&self, context: &CollContext) -> Option<Result<()>> {
        let Some(call) = &self.id else { return Some(Ok(())) };
        let state = context.coll_state();
        let unconfirmed = || {
            if state.has_notices() {
                state.next_unconfirmed_rank(context.size(), context.rank())
            } else {
                None
            }
        };
        if unconfirmed().is_none() {
            return Some(Ok(()));
        }
        if let Err(error) = CollState::check_notices(context, call, call.seq, true) {
            return Some(Err(error));
        }
        let Some(rank) = unconfirmed() else { return Some(Ok(())) };
        // This wait has no posted receive that would fail when the rank exits, so probe instead.
        let pattern = Pattern { source: rank.cast_signed(), tag: i32::MIN };
        let probed = context.engine().iprobe(context.channel(), pattern);
        probed.err().map(|fault| Err(Error::from_fault(call.name, fault)))
    }

    /// Checks after the last step for notices, and for unreceived messages of this call or of earlier ones.
    #[inline]
    pub(crate) fn final_check(&self, context: &CollContext) -> Result<()> {
        match (&self.id, context.channel().unexpected_counts().queued) {
            (None, _) | (_, 0) => Ok(()),
            (Some(call), _) => CollState::check_notices(context, call, call.seq.wrapping_add(1), false),
        }
    }

    /// Ends the call. Reports an error to the other ranks if they do not learn of it otherwise. Returns whether notices
    /// were sent.
    #[inline]
    pub(crate) fn end(&self, context: &CollContext, error: Option<&Error>) -> bool {
        context.coll_state().sequence().mark_ended(self.seq);
        error.is_some_and(|error| self.report_failure(context, error))
    }

    #[cold]
    fn report_failure(&self, context: &CollContext, error: &Error) -> bool {
        let (state, engine) = (context.coll_state(), context.engine());
        let me = engine.site().rank;
        // The rank can come from a peer's notice, so it might be invalid.
        if let Some(first) = error.origin_rank().filter(|first| *first != me && *first < engine.site().size) {
            engine.roster().report_cause(me, first);
        }
        let others_know = match error.as_fault() {
            // The other ranks learn of a death from the roster, and of a cancelled send from its sender.
            Some(Fault::Dead { .. }) => return false,
            Some(Fault::SendCancelled { .. }) => true,
            _ => context.size() == 1,
        };
        let (seq, cause) = state.take_origin().unwrap_or((self.seq, None));
        let cause =
            cause.unwrap_or_else(|| Cause::from_error(&format!("rank {}", context.rank()), me, error));
        let notice = if self.id.is_some() {
            (state.set_broken(&cause) && !others_know).then_some(Notice::Failed(cause))
        } else {
            (!others_know && state.record_rejection(seq, &cause)).then_some(Notice::Rejected(cause))
        };
        let Some(notice) = notice else { return false };
        notice.send(context, seq, (0..context.size()).filter(|rank| *rank != context.rank()));
        true
    }
}

/// Makes progress until the notices are sent, up to a limit, because this rank might not make another call for long.
#[cold]
pub(crate) fn flush_notices(context: &CollContext) {
    context.engine().drain_for(NOTICE_FLUSH_LIMIT);
}
