//! The course of a communicator's collectives: their numbers, and what is known of ranks that are not in step.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use mpj_devices::Envelope;
use mpj_devices::biased::Bias;

use super::context::Context;
use super::counts::Counts;
use super::label::{Label, is_before, number_near};
use super::notice::{Cause, Notice};
use crate::error::{Class, Error, Result};

/// One call of a collective on this rank.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Call {
    /// What the user called, for errors.
    pub(crate) name: &'static str,
    /// Calls are numbered on every rank alike.
    pub(crate) number: u32,
    pub(crate) label: Label,
}

/// How many early messages are looked at where it must be quick.
const FEW: usize = 16;

/// What one rank knows of the collectives of a communicator.
#[derive(Debug)]
pub(crate) struct Course {
    counts: Counts,
    /// Whether `known` says anything.
    alert: AtomicBool,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// Why no collective can run any more.
    broken: Option<Cause>,
    /// The first call of which somebody has said that it failed.
    failed: Option<(u32, Cause)>,
    /// Calls that were refused on this rank, and not yet on all others.
    refused_here: Vec<(u32, Cause)>,
    /// Calls that were refused elsewhere, and by whom.
    refused_there: Vec<(u32, u32, Cause)>,
    /// Who waits in which call.
    waiting: Vec<(u32, u32, Label)>,
    /// Who is past which call.
    past: Vec<(u32, u32)>,
    /// What a call is about to fail with: since which call, and why if another rank has said it.
    blamed: Option<(u32, Option<Cause>)>,
}

impl Course {
    pub(super) fn new(bias: &Arc<Bias>) -> Self {
        Course { counts: Counts::new(bias), alert: AtomicBool::new(false), known: Mutex::default() }
    }

    /// The numbers of the calls.
    #[inline]
    pub(super) fn counts(&self) -> &Counts {
        &self.counts
    }

    /// Whether anything is known that may concern a call.
    #[inline]
    pub(crate) fn is_alert(&self) -> bool {
        self.alert.load(Ordering::Relaxed)
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Checks that collectives can run at all.
    #[inline]
    pub(crate) fn check(&self, call: &'static str) -> Result<()> {
        if self.is_alert()
            && let Some(cause) = &self.known().broken
        {
            return Err(cause.ever_after(call));
        }
        Ok(())
    }

    /// Ends the course; returns false if it had ended before.
    pub(crate) fn break_off(&self, cause: &Cause) -> bool {
        let mut known = self.known();
        let news = known.broken.is_none();
        known.broken.get_or_insert_with(|| cause.clone());
        self.alert.store(true, Ordering::Relaxed);
        news
    }

    /// Notes that a call was refused here; returns false if no call can run any more.
    pub(crate) fn refuse(&self, number: u32, cause: &Cause) -> bool {
        let mut known = self.known();
        if known.broken.is_some() {
            return false;
        }
        known.refused_here.push((number, cause.clone()));
        self.alert.store(true, Ordering::Relaxed);
        true
    }

    /// Returns a rank of `size` that has not said that it refused what was refused on rank `me`; none if all have, so that
    /// they are in step.
    pub(crate) fn awaited(&self, size: u32, me: u32) -> Option<u32> {
        let mut known = self.known();
        let Known { refused_here, refused_there, .. } = &mut *known;
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
    pub(crate) fn take_past(&self, number: u32) -> Vec<u32> {
        let mut known = self.known();
        let past = known.past.extract_if(.., |(n, _)| *n == number).map(|(_, rank)| rank).collect();
        known.past.retain(|(n, _)| self.counts.is_open(*n));
        past
    }

    /// Returns since which call what was found last is so, and why, in the words of the rank it began with.
    pub(crate) fn take_blamed(&self) -> Option<(u32, Option<Cause>)> {
        self.known().blamed.take()
    }

    /// Looks at what has come on a communicator that no receive waits for: notices, and what shows that the ranks are out
    /// of step. Messages of calls before `over` are left over. After a long wait it looks at all there is, and does not go
    /// on in a call if a later one is known to have failed.
    ///
    /// # Errors
    /// Why the call cannot go on.
    #[inline]
    pub(crate) fn look(context: &Context, call: &Call, over: u32, is_long: bool) -> Result<()> {
        if !is_long && !context.course().is_alert() && is_in_step(context, call, over) {
            return Ok(());
        }
        Self::look_closely(context, call, over, is_long)
    }

    #[cold]
    fn look_closely(context: &Context, call: &Call, over: u32, is_long: bool) -> Result<()> {
        let (course, channel) = (context.course(), context.channel());
        let most = if is_long { usize::MAX } else { FEW };
        while let Some(message) = channel.take_early(most, |early| Notice::is_tag(early.tag)) {
            if let Some((rank, number, notice)) = Notice::read(context.engine(), call.number, message) {
                course.known().file(rank, number, notice);
                course.alert.store(true, Ordering::Relaxed);
            }
        }
        if course.is_alert() {
            let late = {
                let mut known = course.known();
                known.judge(call, is_long)?;
                let late = known.late(|number| course.counts.is_open(number));
                course.alert.store(known.says_anything(), Ordering::Relaxed);
                late
            };
            for (number, rank) in late {
                Notice::Past.tell(context, number, std::iter::once(rank));
            }
        }
        // An older call that is still under way, on another thread or driven by the engine, may have messages.
        let over = course.counts.is_oldest(call.number).then_some(over);
        match channel.find_early(most, |early| astray(early, call, over, is_long)) {
            Some((rank, number, label)) => Err(course.known().explain(call, rank, number, label)),
            None => Ok(()),
        }
    }
}

/// Whether all that has come early plainly belongs to this call, or to a later one, as nearly always where ranks are in
/// step: what is not told without a lock counts as no.
#[inline]
fn is_in_step(context: &Context, call: &Call, over: u32) -> bool {
    let early = context.channel().early();
    let is_plain = |tag: i32| {
        let number = number_near(call.number, tag);
        !Notice::is_tag(tag)
            && !is_before(number, over)
            && (number != call.number || Label::of(tag) == call.label)
    };
    early.lying == 0 || early.tag.is_some_and(is_plain)
}

/// Whether an early message shows that its sender is not in step: its sender, number and label.
fn astray(early: &Envelope, call: &Call, over: Option<u32>, is_long: bool) -> Option<(u32, u32, Label)> {
    let (number, label) = (number_near(call.number, early.tag), Label::of(early.tag));
    // One of the same operation may still be received: then its length tells more.
    let is_other = number == call.number && label != call.label && (is_long || !label.is_like(call.label));
    let is_astray =
        !Notice::is_tag(early.tag) && (is_other || over.is_some_and(|over| is_before(number, over)));
    is_astray.then_some((early.source, number, label))
}

/// What a call fails with when it meets a message, or hears, of another one under its number.
pub(crate) fn other_call(call: &Call, rank: u32, label: Label) -> Error {
    Error::new(Class::Other, call.name, format!("rank {rank} {}", label.against(call.label)))
}

impl Known {
    fn says_anything(&self) -> bool {
        self.broken.is_some()
            || self.failed.is_some()
            || !(self.refused_here.is_empty() && self.refused_there.is_empty())
            || !(self.waiting.is_empty() && self.past.is_empty())
    }

    fn file(&mut self, rank: u32, number: u32, notice: Notice) {
        match notice {
            Notice::Failed(cause) => match &self.failed {
                Some((first, _)) if !is_before(number, *first) => (),
                _ => self.failed = Some((number, cause)),
            },
            Notice::Refused(cause) => self.refused_there.push((number, rank, cause)),
            Notice::Waiting(label) => self.waiting.push((number, rank, label)),
            Notice::Past => self.past.push((number, rank)),
        }
    }

    /// Holds a call whose arguments are good against what is known.
    fn judge(&mut self, call: &Call, is_long: bool) -> Result<()> {
        if let Some(cause) = &self.broken {
            return Err(cause.ever_after(call.name));
        }
        let is_reached = |number: u32| !is_before(call.number, number);
        if let Some((number, cause)) = &self.failed
            && (is_long || is_reached(*number))
        {
            let error = cause.error(call.name);
            self.broken = Some(cause.clone());
            return Err(error);
        }
        // What was refused there, and not here, this rank has taken part in or takes part in now.
        let here = |number: u32| self.refused_here.iter().any(|(n, _)| *n == number);
        if let Some((number, _, cause)) =
            self.refused_there.iter().find(|(number, ..)| is_reached(*number) && !here(*number))
        {
            self.blamed = Some((*number, Some(cause.clone())));
            return Err(cause.error(call.name));
        }
        let (now, later) = std::mem::take(&mut self.waiting).into_iter().partition(|w| w.0 == call.number);
        self.waiting = later;
        let now: Vec<(u32, u32, Label)> = now;
        match now.iter().find(|(.., label)| *label != call.label) {
            Some((_, rank, label)) => Err(other_call(call, *rank, *label)),
            None => Ok(()),
        }
    }

    /// Returns who waits in calls that are over here.
    fn late(&mut self, is_open: impl Fn(u32) -> bool) -> Vec<(u32, u32)> {
        self.waiting.extract_if(.., |w| !is_open(w.0)).map(|w| (w.0, w.1)).collect()
    }

    /// Says what a message that is astray means.
    fn explain(&mut self, call: &Call, rank: u32, number: u32, label: Label) -> Error {
        if number == call.number && label != call.label {
            return other_call(call, rank, label);
        }
        if let Some((_, cause)) = self.refused_here.iter().find(|(n, _)| *n == number) {
            self.blamed = Some((number, Some(cause.clone())));
            return cause.error(call.name);
        }
        self.blamed = Some((number, None));
        let why = format!("rank {rank} has called {label} where this rank called something else before");
        Error::new(Class::Other, call.name, why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_of_an_open_call_is_kept_while_a_younger_one_looks() {
        let course = Course::new(&Bias::new());
        course.known().file(1, 0, Notice::Past);
        course.known().file(2, 1, Notice::Past);
        course.known().file(2, 0, Notice::Waiting(Label::from_bits(0)));
        assert_eq!(course.take_past(1), [2]);
        assert!(course.known().late(|number| course.counts.is_open(number)).is_empty(), "call 0 is open");
        course.counts.end(1);
        assert_eq!(course.take_past(0), [1]);
        course.counts.end(0);
        assert_eq!(course.known().late(|number| course.counts.is_open(number)), [(0, 2)]);
    }
}
