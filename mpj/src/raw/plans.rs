//! The plan of each collective: functions that check the arguments and compute the steps of this rank, for blocking,
//! non-blocking and persistent calls. They send nothing.

mod blocks;
pub(super) mod inter;

use mpj_collectives::{Arguments, BufIndex, Operation, Span};
use mpj_devices::Buf;

pub(super) use self::blocks::{allgather, alltoall, alltoallw, gather, scatter};
use super::coll_bufs::{BlockLayout, CollBuf, RankBlocks};
use super::collective_call::Collective;
use super::comm::Comm;
use crate::collective::call_id::CallDigest;
use crate::collective::plan::{EMPTY_BUF, Plan};
use crate::error::{Error, ErrorClass, Result};
use crate::op::Op;

/// Returns the plan of the algorithm that the rules select for `bytes` bytes. `agreed` is the value in which all ranks
/// must agree. Without a send buffer, no step may name [`BufIndex::SEND`].
#[inline]
pub(super) fn plan<'a>(
    comm: &Comm,
    call: &'static str,
    operation: Operation,
    arguments: &Arguments<'_>,
    (bytes, agreed): (usize, u64),
    (send, recv): (Option<&'a Buf>, &'a Buf),
) -> Result<Plan<'a>> {
    let context = comm.collectives();
    let algorithm = context
        .rules()
        .select(operation, arguments, bytes)
        .map_err(|misfit| Error::new(ErrorClass::Arg, call, misfit.to_string()))?;
    let mut steps = context.take_steps();
    (algorithm.steps)(arguments, &mut steps);
    let digest = CallDigest::new(operation, agreed).with_algorithm(algorithm);
    Ok(Plan::new(digest, steps, send.unwrap_or(recv), recv))
}

/// Returns the agreed value of a reduction: a root or a number of bytes, and the operation.
#[inline]
fn agreed(value: usize, op: &Op) -> u64 {
    // Small values and the codes of all operations give different sums.
    (value as u64).wrapping_add(4093 * u64::from(op.wire_code()))
}

impl Comm {
    /// Returns the arguments of a call without items.
    #[inline]
    fn arguments(&self) -> Arguments<'static> {
        Arguments { hosts: self.host_count(), ..Arguments::new(self.rank(), self.size()) }
    }

    /// Returns the arguments of a reduction of items like those of `items`.
    #[inline]
    fn reduction(&self, own: Span, items: &Buf, op: &Op) -> Arguments<'static> {
        Arguments {
            own: Some(own),
            count: items.count(),
            commutative: op.is_commutative(),
            // Without gaps, one temporary buffer per rank wastes no memory.
            separate_bufs: items.pieces().is_none() && items.datatype().is_contiguous(),
            ..self.arguments()
        }
    }
}

/// Checks the buffers of a reduction; returns the span of the items that this rank contributes.
fn check_reduction(call: &'static str, send: Option<&Buf>, recv: &Buf, op: &Op) -> Result<Span> {
    if let Some(send) = send {
        send.check_same_amount(call, recv, &RankBlocks::default())?;
        send.check_no_alias(call, recv)?;
    }
    recv.check_receivable(call)?;
    recv.check_op(call, op)?;
    Ok(send.map_or_else(|| recv.full_span(BufIndex::RECV), |send| send.full_span(BufIndex::SEND)))
}

/// Checks the send buffer of a rank that has no result; returns the span of its items, and the buffer.
fn check_contribution<'a>(call: &'static str, send: &'a Buf, op: &Op) -> Result<(Span, &'a Buf)> {
    send.check_op(call, op)?;
    Ok((send.full_span(BufIndex::SEND), send))
}

fn in_place_error(call: &'static str) -> Error {
    Error::new(ErrorClass::Buffer, call, "MPI_IN_PLACE is allowed at the root only")
}

#[inline]
pub(super) fn barrier<'a>(comm: &Comm, call: &'static str, _: &Collective<'a>) -> Result<Plan<'a>> {
    plan(comm, call, Operation::Barrier, &comm.arguments(), (0, 0), (None, EMPTY_BUF))
}

#[inline]
pub(super) fn bcast<'a>(comm: &Comm, call: &'static str, collective: &Collective<'a>) -> Result<Plan<'a>> {
    let items = collective.recv();
    let root = comm.check_rank(call, ErrorClass::Root, collective.root)?;
    let bytes = items.packed_bytes(call)?;
    if comm.rank() != root {
        items.check_receivable(call)?;
    }
    // The steps of the root only read `items`.
    let arguments = Arguments { root, count: items.count(), ..comm.arguments() };
    plan(comm, call, Operation::Bcast, &arguments, (bytes, root.into()), (None, items))
}

pub(super) fn reduce<'a>(comm: &Comm, call: &'static str, collective: &Collective<'a>) -> Result<Plan<'a>> {
    let (send, recv, op) = (collective.send().not_in_place(), collective.recv(), collective.op);
    let root = comm.check_rank(call, ErrorClass::Root, collective.root)?;
    let (own, items) = match send {
        Some(send) if comm.rank() != root => check_contribution(call, send, op)?,
        None if comm.rank() != root => return Err(in_place_error(call)),
        _ => (check_reduction(call, send, recv, op)?, recv),
    };
    let bytes = items.packed_bytes(call)?;
    let arguments = Arguments { root, ..comm.reduction(own, items, op) };
    let agreed = agreed(root as usize, op);
    // Only the root's steps write to the receive buffer.
    Ok(plan(comm, call, Operation::Reduce, &arguments, (bytes, agreed), (send, items))?.with_op(op))
}

#[inline]
pub(super) fn allreduce<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
    reduce_to_all(comm, call, Operation::Allreduce, collective)
}

pub(super) fn scan<'a>(comm: &Comm, call: &'static str, collective: &Collective<'a>) -> Result<Plan<'a>> {
    reduce_to_all(comm, call, Operation::Scan, collective)
}

pub(super) fn exscan<'a>(comm: &Comm, call: &'static str, collective: &Collective<'a>) -> Result<Plan<'a>> {
    let (send, recv, op) = (collective.send().not_in_place(), collective.recv(), collective.op);
    let (own, items) = match send {
        Some(send) if comm.rank() == 0 => check_contribution(call, send, op)?,
        _ => (check_reduction(call, send, recv, op)?, recv),
    };
    let bytes = items.packed_bytes(call)?;
    let (arguments, agreed) = (comm.reduction(own, items, op), agreed(bytes, op));
    // The steps of rank 0 write to no buffer.
    Ok(plan(comm, call, Operation::Exscan, &arguments, (bytes, agreed), (send, items))?.with_op(op))
}

/// Returns the plan of a reduction of equal vectors that gives every rank a result.
#[inline]
fn reduce_to_all<'a>(
    comm: &Comm,
    call: &'static str,
    operation: Operation,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
    let (send, recv, op) = (collective.send().not_in_place(), collective.recv(), collective.op);
    let own = check_reduction(call, send, recv, op)?;
    let bytes = recv.packed_bytes(call)?;
    let arguments = comm.reduction(own, recv, op);
    Ok(plan(comm, call, operation, &arguments, (bytes, agreed(bytes, op)), (send, recv))?.with_op(op))
}

pub(super) fn reduce_scatter<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
    let counts = collective.send_layout.counts();
    let displacements = displacements(call, counts, comm.size())?;
    let layout = BlockLayout::Varying { counts, displacements: &displacements };
    scatter_result(comm, call, Operation::ReduceScatter, collective, layout)
}

pub(super) fn reduce_scatter_block<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
    scatter_result(comm, call, Operation::ReduceScatterBlock, collective, BlockLayout::EvenSplit)
}

/// Returns the index of the first item of each rank if the blocks follow one another.
fn displacements(call: &'static str, counts: &[usize], size: u32) -> Result<Vec<usize>> {
    if counts.len() != size as usize {
        let why = format!("{} counts for {size} ranks", counts.len());
        return Err(Error::new(ErrorClass::Arg, call, why));
    }
    let sums =
        counts.iter().scan(0usize, |sum, count| Some(std::mem::replace(sum, sum.saturating_add(*count))));
    Ok(sums.collect())
}

/// Checks the buffers of a reduction that gives each rank one block of the result. Returns the layout of the blocks, and
/// the number of bytes of all.
fn scattered_blocks<'l>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'_>,
    layout: BlockLayout<'l>,
) -> Result<(BlockLayout<'l>, usize)> {
    let (send, recv) = (collective.send().not_in_place(), collective.recv());
    let (rank, size) = (comm.rank(), comm.size());
    check_reduction(call, None, recv, collective.op)?;
    // In place, the receive buffer has the items of all blocks.
    let items = send.unwrap_or(recv);
    let layout = layout.resolve_send(call, size, items, send.map(|_| recv))?;
    if let Some(send) = send {
        let blocks = RankBlocks::default().with_send(layout, rank, size, send);
        send.block_of(&layout, rank).check_same_amount(call, recv, &blocks)?;
        send.check_no_alias(call, recv)?;
    }
    Ok((layout, layout.total(call, size, items)?))
}

fn scatter_result<'a>(
    comm: &Comm,
    call: &'static str,
    operation: Operation,
    collective: &Collective<'a>,
    layout: BlockLayout<'_>,
) -> Result<Plan<'a>> {
    let (send, recv, op) = (collective.send().not_in_place(), collective.recv(), collective.op);
    let (layout, total) = scattered_blocks(comm, call, collective, layout)?;
    let (from, count) = match send {
        Some(_) => (BufIndex::SEND, recv.count()),
        None => (BufIndex::RECV, layout.block(comm.rank()).1),
    };
    let send_block = |rank| layout.span(from, rank);
    let own = recv.full_span(BufIndex::RECV);
    let arguments = Arguments { count, send: &send_block, ..comm.reduction(own, recv, op) };
    let bytes = (total, agreed(total, op));
    Ok(plan(comm, call, operation, &arguments, bytes, (send, recv))?.with_op(op))
}
