//! The plan of each collective: functions that check the arguments and compute the steps of this rank, for blocking,
//! non-blocking and persistent calls. They send nothing.

use mpj_devices::Buf;

use super::coll_bufs::{BlockLayout, CollBuf, RankBlocks};
use super::comm::Comm;
use crate::collective::call_tag::{CallDigest, CollectiveKind};
use crate::collective::plan::{EMPTY_BUF, Plan};
use crate::collective::step::{BufIndex, Span, Step};
use crate::collective::tuning::Allreduce;
use crate::collective::{all_to_all, reduce as reduction, rooted, scan as prefix};
use crate::error::{Error, ErrorClass, Result};
use crate::op::Op;

pub(super) type PlanResult<'a> = Result<(CallDigest, Plan<'a>)>;

/// Returns a plan. Without a send buffer, no step may name [`BufIndex::SEND`].
pub(super) fn plan<'a>(steps: Vec<Step>, send: Option<&'a Buf>, recv: &'a Buf) -> Plan<'a> {
    Plan::new(steps, send.unwrap_or(recv), recv)
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

fn in_place_error(call: &'static str) -> Error {
    Error::new(ErrorClass::Buffer, call, "MPI_IN_PLACE is allowed at the root only")
}

/// Returns whether the items have no gaps, so that one temporary buffer per rank wastes no memory.
fn is_dense(items: &Buf) -> bool {
    items.pieces().is_none() && items.datatype().is_contiguous()
}

#[inline]
pub(super) fn barrier(comm: &Comm) -> (CallDigest, Plan<'static>) {
    let (rank, size) = (comm.rank(), comm.size());
    let is_linear = comm.collectives().tuning().use_linear(size, 0);
    let steps = if is_linear { rooted::barrier_linear(rank, size) } else { rooted::barrier(rank, size) };
    (CallDigest::new(CollectiveKind::Barrier, 0).with_algorithm_bit(!is_linear), plan(steps, None, EMPTY_BUF))
}

#[inline]
pub(super) fn bcast<'a>(comm: &Comm, call: &'static str, items: &'a Buf, root: i32) -> PlanResult<'a> {
    let root = comm.check_rank(call, ErrorClass::Root, root)?;
    let bytes = items.packed_bytes(call)?;
    let (rank, size, count) = (comm.rank(), comm.size(), items.count());
    if rank != root {
        items.check_receivable(call)?;
    }
    let is_linear = comm.collectives().tuning().use_linear(size, bytes);
    let linear_or_tree = if is_linear { rooted::bcast_linear } else { rooted::bcast };
    // The steps of the root only read `items`.
    let steps = linear_or_tree(rank, size, root, count);
    Ok((
        CallDigest::new(CollectiveKind::Bcast, root as usize).with_algorithm_bit(!is_linear),
        plan(steps, None, items),
    ))
}

pub(super) fn reduce<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    recv: &'a Buf,
    op: &'a Op,
    root: i32,
) -> PlanResult<'a> {
    let send = send.not_in_place();
    let root = comm.check_rank(call, ErrorClass::Root, root)?;
    let (own_span, items) = if comm.rank() == root {
        (check_reduction(call, send, recv, op)?, recv)
    } else {
        let send = send.ok_or_else(|| in_place_error(call))?;
        send.check_op(call, op)?;
        (send.full_span(BufIndex::SEND), send)
    };
    let (rank, size, count, bytes) = (comm.rank(), comm.size(), items.count(), items.packed_bytes(call)?);
    let is_linear = comm.collectives().tuning().use_linear(size, bytes);
    let steps = match is_linear {
        true => reduction::reduce_linear(rank, size, root, own_span, count, is_dense(items)),
        false => reduction::reduce(rank, size, root, own_span, count, op.is_commutative()),
    };
    let digest =
        CallDigest::reduction(CollectiveKind::Reduce, root as usize, op).with_algorithm_bit(!is_linear);
    // Only the root's steps write to the receive buffer.
    Ok((digest, plan(steps, send, items).with_temp(count).with_op(op)))
}

#[inline]
pub(super) fn allreduce<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    recv: &'a Buf,
    op: &'a Op,
) -> PlanResult<'a> {
    let send = send.not_in_place();
    let own_span = check_reduction(call, send, recv, op)?;
    let (rank, size, count, bytes) = (comm.rank(), comm.size(), recv.count(), recv.packed_bytes(call)?);
    let can_ring = size > 1 && op.is_commutative() && count >= size as usize;
    let algorithm = comm.collectives().tuning().allreduce(size, bytes, can_ring);
    let (steps, temp) = match algorithm {
        Allreduce::Linear => {
            (reduction::allreduce_linear(rank, size, own_span, count, is_dense(recv)), count)
        }
        Allreduce::RecursiveDoubling => {
            (reduction::allreduce_recursive_doubling(rank, size, own_span, count), count)
        }
        Allreduce::Ring => {
            (reduction::allreduce_ring(rank, size, own_span, count), reduction::block_range(0, size, count).1)
        }
    };
    let digest = CallDigest::allreduce(bytes, op, algorithm == Allreduce::Linear)
        .with_algorithm_bit(algorithm == Allreduce::Ring);
    Ok((digest, plan(steps, send, recv).with_temp(temp).with_op(op)))
}

pub(super) fn reduce_scatter<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    recv: &'a Buf,
    counts: &[usize],
    op: &'a Op,
) -> PlanResult<'a> {
    if counts.len() != comm.size() as usize {
        let why = format!("{} counts for {} ranks", counts.len(), comm.size());
        return Err(Error::new(ErrorClass::Arg, call, why));
    }
    let sums =
        counts.iter().scan(0usize, |sum, count| Some(std::mem::replace(sum, sum.saturating_add(*count))));
    let displacements: Vec<usize> = sums.collect();
    let layout = BlockLayout::Varying { counts, displacements: &displacements };
    let (rank, size) = (comm.rank(), comm.size());
    let layout = layout.resolve_send(call, size, send, None)?;
    let blocks = RankBlocks::default().with_send(layout, rank, size, send);
    send.block_of(&layout, rank).check_same_amount(call, recv, &blocks)?;
    check_reduction(call, None, recv, op)?;
    send.check_no_alias(call, recv)?;
    let total = layout.total(call, size, send)?;
    let steps = reduction::reduce_scatter(rank, size, &|r| layout.block(r), recv.count());
    let digest = CallDigest::reduction(CollectiveKind::ReduceScatter, total, op);
    Ok((digest, plan(steps, Some(send), recv).with_temp(recv.count()).with_op(op)))
}

pub(super) fn scan<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    recv: &'a Buf,
    op: &'a Op,
) -> PlanResult<'a> {
    let send = send.not_in_place();
    let own_span = check_reduction(call, send, recv, op)?;
    let bytes = recv.packed_bytes(call)?;
    let is_linear = comm.collectives().tuning().use_linear_scan(comm.size(), bytes);
    let (rank, size, count) = (comm.rank(), comm.size(), recv.count());
    let steps = match is_linear {
        true => prefix::scan_linear(rank, size, own_span, count, is_dense(recv)),
        false => prefix::scan(rank, size, own_span, count),
    };
    let digest = CallDigest::reduction(CollectiveKind::Scan, bytes, op).with_algorithm_bit(!is_linear);
    Ok((digest, plan(steps, send, recv).with_temp(recv.count()).with_op(op)))
}

pub(super) fn gather<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    recv: &'a Buf,
    layout: BlockLayout<'_>,
    root: i32,
) -> PlanResult<'a> {
    let send = send.not_in_place();
    let root = comm.check_rank(call, ErrorClass::Root, root)?;
    let mut layout = layout;
    if comm.rank() == root {
        layout = layout.resolve_receive(call, comm.size(), recv, send)?;
        recv.check_receivable(call)?;
        if let Some(send) = send {
            let blocks = RankBlocks::default().with_recv(layout, root, comm.size(), recv);
            send.check_same_amount(call, &recv.block_of(&layout, root), &blocks)?;
            send.check_no_alias(call, recv)?;
        }
    } else {
        send.ok_or_else(|| in_place_error(call))?.packed_bytes(call)?;
    }
    // Only the root uses the layout, which was checked there.
    let into = |rank| {
        let (at, count) = layout.block(rank);
        Span::new(BufIndex::RECV, at, count)
    };
    let own_span = send.map(|send| send.full_span(BufIndex::SEND));
    let steps = rooted::gather(comm.rank(), comm.size(), root, own_span, &into);
    Ok((CallDigest::new(CollectiveKind::Gather, root as usize), plan(steps, send, recv)))
}

pub(super) fn scatter<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    layout: BlockLayout<'_>,
    recv: &'a Buf,
    root: i32,
) -> PlanResult<'a> {
    let recv = recv.not_in_place();
    let root = comm.check_rank(call, ErrorClass::Root, root)?;
    if let Some(recv) = recv {
        recv.check_receivable(call)?;
    }
    let mut layout = layout;
    if comm.rank() == root {
        layout = layout.resolve_send(call, comm.size(), send, recv)?;
        layout.total(call, comm.size(), send)?;
        if let Some(recv) = recv {
            let blocks = RankBlocks::default().with_send(layout, root, comm.size(), send);
            send.block_of(&layout, root).check_same_amount(call, recv, &blocks)?;
            send.check_no_alias(call, recv)?;
        }
    } else if recv.is_none() {
        return Err(in_place_error(call));
    }
    let own_span = recv.map(|recv| recv.full_span(BufIndex::RECV));
    let steps = rooted::scatter(comm.rank(), comm.size(), root, &|r| layout.block(r), own_span);
    let digest = CallDigest::new(CollectiveKind::Scatter, root as usize);
    Ok((digest, plan(steps, Some(send), recv.unwrap_or(EMPTY_BUF))))
}

pub(super) fn allgather<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    recv: &'a Buf,
    layout: BlockLayout<'_>,
) -> PlanResult<'a> {
    let send = send.not_in_place();
    let layout = layout.resolve_receive(call, comm.size(), recv, send)?;
    recv.check_receivable(call)?;
    if let Some(send) = send {
        let blocks = RankBlocks::default().with_recv(layout, comm.rank(), comm.size(), recv);
        send.check_same_amount(call, &recv.block_of(&layout, comm.rank()), &blocks)?;
        send.check_no_alias(call, recv)?;
    }
    let total = layout.total(call, comm.size(), recv)?;
    let own_span = send.map(|send| send.full_span(BufIndex::SEND));
    let is_linear = comm.collectives().tuning().use_linear_allgather(total);
    let steps = all_to_all::allgather(comm.rank(), comm.size(), own_span, &|r| layout.block(r), is_linear);
    Ok((
        CallDigest::new(CollectiveKind::Allgather, total).with_algorithm_bit(!is_linear),
        plan(steps, send, recv),
    ))
}

pub(super) fn alltoall<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    layout: BlockLayout<'_>,
    recv: &'a Buf,
    back: BlockLayout<'_>,
) -> PlanResult<'a> {
    let send = send.not_in_place();
    let (rank, size) = (comm.rank(), comm.size());
    let back = back.resolve_receive(call, size, recv, None)?;
    recv.check_receivable(call)?;
    let mut out = (BufIndex::TEMP, back);
    if let Some(send) = send {
        out = (BufIndex::SEND, layout.resolve_send(call, size, send, None)?);
        let blocks =
            RankBlocks::default().with_send(out.1, rank, size, send).with_recv(back, rank, size, recv);
        send.block_of(&out.1, rank).check_same_amount(call, &recv.block_of(&back, rank), &blocks)?;
        send.check_no_alias(call, recv)?;
    }
    let (send_buf, layout) = out;
    let total = layout.total(call, size, send.unwrap_or(recv))?;
    let is_linear = comm.collectives().tuning().use_linear_alltoall(total);
    let mut steps = Vec::new();
    if send.is_none() {
        steps.push(Step::Copy { from: recv.full_span(BufIndex::RECV), into: recv.full_span(BufIndex::TEMP) });
    }
    let blocks = |r| layout.block(r);
    steps.extend(all_to_all::alltoall(rank, size, (send_buf, &blocks), &|r| back.block(r), is_linear));
    // In an alltoallv, the totals and algorithms can differ between ranks. Both algorithms send the same messages.
    let digest = match layout {
        BlockLayout::Varying { .. } => CallDigest::new(CollectiveKind::Alltoall, 0),
        _ => CallDigest::new(CollectiveKind::Alltoall, total).with_algorithm_bit(!is_linear),
    };
    let temp = if send.is_none() { recv.count() } else { 0 };
    Ok((digest, plan(steps, send, recv).with_temp(temp)))
}
