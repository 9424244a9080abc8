//! The machine that runs one rank's steps of a collective.

use mpj_datatypes::Datatype;
use mpj_devices::{Buf, BufError, Completion, Mode, Pattern, Source, Started, Target, Wait};
use mpj_pool::{DefaultBlock, Pool, RawBuffer};

use super::context::Context;
use super::course::{Call, Course};
use super::notice::Notice;
use super::patience::Patience;
use super::receipt::{Expected, judge};
use super::step::{Area, Span, Step};
use crate::error::{Class, Error, Result};
use crate::op::{Op, Order};
use crate::raw::abort_on_unwind;

/// What one rank does in a collective: steps, and the memory they work on.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) steps: Vec<Step>,
    pub(crate) send: &'a Buf,
    pub(crate) recv: &'a Buf,
    /// How many items of the receive type the schedule's own areas hold.
    pub(crate) temp: usize,
    pub(crate) op: Option<&'a Op>,
}

/// A collective under way.
#[derive(Debug)]
pub(crate) struct Schedule<'a> {
    context: &'a Context,
    call: Call,
    steps: std::vec::IntoIter<Step>,
    send: &'a Buf,
    recv: &'a Buf,
    /// How many items of the receive type its own areas hold.
    temp: usize,
    own: [Option<Own>; 2],
    op: Option<&'a Op>,
    pending: Vec<Pending>,
    /// Whether a [`Step::Wait`] has been reached and not yet crossed.
    at_line: bool,
    failed: Option<Error>,
    patience: Patience,
}

/// The bytes that are copied or folded at once, whoever holds the right to make progress: a few microseconds.
const BRIEF: usize = 32 << 10;

/// The memory of schedules that move none: their messages are empty.
const NOTHING: &Buf = &Buf::empty();

/// How far a schedule has come.
#[derive(Debug)]
enum Reached {
    /// The end: nothing touches the buffers any more.
    End(Result<()>),
    /// A local step that is long, or calls a function of the user's, which may take long and may itself wait for messages.
    /// It runs where this thread does not hold the right to make progress.
    Work(Step),
}

/// An operation under way, and what is expected if it is a receive.
#[derive(Debug)]
struct Pending {
    completion: Completion,
    expected: Option<Expected>,
}

impl<'a> Schedule<'a> {
    /// Prepares a schedule.
    ///
    /// # Safety
    /// Every span of the steps lies in what `send` and `recv` describe, under the contract of [`raw`](crate::raw), until
    /// the schedule has been run to its end; nothing is written to `send`.
    #[inline]
    pub(crate) unsafe fn new(context: &'a Context, call: Call, plan: Plan<'a>) -> Self {
        let Plan { steps, send, recv, temp, op } = plan;
        Schedule {
            context,
            call,
            steps: steps.into_iter(),
            send,
            recv,
            temp,
            own: [None, None],
            op,
            pending: Vec::new(),
            at_line: false,
            failed: None,
            patience: Patience::new(context),
        }
    }

    /// Makes the schedule's own memory, before it runs.
    pub(crate) fn allocate(&mut self) -> Result<()> {
        let uses_more = |step: &Step| matches!(step, Step::Recv { into, .. } if into.area == Area::More);
        if self.temp > 0 {
            self.own[0] = Some(Own::new(self.call.name, self.recv.datatype(), self.temp)?);
            if self.steps.as_slice().iter().any(uses_more) {
                self.own[1] = Some(Own::new(self.call.name, self.recv.datatype(), self.temp)?);
            }
        }
        Ok(())
    }

    /// Runs to the end.
    pub(crate) fn run(&mut self) -> Result<()> {
        let engine = self.context.engine();
        let what = |run: &Schedule<'_>| {
            run.patience.sleep();
            Wait::collective(run.call.name, run.context.channel())
        };
        loop {
            match engine.wait_for(self, Schedule::poll, what) {
                Reached::End(outcome) => return outcome,
                Reached::Work(step) => {
                    if let Err(error) = self.work(step) {
                        self.fail(error);
                    }
                }
            }
        }
    }

    /// Goes on as far as possible.
    fn poll(&mut self) -> Option<Reached> {
        loop {
            if self.at_line || self.failed.is_some() {
                self.settle();
                if !self.pending.is_empty() {
                    if self.failed.is_none()
                        && self.patience.is_due(self.context)
                        && let Err(error) = self.look()
                    {
                        self.fail(error);
                        continue;
                    }
                    return None;
                }
                if let Some(error) = self.failed.take() {
                    return Some(Reached::End(Err(error)));
                }
                self.at_line = false;
                self.patience.restart();
            }
            match self.steps.next() {
                Some(Step::Wait) => self.at_line = true,
                Some(step) if self.is_long(&step) => return Some(Reached::Work(step)),
                Some(step) => {
                    if let Err(error) = self.start(step) {
                        self.fail(error);
                    }
                }
                None if self.pending.is_empty() => return Some(Reached::End(Ok(()))),
                None => self.at_line = true,
            }
        }
    }

    /// Forgets what has ended.
    fn settle(&mut self) {
        let (call, mut failed) = (&self.call, None);
        self.pending.retain(|Pending { completion, expected }| {
            let Some(outcome) = completion.outcome() else { return true };
            if let Err(error) = judge(call, *expected, outcome) {
                failed.get_or_insert(error);
            }
            false
        });
        if let Some(error) = failed {
            self.fail(error);
        }
    }

    /// Gives up: takes back what has not matched; what has goes to its end.
    fn fail(&mut self, error: Error) {
        if self.failed.is_none() {
            self.failed = Some(error);
            for Pending { completion, .. } in &self.pending {
                self.context.engine().withdraw(self.context.channel(), completion);
            }
        }
    }

    #[cold]
    fn abandon(&mut self) {
        let (engine, channel) = (self.context.engine(), self.context.channel());
        let pending = std::mem::take(&mut self.pending);
        abort_on_unwind(|| {
            for Pending { completion, .. } in &pending {
                engine.withdraw(channel, completion);
            }
            for Pending { completion, .. } in pending {
                // Whatever it failed with, it has ended.
                let what = || Wait::collective(self.call.name, channel);
                let _ = engine.wait_as(Started::Pending(completion), what);
            }
        });
    }

    /// Looks whether this rank waits in vain; after a long wait, asks those it waits for where they are.
    #[cold]
    fn look(&mut self) -> Result<()> {
        let is_long = self.patience.take_long();
        Course::look(self.context, &self.call, self.call.number, is_long)?;
        for rank in self.context.course().take_past(self.call.number) {
            let of_rank = |p: &&Pending| p.expected.is_some_and(|expected| expected.from == rank);
            let engine = self.context.engine();
            // What has matched is on its way, whatever has been said since.
            if self
                .pending
                .iter()
                .filter(of_rank)
                .any(|p| engine.withdraw(self.context.channel(), &p.completion))
            {
                let why = format!("rank {rank} has called something else here, and has gone on");
                return Err(Error::new(Class::Other, self.call.name, why));
            }
        }
        if is_long && self.patience.ask() {
            let mut ranks: Vec<u32> =
                self.pending.iter().filter_map(|p| p.expected).map(|e| e.from).collect();
            ranks.sort_unstable();
            ranks.dedup();
            Notice::Waiting(self.call.label).tell(self.context, self.call.number, ranks.into_iter());
        }
        Ok(())
    }

    fn start(&mut self, step: Step) -> Result<()> {
        let (engine, channel) = (self.context.engine(), self.context.channel());
        let fault = |fault| Error::fault(self.call.name, fault);
        match step {
            Step::Send { to, from } => {
                let tag = self.call.label.tag(self.call.number);
                let started =
                    engine.send(channel, to, tag, self.source(from), Mode::Standard).map_err(fault)?;
                if let Started::Pending(completion) = started {
                    self.pending.push(Pending { completion, expected: None });
                }
            }
            Step::Recv { from, into } => {
                let tag = self.call.label.tag(self.call.number);
                let (pattern, target) = (Pattern { source: from.cast_signed(), tag }, self.target(into));
                let expected = Some(Expected { from, bytes: target.bytes() });
                match engine.recv(channel, pattern, target) {
                    Ok(Started::Pending(completion)) => self.pending.push(Pending { completion, expected }),
                    Ok(Started::Done(message)) => judge(&self.call, expected, &Ok(message))?,
                    Err(fault) => judge(&self.call, expected, &Err(fault))?,
                }
            }
            step => self.work(step)?,
        }
        Ok(())
    }

    /// Runs a local step.
    fn work(&self, step: Step) -> Result<()> {
        match step {
            Step::Copy { from, into } => self.source(from).copy_items(self.target(into)),
            Step::Fold { from, into, order } => self.fold(from, into, order)?,
            Step::Send { .. } | Step::Recv { .. } | Step::Wait => (),
        }
        Ok(())
    }

    /// Whether other threads of this rank should be able to make progress during a step.
    #[inline]
    fn is_long(&self, step: &Step) -> bool {
        let (into, is_users) = match step {
            Step::Copy { into, .. } => (into, false),
            Step::Fold { into, .. } => (into, matches!(self.op, Some(Op::User(_)))),
            _ => return false,
        };
        is_users || self.area(into.area).datatype().size().saturating_mul(into.count) > BRIEF
    }

    #[inline]
    fn area(&self, area: Area) -> &Buf {
        match area {
            Area::Send => self.send,
            Area::Recv => self.recv,
            Area::Temp => self.own(0),
            Area::More => self.own(1),
        }
    }

    #[inline]
    fn own(&self, which: usize) -> &Buf {
        self.own[which].as_ref().map_or(NOTHING, |own| &own.items)
    }

    #[inline]
    fn buf(&self, span: Span) -> Buf {
        self.area(span.area).part(span.at, span.count)
    }

    fn source(&self, span: Span) -> Source {
        // SAFETY: the contract of `new`: the span lies in its area, and the schedule runs to its end.
        unsafe { Source::new(self.buf(span), None) }.expect("the area's size was checked")
    }

    fn target(&self, span: Span) -> Target {
        // SAFETY: as for `source`; the steps of one schedule do not receive twice into the same items at once.
        unsafe { Target::new(self.buf(span), None) }.expect("the area's size was checked")
    }

    fn fold(&self, from: Span, into: Span, order: Order) -> Result<()> {
        let Some(op) = self.op else { return Ok(()) };
        let (items, into) = (self.buf(from), self.buf(into));
        let mut own = None;
        if items.pieces().is_some() {
            // The operation is given items as they lie in memory.
            let own = own.insert(Own::new(self.call.name, into.datatype(), from.count)?);
            // SAFETY: the memory was made for them, and is ours.
            let target = unsafe { Target::new(own.items.clone(), None) }.expect("it was allocated");
            self.source(from).copy_items(target);
        }
        let items = own.as_ref().map_or(&items, |own| &own.items);
        // SAFETY: the contract of `new`; a fold comes after the wait for what it reads.
        let done = unsafe { op.fold(items.base(), into.base(), into.count(), into.datatype(), order) };
        done.map_err(|error| Error::new(Class::NoMem, self.call.name, error.to_string()))
    }
}

impl Drop for Schedule<'_> {
    /// A panic that unwinds through [`run`](Self::run), as one of a user's operation, must not give the memory back while
    /// others read and write it: what has not matched is taken back, what has goes to its end.
    #[inline]
    fn drop(&mut self) {
        if !self.pending.is_empty() {
            self.abandon();
        }
    }
}

// SAFETY: the memory behind the pointers is the schedule's to use, on whichever thread, by the contract of `new`.
unsafe impl Send for Schedule<'_> {}

/// Memory of the schedule's own.
#[derive(Debug)]
struct Own {
    items: Buf,
    _block: DefaultBlock,
}

impl Own {
    fn new(call: &'static str, datatype: &Datatype, count: usize) -> Result<Self> {
        let too_large = || Error::buf(call, BufError::TooLarge { count });
        let (low, high) = datatype.bounds(count).map_err(|_| too_large())?;
        let bytes = usize::try_from(high - low).map_err(|_| too_large())?;
        let block =
            mpj_pool::global().alloc(bytes).map_err(|e| Error::new(Class::NoMem, call, e.to_string()))?;
        let base = block.as_ptr().as_ptr().wrapping_offset(-(low as isize));
        Ok(Own { items: Buf::new(base, count, datatype), _block: block })
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::super::label::{Label, Operation};
    use super::*;
    use crate::raw::Comm;

    fn run(comm: &Comm, steps: Vec<Step>, memory: [&mut [u64]; 2], op: Option<&Op>) -> Result<()> {
        let [send, recv] = memory.map(Buf::slice_mut);
        let call = Call { name: "test", number: 1, label: Label::new(Operation::Allreduce, 0) };
        let plan = Plan { steps, send: &send, recv: &recv, temp: 0, op };
        // SAFETY: the tests' spans lie in their memory, which outlives the schedule.
        unsafe { Schedule::new(comm.collectives(), call, plan) }.run()
    }

    #[test]
    fn a_panic_leaves_no_receive_behind() {
        crate::threads(2, |world| {
            let comm = world.as_raw();
            let (mut send, mut recv) = ([7u64; 2], [3u64; 2]);
            if world.rank() == 0 {
                let into = Span::new(Area::Recv, 0, 1);
                let fold = Step::Fold { from: Span::new(Area::Send, 0, 1), into, order: Order::FromLeft };
                let steps = vec![Step::Recv { from: 1, into: Span::new(Area::Recv, 1, 1) }, fold];
                let op = Op::user(true, |_: &u64, _: &u64| panic!("as the test wants"));
                let run = || run(comm, steps, [&mut send, &mut recv], Some(&op));
                assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
                world.send(&[1u8], 1, 0)?;
                world.recv(&mut [0u8], 1, 0)?;
                assert_eq!(recv, [3; 2]);
            } else {
                world.recv(&mut [0u8], 0, 0)?;
                let steps = vec![Step::Send { to: 0, from: Span::new(Area::Send, 0, 1) }];
                run(comm, steps, [&mut send, &mut recv], None)?;
                world.send(&[1u8], 0, 0)?;
            }
            Ok::<(), Error>(())
        })
        .expect("both ranks go on");
    }
}
