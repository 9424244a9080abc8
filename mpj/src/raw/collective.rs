//! Collectives: every rank of the communicator calls them in the same order.
//!
//! Counts are in items and, as in MPI, the type signature of what is sent must be that of what is received, on all ranks:
//! a message that is shorter, longer or of another type is an error. An error on one rank is told to the others, which fail
//! with it; from then on the communicator takes no more collectives. Arguments that are refused on all ranks leave it as
//! it was.
//!
//! Where `send` (of [`scatter`], `recv`) is [`Buf::in_place`], the rank's own items are in the other buffer already
//! (`MPI_IN_PLACE`).

use std::borrow::Cow;

use mpj_devices::Buf;

use super::comm::Comm;
use super::items::{BlockLayout, CollBuf};
use super::plans::{self, Planned, plan};
use crate::collective::label::CallDigest;
use crate::collective::plan::{NOTHING, Plan, UserBuffers};
use crate::collective::step::{BufIndex, Span};
use crate::collective::turn::BlockingCall;
use crate::collective::{all, rooted, tuning};
use crate::error::Result;
use crate::op::Op;

/// Runs the plan of a call to its end.
///
/// # Safety
/// The contract of the call.
#[inline]
unsafe fn run<'a>(comm: &Comm, call: &'static str, plan: impl FnOnce() -> Planned<'a>) -> Result<()> {
    comm.collective(call, |turn| {
        let (label, plan) = plan()?;
        // SAFETY: the caller's contract; the plan names what was checked.
        unsafe { turn.run(label, plan) }
    })
}

/// Waits until every rank has called it.
///
/// # Errors
/// A freed communicator, a dead or departed rank, ranks that are out of step.
pub fn barrier(comm: &Comm) -> Result<()> {
    comm.collective("barrier", |turn| {
        let (label, plan) = plans::barrier(comm);
        // SAFETY: no memory is named.
        unsafe { turn.run(label, plan) }
    })
}

/// Gives every rank the items of `root`.
///
/// # Errors
/// A bad root, a freed communicator, a dead or departed rank; other counts or types elsewhere; an error on another rank;
/// ranks that are out of step.
///
/// # Safety
/// The contract of a send buffer at the root, of a receive buffer elsewhere.
pub unsafe fn bcast(comm: &Comm, items: &Buf, root: i32) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { run(comm, "bcast", || plans::bcast(comm, "bcast", items, root)) }
}

/// Combines the items of all ranks at `root`, in order of rank if `op` is not commutative; `recv` is used at the root alone, and `send` there only if
/// it is not in place.
///
/// # Errors
/// As [`bcast`]; [`ErrorClass::Op`](crate::ErrorClass::Op) if the operation is not defined for the type, [`ErrorClass::Count`](crate::ErrorClass::Count) or [`ErrorClass::Type`](crate::ErrorClass::Type) if
/// the root's buffers differ, [`ErrorClass::Buffer`](crate::ErrorClass::Buffer) if they overlap, or there is nothing to send elsewhere. After an
/// error `recv` may hold a part of the result, and what was in place there is gone.
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn reduce(comm: &Comm, send: &Buf, recv: &Buf, op: &Op, root: i32) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { run(comm, "reduce", || plans::reduce(comm, "reduce", send, recv, op, root)) }
}

/// Combines the items of all ranks everywhere, in order of rank if `op` is not commutative, with the same bits on each rank but
/// for those that a NaN carries in a sum or a product.
///
/// # Errors
/// As [`reduce`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn allreduce(comm: &Comm, send: &Buf, recv: &Buf, op: &Op) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { run(comm, "allreduce", || plans::allreduce(comm, "allreduce", send, recv, op)) }
}

/// Combines the items of all ranks, in order of rank if `op` is not commutative, and gives rank `r` the next `counts[r]` of the result.
///
/// # Errors
/// As [`reduce`]; [`ErrorClass::Arg`](crate::ErrorClass::Arg) for as many counts as there are not ranks, [`ErrorClass::Count`](crate::ErrorClass::Count) if they are more than is sent.
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn reduce_scatter(comm: &Comm, send: &Buf, recv: &Buf, counts: &[usize], op: &Op) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe {
        run(comm, "reduce_scatter", || plans::reduce_scatter(comm, "reduce_scatter", send, recv, counts, op))
    }
}

/// Gives rank `r` the combination of the items of ranks 0 to `r`.
///
/// # Errors
/// As [`reduce`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn scan(comm: &Comm, send: &Buf, recv: &Buf, op: &Op) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { run(comm, "scan", || plans::scan(comm, "scan", send, recv, op)) }
}

/// Collects the items of all ranks at `root`, placed by `layout`, which is used at the root alone like `recv`. The root's
/// own may be in place.
///
/// # Errors
/// As [`reduce`]; [`ErrorClass::Count`](crate::ErrorClass::Count) if the layout leaves the root's buffer, [`ErrorClass::Arg`](crate::ErrorClass::Arg) if its parts overlap.
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn gather(comm: &Comm, send: &Buf, recv: &Buf, layout: BlockLayout<'_>, root: i32) -> Result<()> {
    let call = layout.name("gather", "gatherv");
    // SAFETY: the caller's contract.
    unsafe { run(comm, call, || plans::gather(comm, call, send, recv, layout, root)) }
}

/// Deals the items of `root` out, placed by `layout`, which is used at the root alone like `send`. The root's own may stay
/// in place.
///
/// # Errors
/// As [`gather`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn scatter(comm: &Comm, send: &Buf, layout: BlockLayout<'_>, recv: &Buf, root: i32) -> Result<()> {
    let call = layout.name("scatter", "scatterv");
    // SAFETY: the caller's contract.
    unsafe { run(comm, call, || plans::scatter(comm, call, send, layout, recv, root)) }
}

/// Collects the items of all ranks everywhere, placed by `layout`.
///
/// # Errors
/// As [`gather`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn allgather(comm: &Comm, send: &Buf, recv: &Buf, layout: BlockLayout<'_>) -> Result<()> {
    let call = layout.name("allgather", "allgatherv");
    // SAFETY: the caller's contract.
    unsafe { run(comm, call, || plans::allgather(comm, call, send, recv, layout)) }
}

/// Sends a block to each rank and gets one from each, placed by the two layouts. In place, what is received replaces what
/// was sent, `back` says where both lie, and as much memory again is used.
///
/// # Errors
/// As [`gather`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn alltoall(
    comm: &Comm,
    send: &Buf,
    layout: BlockLayout<'_>,
    recv: &Buf,
    back: BlockLayout<'_>,
) -> Result<()> {
    let call = back.name("alltoall", "alltoallv");
    // SAFETY: the caller's contract.
    unsafe { run(comm, call, || plans::alltoall(comm, call, send, layout, recv, back)) }
}

impl BlockingCall<'_> {
    /// Broadcasts items, for whatever call.
    ///
    /// # Safety
    /// The contract of [`bcast`].
    pub(crate) unsafe fn bcast(&mut self, label: CallDigest, items: &Buf, root: u32) -> Result<()> {
        let steps = rooted::bcast(self.rank(), self.size(), root, items.count());
        // SAFETY: the caller's contract; the root's steps only send.
        unsafe { self.run(label, plan(steps, None, items)) }
    }

    /// Broadcasts words.
    pub(crate) fn bcast_words(&mut self, label: CallDigest, words: &mut [u64], root: u32) -> Result<()> {
        let items = Buf::slice_mut(words);
        // SAFETY: the words are ours until it returns.
        unsafe { self.bcast(label, &items, root) }
    }

    /// Collects items at `root`, where they are placed by `blocks`, for whatever call.
    ///
    /// # Safety
    /// The contract of [`gather`]; the blocks lie in `recv`.
    pub(crate) unsafe fn gather(
        &mut self,
        label: CallDigest,
        send: Option<&Buf>,
        recv: &Buf,
        blocks: rooted::Blocks<'_>,
        root: u32,
    ) -> Result<()> {
        let mine = send.map(|send| send.whole(BufIndex::SEND));
        let into = |rank| {
            let (at, count) = blocks(rank);
            Span::new(BufIndex::RECV, at, count)
        };
        let steps = rooted::gather(self.rank(), self.size(), root, mine, &into);
        // SAFETY: the caller's contract.
        unsafe { self.run(label, plan(steps, send, recv)) }
    }

    /// Deals the items of `root` out, where they are placed by `blocks`, for whatever call.
    ///
    /// # Safety
    /// The contract of [`scatter`]; the blocks lie in `send`.
    pub(crate) unsafe fn scatter(
        &mut self,
        label: CallDigest,
        send: &Buf,
        blocks: rooted::Blocks<'_>,
        recv: Option<&Buf>,
        root: u32,
    ) -> Result<()> {
        let mine = recv.map(|recv| recv.whole(BufIndex::RECV));
        let steps = rooted::scatter(self.rank(), self.size(), root, blocks, mine);
        // SAFETY: the caller's contract.
        unsafe { self.run(label, plan(steps, Some(send), recv.unwrap_or(NOTHING))) }
    }

    /// Collects items at `root`, those of each rank in a buffer of its own, for whatever call: `rooms[0]` is what this rank
    /// sends, and at the root `rooms[1 + r]` is for rank `r`.
    ///
    /// # Safety
    /// The contract of a send buffer of the first, and of receive buffers of the others.
    pub(crate) unsafe fn gather_apart(&mut self, label: CallDigest, rooms: &[Buf], root: u32) -> Result<()> {
        let span =
            |area: u32| Span::new(BufIndex::of(area), 0, rooms.get(area as usize).map_or(0, Buf::count));
        let steps = rooted::gather(self.rank(), self.size(), root, Some(span(0)), &|rank| span(1 + rank));
        let plan = Plan { steps, lent: UserBuffers::List(Cow::Borrowed(rooms)), temp: 0, op: None };
        // SAFETY: the caller's contract.
        unsafe { self.run(label, plan) }
    }

    /// Gathers as many words of every rank everywhere.
    pub(crate) fn allgather_words(&mut self, label: CallDigest, words: &[u64]) -> Result<Vec<u64>> {
        let (rank, size, len) = (self.rank(), self.size(), words.len());
        let mut all = vec![0u64; len * size as usize];
        let mine = Span::new(BufIndex::SEND, 0, len);
        let is_direct = tuning::own_words_directly(size_of_val(&*all));
        let steps = all::allgather(rank, size, Some(mine), &|r| (r as usize * len, len), is_direct);
        let (send, recv) = (Buf::slice(words), Buf::slice_mut(&mut all));
        // SAFETY: both are ours and do not overlap; the steps only read the first.
        unsafe { self.run(label, plan(steps, Some(&send), &recv)) }?;
        Ok(all)
    }
}
