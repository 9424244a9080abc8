//! Collective calls, as values, with `MPI_IN_PLACE`: the buffer of each rank, or of the root only, already has the
//! rank's own items. Intercommunicators refuse them.

use super::{Arguments, Layout, OwnedCollective, OwnedRecvBuf};
use crate::address::number;
use crate::op::Op;
use crate::raw::Buf;
use crate::raw::collective_call as calls;
use crate::request::{BufsFn, CallBufs, OwnedCell};
use crate::types::RecvBuf;

fn in_place<B: OwnedRecvBuf>(buf: B, arguments: Arguments) -> OwnedCollective<B> {
    OwnedCollective::new(buf, receive_in_place, arguments)
}

/// A call in place at the root, whose buffers `root_bufs` returns. The other ranks pass one buffer, from which they
/// send, or into which they receive.
fn in_place_at_root<B: OwnedRecvBuf>(
    buf: B,
    root: usize,
    root_bufs: BufsFn<B>,
    arguments: Arguments,
) -> OwnedCollective<B> {
    let bufs: BufsFn<B> = |cell| {
        let items = cell.recv_buf();
        CallBufs::Pair([items.clone(), items])
    };
    let arguments = Arguments { root: number(root), ..arguments };
    OwnedCollective { root_bufs: Some(root_bufs), ..OwnedCollective::new(buf, bufs, arguments) }
}

/// Describes a reduction to one rank: see [`Intracomm::reduce_in_place`](crate::Intracomm::reduce_in_place).
///
/// ```
/// use mpj::{Op, coll};
///
/// # mpj::threads(3, |world| {
/// let sums = world.start(coll::reduce_in_place([1, world.rank()], Op::Sum, 2))?;
/// let (sums, _status) = sums.wait()?;
/// assert_eq!(sums, if world.rank() == 2 { [3, 3] } else { [1, world.rank()] });
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
pub fn reduce_in_place<B: OwnedRecvBuf>(buf: B, op: Op, root: usize) -> OwnedCollective<B> {
    in_place_at_root(buf, root, receive_in_place, Arguments::reduction(calls::REDUCE, op))
}

/// Describes a gather of equal blocks: see [`Intracomm::gather_in_place`](crate::Intracomm::gather_in_place).
pub fn gather_in_place<B: OwnedRecvBuf>(buf: B, root: usize) -> OwnedCollective<B> {
    in_place_at_root(buf, root, receive_in_place, Arguments::of(calls::GATHER))
}

/// Describes a gather of blocks of different lengths: see
/// [`Intracomm::gatherv_in_place`](crate::Intracomm::gatherv_in_place).
pub fn gatherv_in_place<B: OwnedRecvBuf>(
    buf: B,
    counts: &[usize],
    displacements: &[usize],
    root: usize,
) -> OwnedCollective<B> {
    let recv = Layout::varying(counts, displacements);
    in_place_at_root(buf, root, receive_in_place, Arguments { recv, ..Arguments::of(calls::GATHERV) })
}

/// Describes a scatter of equal blocks: see [`Intracomm::scatter_in_place`](crate::Intracomm::scatter_in_place).
pub fn scatter_in_place<B: OwnedRecvBuf>(buf: B, root: usize) -> OwnedCollective<B> {
    in_place_at_root(buf, root, send_in_place, Arguments::of(calls::SCATTER))
}

/// Describes a scatter of blocks of different lengths: see
/// [`Intracomm::scatterv_in_place`](crate::Intracomm::scatterv_in_place).
pub fn scatterv_in_place<B: OwnedRecvBuf>(
    buf: B,
    counts: &[usize],
    displacements: &[usize],
    root: usize,
) -> OwnedCollective<B> {
    let send = Layout::varying(counts, displacements);
    in_place_at_root(buf, root, send_in_place, Arguments { send, ..Arguments::of(calls::SCATTERV) })
}

fn receive_in_place<B: RecvBuf>(cell: &OwnedCell<B>) -> CallBufs {
    CallBufs::Pair([Buf::in_place(), cell.recv_buf()])
}

fn send_in_place<B: RecvBuf>(cell: &OwnedCell<B>) -> CallBufs {
    CallBufs::Pair([cell.recv_buf(), Buf::in_place()])
}

/// Describes a reduction to all ranks: see [`Intracomm::allreduce_in_place`](crate::Intracomm::allreduce_in_place).
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

/// Describes a reduction whose result is scattered: see
/// [`Intracomm::reduce_scatter_in_place`](crate::Intracomm::reduce_scatter_in_place).
pub fn reduce_scatter_in_place<B: OwnedRecvBuf>(buf: B, counts: &[usize], op: Op) -> OwnedCollective<B> {
    let send = Layout::varying(counts, &[]);
    in_place(buf, Arguments { send, ..Arguments::reduction(calls::REDUCE_SCATTER, op) })
}

/// Describes a reduction whose result is scattered in equal blocks: see
/// [`Intracomm::reduce_scatter_block_in_place`](crate::Intracomm::reduce_scatter_block_in_place).
pub fn reduce_scatter_block_in_place<B: OwnedRecvBuf>(buf: B, op: Op) -> OwnedCollective<B> {
    in_place(buf, Arguments::reduction(calls::REDUCE_SCATTER_BLOCK, op))
}

/// Describes a prefix reduction: see [`Intracomm::scan_in_place`](crate::Intracomm::scan_in_place).
pub fn scan_in_place<B: OwnedRecvBuf>(buf: B, op: Op) -> OwnedCollective<B> {
    in_place(buf, Arguments::reduction(calls::SCAN, op))
}

/// Describes an exclusive prefix reduction: see [`Intracomm::exscan_in_place`](crate::Intracomm::exscan_in_place).
pub fn exscan_in_place<B: OwnedRecvBuf>(buf: B, op: Op) -> OwnedCollective<B> {
    in_place(buf, Arguments::reduction(calls::EXSCAN, op))
}

/// Describes a gather to all ranks: see [`Intracomm::allgather_in_place`](crate::Intracomm::allgather_in_place).
pub fn allgather_in_place<B: OwnedRecvBuf>(buf: B) -> OwnedCollective<B> {
    in_place(buf, Arguments::of(calls::ALLGATHER))
}

/// Describes a gather of blocks of different lengths to all ranks: see
/// [`Intracomm::allgatherv_in_place`](crate::Intracomm::allgatherv_in_place).
pub fn allgatherv_in_place<B: OwnedRecvBuf>(
    buf: B,
    counts: &[usize],
    displacements: &[usize],
) -> OwnedCollective<B> {
    let recv = Layout::varying(counts, displacements);
    in_place(buf, Arguments { recv, ..Arguments::of(calls::ALLGATHERV) })
}

/// Describes an exchange of equal blocks: see [`Intracomm::alltoall_in_place`](crate::Intracomm::alltoall_in_place).
pub fn alltoall_in_place<B: OwnedRecvBuf>(buf: B) -> OwnedCollective<B> {
    in_place(buf, Arguments::of(calls::ALLTOALL))
}

/// Describes an exchange of blocks of different lengths: see
/// [`Intracomm::alltoallv_in_place`](crate::Intracomm::alltoallv_in_place).
pub fn alltoallv_in_place<B: OwnedRecvBuf>(
    buf: B,
    counts: &[usize],
    displacements: &[usize],
) -> OwnedCollective<B> {
    let recv = Layout::varying(counts, displacements);
    in_place(buf, Arguments { recv, ..Arguments::of(calls::ALLTOALLV) })
}

/// Describes an exchange of one buffer with each rank; lengths and datatypes can differ: see
/// [`Intracomm::alltoallw_in_place`](crate::Intracomm::alltoallw_in_place).
///
/// ```
/// use mpj::coll;
///
/// # mpj::threads(2, |world| {
/// let bufs = if world.rank() == 0 { vec![vec![0], vec![1, 1]] } else { vec![vec![10, 10], vec![11]] };
/// let (bufs, _status) = world.start(coll::alltoallw_in_place(bufs))?.wait()?;
/// assert_eq!(bufs, if world.rank() == 0 { [vec![0], vec![10, 10]] } else { [vec![1, 1], vec![11]] });
/// # Ok::<(), mpj::Error>(()) }).unwrap();
/// ```
pub fn alltoallw_in_place<B: OwnedRecvBuf>(bufs: Vec<B>) -> OwnedCollective<Vec<B>> {
    OwnedCollective::new(bufs, OwnedCell::bufs_per_rank_in_place, Arguments::of(calls::ALLTOALLW))
}
