//! The course of a communicator's collectives: their numbers, and what is known of ranks that are not in step.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpj_devices::Envelope;
use mpj_devices::biased::Bias;

use super::context::Context;
use super::counts::CallSequence;
use super::label::{CallDigest, is_before, number_near};
use super::notice::{Cause, Notice};
use crate::error::{Error, ErrorClass, Result};

/// One call of a collective on this rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallId {
    /// What the user called, for errors.
    pub(crate) name: &'static str,
    /// Calls are numbered on every rank alike.
    pub(crate) number: u32,
    pub(crate) label: CallDigest,
}

/// How many early messages are looked at where it must be quick.
const FEW: usize = 16;

/// What one rank knows of the collectives of a communicator.
#[derive(Debug)]
pub(crate) struct CollState {
    counts: CallSequence,
    /// Whether `known` says anything.
    alert: AtomicBool,
    known: Mutex<NoticeLog>,
}

#[derive(Debug, Default)]
struct NoticeLog {
    /// Why no collective can run any more.
    broken: Option<Cause>,
    /// The first call of which somebody has said that it failed.
    first_failure: Option<(u32, Cause)>,
    /// Calls that were refused on this rank, and not yet on all others.
    rejected_here: Vec<(u32, Cause)>,
    /// Calls that were refused elsewhere, and by whom.
    rejected_elsewhere: Vec<(u32, u32, Cause)>,
    /// Who waits in which call.
    queries: Vec<(u32, u32, CallDigest)>,
    /// Who is past which call.
    completed: Vec<(u32, u32)>,
    /// What a call is about to fail with: since which call, and why if another rank has said it.
    origin: Option<(u32, Option<Cause>)>,
}

impl CollState {
    pub(super) fn new(bias: &Arc<Bias>) -> Self {
        CollState { counts: CallSequence::new(bias), alert: AtomicBool::new(false), known: Mutex::default() }
    }

    /// The numbers of the calls.
    #[inline]
    pub(super) fn counts(&self) -> &CallSequence {
        &self.counts
    }

    /// Whether anything is known that may concern a call.
    #[inline]
    pub(crate) fn has_notices(&self) -> bool {
        self.alert.load(Ordering::Relaxed)
    }

    fn log(&self) -> MutexGuard<'_, NoticeLog> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that collectives can run at all.
    #[inline]
    pub(crate) fn check_usable(&self, call: &'static str) -> Result<()> {
        if self.has_notices()
            && let Some(cause) = &self.log().broken
        {
            return Err(cause.to_disabled_error(call));
        }
        Ok(())
    }

    /// Ends the course; returns false if it had ended before.
    pub(crate) fn set_broken(&self, cause: &Cause) -> bool {
        let mut known = self.log();
        let news = known.broken.is_none();
        known.broken.get_or_insert_with(|| cause.clone());
        self.alert.store(true, Ordering::Relaxed);
        news
    }

    /// Notes that a call was refused here; returns false if no call can run any more.
    pub(crate) fn record_rejection(&self, number: u32, cause: &Cause) -> bool {
        let mut known = self.log();
        if known.broken.is_some() {
            return false;
        }
        known.rejected_here.push((number, cause.clone()));
        self.alert.store(true, Ordering::Relaxed);
        true
    }

    /// Returns a rank of `size` that has not said that it refused what was refused on rank `me`; none if all have, so that
    /// they are in step.
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

    /// Returns who has ended the call; what was said of calls that are over here is forgotten.
    pub(crate) fn take_completed_ranks(&self, number: u32) -> Vec<u32> {
        let mut known = self.log();
        let past = known.completed.extract_if(.., |(n, _)| *n == number).map(|(_, rank)| rank).collect();
        known.completed.retain(|(n, _)| self.counts.is_open(*n));
        past
    }

    /// Returns since which call what was found last is so, and why, in the words of the rank it began with.
    pub(crate) fn take_origin(&self) -> Option<(u32, Option<Cause>)> {
        self.log().origin.take()
    }

    /// Looks at what has come on a communicator that no receive waits for: notices, and what shows that the ranks are out
    /// of step. Messages of calls before `over` are left over. After a long wait it looks at all there is, and does not go
    /// on in a call if a later one is known to have failed.
    ///
    /// # Errors
    /// Why the call cannot go on.
    #[inline]
    pub(crate) fn check_notices(context: &Context, call: &CallId, over: u32, is_long: bool) -> Result<()> {
        if !is_long && !context.course().has_notices() && is_in_step(context, call, over) {
            return Ok(());
        }
        Self::look_closely(context, call, over, is_long)
    }

    #[cold]
    fn look_closely(context: &Context, call: &CallId, over: u32, is_long: bool) -> Result<()> {
        let (course, channel) = (context.course(), context.channel());
        let most = if is_long { usize::MAX } else { FEW };
        while let Some(message) = channel.take_early(most, |early| Notice::is_tag(early.tag)) {
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
        // An older call that is still under way, on another thread or driven by the engine, may have messages.
        let over = course.counts.is_oldest(call.number).then_some(over);
        match channel.find_early(most, |early| find_mismatch(early, call, over, is_long)) {
            Some((rank, number, label)) => Err(course.log().explain(call, rank, number, label)),
            None => Ok(()),
        }
    }
}

/// Whether all that has come early plainly belongs to this call, or to a later one, as nearly always where ranks are in
/// step: what is not told without a lock counts as no.
#[inline]
fn is_in_step(context: &Context, call: &CallId, over: u32) -> bool {
    let early = context.channel().early();
    let is_plain = |tag: i32| {
        let number = number_near(call.number, tag);
        !Notice::is_tag(tag)
            && !is_before(number, over)
            && (number != call.number || CallDigest::of(tag) == call.label)
    };
    early.queued == 0 || early.common_tag.is_some_and(is_plain)
}

/// Whether an early message shows that its sender is not in step: its sender, number and label.
fn find_mismatch(
    early: &Envelope,
    call: &CallId,
    over: Option<u32>,
    is_long: bool,
) -> Option<(u32, u32, CallDigest)> {
    let (number, label) = (number_near(call.number, early.tag), CallDigest::of(early.tag));
    // One of the same operation may still be received: then its length tells more.
    let is_other = number == call.number && label != call.label && (is_long || !label.is_like(call.label));
    let is_astray =
        !Notice::is_tag(early.tag) && (is_other || over.is_some_and(|over| is_before(number, over)));
    is_astray.then_some((early.source, number, label))
}

/// What a call fails with when it meets a message, or hears, of another one under its number.
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

    /// Holds a call whose arguments are good against what is known.
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
        // What was refused there, and not here, this rank has taken part in or takes part in now.
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

    /// Returns who waits in calls that are over here.
    fn late(&mut self, is_open: impl Fn(u32) -> bool) -> Vec<(u32, u32)> {
        self.queries.extract_if(.., |w| !is_open(w.0)).map(|w| (w.0, w.1)).collect()
    }

    /// Says what a message that is astray means.
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
