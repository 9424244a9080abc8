//! Each collective as a plan: arguments are checked, and what this rank does is written down; nothing is sent. Plans are
//! run blocking (`collective`) or not (`start`).

use mpj_devices::Buf;

use super::comm::Comm;
use super::items::{Items, Layout};
use crate::collective::label::{Label, Operation};
use crate::collective::plan::{NOTHING, Plan};
use crate::collective::step::{Area, Span, Step};
use crate::collective::tuning::Allreduce;
use crate::collective::{all, reduce as reduction, rooted, scan as prefix};
use crate::error::{Class, Error, Result};
use crate::op::Op;

/// What all ranks must agree on, and what this one does.
pub(super) type Planned<'a> = Result<(Label, Plan<'a>)>;

/// A plan; where there is nothing to send, no step names it.
pub(super) fn plan<'a>(steps: Vec<Step>, send: Option<&'a Buf>, recv: &'a Buf) -> Plan<'a> {
    Plan::new(steps, send.unwrap_or(recv), recv)
}

/// Checks what a reduction on this rank works on; returns what it contributes.
fn check_reduction(call: &'static str, send: Option<&Buf>, recv: &Buf, op: &Op) -> Result<Span> {
    if let Some(send) = send {
        send.like(call, recv)?;
        send.apart(call, recv)?;
    }
    recv.receivable(call)?;
    recv.combine(call, op)?;
    Ok(send.map_or_else(|| recv.whole(Area::RECV), |send| send.whole(Area::SEND)))
}

fn nothing(call: &'static str) -> Error {
    Error::new(Class::Buffer, call, "only the root's items are in place")
}

/// Whether memory for as many items is no more than their bytes, so that there may be some for each rank.
fn lies_close(items: &Buf) -> bool {
    items.pieces().is_none() && items.datatype().is_contiguous()
}

#[inline]
pub(super) fn barrier(comm: &Comm) -> (Label, Plan<'static>) {
    let (rank, size) = (comm.rank(), comm.size());
    let is_flat = comm.collectives().tuning().is_flat(size, 0);
    let steps = if is_flat { rooted::barrier_flat(rank, size) } else { rooted::barrier(rank, size) };
    (Label::new(Operation::Barrier, 0).longer(!is_flat), plan(steps, None, NOTHING))
}

#[inline]
pub(super) fn bcast<'a>(comm: &Comm, call: &'static str, items: &'a Buf, root: i32) -> Planned<'a> {
    let root = comm.member(call, Class::Root, root)?;
    let bytes = items.packed(call)?;
    let (rank, size, count) = (comm.rank(), comm.size(), items.count());
    if rank != root {
        items.receivable(call)?;
    }
    let is_flat = comm.collectives().tuning().is_flat(size, bytes);
    let flat_or_tree = if is_flat { rooted::bcast_flat } else { rooted::bcast };
    // The root's steps only send.
    let steps = flat_or_tree(rank, size, root, count);
    Ok((Label::new(Operation::Bcast, root as usize).longer(!is_flat), plan(steps, None, items)))
}

pub(super) fn reduce<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    recv: &'a Buf,
    op: &'a Op,
    root: i32,
) -> Planned<'a> {
    let send = send.given();
    let root = comm.member(call, Class::Root, root)?;
    let (mine, items) = if comm.rank() == root {
        (check_reduction(call, send, recv, op)?, recv)
    } else {
        let send = send.ok_or_else(|| nothing(call))?;
        send.combine(call, op)?;
        (send.whole(Area::SEND), send)
    };
    let (rank, size, count, bytes) = (comm.rank(), comm.size(), items.count(), items.packed(call)?);
    let is_flat = comm.collectives().tuning().is_flat(size, bytes);
    let steps = match is_flat {
        true => reduction::reduce_flat(rank, size, root, mine, count, lies_close(items)),
        false => reduction::reduce(rank, size, root, mine, count, op.is_commutative()),
    };
    let label = Label::reduction(Operation::Reduce, root as usize, op).longer(!is_flat);
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
) -> Planned<'a> {
    let send = send.given();
    let mine = check_reduction(call, send, recv, op)?;
    let (rank, size, count, bytes) = (comm.rank(), comm.size(), recv.count(), recv.packed(call)?);
    let can_ring = size > 1 && op.is_commutative() && count >= size as usize;
    let way = comm.collectives().tuning().allreduce(size, bytes, can_ring);
    let (steps, temp) = match way {
        Allreduce::Flat => (reduction::allreduce_flat(rank, size, mine, count, lies_close(recv)), count),
        Allreduce::Doubling => (reduction::allreduce_doubling(rank, size, mine, count), count),
        Allreduce::Ring => {
            (reduction::allreduce_ring(rank, size, mine, count), reduction::ring_block(0, size, count).1)
        }
    };
    let label = Label::allreduce(bytes, op, way == Allreduce::Flat).longer(way == Allreduce::Ring);
    Ok((label, plan(steps, send, recv).with_temp(temp).with_op(op)))
}

pub(super) fn reduce_scatter<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    recv: &'a Buf,
    counts: &[usize],
    op: &'a Op,
) -> Planned<'a> {
    let sums =
        counts.iter().scan(0usize, |sum, count| Some(std::mem::replace(sum, sum.saturating_add(*count))));
    let displacements: Vec<usize> = sums.collect();
    let layout = Layout::Varying { counts, displacements: &displacements };
    let layout = layout.to_send(call, comm.size(), send.count())?;
    check_reduction(call, Some(&send.of_rank(&layout, comm.rank())), recv, op)?;
    send.apart(call, recv)?;
    let total = layout.total(call, comm.size(), send)?;
    let steps = reduction::reduce_scatter(comm.rank(), comm.size(), &|r| layout.block(r), recv.count());
    let label = Label::reduction(Operation::ReduceScatter, total, op);
    Ok((label, plan(steps, Some(send), recv).with_temp(recv.count()).with_op(op)))
}

pub(super) fn scan<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    recv: &'a Buf,
    op: &'a Op,
) -> Planned<'a> {
    let send = send.given();
    let mine = check_reduction(call, send, recv, op)?;
    let bytes = recv.packed(call)?;
    let is_flat = comm.collectives().tuning().scan_is_flat(comm.size(), bytes);
    let (rank, size, count) = (comm.rank(), comm.size(), recv.count());
    let steps = match is_flat {
        true => prefix::scan_flat(rank, size, mine, count, lies_close(recv)),
        false => prefix::scan(rank, size, mine, count),
    };
    let label = Label::reduction(Operation::Scan, bytes, op).longer(!is_flat);
    Ok((label, plan(steps, send, recv).with_temp(recv.count()).with_op(op)))
}

pub(super) fn gather<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    recv: &'a Buf,
    layout: Layout<'_>,
    root: i32,
) -> Planned<'a> {
    let send = send.given();
    let root = comm.member(call, Class::Root, root)?;
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
    // The layout was checked where it is used.
    let into = |rank| {
        let (at, count) = layout.block(rank);
        Span::new(Area::RECV, at, count)
    };
    let mine = send.map(|send| send.whole(Area::SEND));
    let steps = rooted::gather(comm.rank(), comm.size(), root, mine, &into);
    Ok((Label::new(Operation::Gather, root as usize), plan(steps, send, recv)))
}

pub(super) fn scatter<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    layout: Layout<'_>,
    recv: &'a Buf,
    root: i32,
) -> Planned<'a> {
    let recv = recv.given();
    let root = comm.member(call, Class::Root, root)?;
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
    let mine = recv.map(|recv| recv.whole(Area::RECV));
    let steps = rooted::scatter(comm.rank(), comm.size(), root, &|r| layout.block(r), mine);
    let label = Label::new(Operation::Scatter, root as usize);
    Ok((label, plan(steps, Some(send), recv.unwrap_or(NOTHING))))
}

pub(super) fn allgather<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    recv: &'a Buf,
    layout: Layout<'_>,
) -> Planned<'a> {
    let send = send.given();
    let layout = layout.to_receive(call, comm.size(), recv.count())?;
    recv.receivable(call)?;
    if let Some(send) = send {
        send.like(call, &recv.of_rank(&layout, comm.rank()))?;
        send.apart(call, recv)?;
    }
    let total = layout.total(call, comm.size(), recv)?;
    let mine = send.map(|send| send.whole(Area::SEND));
    let is_direct = comm.collectives().tuning().allgather_directly(total);
    let steps = all::allgather(comm.rank(), comm.size(), mine, &|r| layout.block(r), is_direct);
    Ok((Label::new(Operation::Allgather, total).longer(!is_direct), plan(steps, send, recv)))
}

pub(super) fn alltoall<'a>(
    comm: &Comm,
    call: &'static str,
    send: &'a Buf,
    layout: Layout<'_>,
    recv: &'a Buf,
    back: Layout<'_>,
) -> Planned<'a> {
    let send = send.given();
    let (rank, size) = (comm.rank(), comm.size());
    let back = back.to_receive(call, size, recv.count())?;
    recv.receivable(call)?;
    let mut out = (Area::TEMP, back);
    if let Some(send) = send {
        out = (Area::SEND, layout.to_send(call, size, send.count())?);
        send.of_rank(&out.1, rank).like(call, &recv.of_rank(&back, rank))?;
        send.apart(call, recv)?;
    }
    let (area, layout) = out;
    let total = layout.total(call, size, send.unwrap_or(recv))?;
    let is_direct = comm.collectives().tuning().alltoall_directly(total);
    let mut steps = Vec::new();
    if send.is_none() {
        steps.push(Step::Copy { from: recv.whole(Area::RECV), into: recv.whole(Area::TEMP) });
    }
    let blocks = |r| layout.block(r);
    steps.extend(all::alltoall(rank, size, (area, &blocks), &|r| back.block(r), is_direct));
    // Ranks may disagree on the totals of a varying exchange, and both ways of exchanging understand each other.
    let label = match layout {
        Layout::Varying { .. } => Label::new(Operation::Alltoall, 0),
        _ => Label::new(Operation::Alltoall, total).longer(!is_direct),
    };
    let temp = if send.is_none() { recv.count() } else { 0 };
    Ok((label, plan(steps, send, recv).with_temp(temp)))
}
