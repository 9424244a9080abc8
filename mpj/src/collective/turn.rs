//! One rank's part in one call of a collective, from its number to what the others are told of its end.

use std::time::Duration;

use mpj_devices::{Buf, Fault, Pattern};

use super::context::Context;
use super::course::{Call, Course};
use super::label::{Label, is_meeting};
use super::notice::{Cause, Notice};
use super::rooted;
use super::schedule::{Plan, Schedule};
use crate::error::{Class, Error, Result};

/// How long a rank that has told the others something waits for that to be on its way.
const ON_ITS_WAY: Duration = Duration::from_millis(250);

/// A rank that only sends looks for news every so many calls.
const SELDOM: u32 = 16;

/// One rank's part in one call.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    context: &'a Context,
    name: &'static str,
    number: u32,
    /// What is called, once the arguments are known to be good.
    call: Option<Call>,
    is_over: bool,
}

/// Takes part in a collective: `body` checks its arguments, and then runs what the call is made of.
///
/// The number is taken first, whatever follows, and an error is told to the others.
///
/// # Errors
/// Those of `body`; what another rank failed with; that the ranks are out of step.
pub(crate) fn collective<T>(
    context: &Context,
    name: &'static str,
    body: impl FnOnce(&mut Turn<'_>) -> Result<T>,
) -> Result<T> {
    let mut turn = Turn { context, name, number: context.course().next(), call: None, is_over: false };
    let outcome = context.course().check(name).and_then(|()| body(&mut turn));
    let outcome = outcome.and_then(|value| turn.close().map(|()| value));
    turn.end(outcome.as_ref().err());
    outcome
}

impl Turn<'_> {
    pub(crate) fn rank(&self) -> u32 {
        self.context.rank()
    }

    pub(crate) fn size(&self) -> u32 {
        self.context.size()
    }

    /// Runs a plan to its end. All plans of one turn have the same label.
    ///
    /// # Safety
    /// The contract of [`Schedule::new`].
    pub(crate) unsafe fn run(&mut self, label: Label, plan: Plan<'_>) -> Result<()> {
        let call = Call { name: self.name, number: self.number, label };
        // SAFETY: the caller's contract; `run` goes to the end.
        let mut schedule = unsafe { Schedule::new(self.context, call, plan) };
        schedule.allocate()?;
        if self.call.replace(call).is_none() {
            Course::look(self.context, &call, self.number, false)?;
            if self.context.course().is_alert() {
                self.await_refusals(&call)?;
            }
            if is_meeting(self.number) {
                self.meet(call)?;
            }
        }
        schedule.run()
    }

    /// Waits until all ranks have come to this call.
    #[cold]
    fn meet(&self, call: Call) -> Result<()> {
        let steps = rooted::barrier(self.context.rank(), self.context.size());
        let nothing = Buf::empty();
        let plan = Plan { steps, send: &nothing, recv: &nothing, temp: 0, op: None };
        // SAFETY: no memory is named.
        unsafe { Schedule::new(self.context, call, plan) }.run()
    }

    /// After a refusal, waits until all others have been refused, too.
    #[cold]
    fn await_refusals(&self, call: &Call) -> Result<()> {
        let (context, course) = (self.context, self.context.course());
        let awaited =
            || if course.is_alert() { course.awaited(context.size(), context.rank()) } else { None };
        if awaited().is_none() {
            return Ok(());
        }
        context.engine().wait_until(|| {
            let looked = Course::look(context, call, call.number, true);
            if let Err(error) = looked {
                return Some(Err(error));
            }
            let Some(rank) = awaited() else { return Some(Ok(())) };
            // No receive is posted that its end could fail.
            let pattern = Pattern { source: rank.cast_signed(), tag: i32::MIN };
            context
                .engine()
                .iprobe(context.channel(), pattern)
                .err()
                .map(|fault| Err(Error::fault(call.name, fault)))
        })
    }

    /// Looks, at the end, for what should not be there.
    #[inline]
    fn close(&self) -> Result<()> {
        let Some(call) = &self.call else { return Ok(()) };
        if self.number.is_multiple_of(SELDOM) {
            self.context.engine().progress();
        }
        match self.context.channel().early().lying {
            0 => Ok(()),
            _ => Course::look(self.context, call, call.number.wrapping_add(1), false),
        }
    }

    #[inline]
    fn end(&mut self, error: Option<&Error>) {
        self.is_over = true;
        self.context.course().end();
        if let Some(error) = error {
            self.give_up(error);
        }
    }

    /// Tells the others, unless they know.
    #[cold]
    fn give_up(&self, error: &Error) {
        let (context, course) = (self.context, self.context.course());
        let is_known = match error.as_fault() {
            // The roster tells of deaths, and who took its message back tells why.
            Some(Fault::Dead { .. } | Fault::Unreachable { .. }) => return,
            Some(Fault::Withdrawn { .. }) => true,
            _ => context.size() == 1,
        };
        let (number, cause) = course.take_blamed().unwrap_or((self.number, None));
        let cause = cause.unwrap_or_else(|| Cause::of(&format!("rank {}", context.rank()), error));
        let notice = if self.call.is_some() {
            (course.break_off(&cause) && !is_known).then_some(Notice::Failed(cause))
        } else {
            (!is_known && course.refuse(number, &cause)).then_some(Notice::Refused(cause))
        };
        if let Some(notice) = notice {
            notice.tell(context, number, (0..context.size()).filter(|rank| *rank != context.rank()));
            context.engine().flush_for(ON_ITS_WAY);
        }
    }
}

impl Drop for Turn<'_> {
    /// A user's function has panicked: the others do not wait for what it was to give.
    fn drop(&mut self) {
        if !self.is_over {
            self.end(Some(&Error::new(Class::Other, self.name, "a function of the user's panicked")));
        }
    }
}
