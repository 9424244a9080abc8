//! The state machine that runs one rank's steps of a collective.

mod local_steps;

use std::ops::Deref;

use mpj_collectives::{Span, Step};
use mpj_devices::{
    Buf, Coalesce, Completion, Fault, Mode, Pattern, Receive, Sent, Source, Started, WaitReason,
};

use super::call_id::CallId;
use super::check::{ExpectedMessage, check_outcome};
use super::context::CollContext;
use super::notice::Notice;
use super::plan::Plan;
use super::stall::StallDetector;
use super::state::CollState;
use super::temp_buffers::TempBuffers;
use crate::error::{Error, ErrorClass, Result};
use crate::raw::abort_on_unwind;

/// The steps of a collective and the state of their execution. A blocking call borrows the context, a task shares it.
#[derive(Debug)]
pub(crate) struct Schedule<'a, C = &'a CollContext>
where
    C: Deref<Target = CollContext>,
{
    context: C,
    call: CallId,
    plan: Plan<'a>,
    temp: Option<TempBuffers>,
    next_step: usize,
    pending: Vec<Pending>,
    /// Whether the schedule waits for its pending operations: at a [`Step::Fence`], or after the last step.
    at_fence: bool,
    failed: Option<Error>,
    stall: StallDetector,
}

const SIZE_CHECKED: &str = "the buffer's size was checked";

#[derive(Debug)]
pub(super) enum ScheduleStatus {
    /// The schedule has completed and does not use the buffers any more.
    Complete(Result<()>),
    /// The next step is long, or calls a user function, which might be slow or wait for messages. The caller
    /// [runs it](Schedule::run_next_local_step) without the progress lock.
    LocalStep,
}

/// A started send or receive.
#[derive(Debug)]
pub(crate) struct Pending {
    completion: Completion,
    /// `None` for a send.
    expected: Option<ExpectedMessage>,
}

impl<'a, C: Deref<Target = CollContext>> Schedule<'a, C> {
    /// # Safety
    /// From the first poll until the schedule has completed, every span of the steps lies in a buffer of the plan,
    /// under the contract of [`raw`](crate::raw), and buffers that the steps only read are not written.
    #[inline]
    pub(crate) unsafe fn new(context: C, call: CallId, plan: Plan<'a>) -> Self {
        let stall = StallDetector::new(&context);
        let pending = Vec::new();
        Schedule {
            context,
            call,
            plan,
            temp: None,
            next_step: 0,
            pending,
            at_fence: false,
            failed: None,
            stall,
        }
    }

    /// Allocates the temporary memory; call it before the schedule runs.
    #[inline]
    pub(crate) fn allocate(&mut self) -> Result<()> {
        self.temp = self.plan.allocate(self.call.name)?;
        Ok(())
    }

    /// Prepares the steps for a call that the engine polls.
    pub(super) fn restart(&mut self, call: CallId) {
        self.call = call;
        self.next_step = 0;
        self.at_fence = false;
        self.stall = StallDetector::new(&self.context);
        self.stall.note_sleep();
    }

    pub(super) fn rebind(&mut self, bufs: &[Option<&Buf>]) -> Result<()> {
        self.plan.rebind(self.call.name, bufs)
    }

    /// Runs steps until the schedule has completed, or the caller must run a local step or wait for messages (`None`).
    pub(super) fn poll(&mut self) -> Option<ScheduleStatus> {
        loop {
            if self.at_fence || self.failed.is_some() {
                self.reap_completed();
                if !self.pending.is_empty() {
                    if self.failed.is_none()
                        && self.stall.is_due(&self.context)
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
                self.at_fence = false;
                self.stall.restart();
            }
            let next = self.plan.steps.get(self.next_step);
            self.next_step += 1;
            // Copy the fields of a step, not the step: the compiler copies a whole step in inefficient pieces.
            let done = match next {
                Some(&Step::Send { to, from }) => self.send(to, from),
                Some(&Step::Recv { from, into }) => self.recv(from, into),
                Some(step @ (Step::Copy { .. } | Step::ReduceLocal { .. }))
                    if self.is_long_local_step(step) =>
                {
                    return Some(ScheduleStatus::LocalStep);
                }
                Some(step @ (Step::Copy { .. } | Step::ReduceLocal { .. })) => self.run_local_step(step),
                None if self.pending.is_empty() => return Some(ScheduleStatus::Complete(Ok(()))),
                Some(Step::Fence) | None => {
                    self.at_fence = true;
                    Ok(())
                }
            };
            if let Err(error) = done {
                self.fail_because(error);
            }
        }
    }

    /// Removes completed operations, and fails the schedule if one of them has failed.
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
            self.fail_because(error);
        }
    }

    /// Fails the schedule with the error of an operation, or with its cause if a notice names it.
    #[cold]
    fn fail_because(&mut self, error: Error) {
        let is_consequence = matches!(
            error.as_fault(),
            Some(
                Fault::Refused { .. }
                    | Fault::Abandoned { .. }
                    | Fault::SendCancelled { .. }
                    | Fault::Left { .. }
            )
        );
        // The notice with the cause might have arrived already.
        let find_cause = || CollState::check_notices(&self.context, &self.call, self.call.seq, true).err();
        let cause = is_consequence.then(find_cause).flatten();
        self.fail(cause.unwrap_or(error));
    }

    /// Fails the schedule: cancels its unmatched operations; the matched ones still complete.
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
                let what = || WaitReason::collective(self.call.name, channel);
                let _ = engine.wait_described(Started::Pending(completion), what);
            }
        });
    }

    /// Checks the notices, and whether a rank has completed the call without sending what this rank waits for. After a
    /// stall, queries the awaited ranks, once in each wait.
    #[cold]
    fn check_stall(&mut self) -> Result<()> {
        let is_stalled = self.stall.take_timed_out();
        CollState::check_notices(&self.context, &self.call, self.call.seq, is_stalled)?;
        for rank in self.context.coll_state().take_completed_ranks(self.call.seq) {
            let of_rank = |p: &&Pending| p.expected.is_some_and(|expected| expected.from == rank);
            let engine = self.context.engine();
            // `cancel` returns false for a matched receive: its message is arriving.
            if self
                .pending
                .iter()
                .filter(of_rank)
                .any(|p| engine.cancel(self.context.channel(), &p.completion))
            {
                let rank = self.call.name_of(rank);
                let why = format!("{rank} called a different collective here and has completed it");
                return Err(Error::new(ErrorClass::Other, self.call.name, why));
            }
        }
        if is_stalled && self.stall.take_first_query() {
            let mut ranks: Vec<u32> =
                self.pending.iter().filter_map(|p| p.expected).map(|e| e.from).collect();
            ranks.sort_unstable();
            ranks.dedup();
            Notice::Query(self.call.digest).send(&self.context, self.call.seq, ranks.into_iter());
        }
        Ok(())
    }

    #[inline]
    fn send(&mut self, to: u32, from: Span) -> Result<()> {
        let (engine, channel) = (self.context.engine(), self.context.channel());
        let send = |mut source: Source| {
            engine.send_from(channel, to, self.call.tag(), &mut source, Mode::Standard, Coalesce::No)
        };
        let sent = match self.plain(from) {
            // SAFETY: as in `source`.
            Some(items) => send(unsafe { Source::new(items.to_buf(), None) }.expect(SIZE_CHECKED)),
            None => send(self.source(from)),
        };
        if let Sent::Pending(completion) = sent.map_err(|fault| Error::from_fault(self.call.name, *fault))? {
            self.pending.push(Pending { completion, expected: None });
        }
        Ok(())
    }

    #[inline]
    fn recv(&mut self, from: u32, into: Span) -> Result<()> {
        let (engine, channel) = (self.context.engine(), self.context.channel());
        let pattern = Pattern { source: from.cast_signed(), tag: self.call.tag().tag };
        // SAFETY: the contract of `new`: the span lies in its buffer until the schedule has completed, and a schedule
        // waits for its operations even if it is dropped. The steps of one schedule do not receive twice into the same
        // items at once.
        let receive = |buf| unsafe { Receive::of(buf, None, None) }.expect(SIZE_CHECKED);
        let (bytes, receive) = match self.plain(into) {
            Some(items) => (items.bytes(), receive(items.to_buf())),
            None => {
                let buf = self.buf(into);
                (buf.bytes().expect(SIZE_CHECKED), receive(buf))
            }
        };
        let expected = Some(ExpectedMessage { from, bytes });
        match engine.post(channel, pattern, receive) {
            Ok(completion) => self.pending.push(Pending { completion, expected }),
            Err(fault) => check_outcome(&self.call, expected, &Err(*fault))?,
        }
        Ok(())
    }
}

impl Schedule<'_> {
    /// Runs the schedule until it has completed, reusing the vectors that the communicator keeps between calls.
    pub(crate) fn run(&mut self) -> Result<()> {
        self.pending = self.context.take_pending();
        let outcome = self.run_to_end();
        self.context.recycle(std::mem::take(&mut self.plan.steps), std::mem::take(&mut self.pending));
        outcome
    }

    fn run_to_end(&mut self) -> Result<()> {
        let engine = self.context.engine();
        let what = |schedule: &Self| {
            schedule.stall.note_sleep();
            WaitReason::collective(schedule.call.name, schedule.context.channel()).numbered(schedule.call.seq)
        };
        loop {
            match engine.wait_for(self, Self::poll, what) {
                ScheduleStatus::Complete(outcome) => return outcome,
                ScheduleStatus::LocalStep => {
                    if let Err(error) = self.run_next_local_step() {
                        self.fail(error);
                    }
                }
            }
        }
    }
}

impl<C: Deref<Target = CollContext>> Drop for Schedule<'_, C> {
    /// Cancels the unmatched operations and waits for the others. A panic of a user function that unwinds through `run`
    /// must not release the memory while other ranks and threads access it.
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
mod tests;
