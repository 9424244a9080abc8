//! The steps that need no other rank, and the memory that steps name.

use std::ops::Deref;

use mpj_collectives::{OperandOrder, Span, Step};
use mpj_datatypes::{Datatype, InvalidValueError};
use mpj_devices::{Buf, Source, Target};

use super::{SIZE_CHECKED, Schedule};
use crate::collective::context::CollContext;
use crate::collective::plan::PlainItems;
use crate::error::{Error, ErrorClass, Result};
use crate::op::Op;

/// The maximum number of bytes that are copied or reduced while the progress lock may be held.
const MAX_LOCKED_BYTES: usize = 32 << 10;

impl<C: Deref<Target = CollContext>> Schedule<'_, C> {
    /// Runs the step because of which [`poll`](Self::poll) has returned [`ScheduleStatus::LocalStep`].
    pub(in crate::collective) fn run_next_local_step(&self) -> Result<()> {
        let step = self.next_step.checked_sub(1).and_then(|at| self.plan.steps.get(at));
        step.map_or(Ok(()), |step| self.run_local_step(step))
    }

    pub(super) fn run_local_step(&self, step: &Step) -> Result<()> {
        match *step {
            Step::Copy { from, into } => self.copy(from, into)?,
            Step::ReduceLocal { from, into, order } => self.reduce_local(from, into, order)?,
            Step::Send { .. } | Step::Recv { .. } | Step::Fence => (),
        }
        Ok(())
    }

    /// Returns whether a step must run without the progress lock, so that other threads of this rank can make progress.
    #[inline]
    pub(super) fn is_long_local_step(&self, step: &Step) -> bool {
        let (into, is_user_op) = match step {
            Step::Copy { into, .. } => (into, false),
            Step::ReduceLocal { into, .. } => (into, matches!(self.plan.op.as_deref(), Some(Op::User(_)))),
            _ => return false,
        };
        is_user_op || self.plan.datatype(into.buf).size().saturating_mul(into.count) > MAX_LOCKED_BYTES
    }

    #[inline]
    pub(super) fn buf(&self, span: Span) -> Buf {
        self.plan.buf(self.temp.as_ref(), span)
    }

    #[inline]
    pub(super) fn source(&self, span: Span) -> Source {
        // SAFETY: the contract of `new`: the span lies in its buffer until the schedule has completed, and a schedule
        // waits for its operations even if it is dropped.
        unsafe { Source::new(self.buf(span), None) }.expect(SIZE_CHECKED)
    }

    fn target(&self, span: Span) -> Target {
        // SAFETY: as for `source`; the steps of one schedule do not receive twice into the same items at once.
        unsafe { Target::new(self.buf(span), None) }.expect(SIZE_CHECKED)
    }

    #[inline]
    pub(super) fn plain(&self, span: Span) -> Option<PlainItems<'_>> {
        self.plan.plain(self.temp.as_ref(), span)
    }

    fn copy(&self, from: Span, into: Span) -> Result<()> {
        if let (Some(from), Some(into)) = (self.plain(from), self.plain(into))
            && !into.datatype.needs_validation()
            && from.bytes() == into.bytes()
        {
            // SAFETY: the contract of `new`: the spans lie in their buffers, which may be read and written.
            unsafe { from.base.copy_to(into.base, from.bytes()) };
            return Ok(());
        }
        self.source(from).copy_items(self.target(into)).map_err(|bad| self.invalid_value_error(bad))
    }

    fn reduce_local(&self, from: Span, into: Span, order: OperandOrder) -> Result<()> {
        let Some(op) = self.plan.op.as_deref() else { return Ok(()) };
        let combine = |from: *mut u8, into: *mut u8, count, datatype: &Datatype| {
            // SAFETY: the contract of `new`; a reduction step comes after the fence for the items that it reads, and
            // these items were received or copied, and thereby validated, or are those of an in-place reduction, which
            // the contract requires to be valid.
            unsafe { op.combine(from, into, count, datatype, order) }
        };
        let done = match (self.plain(from), self.plain(into)) {
            (Some(from), Some(into)) => combine(from.base, into.base, into.count, into.datatype),
            _ => {
                let (from, into) = (self.buf(from), self.buf(into));
                combine(from.base(), into.base(), into.count(), into.datatype())
            }
        };
        done.map_err(|error| Error::new(ErrorClass::NoMem, self.call.name, error.to_string()))
    }

    #[cold]
    fn invalid_value_error(&self, bad: InvalidValueError) -> Error {
        let rank = self.call.name_of(self.context.rank());
        Error::new(ErrorClass::Type, self.call.name, format!("{rank} contributed an invalid value: {bad}"))
    }
}
