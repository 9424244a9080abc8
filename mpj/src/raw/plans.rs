//! The plan of each collective: these functions check the arguments and compute the steps of this rank; they send
//! nothing. Plans are run by a blocking call (`collective`) or by a non-blocking one (`start`).

use mpj_devices::Buf;

use super::coll_bufs::{BlockLayout, CollBuf};
use super::comm::Comm;
use crate::collective::label::{CallDigest, CollectiveKind};
use crate::collective::plan::{NOTHING, Plan};
use crate::collective::step::{BufIndex, Span, Step};
use crate::collective::tuning::Allreduce;
use crate::collective::{all, reduce as reduction, rooted, scan as prefix};
use crate::error::{Error, ErrorClass, Result};
use crate::op::Op;

/// The digest on which all ranks must agree, and the plan of this rank.
pub(super) type PlanResult<'a> = Result<(CallDigest, Plan<'a>)>;

/// Returns a plan; without a send buffer, no step may name it.
pub(super) fn plan<'a>(steps: Vec<Step>, send: Option<&'a Buf>, recv: &'a Buf) -> Plan<'a> {
    Plan::new(steps, send.unwrap_or(recv), recv)
}

/// Checks the buffers of a reduction on this rank; returns the span that it contributes.
fn check_reduction(call: &'static str, send: Option<&Buf>, recv: &Buf, op: &Op) -> Result<Span> {
    if let Some(send) = send {
        send.like(call, recv)?;
        send.apart(call, recv)?;
    }
    recv.receivable(call)?;
    recv.combine(call, op)?;
    Ok(send.map_or_else(|| recv.whole(BufIndex::RECV), |send| send.whole(BufIndex::SEND)))
}

fn nothing(call: &'static str) -> Error {
    Error::new(ErrorClass::Buffer, call, "only the root's items are in place")
}

/// Returns whether temporary memory for the items has no gaps, so that one area per rank is affordable.
fn lies_close(items: &Buf) -> bool {
    items.pieces().is_none() && items.datatype().is_contiguous()
}

#[inline]
pub(super) fn barrier(comm: &Comm) -> (CallDigest, Plan<'static>) {
    let (rank, size) = (comm.rank(), comm.size());
    let is_flat = comm.collectives().tuning().is_flat(size, 0);
    let steps = if is_flat { rooted::barrier_flat(rank, size) } else { rooted::barrier(rank, size) };
    (CallDigest::new(CollectiveKind::Barrier, 0).longer(!is_flat), plan(steps, None, NOTHING))
}

#[inline]
pub(super) fn bcast<'a>(comm: &Comm, call: &'static str, items: &'a Buf, root: i32) -> PlanResult<'a> {
    let root = comm.check_rank(call, ErrorClass::Root, root)?;
    let bytes = items.packed(call)?;
    let (rank, size, count) = (comm.rank(), comm.size(), items.count());
    if rank != root {
        items.receivable(call)?;
    }
    let is_flat = comm.collectives().tuning().is_flat(size, bytes);
    let flat_or_tree = if is_flat { rooted::bcast_linear } else { rooted::bcast };
    // The steps of the root only read `items`.
    let steps = flat_or_tree(rank, size, root, count);
    Ok((CallDigest::new(CollectiveKind::Bcast, root as usize).longer(!is_flat), plan(steps, None, items)))
}

pub(super) fn reduce<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    recv: &'a Buf,
    op: &'a Op,
    root: i32,
) -> PlanResult<'a> {
    let send = send.given();
    let root = comm.check_rank(call, ErrorClass::Root, root)?;
    let (mine, items) = if comm.rank() == root {
        (check_reduction(call, send, recv, op)?, recv)
    } else {
        let send = send.ok_or_else(|| nothing(call))?;
        send.combine(call, op)?;
        (send.whole(BufIndex::SEND), send)
    };
    let (rank, size, count, bytes) = (comm.rank(), comm.size(), items.count(), items.packed(call)?);
    let is_flat = comm.collectives().tuning().is_flat(size, bytes);
    let steps = match is_flat {
        true => reduction::reduce_flat(rank, size, root, mine, count, lies_close(items)),
        false => reduction::reduce(rank, size, root, mine, count, op.is_commutative()),
    };
    let label = CallDigest::reduction(CollectiveKind::Reduce, root as usize, op).longer(!is_flat);
    // Only the root's steps write to the receive buffer.
    Ok((label, plan(steps, send, items).with_temp(count).with_op(op)))
}

#[inline]
pub(super) fn allreduce<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    recv: &'a Buf,
    op: &'a Op,
) -> PlanResult<'a> {
    let send = send.given();
    let mine = check_reduction(call, send, recv, op)?;
    let (rank, size, count, bytes) = (comm.rank(), comm.size(), recv.count(), recv.packed(call)?);
    let can_ring = size > 1 && op.is_commutative() && count >= size as usize;
    let way = comm.collectives().tuning().allreduce(size, bytes, can_ring);
    let (steps, temp) = match way {
        Allreduce::Flat => (reduction::allreduce_flat(rank, size, mine, count, lies_close(recv)), count),
        Allreduce::Doubling => (reduction::allreduce_recursive_doubling(rank, size, mine, count), count),
        Allreduce::Ring => {
            (reduction::allreduce_ring(rank, size, mine, count), reduction::ring_block(0, size, count).1)
        }
    };
    let label = CallDigest::allreduce(bytes, op, way == Allreduce::Flat).longer(way == Allreduce::Ring);
    Ok((label, plan(steps, send, recv).with_temp(temp).with_op(op)))
}

pub(super) fn reduce_scatter<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    recv: &'a Buf,
    counts: &[usize],
    op: &'a Op,
) -> PlanResult<'a> {
    let sums =
        counts.iter().scan(0usize, |sum, count| Some(std::mem::replace(sum, sum.saturating_add(*count))));
    let displacements: Vec<usize> = sums.collect();
    let layout = BlockLayout::Varying { counts, displacements: &displacements };
    let layout = layout.to_send(call, comm.size(), send.count())?;
    check_reduction(call, Some(&send.of_rank(&layout, comm.rank())), recv, op)?;
    send.apart(call, recv)?;
    let total = layout.total(call, comm.size(), send)?;
    let steps = reduction::reduce_scatter(comm.rank(), comm.size(), &|r| layout.block(r), recv.count());
    let label = CallDigest::reduction(CollectiveKind::ReduceScatter, total, op);
    Ok((label, plan(steps, Some(send), recv).with_temp(recv.count()).with_op(op)))
}

pub(super) fn scan<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    recv: &'a Buf,
    op: &'a Op,
) -> PlanResult<'a> {
    let send = send.given();
    let mine = check_reduction(call, send, recv, op)?;
    let bytes = recv.packed(call)?;
    let is_flat = comm.collectives().tuning().scan_is_flat(comm.size(), bytes);
    let (rank, size, count) = (comm.rank(), comm.size(), recv.count());
    let steps = match is_flat {
        true => prefix::scan_flat(rank, size, mine, count, lies_close(recv)),
        false => prefix::scan(rank, size, mine, count),
    };
    let label = CallDigest::reduction(CollectiveKind::Scan, bytes, op).longer(!is_flat);
    Ok((label, plan(steps, send, recv).with_temp(recv.count()).with_op(op)))
}

pub(super) fn gather<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    recv: &'a Buf,
    layout: BlockLayout<'_>,
    root: i32,
) -> PlanResult<'a> {
    let send = send.given();
    let root = comm.check_rank(call, ErrorClass::Root, root)?;
    let mut layout = layout;
    if comm.rank() == root {
        layout = layout.to_receive(call, comm.size(), recv.count())?;
        recv.receivable(call)?;
        if let Some(send) = send {
            send.like(call, &recv.of_rank(&layout, root))?;
            send.apart(call, recv)?;
        }
    } else {
        send.ok_or_else(|| nothing(call))?.packed(call)?;
    }
    // The layout was checked at the root, and only the root uses it.
    let into = |rank| {
        let (at, count) = layout.block(rank);
        Span::new(BufIndex::RECV, at, count)
    };
    let mine = send.map(|send| send.whole(BufIndex::SEND));
    let steps = rooted::gather(comm.rank(), comm.size(), root, mine, &into);
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
    let recv = recv.given();
    let root = comm.check_rank(call, ErrorClass::Root, root)?;
    if let Some(recv) = recv {
        recv.receivable(call)?;
    }
    let mut layout = layout;
    if comm.rank() == root {
        layout = layout.to_send(call, comm.size(), send.count())?;
        layout.total(call, comm.size(), send)?;
        if let Some(recv) = recv {
            send.of_rank(&layout, root).like(call, recv)?;
            send.apart(call, recv)?;
        }
    } else if recv.is_none() {
        return Err(nothing(call));
    }
    let mine = recv.map(|recv| recv.whole(BufIndex::RECV));
    let steps = rooted::scatter(comm.rank(), comm.size(), root, &|r| layout.block(r), mine);
    let label = CallDigest::new(CollectiveKind::Scatter, root as usize);
    Ok((label, plan(steps, Some(send), recv.unwrap_or(NOTHING))))
}

pub(super) fn allgather<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    recv: &'a Buf,
    layout: BlockLayout<'_>,
) -> PlanResult<'a> {
    let send = send.given();
    let layout = layout.to_receive(call, comm.size(), recv.count())?;
    recv.receivable(call)?;
    if let Some(send) = send {
        send.like(call, &recv.of_rank(&layout, comm.rank()))?;
        send.apart(call, recv)?;
    }
    let total = layout.total(call, comm.size(), recv)?;
    let mine = send.map(|send| send.whole(BufIndex::SEND));
    let is_direct = comm.collectives().tuning().allgather_directly(total);
    let steps = all::allgather(comm.rank(), comm.size(), mine, &|r| layout.block(r), is_direct);
    Ok((CallDigest::new(CollectiveKind::Allgather, total).longer(!is_direct), plan(steps, send, recv)))
}

pub(super) fn alltoall<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    layout: BlockLayout<'_>,
    recv: &'a Buf,
    back: BlockLayout<'_>,
) -> PlanResult<'a> {
    let send = send.given();
    let (rank, size) = (comm.rank(), comm.size());
    let back = back.to_receive(call, size, recv.count())?;
    recv.receivable(call)?;
    let mut out = (BufIndex::TEMP, back);
    if let Some(send) = send {
        out = (BufIndex::SEND, layout.to_send(call, size, send.count())?);
        send.of_rank(&out.1, rank).like(call, &recv.of_rank(&back, rank))?;
        send.apart(call, recv)?;
    }
    let (area, layout) = out;
    let total = layout.total(call, size, send.unwrap_or(recv))?;
    let is_direct = comm.collectives().tuning().alltoall_directly(total);
    let mut steps = Vec::new();
    if send.is_none() {
        steps.push(Step::Copy { from: recv.whole(BufIndex::RECV), into: recv.whole(BufIndex::TEMP) });
    }
    let blocks = |r| layout.block(r);
    steps.extend(all::alltoall(rank, size, (area, &blocks), &|r| back.block(r), is_direct));
    // Totals of a varying exchange may differ between ranks, and the two algorithms can be mixed.
    let label = match layout {
        BlockLayout::Varying { .. } => CallDigest::new(CollectiveKind::Alltoall, 0),
        _ => CallDigest::new(CollectiveKind::Alltoall, total).longer(!is_direct),
    };
    let temp = if send.is_none() { recv.count() } else { 0 };
    Ok((label, plan(steps, send, recv).with_temp(temp)))
}
