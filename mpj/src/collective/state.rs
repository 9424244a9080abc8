//! The state of a communicator's collective calls: their sequence numbers and the notices about them.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpj_devices::biased::Bias;
use mpj_devices::{Envelope, Fault, MessageTag};

use super::call_id::{CallDigest, CallId, decode_seq, is_before};
use super::context::CollContext;
use super::notice::{Cause, Notice};
use super::sequence::CallSequence;
use crate::error::{Error, ErrorClass, Result};

/// The maximum number of unexpected messages that a check inspects, unless `is_stalled`.
const MAX_QUICK_SCAN: usize = 16;

#[derive(Debug)]
pub(crate) struct CollState {
    sequence: CallSequence,
    /// Whether `log` can have entries other than `origin_seq`: set with each entry, cleared by a check that finds none.
    has_notices: AtomicBool,
    log: Mutex<NoticeLog>,
}

#[derive(Debug, Default)]
struct NoticeLog {
    /// The call by which the collectives of this communicator were disabled, and why. Earlier calls that are active
    /// continue, but fail after a stall.
    broken: Option<(u32, Cause)>,
    /// The earliest call that another rank has reported as failed, and the cause.
    first_failure: Option<(u32, Cause)>,
    /// Queries of waiting ranks: sequence number, rank, and the digest of the call on that rank.
    queries: Vec<(u32, u32, CallDigest)>,
    /// Calls that other ranks have completed: sequence number and rank.
    completed: Vec<(u32, u32)>,
    /// The earlier call that caused the error that a call is about to return.
    origin_seq: Option<u32>,
}

impl CollState {
    pub(super) fn new(bias: &Arc<Bias>) -> Self {
        CollState {
            sequence: CallSequence::new(bias),
            has_notices: AtomicBool::new(false),
            log: Mutex::default(),
        }
    }

    #[inline]
    pub(super) fn sequence(&self) -> &CallSequence {
        &self.sequence
    }

    #[inline]
    pub(crate) fn has_notices(&self) -> bool {
        self.has_notices.load(Ordering::Relaxed)
    }

    fn log(&self) -> MutexGuard<'_, NoticeLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    pub(crate) fn check_usable(&self, call: &'static str) -> Result<()> {
        if self.has_notices()
            && let Some((_, cause)) = &self.log().broken
        {
            return Err(cause.to_disabled_error(call));
        }
        Ok(())
    }

    /// Disables the collectives of this communicator from call `seq` on; returns false if they were disabled before.
    pub(crate) fn set_broken(&self, seq: u32, cause: &Cause) -> bool {
        let mut log = self.log();
        let is_first = log.broken.is_none();
        log.broken.get_or_insert_with(|| (seq, cause.clone()));
        self.has_notices.store(true, Ordering::Relaxed);
        is_first
    }

    /// Takes the ranks that have completed the call. Discards `Completed` notices about calls that have ended here.
    pub(crate) fn take_completed_ranks(&self, seq: u32) -> Vec<u32> {
        let mut log = self.log();
        let ranks = log.completed.extract_if(.., |(n, _)| *n == seq).map(|(_, rank)| rank).collect();
        log.completed.retain(|(n, _)| self.sequence.has_not_ended(*n));
        ranks
    }

    pub(crate) fn take_origin_seq(&self) -> Option<u32> {
        self.log().origin_seq.take()
    }

    /// Processes unexpected messages of the collectives: notices, and messages that show a mismatched call.
    ///
    /// In the oldest active call, a message of a call before `stale_before` is a mismatch. If `is_stalled`, all
    /// unexpected messages are inspected, and the call also fails if a later call is known to have failed.
    #[inline]
    pub(crate) fn check_notices(
        context: &CollContext,
        call: &CallId,
        stale_before: u32,
        is_stalled: bool,
    ) -> Result<()> {
        if !is_stalled && !context.coll_state().has_notices() && all_expected(context, call, stale_before) {
            return Ok(());
        }
        Self::check_notices_slow(context, call, stale_before, is_stalled)
    }

    #[cold]
    fn check_notices_slow(
        context: &CollContext,
        call: &CallId,
        stale_before: u32,
        is_stalled: bool,
    ) -> Result<()> {
        let (state, channel) = (context.coll_state(), context.channel());
        let max_scan = if is_stalled { usize::MAX } else { MAX_QUICK_SCAN };
        while let Some(message) =
            context.engine().take_unexpected(channel, max_scan, |unexpected| Notice::is_tag(unexpected.tag))
        {
            if let Some((rank, seq, notice)) = Notice::read(context, call.seq, message) {
                state.log().record(rank, seq, notice);
                state.has_notices.store(true, Ordering::Relaxed);
            }
        }
        if state.has_notices() {
            let stale = {
                let mut log = state.log();
                log.check_call(call, is_stalled)?;
                let stale = log.take_stale_queries(|seq| state.sequence.has_not_ended(seq));
                state.has_notices.store(log.is_nonempty(), Ordering::Relaxed);
                stale
            };
            for (seq, rank) in stale {
                Notice::Completed.send(context, seq, std::iter::once(rank));
            }
        }
        // Messages of an older call are legal while that call is active, on another thread or as a task.
        let stale_before = state.sequence.is_oldest(call.seq).then_some(stale_before);
        match channel
            .find_unexpected(max_scan, |unexpected| find_mismatch(unexpected, call, stale_before, is_stalled))
        {
            Some((rank, seq, digest)) => Err(match channel.broken() {
                // A death ends calls early, so their messages can be left.
                Some(fault @ Fault::Dead { .. }) => Error::from_fault(call.name, fault.clone()),
                _ => state.log().explain_mismatch(call, rank, seq, digest),
            }),
            None => Ok(()),
        }
    }
}

/// Returns true if all unexpected messages belong to calls from `stale_before` on and do not contradict this call. May
/// return false without inspecting each of them.
#[inline]
fn all_expected(context: &CollContext, call: &CallId, stale_before: u32) -> bool {
    let unexpected = context.channel().unexpected_counts();
    let is_expected = |MessageTag { tag, immediate }| {
        let seq = decode_seq(call.seq, tag);
        !Notice::is_tag(tag)
            && !is_before(seq, stale_before)
            && (seq != call.seq || immediate == call.digest.bits())
    };
    unexpected.queued == 0 || unexpected.common_tag.is_some_and(is_expected)
}

/// Returns the sender, sequence number and digest of an unexpected message if they show a mismatched call.
fn find_mismatch(
    unexpected: &Envelope,
    call: &CallId,
    stale_before: Option<u32>,
    is_stalled: bool,
) -> Option<(u32, u32, CallDigest)> {
    let seq = decode_seq(call.seq, unexpected.tag);
    let digest = CallDigest::from_bits(unexpected.immediate);
    // A message of the same collective might still match a receive, which gives a better error.
    let has_other_digest =
        seq == call.seq && digest != call.digest && (is_stalled || !digest.same_operation(call.digest));
    let is_mismatch = !Notice::is_tag(unexpected.tag)
        && (has_other_digest || stale_before.is_some_and(|stale_before| is_before(seq, stale_before)));
    is_mismatch.then_some((unexpected.source, seq, digest))
}

/// Returns the error of a call whose sequence number another rank uses for a different call.
pub(crate) fn mismatch_error(call: &CallId, rank: u32, digest: CallDigest) -> Error {
    let (rank, what) = (call.name_of(rank), digest.describe_mismatch(call.digest));
    Error::new(ErrorClass::Other, call.name, format!("{rank} {what}"))
}

impl NoticeLog {
    fn is_nonempty(&self) -> bool {
        self.broken.is_some()
            || self.first_failure.is_some()
            || !(self.queries.is_empty() && self.completed.is_empty())
    }

    fn record(&mut self, rank: u32, seq: u32, notice: Notice) {
        match notice {
            Notice::Failed(cause) => match &self.first_failure {
                Some((first, _)) if !is_before(seq, *first) => (),
                _ => self.first_failure = Some((seq, cause)),
            },
            Notice::Query(digest) => self.queries.push((seq, rank, digest)),
            Notice::Completed => self.completed.push((seq, rank)),
        }
    }

    fn check_call(&mut self, call: &CallId, is_stalled: bool) -> Result<()> {
        let concerns_call = |seq: u32| is_stalled || !is_before(call.seq, seq);
        if let Some((seq, cause)) = &self.broken
            && concerns_call(*seq)
        {
            return Err(cause.to_disabled_error(call.name));
        }
        if let Some((seq, cause)) = &self.first_failure
            && concerns_call(*seq)
        {
            let error = cause.to_error(call.name);
            self.broken.get_or_insert_with(|| (*seq, cause.clone()));
            return Err(error);
        }
        let (current, others) = std::mem::take(&mut self.queries).into_iter().partition(|q| q.0 == call.seq);
        self.queries = others;
        let current: Vec<(u32, u32, CallDigest)> = current;
        match current.iter().find(|(.., digest)| *digest != call.digest) {
            Some((_, rank, digest)) => Err(mismatch_error(call, *rank, *digest)),
            None => Ok(()),
        }
    }

    /// Takes the sequence numbers and ranks of the queries about calls that have ended here.
    fn take_stale_queries(&mut self, has_not_ended: impl Fn(u32) -> bool) -> Vec<(u32, u32)> {
        self.queries.extract_if(.., |q| !has_not_ended(q.0)).map(|q| (q.0, q.1)).collect()
    }

    fn explain_mismatch(&mut self, call: &CallId, rank: u32, seq: u32, digest: CallDigest) -> Error {
        if seq == call.seq && digest != call.digest {
            return mismatch_error(call, rank, digest);
        }
        self.origin_seq = Some(seq);
        let rank = call.name_of(rank);
        let why = format!("{rank} called {digest}; this rank called another collective at that point");
        Error::new(ErrorClass::Other, call.name, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notices_of_older_active_calls_are_not_discarded() {
        let state = CollState::new(&Bias::new());
        state.log().record(1, 0, Notice::Completed);
        state.log().record(2, 1, Notice::Completed);
        state.log().record(2, 0, Notice::Query(CallDigest::from_bits(0)));
        assert_eq!(state.take_completed_ranks(1), [2]);
        assert!(
            state.log().take_stale_queries(|seq| state.sequence.has_not_ended(seq)).is_empty(),
            "call 0 is active"
        );
        state.sequence.mark_ended(1);
        assert_eq!(state.take_completed_ranks(0), [1]);
        state.sequence.mark_ended(0);
        assert_eq!(state.log().take_stale_queries(|seq| state.sequence.has_not_ended(seq)), [(0, 2)]);
    }
}
