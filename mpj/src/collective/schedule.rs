//! The machine that runs one rank's steps of a collective.

use std::ops::Deref;

use mpj_datatypes::InvalidValueError;
use mpj_devices::{
    Buf, Coalesce, Completion, Fault, Mode, Pattern, Receive, Sent, Source, Started, Target, WaitReason,
};

use super::context::Context;
use super::course::{CallId, CollState};
use super::notice::Notice;
use super::patience::StallDetector;
use super::plan::{Plan, TempBuffers};
use super::receipt::{Expected, check_outcome};
use super::rooted;
use super::step::{Span, Step};
use crate::error::{Error, ErrorClass, Result};
use crate::op::{Op, OperandOrder};
use crate::raw::abort_on_unwind;

/// A collective under way, or one that can be run again: for the time of a call, or for longer where it shares its context.
#[derive(Debug)]
pub(crate) struct Schedule<'a, C = &'a Context>
where
    C: Deref<Target = Context>,
{
    context: C,
    call: CallId,
    plan: Plan<'a>,
    own: Option<TempBuffers>,
    /// The next step.
    at: usize,
    /// How many of the first steps are the meeting of all ranks, which few calls begin with.
    meeting: usize,
    pending: Vec<Pending>,
    /// Whether a [`Step::Wait`] has been reached and not yet crossed.
    at_line: bool,
    failed: Option<Error>,
    patience: StallDetector,
}

/// The bytes that are copied or folded at once, whoever holds the right to make progress: a few microseconds.
const BRIEF: usize = 32 << 10;

/// Why a span is never more than can be counted.
const CHECKED: &str = "the area's size was checked";

/// How far a schedule has come.
#[derive(Debug)]
pub(super) enum ScheduleStatus {
    /// The end: nothing touches the buffers any more.
    Complete(Result<()>),
    /// A local step that is long, or calls a function of the user's, which may take long and may itself wait for messages.
    /// It runs where this thread does not hold the right to make progress.
    LocalStep(Step),
}

/// An operation under way, and what is expected if it is a receive.
#[derive(Debug)]
struct Pending {
    completion: Completion,
    expected: Option<Expected>,
}

impl<'a, C: Deref<Target = Context>> Schedule<'a, C> {
    /// Prepares a schedule.
    ///
    /// # Safety
    /// Every span of the steps lies in what the plan describes, under the contract of [`raw`](crate::raw), from when the
    /// schedule is run until it has come to its end; nothing is written to areas that the steps only read.
    #[inline]
    pub(crate) unsafe fn new(context: C, call: CallId, plan: Plan<'a>) -> Self {
        let patience = StallDetector::new(&context);
        Schedule {
            context,
            call,
            plan,
            own: None,
            at: 0,
            meeting: 0,
            pending: Vec::new(),
            at_line: false,
            failed: None,
            patience,
        }
    }

    /// Makes the schedule's own memory, before it runs.
    ///
    /// # Errors
    /// There is none.
    #[inline]
    pub(crate) fn allocate(&mut self) -> Result<()> {
        if self.plan.temp > 0 {
            self.own = self.plan.allocate(self.call.name)?;
        }
        Ok(())
    }

    /// Lets all ranks meet before anything else.
    #[cold]
    pub(crate) fn meet(&mut self) {
        if self.meeting == 0 {
            let mut steps = rooted::barrier(self.context.rank(), self.context.size());
            steps.push(Step::Fence);
            self.meeting = steps.len();
            self.plan.steps.splice(0..0, steps);
        }
        self.at = 0;
    }

    /// Goes back to the first step, for another call that is driven now and then.
    pub(super) fn restart(&mut self, call: CallId) {
        self.call = call;
        self.at = self.meeting;
        self.at_line = false;
        self.patience = StallDetector::new(&self.context);
        self.patience.sleep();
    }

    /// Has the next call work on other memory: see [`Plan::rebind`].
    ///
    /// # Errors
    /// Its items are others.
    pub(super) fn lend_anew(&mut self, bufs: [Option<&Buf>; 2]) -> Result<()> {
        self.plan.rebind(self.call.name, bufs)
    }

    /// Returns how many items the rank gives or gets, whichever is more.
    pub(super) fn items(&self) -> usize {
        self.plan.items()
    }

    /// Goes on as far as possible.
    pub(super) fn poll(&mut self) -> Option<ScheduleStatus> {
        loop {
            if self.at_line || self.failed.is_some() {
                self.reap_completed();
                if !self.pending.is_empty() {
                    if self.failed.is_none()
                        && self.patience.is_due(&self.context)
                        && let Err(error) = self.check_stall()
                    {
                        self.fail(error);
                        continue;
                    }
                    return None;
                }
                if let Some(error) = self.failed.take() {
                    return Some(ScheduleStatus::Complete(Err(error)));
                }
                self.at_line = false;
                self.patience.restart();
            }
            let next = self.plan.steps.get(self.at);
            self.at += 1;
            // What a step says is taken out of it where it lies: a step as a whole is moved in odd pieces.
            let done = match next {
                Some(&Step::Send { to, from }) => self.send(to, from),
                Some(&Step::Recv { from, into }) => self.recv(from, into),
                Some(step @ (Step::Copy { .. } | Step::ReduceLocal { .. })) if self.is_long(step) => {
                    return Some(ScheduleStatus::LocalStep(*step));
                }
                Some(step @ (Step::Copy { .. } | Step::ReduceLocal { .. })) => self.work(step),
                None if self.pending.is_empty() => return Some(ScheduleStatus::Complete(Ok(()))),
                Some(Step::Fence) | None => {
                    self.at_line = true;
                    Ok(())
                }
            };
            if let Err(error) = done {
                self.fail(error);
            }
        }
    }

    /// Forgets what has ended.
    fn reap_completed(&mut self) {
        let (call, mut failed) = (&self.call, None);
        self.pending.retain(|Pending { completion, expected }| {
            let Some(outcome) = completion.outcome() else { return true };
            if let Err(error) = check_outcome(call, *expected, outcome) {
                failed.get_or_insert(error);
            }
            false
        });
        if let Some(error) = failed {
            let follows = matches!(
                error.as_fault(),
                Some(Fault::Refused { .. } | Fault::Abandoned { .. } | Fault::SendCancelled { .. })
            );
            // A notice that says why may have come already.
            let look = || CollState::check_notices(&self.context, &self.call, self.call.number, true).err();
            let told = follows.then(look).flatten();
            self.fail(told.unwrap_or(error));
        }
    }

    /// Gives up: takes back what has not matched; what has goes to its end.
    pub(super) fn fail(&mut self, error: Error) {
        if self.failed.is_none() {
            self.failed = Some(error);
            for Pending { completion, .. } in &self.pending {
                self.context.engine().cancel(self.context.channel(), completion);
            }
        }
    }

    #[cold]
    fn cancel_and_wait(&mut self) {
        let (engine, channel) = (self.context.engine(), self.context.channel());
        let pending = std::mem::take(&mut self.pending);
        abort_on_unwind(|| {
            for Pending { completion, .. } in &pending {
                engine.cancel(channel, completion);
            }
            for Pending { completion, .. } in pending {
                // Whatever it failed with, it has ended.
                let what = || WaitReason::collective(self.call.name, channel);
                let _ = engine.wait_described(Started::Pending(completion), what);
            }
        });
    }

    /// Looks whether this rank waits in vain; after a long wait, asks those it waits for where they are.
    #[cold]
    fn check_stall(&mut self) -> Result<()> {
        let is_long = self.patience.take_long();
        CollState::check_notices(&self.context, &self.call, self.call.number, is_long)?;
        for rank in self.context.course().take_completed_ranks(self.call.number) {
            let of_rank = |p: &&Pending| p.expected.is_some_and(|expected| expected.from == rank);
            let engine = self.context.engine();
            // What has matched is on its way, whatever has been said since.
            if self
                .pending
                .iter()
                .filter(of_rank)
                .any(|p| engine.cancel(self.context.channel(), &p.completion))
            {
                let why = format!("rank {rank} has called something else here, and has gone on");
                return Err(Error::new(ErrorClass::Other, self.call.name, why));
            }
        }
        if is_long && self.patience.should_query() {
            let mut ranks: Vec<u32> =
                self.pending.iter().filter_map(|p| p.expected).map(|e| e.from).collect();
            ranks.sort_unstable();
            ranks.dedup();
            Notice::Query(self.call.label).send(&self.context, self.call.number, ranks.into_iter());
        }
        Ok(())
    }

    #[inline]
    fn send(&mut self, to: u32, from: Span) -> Result<()> {
        let (engine, channel) = (self.context.engine(), self.context.channel());
        let tag = self.call.label.tag(self.call.number);
        let mut source = self.source(from);
        let sent = engine.send_from(channel, to, tag, &mut source, Mode::Standard, Coalesce::No);
        if let Sent::Pending(completion) = sent.map_err(|fault| Error::fault(self.call.name, *fault))? {
            self.pending.push(Pending { completion, expected: None });
        }
        Ok(())
    }

    #[inline]
    fn recv(&mut self, from: u32, into: Span) -> Result<()> {
        let (engine, channel) = (self.context.engine(), self.context.channel());
        let pattern = Pattern { source: from.cast_signed(), tag: self.call.label.tag(self.call.number) };
        let buf = self.buf(into);
        let expected = Some(Expected { from, bytes: buf.bytes().expect(CHECKED) });
        // SAFETY: the contract of `new`: the span lies in its area, the schedule runs to its end, and its steps do not receive
        // twice into the same items at once.
        let receive = unsafe { Receive::of(buf, None, None) }.expect(CHECKED);
        match engine.post(channel, pattern, receive) {
            Ok(completion) => self.pending.push(Pending { completion, expected }),
            Err(fault) => check_outcome(&self.call, expected, &Err(*fault))?,
        }
        Ok(())
    }

    /// Runs a local step.
    pub(super) fn work(&self, step: &Step) -> Result<()> {
        match *step {
            Step::Copy { from, into } => {
                self.source(from).copy_items(self.target(into)).map_err(|bad| self.invalid(bad))?;
            }
            Step::ReduceLocal { from, into, order } => self.fold(from, into, order)?,
            Step::Send { .. } | Step::Recv { .. } | Step::Fence => (),
        }
        Ok(())
    }

    /// Whether other threads of this rank should be able to make progress during a step.
    #[inline]
    fn is_long(&self, step: &Step) -> bool {
        let (into, is_users) = match step {
            Step::Copy { into, .. } => (into, false),
            Step::ReduceLocal { into, .. } => (into, matches!(self.plan.op.as_deref(), Some(Op::User(_)))),
            _ => return false,
        };
        is_users || self.plan.datatype(into.area).size().saturating_mul(into.count) > BRIEF
    }

    #[inline]
    fn buf(&self, span: Span) -> Buf {
        self.plan.buf(self.own.as_ref(), span)
    }

    #[inline]
    fn source(&self, span: Span) -> Source {
        // SAFETY: the contract of `new`: the span lies in its area, and the schedule runs to its end.
        unsafe { Source::new(self.buf(span), None) }.expect(CHECKED)
    }

    fn target(&self, span: Span) -> Target {
        // SAFETY: as for `source`; the steps of one schedule do not receive twice into the same items at once.
        unsafe { Target::new(self.buf(span), None) }.expect(CHECKED)
    }

    fn fold(&self, from: Span, into: Span, order: OperandOrder) -> Result<()> {
        let Some(op) = self.plan.op.as_deref() else { return Ok(()) };
        let (items, into) = (self.buf(from), self.buf(into));
        // SAFETY: the contract of `new`; a fold comes after the wait for what it reads, and what it reads was received or copied,
        // and so checked.
        let done = unsafe { op.fold(items.base(), into.base(), into.count(), into.datatype(), order) };
        done.map_err(|error| Error::new(ErrorClass::NoMem, self.call.name, error.to_string()))
    }

    /// The error of a rank whose own items are not values of their type.
    #[cold]
    fn invalid(&self, bad: InvalidValueError) -> Error {
        let rank = self.context.rank();
        Error::new(
            ErrorClass::Type,
            self.call.name,
            format!("rank {rank} contributed an invalid value: {bad}"),
        )
    }
}

impl Schedule<'_> {
    /// Runs to the end.
    pub(crate) fn run(&mut self) -> Result<()> {
        let engine = self.context.engine();
        let what = |run: &Self| {
            run.patience.sleep();
            WaitReason::collective(run.call.name, run.context.channel()).numbered(run.call.number)
        };
        loop {
            match engine.wait_for(self, Self::poll, what) {
                ScheduleStatus::Complete(outcome) => return outcome,
                ScheduleStatus::LocalStep(step) => {
                    if let Err(error) = self.work(&step) {
                        self.fail(error);
                    }
                }
            }
        }
    }
}

impl<C: Deref<Target = Context>> Drop for Schedule<'_, C> {
    /// A panic that unwinds through [`run`](Self::run), as one of a user's operation, must not give the memory back while
    /// others read and write it: what has not matched is taken back, what has goes to its end.
    #[inline]
    fn drop(&mut self) {
        if !self.pending.is_empty() {
            self.cancel_and_wait();
        }
    }
}

// SAFETY: the memory behind the pointers is the schedule's to use, on whichever thread, by the contract of `new`.
unsafe impl<C: Deref<Target = Context> + Send> Send for Schedule<'_, C> {}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::super::label::{CallDigest, CollectiveKind};
    use super::super::plan::Held;
    use super::super::step::BufIndex;
    use super::*;
    use crate::raw::Comm;

    fn run(comm: &Comm, steps: Vec<Step>, memory: [&mut [u64]; 2], op: Option<&Op>) -> Result<()> {
        let [send, recv] = memory.map(Buf::slice_mut);
        let call = CallId { name: "test", number: 1, label: CallDigest::new(CollectiveKind::Allreduce, 0) };
        let plan = Plan { op: op.map(Held::Lent), ..Plan::new(steps, &send, &recv) };
        // SAFETY: the tests' spans lie in their memory, which outlives the schedule.
        unsafe { Schedule::new(&**comm.collectives(), call, plan) }.run()
    }

    #[test]
    fn a_panic_leaves_no_receive_behind() {
        crate::threads(2, |world| {
            let comm = world.as_raw();
            let (mut send, mut recv) = ([7u64; 2], [3u64; 2]);
            if world.rank() == 0 {
                let into = Span::new(BufIndex::RECV, 0, 1);
                let fold = Step::ReduceLocal {
                    from: Span::new(BufIndex::SEND, 0, 1),
                    into,
                    order: OperandOrder::IncomingFirst,
                };
                let steps = vec![Step::Recv { from: 1, into: Span::new(BufIndex::RECV, 1, 1) }, fold];
                let op = Op::user(true, |_: &u64, _: &u64| panic!("as the test wants"));
                let run = || run(comm, steps, [&mut send, &mut recv], Some(&op));
                assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
                world.send(&[1u8], 1, 0)?;
                world.recv(&mut [0u8], 1, 0)?;
                assert_eq!(recv, [3; 2]);
            } else {
                world.recv(&mut [0u8], 0, 0)?;
                let steps = vec![Step::Send { to: 0, from: Span::new(BufIndex::SEND, 0, 1) }];
                run(comm, steps, [&mut send, &mut recv], None)?;
                world.send(&[1u8], 0, 0)?;
            }
            Ok::<(), Error>(())
        })
        .expect("both ranks go on");
    }
}
