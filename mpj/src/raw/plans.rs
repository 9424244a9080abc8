//! The plan of each collective: functions that check the arguments and compute the steps of this rank, for blocking,
//! non-blocking and persistent calls. They send nothing.

use mpj_collectives::{Arguments, BufIndex, Operation, Span, Step};
use mpj_devices::Buf;

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
fn plan<'a>(
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
    let (own, items) = if comm.rank() == root {
        (check_reduction(call, send, recv, op)?, recv)
    } else {
        let send = send.ok_or_else(|| in_place_error(call))?;
        send.check_op(call, op)?;
        (send.full_span(BufIndex::SEND), send)
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
    let (send, recv, op) = (collective.send(), collective.recv(), collective.op);
    let counts = collective.send_layout.counts();
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
    let own = check_reduction(call, None, recv, op)?;
    send.check_no_alias(call, recv)?;
    let total = layout.total(call, size, send)?;
    let send_block = |rank| layout.span(BufIndex::SEND, rank);
    let arguments = Arguments { send: &send_block, ..comm.reduction(own, recv, op) };
    let bytes = (total, agreed(total, op));
    Ok(plan(comm, call, Operation::ReduceScatter, &arguments, bytes, (Some(send), recv))?.with_op(op))
}

pub(super) fn gather<'a>(comm: &Comm, call: &'static str, collective: &Collective<'a>) -> Result<Plan<'a>> {
    let (send, recv) = (collective.send().not_in_place(), collective.recv());
    let root = comm.check_rank(call, ErrorClass::Root, collective.root)?;
    let mut layout = collective.recv_layout;
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
    let own = send.map(|send| send.full_span(BufIndex::SEND));
    // Only the root uses the layout, which was checked there.
    let recv_block = |rank| layout.span(BufIndex::RECV, rank);
    let arguments = Arguments { root, own, recv: &recv_block, ..comm.arguments() };
    // The ranks other than the root do not know the number of bytes.
    plan(comm, call, Operation::Gather, &arguments, (0, root.into()), (send, recv))
}

pub(super) fn scatter<'a>(comm: &Comm, call: &'static str, collective: &Collective<'a>) -> Result<Plan<'a>> {
    let (send, recv) = (collective.send(), collective.recv().not_in_place());
    let root = comm.check_rank(call, ErrorClass::Root, collective.root)?;
    if let Some(recv) = recv {
        recv.check_receivable(call)?;
    }
    let mut layout = collective.send_layout;
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
    let into = recv.map(|recv| recv.full_span(BufIndex::RECV));
    let send_block = |rank| layout.span(BufIndex::SEND, rank);
    let arguments = Arguments { root, into, send: &send_block, ..comm.arguments() };
    let bufs = (Some(send), recv.unwrap_or(EMPTY_BUF));
    // The ranks other than the root do not know the number of bytes.
    plan(comm, call, Operation::Scatter, &arguments, (0, root.into()), bufs)
}

pub(super) fn allgather<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
    let (send, recv) = (collective.send().not_in_place(), collective.recv());
    let layout = collective.recv_layout.resolve_receive(call, comm.size(), recv, send)?;
    recv.check_receivable(call)?;
    if let Some(send) = send {
        let blocks = RankBlocks::default().with_recv(layout, comm.rank(), comm.size(), recv);
        send.check_same_amount(call, &recv.block_of(&layout, comm.rank()), &blocks)?;
        send.check_no_alias(call, recv)?;
    }
    let total = layout.total(call, comm.size(), recv)?;
    let own = send.map(|send| send.full_span(BufIndex::SEND));
    let recv_block = |rank| layout.span(BufIndex::RECV, rank);
    let arguments = Arguments { own, recv: &recv_block, ..comm.arguments() };
    plan(comm, call, Operation::Allgather, &arguments, (total, total as u64), (send, recv))
}

pub(super) fn alltoall<'a>(comm: &Comm, call: &'static str, collective: &Collective<'a>) -> Result<Plan<'a>> {
    let (send, recv) = (collective.send().not_in_place(), collective.recv());
    let (rank, size) = (comm.rank(), comm.size());
    let back = collective.recv_layout.resolve_receive(call, size, recv, None)?;
    recv.check_receivable(call)?;
    let (mut from, mut out) = (BufIndex::TEMP, back);
    if let Some(send) = send {
        (from, out) = (BufIndex::SEND, collective.send_layout.resolve_send(call, size, send, None)?);
        let blocks = RankBlocks::default().with_send(out, rank, size, send).with_recv(back, rank, size, recv);
        send.block_of(&out, rank).check_same_amount(call, &recv.block_of(&back, rank), &blocks)?;
        send.check_no_alias(call, recv)?;
    }
    let total = out.total(call, size, send.unwrap_or(recv))?;
    let (send_block, recv_block) = (|rank| out.span(from, rank), |rank| back.span(BufIndex::RECV, rank));
    let arguments = Arguments { send: &send_block, recv: &recv_block, ..comm.arguments() };
    let bytes = (total, total as u64);
    let mut plan = plan(comm, call, Operation::Alltoall, &arguments, bytes, (send, recv))?;
    if let BlockLayout::Varying { .. } = out {
        // The totals, and thus the algorithms, can differ between ranks. All algorithms send the same messages.
        plan.digest = CallDigest::new(Operation::Alltoall, 0);
    }
    if send.is_none() {
        let copy = Step::Copy { from: recv.full_span(BufIndex::RECV), into: recv.full_span(BufIndex::TEMP) };
        plan.steps.insert(0, copy);
    }
    Ok(plan)
}
