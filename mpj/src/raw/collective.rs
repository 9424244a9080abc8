//! Collectives: every rank of the communicator calls them in the same order.
//!
//! Counts are in items. As in MPI, the type signature that is sent must equal the one that is received: a message that
//! is shorter, longer or of another type is an error. The failing rank notifies the others, which fail with its error
//! in this call or a later one; an earlier non-blocking call fails if it then waits for 300 ms. Later collectives on the
//! communicator fail at once; point-to-point messages and other communicators continue to work unless a rank has died. A
//! call that is refused because of its arguments fails in the same way.
//!
//! If `send` (for [`scatter`], `recv`) is [`Buf::in_place`], the rank's own items are already in the other buffer
//! (`MPI_IN_PLACE`). In [`reduce`], [`gather`] and [`scatter`] this is allowed only at the root. In [`reduce_scatter`] and
//! [`reduce_scatter_block`], `recv` then has the items of all blocks, and the result replaces its first items.
//!
//! On an [intercommunicator](Comm::is_inter), every rank of both groups calls the collective, and the items of each group
//! go to the other group. The root passes [`ROOT`](super::ROOT), the other ranks of its group
//! [`PROC_NULL`](super::PROC_NULL), and the ranks of the other group its rank. A layout has a block for each rank of the
//! remote group, except in [`reduce_scatter`] and [`reduce_scatter_block`]: for each rank of the own group. Buffers cannot
//! be in place. [`scan`] and [`exscan`] are not defined.

use mpj_devices::Buf;

use super::coll_bufs::BlockLayout;
use super::collective_call::Collective;
use super::comm::Comm;
use super::plans;
use crate::collective::plan::Plan;
use crate::error::Result;
use crate::op::Op;

/// Runs a call until it completes. `plan` is `collective.call.plan`, passed separately so that it is called directly.
///
/// # Safety
/// The contract of the call.
#[inline]
pub(super) unsafe fn run<'a>(
    comm: &Comm,
    collective: Collective<'a>,
    plan: impl FnOnce(&Comm, &'static str, &Collective<'a>) -> Result<Plan<'a>>,
) -> Result<()> {
    let call = collective.call.blocking;
    comm.collective_of_any(call, |blocking| {
        let plan = match comm.is_inter() {
            false => plan(comm, call, &collective)?,
            true => (collective.call.inter)(comm, call, &collective)?,
        };
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
    unsafe { run(comm, Collective::barrier(), plans::barrier) }
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
    unsafe { run(comm, Collective::bcast(items, root), plans::bcast) }
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
    unsafe { run(comm, Collective::reduce(send, recv, op, root), plans::reduce) }
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
    unsafe { run(comm, Collective::allreduce(send, recv, op), plans::allreduce) }
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
    unsafe { run(comm, Collective::reduce_scatter(send, recv, counts, op), plans::reduce_scatter) }
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
    unsafe { run(comm, Collective::scan(send, recv, op), plans::scan) }
}

/// Combines the items of all ranks, in order of rank if `op` is not commutative, and gives rank `r` the block `r` of the
/// result, which is divided evenly among the ranks.
///
/// # Errors
/// As [`allreduce`]; [`ErrorClass::Count`](crate::ErrorClass::Count) if the items cannot be divided evenly.
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn reduce_scatter_block(comm: &Comm, send: &Buf, recv: &Buf, op: &Op) -> Result<()> {
    let collective = Collective::reduce_scatter_block(send, recv, op);
    // SAFETY: the caller's contract.
    unsafe { run(comm, collective, plans::reduce_scatter_block) }
}

/// Gives rank `r` the combination of the items of ranks 0 to `r - 1`. Rank 0 has no result: its `recv` is not used, and
/// items that are in place there do not change.
///
/// # Errors
/// As [`allreduce`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn exscan(comm: &Comm, send: &Buf, recv: &Buf, op: &Op) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { run(comm, Collective::exscan(send, recv, op), plans::exscan) }
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
    // SAFETY: the caller's contract.
    unsafe { run(comm, Collective::gather(send, recv, layout, root), plans::gather) }
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
    // SAFETY: the caller's contract.
    unsafe { run(comm, Collective::scatter(send, layout, recv, root), plans::scatter) }
}

/// Gathers the items of all ranks at every rank, placed by `layout`.
///
/// # Errors
/// As [`gather`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn allgather(comm: &Comm, send: &Buf, recv: &Buf, layout: BlockLayout<'_>) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { run(comm, Collective::allgather(send, recv, layout), plans::allgather) }
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
    // SAFETY: the caller's contract.
    unsafe { run(comm, Collective::alltoall(send, layout, recv, back), plans::alltoall) }
}

/// Sends the items of `send[r]` to rank `r`, and receives into `recv[r]` from rank `r` (`MPI_Alltoallw`). Each buffer has
/// its own address, count and datatype. In place (`send` is one [`Buf::in_place`]), the received items replace those that
/// were sent, and the call allocates memory of the size of `recv`.
///
/// # Errors
/// As [`alltoall`]; [`ErrorClass::Arg`](crate::ErrorClass::Arg) if the number of buffers is not the number of ranks.
///
/// # Safety
/// The contracts of all buffers, which do not overlap.
pub unsafe fn alltoallw(comm: &Comm, send: &[Buf], recv: &[Buf]) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { run(comm, Collective::alltoallw(send, recv), plans::alltoallw) }
}
