//! The plan of one rank in a collective: its steps, and the memory they work on, which is borrowed for a call or owned
//! for longer.

use std::borrow::Cow;
use std::mem::discriminant;
use std::ops::Deref;

use mpj_datatypes::Datatype;
use mpj_devices::{Buf, BufError, Content};
use mpj_pool::{DefaultBlock, Pool, RawBuffer};

use super::step::{BufIndex, Span, Step};
use crate::error::{Error, ErrorClass, Result};
use crate::op::Op;

/// The plan of one rank in a collective: steps, and the memory they work on.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) steps: Vec<Step>,
    pub(crate) lent: UserBuffers<'a>,
    /// The number of items, of the receive buffer's type, in each temporary area.
    pub(crate) temp: usize,
    pub(crate) op: Option<MaybeOwned<'a, Op>>,
}

/// The buffers of the caller; their areas are numbered from 0.
#[derive(Debug)]
pub(crate) enum UserBuffers<'a> {
    /// A send buffer and a receive buffer, as in most collectives; avoids allocating a list.
    Pair(&'a Buf, &'a Buf),
    /// Any number of buffers.
    List(Cow<'a, [Buf]>),
}

/// A value of the caller, or a copy of it.
#[derive(Debug)]
pub(crate) enum MaybeOwned<'a, T> {
    Lent(&'a T),
    Kept(Box<T>),
}

impl<T> Deref for MaybeOwned<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            MaybeOwned::Lent(value) => value,
            MaybeOwned::Kept(value) => value,
        }
    }
}

/// The empty buffer, for plans whose messages are empty.
pub(crate) const NOTHING: &Buf = &Buf::empty();

impl<'a> Plan<'a> {
    /// Creates a plan whose steps work on a send buffer and a receive buffer.
    #[inline]
    pub(crate) fn new(steps: Vec<Step>, send: &'a Buf, recv: &'a Buf) -> Self {
        Plan { steps, lent: UserBuffers::Pair(send, recv), temp: 0, op: None }
    }

    /// Adds temporary areas of `items` items of the receive buffer's type.
    #[inline]
    pub(crate) fn with_temp(self, items: usize) -> Self {
        Plan { temp: items, ..self }
    }

    /// Sets the operation of the reduction steps.
    #[inline]
    pub(crate) fn with_op(self, op: &'a Op) -> Self {
        Plan { op: Some(MaybeOwned::Lent(op)), ..self }
    }

    /// Returns the number of items that the rank contributes or receives, whichever is larger.
    pub(crate) fn items(&self) -> usize {
        match &self.lent {
            UserBuffers::Pair(send, recv) => send.count().max(recv.count()),
            UserBuffers::List(all) => all.iter().map(Buf::count).sum(),
        }
    }

    /// Returns the caller's buffer of an area.
    pub(crate) fn lent(&self, area: BufIndex) -> Option<&Buf> {
        self.lent.get(area)
    }

    /// Copies the descriptions of the borrowed buffers. The memory itself is not copied.
    pub(crate) fn into_owned(self) -> Plan<'static> {
        let Plan { steps, lent, temp, op } = self;
        let lent = match lent {
            UserBuffers::Pair(send, recv) => vec![send.clone(), recv.clone()],
            UserBuffers::List(all) => all.into_owned(),
        };
        let op = op.map(|op| match op {
            MaybeOwned::Lent(op) => MaybeOwned::Kept(Box::new(op.clone())),
            MaybeOwned::Kept(op) => MaybeOwned::Kept(op),
        });
        Plan { steps, lent: UserBuffers::List(Cow::Owned(lent)), temp, op }
    }

    /// Replaces the buffers for which `bufs` has a new one; it must have the same number of items and the same memory
    /// layout.
    ///
    /// # Errors
    /// The number of items or the layout differs.
    pub(crate) fn rebind(&mut self, call: &'static str, bufs: [Option<&Buf>; 2]) -> Result<()> {
        let UserBuffers::List(lent) = &mut self.lent else { return Ok(()) };
        let lent = lent.to_mut();
        for (old, new) in lent.iter_mut().zip(bufs) {
            let Some(new) = new else { continue };
            if !lies_alike(old, new) {
                let (then, now) = (describe(old), describe(new));
                let why = format!("it was prepared for {then}, and is started with {now}");
                return Err(Error::new(ErrorClass::Buffer, call, why));
            }
            old.clone_from(new);
        }
        Ok(())
    }

    /// Allocates the temporary areas that the steps write to.
    ///
    /// # Errors
    /// The memory cannot be allocated, or its size overflows.
    pub(crate) fn allocate(&self, call: &'static str) -> Result<Option<TempBuffers>> {
        let written = |step: &Step| match step {
            Step::Recv { into, .. } | Step::Copy { into, .. } if into.count > 0 => into.area.number() + 1,
            _ => 0,
        };
        let end = self.steps.iter().map(written).max().unwrap_or(0);
        let areas = end.saturating_sub(self.lent.count());
        (areas > 0)
            .then(|| TempBuffers::new(call, self.datatype(BufIndex::RECV), self.temp, areas))
            .transpose()
    }

    /// Returns the type of an area's items; temporary areas have the type of the receive buffer.
    #[inline]
    pub(crate) fn datatype(&self, area: BufIndex) -> &Datatype {
        self.lent.get(area).or_else(|| self.lent.get(BufIndex::RECV)).unwrap_or(NOTHING).datatype()
    }

    /// Returns the items of a span.
    #[inline]
    pub(crate) fn buf(&self, own: Option<&TempBuffers>, span: Span) -> Buf {
        match (self.lent.get(span.area), own) {
            (Some(lent), _) => lent.part(span.at, span.count),
            (None, Some(own)) => own.part(span.area.number() - self.lent.count(), span.at, span.count),
            (None, None) => Buf::empty(),
        }
    }
}

fn lies_alike(one: &Buf, other: &Buf) -> bool {
    let (first, second) = (one.datatype(), other.datatype());
    let is_one = first.is_primitive() && second.is_primitive();
    let lie_alike = || is_one || first.runs(one.count()).eq(second.runs(other.count()));
    one.count() == other.count()
        && discriminant(one.origin()) == discriminant(other.origin())
        && first.has_same_elements(second)
        && lie_alike()
}

fn describe(items: &Buf) -> String {
    match items.bytes() {
        Ok(bytes) => Content::of(items.datatype(), bytes).to_string(),
        Err(error) => error.to_string(),
    }
}

impl UserBuffers<'_> {
    #[inline]
    fn get(&self, area: BufIndex) -> Option<&Buf> {
        match (self, area) {
            (UserBuffers::Pair(send, _), BufIndex::SEND) => Some(send),
            (UserBuffers::Pair(_, recv), BufIndex::RECV) => Some(recv),
            (UserBuffers::Pair(..), _) => None,
            (UserBuffers::List(all), area) => all.get(area.number()),
        }
    }

    #[inline]
    fn count(&self) -> usize {
        match self {
            UserBuffers::Pair(..) => 2,
            UserBuffers::List(all) => all.len(),
        }
    }
}

/// Temporary memory of a schedule: areas with equal numbers of items, in one block.
#[derive(Debug)]
pub(crate) struct TempBuffers {
    /// The items of the first area.
    items: Buf,
    areas: usize,
    /// The distance between two areas in bytes.
    stride: usize,
    _block: DefaultBlock,
}

/// Areas are aligned to cache lines, relative to the block.
const LINE: usize = 64;

impl TempBuffers {
    pub(crate) fn new(call: &'static str, datatype: &Datatype, items: usize, areas: usize) -> Result<Self> {
        let too_large = || Error::buf(call, BufError::TooLarge { count: items });
        let (low, high) = datatype.byte_bounds(items).map_err(|_| too_large())?;
        let bytes = usize::try_from(high - low).map_err(|_| too_large())?;
        let stride =
            if areas == 1 { bytes } else { bytes.checked_next_multiple_of(LINE).ok_or_else(too_large)? };
        let all = stride.checked_mul(areas).ok_or_else(too_large)?;
        let block =
            mpj_pool::global().alloc(all).map_err(|e| Error::new(ErrorClass::NoMem, call, e.to_string()))?;
        let base = block.as_ptr().as_ptr().wrapping_offset(-(low as isize));
        Ok(TempBuffers { items: Buf::new(base, items, datatype), areas, stride, _block: block })
    }

    #[inline]
    pub(crate) fn part(&self, area: usize, at: usize, count: usize) -> Buf {
        if area >= self.areas {
            return Buf::empty();
        }
        let part = self.items.part(at, count);
        if area == 0 {
            return part;
        }
        Buf::new(part.base().wrapping_add(area * self.stride), count, part.datatype())
    }
}
