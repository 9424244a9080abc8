//! Collectives in which each rank's buffer already has its own items (`MPI_IN_PLACE`), as values. In a collective with a
//! root, only the root could have them, so those have no such form.

use super::{Arguments, Layout, OwnedCollective, OwnedRecvBuf};
use crate::op::Op;
use crate::raw::Buf;
use crate::raw::collective_call as calls;
use crate::request::{BufsFn, CallBufs, OwnedCell};

fn in_place<B: OwnedRecvBuf>(buf: B, arguments: Arguments) -> OwnedCollective<B> {
    let bufs: BufsFn<B> = |cell| CallBufs::Pair([Buf::in_place(), cell.recv_buf()]);
    OwnedCollective { cell: OwnedCell::shared(buf), bufs, arguments }
}

/// A reduction for all ranks: see [`Intracomm::allreduce_in_place`](crate::Intracomm::allreduce_in_place).
///
/// ```
/// use mpj::{Op, coll};
///
/// # mpj::threads(3, |world| {
/// let sums = world.start(coll::allreduce_in_place([1, world.rank()], Op::Sum))?;
/// assert_eq!(sums.wait()?.0, [3, 3]);
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
pub fn allreduce_in_place<B: OwnedRecvBuf>(buf: B, op: Op) -> OwnedCollective<B> {
    in_place(buf, Arguments::reduction(calls::ALLREDUCE, op))
}

/// A reduction whose result is scattered: see
/// [`Intracomm::reduce_scatter_in_place`](crate::Intracomm::reduce_scatter_in_place).
pub fn reduce_scatter_in_place<B: OwnedRecvBuf>(buf: B, counts: &[usize], op: Op) -> OwnedCollective<B> {
    let send = Layout::varying(counts, &[]);
    in_place(buf, Arguments { send, ..Arguments::reduction(calls::REDUCE_SCATTER, op) })
}

/// A reduction whose result is scattered in equal blocks: see
/// [`Intracomm::reduce_scatter_block_in_place`](crate::Intracomm::reduce_scatter_block_in_place).
pub fn reduce_scatter_block_in_place<B: OwnedRecvBuf>(buf: B, op: Op) -> OwnedCollective<B> {
    in_place(buf, Arguments::reduction(calls::REDUCE_SCATTER_BLOCK, op))
}

/// A prefix reduction: see [`Intracomm::scan_in_place`](crate::Intracomm::scan_in_place).
pub fn scan_in_place<B: OwnedRecvBuf>(buf: B, op: Op) -> OwnedCollective<B> {
    in_place(buf, Arguments::reduction(calls::SCAN, op))
}

/// An exclusive prefix reduction: see [`Intracomm::exscan_in_place`](crate::Intracomm::exscan_in_place).
pub fn exscan_in_place<B: OwnedRecvBuf>(buf: B, op: Op) -> OwnedCollective<B> {
    in_place(buf, Arguments::reduction(calls::EXSCAN, op))
}

/// A gather to all ranks: see [`Intracomm::allgather_in_place`](crate::Intracomm::allgather_in_place).
pub fn allgather_in_place<B: OwnedRecvBuf>(buf: B) -> OwnedCollective<B> {
    in_place(buf, Arguments::of(calls::ALLGATHER))
}

/// A gather of different blocks to all ranks: see
/// [`Intracomm::allgatherv_in_place`](crate::Intracomm::allgatherv_in_place).
pub fn allgatherv_in_place<B: OwnedRecvBuf>(
    buf: B,
    counts: &[usize],
    displacements: &[usize],
) -> OwnedCollective<B> {
    let recv = Layout::varying(counts, displacements);
    in_place(buf, Arguments { recv, ..Arguments::of(calls::ALLGATHERV) })
}

/// An exchange of equal blocks: see [`Intracomm::alltoall_in_place`](crate::Intracomm::alltoall_in_place).
pub fn alltoall_in_place<B: OwnedRecvBuf>(buf: B) -> OwnedCollective<B> {
    in_place(buf, Arguments::of(calls::ALLTOALL))
}

/// An exchange of different blocks: see [`Intracomm::alltoallv_in_place`](crate::Intracomm::alltoallv_in_place).
pub fn alltoallv_in_place<B: OwnedRecvBuf>(
    buf: B,
    counts: &[usize],
    displacements: &[usize],
) -> OwnedCollective<B> {
    let recv = Layout::varying(counts, displacements);
    in_place(buf, Arguments { recv, ..Arguments::of(calls::ALLTOALLV) })
}
