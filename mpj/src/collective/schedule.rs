//! A collective as a list of steps, which one machine runs: blocking calls wait for it, non-blocking ones poll it.
//!
//! Communication steps start at once; [`Step::Wait`] is a line that nothing crosses until everything started before it
//! has ended. Local steps run when they are reached.

use std::sync::Arc;

use mpj_devices::{Channel, Completion, Engine, Fault, Mode, Pattern, Shape, Source, Started, Target, Wait};
use mpj_pool::{DefaultBlock, Pool, RawBuffer};

use crate::error::{Class, Error, Result};
use crate::op::{Op, Order};
use crate::raw::Comm;

/// Which memory a [`Span`] lies in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Area {
    /// The user's send buffer.
    Send = 0,
    /// The user's receive buffer.
    Recv = 1,
    /// The schedule's own memory.
    Temp = 2,
    /// As much again: items may interleave, so that two sets of them cannot lie one after the other.
    More = 3,
}

/// `count` items of an area, from item `at` on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Span {
    pub(crate) area: Area,
    pub(crate) at: usize,
    pub(crate) count: usize,
}

impl Span {
    pub(crate) const NONE: Span = Span { area: Area::Temp, at: 0, count: 0 };

    pub(crate) fn new(area: Area, at: usize, count: usize) -> Self {
        Span { area, at, count }
    }
}

/// One step.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Send { to: u32, from: Span },
    Recv { from: u32, into: Span },
    Wait,
    Copy { from: Span, into: Span },
    Fold { from: Span, into: Span, order: Order },
}

/// The memory of an area.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    pub(crate) base: *mut u8,
    pub(crate) shape: Shape,
}

impl Memory {
    /// No memory, for schedules that move none.
    pub(crate) fn none() -> Self {
        Memory { base: std::ptr::null_mut(), shape: Shape::Flat(mpj_datatypes::Primitive::Byte) }
    }
}

/// A collective under way.
#[derive(Debug)]
pub(crate) struct Schedule {
    call: &'static str,
    engine: Arc<Engine>,
    channel: Arc<Channel>,
    tag: i32,
    steps: std::vec::IntoIter<Step>,
    areas: [Memory; 4],
    op: Option<Op>,
    pending: Vec<Completion>,
    /// Whether a [`Step::Wait`] has been reached and not yet crossed.
    at_line: bool,
    failed: Option<Fault>,
    _own: [Option<DefaultBlock>; 2],
}

impl Schedule {
    /// Prepares a schedule; `temp` is the number of items of the receive type that its own areas hold.
    ///
    /// # Safety
    /// Every span of the steps lies in what `send` and `recv` describe, under the contract of [`raw`](crate::raw), until
    /// the schedule has been polled to its end; nothing is written to `send`.
    pub(crate) unsafe fn new(
        comm: &Comm,
        call: &'static str,
        steps: Vec<Step>,
        send: Memory,
        recv: Memory,
        temp: usize,
        op: Option<Op>,
    ) -> Result<Self> {
        let uses_more = |step: &Step| matches!(step, Step::Recv { into, .. } if into.area == Area::More);
        let own =
            |wanted| if wanted { allocate(call, &recv.shape, temp) } else { Ok((Memory::none(), None)) };
        let ((first, one), (second, other)) = (own(temp > 0)?, own(temp > 0 && steps.iter().any(uses_more))?);
        Ok(Schedule {
            call,
            engine: Arc::clone(comm.engine()),
            channel: Arc::clone(comm.coll()),
            tag: comm.next_collective(),
            steps: steps.into_iter(),
            areas: [send, recv, first, second],
            op,
            pending: Vec::new(),
            at_line: false,
            failed: None,
            _own: [one, other],
        })
    }

    /// Runs to the end.
    pub(crate) fn run(mut self) -> Result<()> {
        let engine = Arc::clone(&self.engine);
        engine.wait_for(&mut self, Schedule::poll, |run| Wait::collective(run.call, &run.channel))
    }

    /// Goes on as far as possible; `Some` at the end, when nothing touches the buffers any more.
    pub(crate) fn poll(&mut self) -> Option<Result<()>> {
        loop {
            if self.at_line || self.failed.is_some() {
                self.settle();
                if !self.pending.is_empty() {
                    return None;
                }
                if let Some(fault) = self.failed.take() {
                    return Some(Err(Error::fault(self.call, fault)));
                }
                self.at_line = false;
            }
            match self.steps.next() {
                Some(Step::Wait) => self.at_line = true,
                Some(step) => {
                    if let Err(fault) = self.start(step) {
                        self.fail(fault);
                    }
                }
                None if self.pending.is_empty() => return Some(Ok(())),
                None => self.at_line = true,
            }
        }
    }

    /// Forgets what has ended.
    fn settle(&mut self) {
        let mut fault = None;
        self.pending.retain(|completion| match completion.outcome() {
            None => true,
            Some(Ok(_)) => false,
            Some(Err(why)) => {
                fault.get_or_insert_with(|| why.clone());
                false
            }
        });
        if let Some(fault) = fault {
            self.fail(fault);
        }
    }

    /// Gives up: takes back what has not matched; what has goes to its end.
    fn fail(&mut self, fault: Fault) {
        if self.failed.is_none() {
            self.failed = Some(fault);
            for completion in &self.pending {
                self.engine.cancel(&self.channel, completion);
            }
        }
    }

    fn start(&mut self, step: Step) -> Result<(), Fault> {
        let started = match step {
            Step::Send { to, from } => {
                self.engine.send(&self.channel, to, self.tag, self.source(from), Mode::Standard)?
            }
            Step::Recv { from, into } => {
                let pattern = Pattern { source: from.cast_signed(), tag: self.tag };
                self.engine.recv(&self.channel, pattern, self.target(into))?
            }
            Step::Copy { from, into } => {
                self.source(from).copy_items(self.target(into));
                return Ok(());
            }
            Step::Fold { from, into, order } => {
                self.fold(from, into, order);
                return Ok(());
            }
            Step::Wait => return Ok(()),
        };
        if let Started::Pending(completion) = started {
            self.pending.push(completion);
        }
        Ok(())
    }

    fn base(&self, span: Span) -> *mut u8 {
        let memory = &self.areas[span.area as usize];
        let offset = (span.at as isize).wrapping_mul(memory.shape.extent() as isize);
        memory.base.wrapping_offset(offset)
    }

    fn shape(&self, span: Span) -> Shape {
        self.areas[span.area as usize].shape.clone()
    }

    fn source(&self, span: Span) -> Source {
        // SAFETY: the contract of `new`: the span lies in its area, and the schedule is polled to its end.
        let source = unsafe { Source::new(self.base(span), span.count, self.shape(span), None) };
        source.expect("the area's size was checked")
    }

    fn target(&self, span: Span) -> Target {
        // SAFETY: as for `source`; the steps of one schedule do not receive twice into the same items at once.
        let target = unsafe { Target::new(self.base(span), span.count, self.shape(span), None) };
        target.expect("the area's size was checked")
    }

    fn fold(&self, from: Span, into: Span, order: Order) {
        let Some(op) = &self.op else { return };
        let datatype = self.shape(into).datatype();
        // SAFETY: the contract of `new`; a fold comes after the wait for what it reads.
        unsafe { op.fold(self.base(from), self.base(into), into.count, &datatype, order) };
    }
}

// SAFETY: the memory behind the pointers is the schedule's to use, on whichever thread, by the contract of `new`.
unsafe impl Send for Schedule {}

/// Makes memory for `count` items of a shape: where item 0 is, and the block it lies in.
fn allocate(call: &'static str, shape: &Shape, count: usize) -> Result<(Memory, Option<DefaultBlock>)> {
    let too_large =
        || Error::new(Class::Count, call, format!("{count} items are more bytes than can be counted"));
    let (low, high) = shape.datatype().bounds(count).map_err(|_| too_large())?;
    let bytes = usize::try_from(high - low).map_err(|_| too_large())?;
    let block = mpj_pool::global().alloc(bytes).map_err(|e| Error::new(Class::NoMem, call, e.to_string()))?;
    let base = block.as_ptr().as_ptr().wrapping_offset(-(low as isize));
    Ok((Memory { base, shape: shape.clone() }, Some(block)))
}
