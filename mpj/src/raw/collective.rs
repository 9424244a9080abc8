//! Collectives: every rank of the communicator calls them in the same order.
//!
//! Counts are in items. As in MPI, the type signature that is sent must equal the one that is received: a message that
//! is shorter, longer or of another type is an error. The failing rank notifies the others, which fail with its error
//! in this call or a later one; an earlier non-blocking call fails if it then waits for 300 ms. Later collectives on the
//! communicator fail at once; point-to-point messages and other communicators continue to work unless a rank has died. A
//! call that is refused because of its arguments fails in the same way.
//!
//! If `send` (for [`scatter`], `recv`) is [`Buf::in_place`], the rank's own items are already in the other buffer
//! (`MPI_IN_PLACE`). In [`reduce`], [`gather`] and [`scatter`] this is allowed only at the root, in [`reduce_scatter`]
//! on no rank.

use std::borrow::Cow;

use mpj_collectives::{Arguments, BufIndex, Operation, Span, Step};
use mpj_devices::Buf;

use super::coll_bufs::{BlockLayout, CollBuf};
use super::comm::Comm;
use super::plans;
use crate::collective::blocking::BlockingCall;
use crate::collective::call_id::CallDigest;
use crate::collective::plan::{Plan, UserBuffers};
use crate::error::Result;
use crate::op::Op;

/// Runs the plan of a call until it completes.
///
/// # Safety
/// The contract of the call.
#[inline]
unsafe fn run<'a>(comm: &Comm, call: &'static str, plan: impl FnOnce() -> Result<Plan<'a>>) -> Result<()> {
    comm.collective(call, |blocking| {
        let plan = plan()?;
        // SAFETY: the caller's contract; `allocate` checks the spans of the plan.
        unsafe { blocking.run(plan) }
    })
}

/// Waits until every rank has called this function.
///
/// # Errors
/// The communicator was freed, a rank has died, exited or cannot be reached, memory is exhausted, another rank has
/// failed in the call, the ranks have called different collectives, or an earlier collective has failed.
pub fn barrier(comm: &Comm) -> Result<()> {
    // SAFETY: the steps access no memory.
    unsafe { run(comm, "barrier", || plans::barrier(comm, "barrier")) }
}

/// Broadcasts the items of `root` to every rank.
///
/// # Errors
/// As [`barrier`]; the root or the [buffer](mpj_devices::BufError) is invalid, or counts or types differ between ranks.
///
/// # Safety
/// The contract of a send buffer at the root, of a receive buffer elsewhere.
pub unsafe fn bcast(comm: &Comm, items: &Buf, root: i32) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { run(comm, "bcast", || plans::bcast(comm, "bcast", items, root)) }
}

/// Combines the items of all ranks at `root`, in order of rank if `op` is not commutative. `recv` is used only at the
/// root, and `send` is not used there if it is in place.
///
/// # Errors
/// As [`bcast`], and:
///
/// * [`ErrorClass::Op`](crate::ErrorClass::Op) if the operation is not defined for the type.
/// * [`ErrorClass::Count`](crate::ErrorClass::Count) or [`ErrorClass::Type`](crate::ErrorClass::Type) if the root's
///   buffers differ.
/// * [`ErrorClass::Buffer`](crate::ErrorClass::Buffer) if the root's buffers overlap, or if another rank's `send` is in
///   place.
///
/// After an error, `recv` can hold a part of the result, and items that were in place there can be lost.
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn reduce(comm: &Comm, send: &Buf, recv: &Buf, op: &Op, root: i32) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { run(comm, "reduce", || plans::reduce(comm, "reduce", send, recv, op, root)) }
}

/// Combines the items of all ranks, in order of rank if `op` is not commutative, and gives every rank the result. The
/// result has the same bits on each rank, except for the payload of a NaN in a sum or a product.
///
/// # Errors
/// As [`reduce`], for the buffers of each rank.
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn allreduce(comm: &Comm, send: &Buf, recv: &Buf, op: &Op) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { run(comm, "allreduce", || plans::allreduce(comm, "allreduce", send, recv, op)) }
}

/// Combines the items of all ranks, in order of rank if `op` is not commutative, and gives rank `r` the next
/// `counts[r]` items of the result.
///
/// # Errors
/// As [`allreduce`]; [`ErrorClass::Arg`](crate::ErrorClass::Arg) if the number of counts is not the number of ranks,
/// [`ErrorClass::Count`](crate::ErrorClass::Count) if their sum exceeds the items of `send`.
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
/// As [`allreduce`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn scan(comm: &Comm, send: &Buf, recv: &Buf, op: &Op) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { run(comm, "scan", || plans::scan(comm, "scan", send, recv, op)) }
}

/// Gathers the items of all ranks at `root`, placed by `layout`. `layout` and `recv` are used only at the root, whose
/// own items may be in place.
///
/// # Errors
/// As [`reduce`], without an operation; [`ErrorClass::Count`](crate::ErrorClass::Count) if the layout does not fit the
/// root's buffer, [`ErrorClass::Arg`](crate::ErrorClass::Arg) if its blocks overlap or are not one for each rank.
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn gather(comm: &Comm, send: &Buf, recv: &Buf, layout: BlockLayout<'_>, root: i32) -> Result<()> {
    let call = layout.name("gather", "gatherv");
    // SAFETY: the caller's contract.
    unsafe { run(comm, call, || plans::gather(comm, call, send, recv, layout, root)) }
}

/// Scatters the items of `root` to all ranks, placed by `layout`. `layout` and `send` are used only at the root, whose
/// own items may stay in place.
///
/// # Errors
/// As [`gather`], except that blocks may overlap.
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn scatter(comm: &Comm, send: &Buf, layout: BlockLayout<'_>, recv: &Buf, root: i32) -> Result<()> {
    let call = layout.name("scatter", "scatterv");
    // SAFETY: the caller's contract.
    unsafe { run(comm, call, || plans::scatter(comm, call, send, layout, recv, root)) }
}

/// Gathers the items of all ranks at every rank, placed by `layout`.
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

/// Sends a block to each rank and receives one from each, placed by the two layouts. In place, the received items
/// replace those that were sent, `back` places both, and the call allocates memory of the size of `recv`.
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

/// Collectives inside another call. All parts of a call have the same digest, which contains no algorithm: a part has
/// the same one whatever the parameters, because only the root knows its number of bytes.
impl BlockingCall<'_> {
    /// # Safety
    /// The contract of [`bcast`].
    pub(crate) unsafe fn bcast(&mut self, digest: CallDigest, items: &Buf, root: u32) -> Result<()> {
        let call = Arguments { root, count: items.count(), ..self.arguments() };
        // SAFETY: the caller's contract; the steps of the root only read the items.
        unsafe { self.run_part(digest, (Operation::Bcast, "binomial"), &call, [items, items]) }
    }

    pub(crate) fn bcast_words(&mut self, digest: CallDigest, words: &mut [u64], root: u32) -> Result<()> {
        let items = Buf::slice_mut(words);
        // SAFETY: the words are exclusively borrowed until the call returns.
        unsafe { self.bcast(digest, &items, root) }
    }

    /// Gathers items at `root`, placed by `blocks`: functions from a rank to the first item and the number of items.
    ///
    /// # Safety
    /// The contract of [`gather`]; the blocks lie in `recv`.
    pub(crate) unsafe fn gather(
        &mut self,
        digest: CallDigest,
        send: &Buf,
        recv: &Buf,
        blocks: &dyn Fn(u32) -> (usize, usize),
        root: u32,
    ) -> Result<()> {
        let (own, recv_block) = (Some(send.full_span(BufIndex::SEND)), span_of(BufIndex::RECV, blocks));
        let call = Arguments { root, own, recv: &recv_block, ..self.arguments() };
        // SAFETY: the caller's contract.
        unsafe { self.run_part(digest, (Operation::Gather, "linear"), &call, [send, recv]) }
    }

    /// Scatters the items of `root`, placed by `blocks`.
    ///
    /// # Safety
    /// The contract of [`scatter`]; the blocks lie in `send`.
    pub(crate) unsafe fn scatter(
        &mut self,
        digest: CallDigest,
        send: &Buf,
        blocks: &dyn Fn(u32) -> (usize, usize),
        recv: &Buf,
        root: u32,
    ) -> Result<()> {
        let (into, send_block) = (Some(recv.full_span(BufIndex::RECV)), span_of(BufIndex::SEND, blocks));
        let call = Arguments { root, into, send: &send_block, ..self.arguments() };
        // SAFETY: the caller's contract.
        unsafe { self.run_part(digest, (Operation::Scatter, "linear"), &call, [send, recv]) }
    }

    /// Gathers items at `root` into one buffer per rank. This rank sends `bufs[0]`, and at the root `bufs[1 + r]`
    /// receives from rank `r`.
    ///
    /// # Safety
    /// The contract of a send buffer for `bufs[0]`, and of a receive buffer for each of the others.
    pub(crate) unsafe fn gather_into_bufs(
        &mut self,
        digest: CallDigest,
        bufs: &[Buf],
        root: u32,
    ) -> Result<()> {
        let span =
            |index: u32| Span::new(BufIndex::new(index), 0, bufs.get(index as usize).map_or(0, Buf::count));
        let recv_block = |rank| span(1 + rank);
        let call = Arguments { root, own: Some(span(0)), recv: &recv_block, ..self.arguments() };
        let steps = steps_of((Operation::Gather, "linear"), &call);
        let plan = Plan { digest, steps, user: UserBuffers::List(Cow::Borrowed(bufs)), op: None };
        // SAFETY: the caller's contract.
        unsafe { self.run(plan) }
    }

    /// Gathers `words`, whose length is the same on all ranks, at every rank.
    pub(crate) fn allgather_words(&mut self, digest: CallDigest, words: &[u64]) -> Result<Vec<u64>> {
        let len = words.len();
        let mut all = vec![0u64; len * self.size() as usize];
        let algorithm = if size_of_val(&*all) <= LINEAR_MAX_BYTES { "linear" } else { "ring" };
        let recv_block = |rank: u32| Span::new(BufIndex::RECV, rank as usize * len, len);
        let own = Some(Span::new(BufIndex::SEND, 0, len));
        let call = Arguments { own, recv: &recv_block, ..self.arguments() };
        let (send, recv) = (Buf::slice(words), Buf::slice_mut(&mut all));
        // SAFETY: both buffers are borrowed for the call and do not overlap; the steps only read the first.
        unsafe { self.run_part(digest, (Operation::Allgather, algorithm), &call, [&send, &recv]) }?;
        Ok(all)
    }

    fn arguments(&self) -> Arguments<'static> {
        Arguments::new(self.rank(), self.size())
    }

    /// # Safety
    /// The contract of [`run`](Self::run).
    unsafe fn run_part(
        &mut self,
        digest: CallDigest,
        algorithm: (Operation, &str),
        call: &Arguments<'_>,
        [send, recv]: [&Buf; 2],
    ) -> Result<()> {
        // SAFETY: the caller's contract.
        unsafe { self.run(Plan::new(digest, steps_of(algorithm, call), send, recv)) }
    }
}

/// The number of bytes up to which an allgather inside another call is linear.
const LINEAR_MAX_BYTES: usize = 64 << 10;

pub(super) fn steps_of((operation, name): (Operation, &str), call: &Arguments<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    let algorithm = mpj_collectives::algorithm_named(operation, name).expect("the table has this algorithm");
    (algorithm.steps)(call, &mut steps);
    steps
}

fn span_of(buf: BufIndex, blocks: &dyn Fn(u32) -> (usize, usize)) -> impl Fn(u32) -> Span {
    move |rank| {
        let (at, count) = blocks(rank);
        Span::new(buf, at, count)
    }
}
