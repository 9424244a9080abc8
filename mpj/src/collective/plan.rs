//! The plan of one rank in a collective: its steps, and the memory on which they work.

use std::borrow::Cow;
use std::mem::discriminant;
use std::ops::Deref;

use mpj_collectives::{BufIndex, Span, Step};
use mpj_datatypes::{Datatype, Primitive};
use mpj_devices::{Buf, Content, Origin};

use super::call_id::CallDigest;
use super::temp_buffers::TempBuffers;
use crate::error::{Error, ErrorClass, Result};
use crate::op::Op;

#[derive(Debug)]
pub(crate) struct Plan<'a> {
    pub(crate) digest: CallDigest,
    pub(crate) steps: Vec<Step>,
    pub(crate) user: PlanBuffers<'a>,
    pub(crate) op: Option<MaybeOwned<'a, Op>>,
}

/// The buffers with the first indices: those of the caller and, in an in-place alltoallw, the copies in `temp` after
/// them.
#[derive(Debug)]
pub(crate) enum PlanBuffers<'a> {
    /// A send and a receive buffer. If a call has only one of them, the other is the same buffer or empty. Needs no
    /// allocation.
    Pair(&'a Buf, &'a Buf),
    List {
        bufs: Cow<'a, [Buf]>,
        /// The memory of the last buffers, which are not the caller's.
        temp: Vec<TempBuffers>,
    },
}

/// Like `Cow`, but the owned value is in a `Box`.
#[derive(Debug)]
pub(crate) enum MaybeOwned<'a, T> {
    Borrowed(&'a T),
    Owned(Box<T>),
}

impl<T> Deref for MaybeOwned<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        match self {
            MaybeOwned::Borrowed(value) => value,
            MaybeOwned::Owned(value) => value,
        }
    }
}

pub(crate) const EMPTY_BUF: &Buf = &Buf::empty();

impl<'a> Plan<'a> {
    #[inline]
    pub(crate) fn new(digest: CallDigest, steps: Vec<Step>, send: &'a Buf, recv: &'a Buf) -> Self {
        Plan { digest, steps, user: PlanBuffers::Pair(send, recv), op: None }
    }

    #[inline]
    pub(crate) fn with_op(self, op: &'a Op) -> Self {
        Plan { op: Some(MaybeOwned::Borrowed(op)), ..self }
    }

    /// Returns the number of items for a trace: the larger count of a pair of buffers, or the sum of a list.
    pub(crate) fn items(&self) -> usize {
        match &self.user {
            PlanBuffers::Pair(send, recv) => send.count().max(recv.count()),
            PlanBuffers::List { bufs, .. } => bufs.iter().map(Buf::count).sum(),
        }
    }

    pub(crate) fn user_buf(&self, index: BufIndex) -> Option<&Buf> {
        self.user.get(index)
    }

    /// Clones the operation and the descriptions of the buffers, not their memory.
    pub(crate) fn into_owned(self) -> Plan<'static> {
        let Plan { digest, steps, user, op } = self;
        let (bufs, temp) = match user {
            PlanBuffers::Pair(send, recv) => (vec![send.clone(), recv.clone()], Vec::new()),
            PlanBuffers::List { bufs, temp } => (bufs.into_owned(), temp),
        };
        let op = op.map(|op| match op {
            MaybeOwned::Borrowed(op) => MaybeOwned::Owned(Box::new(op.clone())),
            MaybeOwned::Owned(op) => MaybeOwned::Owned(op),
        });
        Plan { digest, steps, user: PlanBuffers::List { bufs: Cow::Owned(bufs), temp }, op }
    }

    /// In an owned plan, replaces each of the caller's buffers for which `bufs` has a new one. `bufs` has an entry for
    /// each of the caller's buffers.
    ///
    /// # Errors
    /// The number, the type or the memory layout of the items differs, or the kind of memory. The buffers before the
    /// wrong one are then replaced.
    pub(crate) fn rebind(&mut self, call: &'static str, bufs: &[Option<&Buf>]) -> Result<()> {
        let PlanBuffers::List { bufs: user, temp } = &mut self.user else { return Ok(()) };
        let user = user.to_mut();
        debug_assert_eq!(bufs.len(), user.len() - temp.len());
        for (old, new) in user.iter_mut().zip(bufs) {
            let Some(new) = *new else { continue };
            if !same_layout(old, new) {
                let (prepared, found) = (describe(old), describe(new));
                let why = format!("expected {prepared} as in the prepared call, found {found}");
                return Err(Error::new(ErrorClass::Buffer, call, why));
            }
            old.clone_from(new);
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn allocate(&self, call: &'static str) -> Result<Option<TempBuffers>> {
        TempBuffers::for_steps(call, &self.steps, &self.user, self.datatype(BufIndex::RECV))
    }

    /// Returns the type of a buffer's items. Temporary buffers have the type of buffer 1, the receive buffer of a pair.
    #[inline]
    pub(crate) fn datatype(&self, index: BufIndex) -> &Datatype {
        self.user.get(index).or_else(|| self.user.get(BufIndex::RECV)).unwrap_or(EMPTY_BUF).datatype()
    }

    #[inline]
    pub(crate) fn buf(&self, temp: Option<&TempBuffers>, span: Span) -> Buf {
        match (self.user.get(span.buf), temp) {
            (Some(user), _) => user.part(span.at, span.count),
            (None, Some(temp)) => temp.part(span.buf.index() - self.user.count(), span.at, span.count),
            (None, None) => Buf::empty(),
        }
    }

    /// Returns the items of a span that lies in its buffer, if they are plain. Unlike [`buf`](Self::buf), this moves no
    /// [`Buf`]: each move waits for the stores of the fields.
    #[inline]
    pub(crate) fn plain<'p>(&'p self, temp: Option<&'p TempBuffers>, span: Span) -> Option<PlainItems<'p>> {
        let (first, base) = match self.user.get(span.buf) {
            Some(user) => (user, user.base()),
            None => temp?.first_item(span.buf.index() - self.user.count()),
        };
        let datatype = first.datatype();
        if !matches!(first.origin(), Origin::Memory) {
            return None;
        }
        let (primitive, base) = (datatype.as_primitive()?, base.wrapping_add(span.at * datatype.size()));
        Some(PlainItems { base, count: span.count, datatype, primitive })
    }
}

/// Contiguous primitives in ordinary memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainItems<'p> {
    pub(crate) base: *mut u8,
    pub(crate) count: usize,
    pub(crate) datatype: &'p Datatype,
    primitive: Primitive,
}

impl PlainItems<'_> {
    /// Returns the length in bytes.
    #[inline]
    pub(crate) fn bytes(&self) -> usize {
        self.count * self.datatype.size()
    }

    /// Returns a description, whose fields stay in registers where it is used at once.
    #[inline(always)]
    pub(crate) fn to_buf(self) -> Buf {
        Buf::new(self.base, self.count, self.primitive)
    }
}

/// Returns whether the items of two buffers have the same number, elements and offsets, in memory of the same kind.
pub(crate) fn same_layout(one: &Buf, other: &Buf) -> bool {
    let (first, second) = (one.datatype(), other.datatype());
    let are_primitive = first.is_primitive() && second.is_primitive();
    let same_runs = || are_primitive || first.runs(one.count()).eq(second.runs(other.count()));
    one.count() == other.count()
        && discriminant(one.origin()) == discriminant(other.origin())
        && first.has_same_elements(second)
        && same_runs()
}

fn describe(items: &Buf) -> String {
    match items.bytes() {
        Ok(bytes) => Content::of(items.datatype(), bytes).to_string(),
        Err(error) => error.to_string(),
    }
}

impl PlanBuffers<'_> {
    #[inline]
    pub(super) fn get(&self, index: BufIndex) -> Option<&Buf> {
        match (self, index) {
            (PlanBuffers::Pair(send, _), BufIndex::SEND) => Some(send),
            (PlanBuffers::Pair(_, recv), BufIndex::RECV) => Some(recv),
            (PlanBuffers::Pair(..), _) => None,
            (PlanBuffers::List { bufs, .. }, index) => bufs.get(index.index()),
        }
    }

    #[inline]
    pub(super) fn count(&self) -> usize {
        match self {
            PlanBuffers::Pair(..) => 2,
            PlanBuffers::List { bufs, .. } => bufs.len(),
        }
    }
}
