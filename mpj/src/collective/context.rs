//! The state that the collectives of a communicator share.

use std::sync::Arc;
use std::time::Duration;

use mpj_collectives::{Rules, Step};
use mpj_devices::biased::Mutex;
use mpj_devices::{Calls, Channel, Engine, Fault, PeerId};

use super::call_id::{CallDigest, CallId, RankName};
use super::notice::{Cause, Notice};
use super::schedule::Pending;
use super::state::CollState;
use crate::error::{Error, Result};

/// The maximum time for which a failed call makes progress to send its notices.
const NOTICE_FLUSH_LIMIT: Duration = Duration::from_millis(250);

/// The channel of a communicator's collectives, which separates their messages from the user's, the state of their
/// calls, and the rules by which they select algorithms. The channel is freed with the last handle, because active
/// calls can outlive the communicator.
#[derive(Debug)]
pub(crate) struct CollContext {
    engine: Arc<Engine>,
    channel: Arc<Channel>,
    rank: u32,
    size: u32,
    host_count: u32,
    /// The number of ranks of the first group in the channel of two groups.
    first_group_size: Option<u32>,
    state: CollState,
    rules: Arc<Rules>,
    /// Empty vectors, so that a call need not allocate.
    scratch: Mutex<(Vec<Step>, Vec<Pending>)>,
}

/// The maximum number of steps for which a communicator keeps memory between calls.
const MAX_KEPT_STEPS: usize = 256;

impl CollContext {
    pub(crate) fn new(
        engine: Arc<Engine>,
        channel: Arc<Channel>,
        host_count: u32,
        first_group_size: Option<u32>,
        rules: Arc<Rules>,
    ) -> Self {
        let (rank, size) = (channel.rank(), channel.group().size());
        let (state, scratch) = (CollState::new(engine.bias()), Mutex::new(engine.bias(), Default::default()));
        CollContext { engine, channel, rank, size, host_count, first_group_size, state, rules, scratch }
    }

    #[inline]
    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    #[inline]
    pub(crate) fn channel(&self) -> &Arc<Channel> {
        &self.channel
    }

    #[inline]
    pub(crate) fn rank(&self) -> u32 {
        self.rank
    }

    #[inline]
    pub(crate) fn size(&self) -> u32 {
        self.size
    }

    #[inline]
    pub(crate) fn host_count(&self) -> u32 {
        self.host_count
    }

    #[inline]
    pub(crate) fn call_id(&self, name: &'static str, seq: u32, digest: CallDigest) -> CallId {
        CallId { name, seq, digest, first_group_size: self.first_group_size }
    }

    #[inline]
    pub(crate) fn rules(&self) -> &Arc<Rules> {
        &self.rules
    }

    #[inline]
    pub(crate) fn coll_state(&self) -> &CollState {
        &self.state
    }

    /// Returns an empty vector for the steps of a call.
    #[inline]
    pub(crate) fn take_steps(&self) -> Vec<Step> {
        std::mem::take(&mut self.scratch.lock().0)
    }

    /// Returns an empty vector for the operations of a call.
    #[inline]
    pub(crate) fn take_pending(&self) -> Vec<Pending> {
        std::mem::take(&mut self.scratch.lock().1)
    }

    /// Keeps the memory of two vectors for the next call, unless they are long.
    #[inline]
    pub(crate) fn recycle(&self, mut steps: Vec<Step>, mut pending: Vec<Pending>) {
        if steps.capacity().max(pending.capacity()) <= MAX_KEPT_STEPS {
            steps.clear();
            pending.clear();
            *self.scratch.lock() = (steps, pending);
        }
    }

    /// Allocates the sequence number of a call. Also returns an error if collectives are disabled; even then the call
    /// must be [ended](Self::end_call).
    #[inline]
    pub(crate) fn begin_call(&self, name: &'static str) -> (u32, Result<()>) {
        (self.state.sequence().next(), self.state.check_usable(name))
    }

    /// Checks after the last step of a call for notices, and for unreceived messages of this call or of earlier ones.
    #[inline]
    pub(crate) fn final_check(&self, call: &CallId) -> Result<()> {
        match self.channel.unexpected_counts().queued {
            0 => Ok(()),
            _ => CollState::check_notices(self, call, call.seq.wrapping_add(1), false),
        }
    }

    /// Ends a call. If it failed, except by the death of a member, disables the collectives of a communicator of
    /// several ranks on this rank. Notifies the other ranks if they do not learn of the error otherwise. Returns
    /// whether notices were sent.
    #[inline]
    pub(crate) fn end_call(&self, seq: u32, error: Option<&Error>) -> bool {
        self.state.sequence().mark_ended(seq);
        error.is_some_and(|error| self.report_failure(seq, error))
    }

    #[cold]
    fn report_failure(&self, seq: u32, error: &Error) -> bool {
        let site = self.engine.site();
        // The rank can come from a peer's notice, so it might be invalid.
        if let Some(first) = error.origin_rank().filter(|first| *first != site.rank && *first < site.size) {
            self.engine.roster().report_cause(site.rank, first);
        }
        // The other ranks learn of a member's death from the roster, and of a cancelled send from its sender. A single
        // rank cannot be out of step.
        let is_member = |rank| self.channel.group().rank(PeerId(rank)).is_some();
        if matches!(error.as_fault(), Some(Fault::Dead { rank, .. }) if is_member(*rank)) || self.size == 1 {
            return false;
        }
        let seq = self.state.take_origin_seq().unwrap_or(seq);
        let own_name = RankName { rank: self.rank, first_group_size: self.first_group_size };
        let cause = Cause::from_error(&own_name.to_string(), site.rank, error);
        let is_first = self.state.set_broken(seq, &cause);
        if !is_first || matches!(error.as_fault(), Some(Fault::SendCancelled { .. })) {
            return false;
        }
        Notice::Failed(cause).send(self, seq, (0..self.size).filter(|rank| *rank != self.rank));
        true
    }

    /// Makes progress until the notices are sent, up to a limit, because this rank might not make another call for
    /// long.
    #[cold]
    pub(crate) fn flush_notices(&self) {
        self.engine.drain_for(NOTICE_FLUSH_LIMIT);
    }
}

impl Calls for CollContext {
    fn next(&self) -> u32 {
        self.state.sequence().peek_next()
    }
}

impl Drop for CollContext {
    fn drop(&mut self) {
        self.engine.free(&self.channel);
    }
}
