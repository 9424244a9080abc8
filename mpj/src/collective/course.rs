//! The state of a communicator's collective calls: their sequence numbers, and the notices about ranks that are out of
//! step.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpj_devices::Envelope;
use mpj_devices::biased::Bias;

use super::context::CollContext;
use super::counts::CallSequence;
use super::label::{CallDigest, is_before, number_near};
use super::notice::{Cause, Notice};
use crate::error::{Error, ErrorClass, Result};

/// The identity of one collective call on this rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallId {
    /// The name of the call in errors.
    pub(crate) name: &'static str,
    /// The sequence number; every rank gives the same call the same number.
    pub(crate) number: u32,
    pub(crate) label: CallDigest,
}

/// The number of unexpected messages that the fast checks inspect.
const FEW: usize = 16;

/// The state of a communicator's collectives on one rank.
#[derive(Debug)]
pub(crate) struct CollState {
    counts: CallSequence,
    /// Whether `known` has entries.
    alert: AtomicBool,
    known: Mutex<NoticeLog>,
}

#[derive(Debug, Default)]
struct NoticeLog {
    /// Why the collectives of this communicator are disabled.
    broken: Option<Cause>,
    /// The first call that another rank has reported as failed.
    first_failure: Option<(u32, Cause)>,
    /// Calls that were rejected on this rank, and not yet on all others.
    rejected_here: Vec<(u32, Cause)>,
    /// Calls that were rejected on other ranks: sequence number, rank and cause.
    rejected_elsewhere: Vec<(u32, u32, Cause)>,
    /// Queries of waiting ranks: sequence number, rank and digest of the call.
    queries: Vec<(u32, u32, CallDigest)>,
    /// Completed calls of other ranks: sequence number and rank.
    completed: Vec<(u32, u32)>,
    /// The origin of the error that a call is about to return: the number of the call that caused it, and the cause if
    /// another rank reported it.
    origin: Option<(u32, Option<Cause>)>,
}

impl CollState {
    pub(super) fn new(bias: &Arc<Bias>) -> Self {
        CollState { counts: CallSequence::new(bias), alert: AtomicBool::new(false), known: Mutex::default() }
    }

    /// Returns the sequence numbers of the calls.
    #[inline]
    pub(super) fn counts(&self) -> &CallSequence {
        &self.counts
    }

    /// Returns whether there are notices that may concern a call.
    #[inline]
    pub(crate) fn has_notices(&self) -> bool {
        self.alert.load(Ordering::Relaxed)
    }

    fn log(&self) -> MutexGuard<'_, NoticeLog> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that collectives are not disabled.
    #[inline]
    pub(crate) fn check_usable(&self, call: &'static str) -> Result<()> {
        if self.has_notices()
            && let Some(cause) = &self.log().broken
        {
            return Err(cause.to_disabled_error(call));
        }
        Ok(())
    }

    /// Disables the collectives of this communicator; returns false if they were disabled before.
    pub(crate) fn set_broken(&self, cause: &Cause) -> bool {
        let mut known = self.log();
        let news = known.broken.is_none();
        known.broken.get_or_insert_with(|| cause.clone());
        self.alert.store(true, Ordering::Relaxed);
        news
    }

    /// Records that a call was rejected on this rank; returns false if collectives are disabled.
    pub(crate) fn record_rejection(&self, number: u32, cause: &Cause) -> bool {
        let mut known = self.log();
        if known.broken.is_some() {
            return false;
        }
        known.rejected_here.push((number, cause.clone()));
        self.alert.store(true, Ordering::Relaxed);
        true
    }

    /// Returns a rank of `size` that has not reported the rejection of a call that rank `me` rejected; `None` if all
    /// have, so that the ranks are in step.
    pub(crate) fn next_unconfirmed_rank(&self, size: u32, me: u32) -> Option<u32> {
        let mut known = self.log();
        let NoticeLog { rejected_here: refused_here, rejected_elsewhere: refused_there, .. } = &mut *known;
        while let Some((number, _)) = refused_here.first() {
            let told = |rank: u32| refused_there.iter().any(|(n, r, _)| n == number && *r == rank);
            if let Some(rank) = (0..size).find(|rank| *rank != me && !told(*rank)) {
                return Some(rank);
            }
            refused_there.retain(|(n, ..)| n != number);
            refused_here.remove(0);
        }
        self.alert.store(known.says_anything(), Ordering::Relaxed);
        None
    }

    /// Returns the ranks that have completed the call, and discards such reports about calls that are complete on this
    /// rank.
    pub(crate) fn take_completed_ranks(&self, number: u32) -> Vec<u32> {
        let mut known = self.log();
        let past = known.completed.extract_if(.., |(n, _)| *n == number).map(|(_, rank)| rank).collect();
        known.completed.retain(|(n, _)| self.counts.is_open(*n));
        past
    }

    /// Takes the origin of the last error: the number of the call that caused it, and the cause as the failing rank
    /// reported it.
    pub(crate) fn take_origin(&self) -> Option<(u32, Option<Cause>)> {
        self.log().origin.take()
    }

    /// Processes the unexpected messages of the collectives: notices, and messages that show that the ranks are out of
    /// step.
    ///
    /// Messages of calls before `over` should not exist any more. After a long wait (`is_long`) all unexpected messages
    /// are inspected, and the call fails even if only a later call is known to have failed.
    ///
    /// # Errors
    /// The reason why the call cannot continue.
    #[inline]
    pub(crate) fn check_notices(
        context: &CollContext,
        call: &CallId,
        over: u32,
        is_long: bool,
    ) -> Result<()> {
        if !is_long && !context.course().has_notices() && is_in_step(context, call, over) {
            return Ok(());
        }
        Self::look_closely(context, call, over, is_long)
    }

    #[cold]
    fn look_closely(context: &CollContext, call: &CallId, over: u32, is_long: bool) -> Result<()> {
        let (course, channel) = (context.course(), context.channel());
        let most = if is_long { usize::MAX } else { FEW };
        while let Some(message) = channel.take_unexpected(most, |early| Notice::is_tag(early.tag)) {
            if let Some((rank, number, notice)) = Notice::read(context.engine(), call.number, message) {
                course.log().file(rank, number, notice);
                course.alert.store(true, Ordering::Relaxed);
            }
        }
        if course.has_notices() {
            let late = {
                let mut known = course.log();
                known.check_call(call, is_long)?;
                let late = known.late(|number| course.counts.is_open(number));
                course.alert.store(known.says_anything(), Ordering::Relaxed);
                late
            };
            for (number, rank) in late {
                Notice::Completed.send(context, number, std::iter::once(rank));
            }
        }
        // Messages of an older call are legal if that call is still active, on another thread or as a task of the
        // engine.
        let over = course.counts.is_oldest(call.number).then_some(over);
        match channel.find_unexpected(most, |early| find_mismatch(early, call, over, is_long)) {
            Some((rank, number, label)) => Err(course.log().explain(call, rank, number, label)),
            None => Ok(()),
        }
    }
}

/// Returns whether all unexpected messages clearly belong to this call or to a later one, which is nearly always so if
/// the ranks are in step. If that cannot be decided without a lock, returns false.
#[inline]
fn is_in_step(context: &CollContext, call: &CallId, over: u32) -> bool {
    let early = context.channel().unexpected_counts();
    let is_plain = |tag: i32| {
        let number = number_near(call.number, tag);
        !Notice::is_tag(tag)
            && !is_before(number, over)
            && (number != call.number || CallDigest::of(tag) == call.label)
    };
    early.queued == 0 || early.common_tag.is_some_and(is_plain)
}

/// Returns the sender, number and digest of an unexpected message that shows that its sender is out of step.
fn find_mismatch(
    early: &Envelope,
    call: &CallId,
    over: Option<u32>,
    is_long: bool,
) -> Option<(u32, u32, CallDigest)> {
    let (number, label) = (number_near(call.number, early.tag), CallDigest::of(early.tag));
    // A message of the same operation may still match a receive; then its length makes a better error.
    let is_other = number == call.number && label != call.label && (is_long || !label.is_like(call.label));
    let is_astray =
        !Notice::is_tag(early.tag) && (is_other || over.is_some_and(|over| is_before(number, over)));
    is_astray.then_some((early.source, number, label))
}

/// Returns the error of a call whose number another rank uses for a different call.
pub(crate) fn other_call(call: &CallId, rank: u32, label: CallDigest) -> Error {
    Error::new(ErrorClass::Other, call.name, format!("rank {rank} {}", label.against(call.label)))
}

impl NoticeLog {
    fn says_anything(&self) -> bool {
        self.broken.is_some()
            || self.first_failure.is_some()
            || !(self.rejected_here.is_empty() && self.rejected_elsewhere.is_empty())
            || !(self.queries.is_empty() && self.completed.is_empty())
    }

    fn file(&mut self, rank: u32, number: u32, notice: Notice) {
        match notice {
            Notice::Failed(cause) => match &self.first_failure {
                Some((first, _)) if !is_before(number, *first) => (),
                _ => self.first_failure = Some((number, cause)),
            },
            Notice::Rejected(cause) => self.rejected_elsewhere.push((number, rank, cause)),
            Notice::Query(label) => self.queries.push((number, rank, label)),
            Notice::Completed => self.completed.push((number, rank)),
        }
    }

    /// Checks a call, whose arguments are valid, against the notices.
    fn check_call(&mut self, call: &CallId, is_long: bool) -> Result<()> {
        if let Some(cause) = &self.broken {
            return Err(cause.to_disabled_error(call.name));
        }
        let is_reached = |number: u32| !is_before(call.number, number);
        if let Some((number, cause)) = &self.first_failure
            && (is_long || is_reached(*number))
        {
            let error = cause.error(call.name);
            self.broken = Some(cause.clone());
            return Err(error);
        }
        // This rank takes, or took, part in a call that another rank rejected and this one did not.
        let here = |number: u32| self.rejected_here.iter().any(|(n, _)| *n == number);
        if let Some((number, _, cause)) =
            self.rejected_elsewhere.iter().find(|(number, ..)| is_reached(*number) && !here(*number))
        {
            self.origin = Some((*number, Some(cause.clone())));
            return Err(cause.error(call.name));
        }
        let (now, later) = std::mem::take(&mut self.queries).into_iter().partition(|w| w.0 == call.number);
        self.queries = later;
        let now: Vec<(u32, u32, CallDigest)> = now;
        match now.iter().find(|(.., label)| *label != call.label) {
            Some((_, rank, label)) => Err(other_call(call, *rank, *label)),
            None => Ok(()),
        }
    }

    /// Removes and returns the queries about calls that are complete on this rank.
    fn late(&mut self, is_open: impl Fn(u32) -> bool) -> Vec<(u32, u32)> {
        self.queries.extract_if(.., |w| !is_open(w.0)).map(|w| (w.0, w.1)).collect()
    }

    /// Returns the error that a mismatching message means.
    fn explain(&mut self, call: &CallId, rank: u32, number: u32, label: CallDigest) -> Error {
        if number == call.number && label != call.label {
            return other_call(call, rank, label);
        }
        if let Some((_, cause)) = self.rejected_here.iter().find(|(n, _)| *n == number) {
            self.origin = Some((number, Some(cause.clone())));
            return cause.error(call.name);
        }
        self.origin = Some((number, None));
        let why = format!("rank {rank} has called {label} where this rank called something else before");
        Error::new(ErrorClass::Other, call.name, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_an_open_call_is_kept_while_a_younger_one_looks() {
        let course = CollState::new(&Bias::new());
        course.log().file(1, 0, Notice::Completed);
        course.log().file(2, 1, Notice::Completed);
        course.log().file(2, 0, Notice::Query(CallDigest::from_bits(0)));
        assert_eq!(course.take_completed_ranks(1), [2]);
        assert!(course.log().late(|number| course.counts.is_open(number)).is_empty(), "call 0 is open");
        course.counts.end(1);
        assert_eq!(course.take_completed_ranks(0), [1]);
        course.counts.end(0);
        assert_eq!(course.log().late(|number| course.counts.is_open(number)), [(0, 2)]);
    }
}
