//! The state machine that runs one rank's steps of a collective.

use std::ops::Deref;

use mpj_datatypes::InvalidValueError;
use mpj_devices::{
    Buf, Coalesce, Completion, Fault, Mode, Pattern, Receive, Sent, Source, Started, Target, WaitReason,
};

use super::context::CollContext;
use super::course::{CallId, CollState};
use super::notice::Notice;
use super::patience::StallDetector;
use super::plan::{Plan, TempBuffers};
use super::receipt::{ExpectedMessage, check_outcome};
use super::rooted;
use super::step::{Span, Step};
use crate::error::{Error, ErrorClass, Result};
use crate::op::{Op, OperandOrder};
use crate::raw::abort_on_unwind;

/// A collective that runs, or can be run again. It borrows its context for one call, or shares it for longer.
#[derive(Debug)]
pub(crate) struct Schedule<'a, C = &'a CollContext>
where
    C: Deref<Target = CollContext>,
{
    context: C,
    call: CallId,
    plan: Plan<'a>,
    own: Option<TempBuffers>,
    /// The next step.
    at: usize,
    /// The number of steps at the start that are the resync of all ranks; few calls begin with one.
    meeting: usize,
    pending: Vec<Pending>,
    /// Whether the schedule waits at a [`Step::Fence`], or for the operations after the last step.
    at_line: bool,
    failed: Option<Error>,
    patience: StallDetector,
}

/// The largest number of bytes that are copied or reduced while the progress lock may be held: a few microseconds of
/// work.
const BRIEF: usize = 32 << 10;

/// Why the size of a span never overflows.
const CHECKED: &str = "the area's size was checked";

/// The state of a schedule after a poll.
#[derive(Debug)]
pub(super) enum ScheduleStatus {
    /// The schedule has completed: it does not use the buffers any more.
    Complete(Result<()>),
    /// The next step is local, and is long or calls a function of the user, which may be slow and may itself wait for
    /// messages. The caller runs it without holding the progress lock.
    LocalStep(Step),
}

/// A pending operation, and the expected message if it is a receive.
#[derive(Debug)]
struct Pending {
    completion: Completion,
    expected: Option<ExpectedMessage>,
}

impl<'a, C: Deref<Target = CollContext>> Schedule<'a, C> {
    /// Creates a schedule.
    ///
    /// # Safety
    /// From the first poll until the schedule has completed, every span of the steps lies in a buffer of the plan,
    /// under the contract of [`raw`](crate::raw), and areas that the steps only read are not written.
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

    /// Allocates the temporary memory, before the schedule runs.
    ///
    /// # Errors
    /// The memory cannot be allocated.
    #[inline]
    pub(crate) fn allocate(&mut self) -> Result<()> {
        if self.plan.temp > 0 {
            self.own = self.plan.allocate(self.call.name)?;
        }
        Ok(())
    }

    /// Puts a barrier of all ranks, for a resync, in front of the steps.
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

    /// Returns to the first step, for another call that the engine polls from time to time.
    pub(super) fn restart(&mut self, call: CallId) {
        self.call = call;
        self.at = self.meeting;
        self.at_line = false;
        self.patience = StallDetector::new(&self.context);
        self.patience.sleep();
    }

    /// Replaces the buffers for the next call: see [`Plan::rebind`].
    ///
    /// # Errors
    /// The number of items or the layout differs.
    pub(super) fn lend_anew(&mut self, bufs: [Option<&Buf>; 2]) -> Result<()> {
        self.plan.rebind(self.call.name, bufs)
    }

    /// Returns the number of items that the rank contributes or receives, whichever is larger.
    pub(super) fn items(&self) -> usize {
        self.plan.items()
    }

    /// Runs steps until the schedule has completed, a local step needs the caller, or messages must arrive (`None`).
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
            // Copy the fields of a step, not the step: the compiler moves a whole step in inefficient pieces.
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

    /// Removes the completed operations, and fails the schedule if one of them failed.
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
            // A notice with the cause may have arrived already.
            let look = || CollState::check_notices(&self.context, &self.call, self.call.number, true).err();
            let told = follows.then(look).flatten();
            self.fail(told.unwrap_or(error));
        }
    }

    /// Fails the schedule: cancels its unmatched operations; the matched ones complete.
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
                // A failed operation has completed, too.
                let what = || WaitReason::collective(self.call.name, channel);
                let _ = engine.wait_described(Started::Pending(completion), what);
            }
        });
    }

    /// Checks whether this rank waits in vain; after a long wait, queries the ranks that it waits for.
    #[cold]
    fn check_stall(&mut self) -> Result<()> {
        let is_long = self.patience.take_long();
        CollState::check_notices(&self.context, &self.call, self.call.number, is_long)?;
        for rank in self.context.course().take_completed_ranks(self.call.number) {
            let of_rank = |p: &&Pending| p.expected.is_some_and(|expected| expected.from == rank);
            let engine = self.context.engine();
            // A matched receive is not cancelled: its message is arriving, even if the rank has reported completion.
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
        if let Sent::Pending(completion) = sent.map_err(|fault| Error::from_fault(self.call.name, *fault))? {
            self.pending.push(Pending { completion, expected: None });
        }
        Ok(())
    }

    #[inline]
    fn recv(&mut self, from: u32, into: Span) -> Result<()> {
        let (engine, channel) = (self.context.engine(), self.context.channel());
        let pattern = Pattern { source: from.cast_signed(), tag: self.call.label.tag(self.call.number) };
        let buf = self.buf(into);
        let expected = Some(ExpectedMessage { from, bytes: buf.bytes().expect(CHECKED) });
        // SAFETY: the contract of `new`: the span lies in its area until the schedule has completed, and a schedule
        // waits for its operations even if it is dropped.
        // The steps of one schedule do not receive twice into the same items at once.
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

    /// Returns whether a step must run without the progress lock, so that other threads of this rank can make progress.
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
        // SAFETY: the contract of `new`: the span lies in its area until the schedule has completed, and a schedule
        // waits for its operations even if it is dropped.
        unsafe { Source::new(self.buf(span), None) }.expect(CHECKED)
    }

    fn target(&self, span: Span) -> Target {
        // SAFETY: as for `source`; the steps of one schedule do not receive twice into the same items at once.
        unsafe { Target::new(self.buf(span), None) }.expect(CHECKED)
    }

    fn fold(&self, from: Span, into: Span, order: OperandOrder) -> Result<()> {
        let Some(op) = self.plan.op.as_deref() else { return Ok(()) };
        let (items, into) = (self.buf(from), self.buf(into));
        // SAFETY: the contract of `new`; a reduction step comes after the fence for the items that it reads, and these
        // items were received or copied, and so checked.
        let done = unsafe { op.fold(items.base(), into.base(), into.count(), into.datatype(), order) };
        done.map_err(|error| Error::new(ErrorClass::NoMem, self.call.name, error.to_string()))
    }

    /// Returns the error of a rank whose own items are not valid values of their type.
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
    /// Runs the schedule until it has completed.
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

impl<C: Deref<Target = CollContext>> Drop for Schedule<'_, C> {
    /// Cancels the unmatched operations and waits for the others. A panic that unwinds through [`run`](Self::run), such
    /// as one of a user's operation, must not release the memory while other ranks and threads read and write it.
    #[inline]
    fn drop(&mut self) {
        if !self.pending.is_empty() {
            self.cancel_and_wait();
        }
    }
}

// SAFETY: by the contract of `new` the schedule may use the memory behind the pointers on any thread.
unsafe impl<C: Deref<Target = CollContext> + Send> Send for Schedule<'_, C> {}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::super::label::{CallDigest, CollectiveKind};
    use super::super::plan::MaybeOwned;
    use super::super::step::BufIndex;
    use super::*;
    use crate::raw::Comm;

    fn run(comm: &Comm, steps: Vec<Step>, memory: [&mut [u64]; 2], op: Option<&Op>) -> Result<()> {
        let [send, recv] = memory.map(Buf::slice_mut);
        let call = CallId { name: "test", number: 1, label: CallDigest::new(CollectiveKind::Allreduce, 0) };
        let plan = Plan { op: op.map(MaybeOwned::Lent), ..Plan::new(steps, &send, &recv) };
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
