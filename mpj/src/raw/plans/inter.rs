//! The plans of the collectives of intercommunicators. Their channel has the ranks of both groups, and
//! `mpj_collectives::inter` computes the steps.

use std::borrow::Cow;

use mpj_collectives::inter::{Groups, Root};
use mpj_collectives::{BufIndex, Operation, Span, Step};
use mpj_devices::Buf;

use super::super::coll_bufs::{BlockLayout, CollBuf};
use super::super::collective_call::Collective;
use super::super::comm::Comm;
use super::super::{PROC_NULL, ROOT};
use super::blocks::check_one_per_rank;
use super::{agreed, check_contribution, check_reduction, displacements, scattered_blocks};
use crate::collective::call_id::CallDigest;
use crate::collective::plan::{EMPTY_BUF, Plan, PlanBuffers};
use crate::error::{Error, ErrorClass, Result};

/// The root of a call, and its number in the channel. The other ranks of the root's group do not know the number.
type RootRank = (Root, u32);

/// Returns the plan of the steps that `add` adds. `value` is the value in which the ranks that exchange messages agree.
fn plan<'a>(
    comm: &Comm,
    (operation, value): (Operation, u64),
    (send, recv): (&'a Buf, &'a Buf),
    add: impl FnOnce(&Groups, &mut Vec<Step>),
) -> Plan<'a> {
    let mut steps = comm.collectives().take_steps();
    add(&comm.groups(), &mut steps);
    Plan::new(CallDigest::new(operation, value), steps, send, recv)
}

fn root_of(comm: &Comm, call: &'static str, collective: &Collective<'_>) -> Result<RootRank> {
    let Groups { rank, remote, .. } = comm.groups();
    match collective.root {
        ROOT => Ok((Root::This, rank)),
        PROC_NULL => Ok((Root::Null, 0)),
        root => {
            let root = remote.start + comm.check_rank(call, ErrorClass::Root, root)?;
            Ok((Root::Remote(root), root))
        }
    }
}

fn not_in_place<'a>(call: &'static str, buf: &'a Buf) -> Result<&'a Buf> {
    let error =
        || Error::new(ErrorClass::Buffer, call, "MPI_IN_PLACE is not allowed on an intercommunicator");
    buf.not_in_place().ok_or_else(error)
}

/// Refuses a call that intercommunicators do not have.
pub(in super::super) fn undefined<'a>(
    comm: &Comm,
    call: &'static str,
    _: &Collective<'a>,
) -> Result<Plan<'a>> {
    comm.check_intra(call)
        .map(|()| Plan::new(CallDigest::new(Operation::Barrier, 0), vec![], EMPTY_BUF, EMPTY_BUF))
}

pub(in super::super) fn barrier<'a>(comm: &Comm, _: &'static str, _: &Collective<'a>) -> Result<Plan<'a>> {
    Ok(plan(comm, (Operation::Barrier, 0), (EMPTY_BUF, EMPTY_BUF), Groups::barrier))
}

pub(in super::super) fn bcast<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
    let ((root, number), items) = (root_of(comm, call, collective)?, collective.recv());
    match root {
        Root::This => items.packed_bytes(call).map(drop)?,
        Root::Remote(_) => items.check_receivable(call)?,
        Root::Null => (),
    }
    let operation = (Operation::Bcast, number.into());
    Ok(plan(comm, operation, (items, items), |groups, steps| groups.bcast(root, items.count(), steps)))
}

pub(in super::super) fn reduce<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
    let (root, number) = root_of(comm, call, collective)?;
    let (own, items) = match root {
        Root::This => (check_reduction(call, None, collective.recv(), collective.op)?, collective.recv()),
        Root::Remote(_) => check_contribution(call, not_in_place(call, collective.send())?, collective.op)?,
        Root::Null => (Span::NONE, EMPTY_BUF),
    };
    items.packed_bytes(call)?;
    let operation = (Operation::Reduce, agreed(number as usize, collective.op));
    let plan = plan(comm, operation, (items, items), |groups, steps| groups.reduce(root, own, steps));
    Ok(plan.with_op(collective.op))
}

pub(in super::super) fn allreduce<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
    let (send, recv, op) = (not_in_place(call, collective.send())?, collective.recv(), collective.op);
    let own = check_reduction(call, Some(send), recv, op)?;
    let operation = (Operation::Allreduce, agreed(recv.packed_bytes(call)?, op));
    Ok(plan(comm, operation, (send, recv), |groups, steps| groups.allreduce(own, steps)).with_op(op))
}

/// The counts are those of this rank's group.
pub(in super::super) fn reduce_scatter<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
    let counts = collective.send_layout.counts();
    let displacements = displacements(call, counts, comm.size())?;
    let layout = BlockLayout::Varying { counts, displacements: &displacements };
    scatter_result(comm, call, Operation::ReduceScatter, collective, layout)
}

pub(in super::super) fn reduce_scatter_block<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
    scatter_result(comm, call, Operation::ReduceScatterBlock, collective, BlockLayout::EvenSplit)
}

fn scatter_result<'a>(
    comm: &Comm,
    call: &'static str,
    operation: Operation,
    collective: &Collective<'a>,
    layout: BlockLayout<'_>,
) -> Result<Plan<'a>> {
    let (send, recv, op) = (not_in_place(call, collective.send())?, collective.recv(), collective.op);
    let (layout, bytes) = scattered_blocks(comm, call, collective, layout)?;
    // `scattered_blocks` compares the types only if this rank's block is not empty. But temporary buffers, which have
    // the type of `recv`, receive items like those of `send`.
    if send.datatype().signature() != recv.datatype().signature() {
        let why = "the items of the send buffer and of the receive buffer differ in type";
        return Err(Error::new(ErrorClass::Type, call, why));
    }
    let items = (0..comm.size()).map(|rank| layout.block(rank).1).sum();
    let own = Span::new(BufIndex::SEND, 0, items);
    let add = |groups: &Groups, steps: &mut Vec<Step>| {
        groups.reduce_scatter(own, &|rank| layout.block(rank), steps);
    };
    Ok(plan(comm, (operation, agreed(bytes, op)), (send, recv), add).with_op(op))
}

pub(in super::super) fn gather<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
    let ((root, number), send, recv) =
        (root_of(comm, call, collective)?, collective.send(), collective.recv());
    let mut layout = collective.recv_layout;
    match root {
        Root::This => {
            layout = layout.resolve_receive(call, comm.peers().size(), recv, None)?;
            recv.check_receivable(call)?;
        }
        Root::Remote(_) => not_in_place(call, send)?.packed_bytes(call).map(drop)?,
        Root::Null => (),
    }
    let own = send.full_span(BufIndex::SEND);
    // Only the root uses the layout, which was checked there.
    let block = |rank| layout.span(BufIndex::RECV, rank);
    let add = |groups: &Groups, steps: &mut Vec<Step>| groups.gather(root, own, &block, steps);
    Ok(plan(comm, (Operation::Gather, number.into()), (send, recv), add))
}

pub(in super::super) fn scatter<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
    let ((root, number), send, recv) =
        (root_of(comm, call, collective)?, collective.send(), collective.recv());
    let (mut layout, size) = (collective.send_layout, comm.peers().size());
    match root {
        Root::This => {
            layout = layout.resolve_send(call, size, send, None)?;
            layout.total(call, size, send)?;
        }
        Root::Remote(_) => not_in_place(call, recv)?.check_receivable(call)?,
        Root::Null => (),
    }
    let into = recv.full_span(BufIndex::RECV);
    let block = |rank| layout.span(BufIndex::SEND, rank);
    let add = |groups: &Groups, steps: &mut Vec<Step>| groups.scatter(root, &block, into, steps);
    Ok(plan(comm, (Operation::Scatter, number.into()), (send, recv), add))
}

pub(in super::super) fn allgather<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
    let (send, recv) = (not_in_place(call, collective.send())?, collective.recv());
    let layout = collective.recv_layout.resolve_receive(call, comm.peers().size(), recv, None)?;
    recv.check_receivable(call)?;
    send.packed_bytes(call)?;
    send.check_no_alias(call, recv)?;
    let own = send.full_span(BufIndex::SEND);
    let block = |rank| layout.span(BufIndex::RECV, rank);
    let add = |groups: &Groups, steps: &mut Vec<Step>| groups.alltoall(&|_| own, &block, steps);
    Ok(plan(comm, (Operation::Allgather, 0), (send, recv), add))
}

pub(in super::super) fn alltoall<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
    let (send, recv) = (not_in_place(call, collective.send())?, collective.recv());
    let size = comm.peers().size();
    let back = collective.recv_layout.resolve_receive(call, size, recv, None)?;
    recv.check_receivable(call)?;
    let out = collective.send_layout.resolve_send(call, size, send, None)?;
    out.total(call, size, send)?;
    send.check_no_alias(call, recv)?;
    let send_block = |rank| out.span(BufIndex::SEND, rank);
    let recv_block = |rank| back.span(BufIndex::RECV, rank);
    let add = |groups: &Groups, steps: &mut Vec<Step>| groups.alltoall(&send_block, &recv_block, steps);
    Ok(plan(comm, (Operation::Alltoall, 0), (send, recv), add))
}

pub(in super::super) fn alltoallw<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
    let (send, recv, size) = (collective.send, collective.recv, comm.peers().size() as usize);
    if let [only] = send {
        not_in_place(call, only)?;
    }
    check_one_per_rank(call, "receive", recv, size)?;
    check_one_per_rank(call, "send", send, size)?;
    recv.iter().try_for_each(|buf| buf.check_receivable(call))?;
    send.iter().try_for_each(|buf| buf.packed_bytes(call).map(drop))?;
    let span = |buf: &Buf, index: usize| buf.full_span(BufIndex::new(index as u32));
    let send_block = |rank: u32| span(&send[rank as usize], rank as usize);
    let recv_block = |rank: u32| span(&recv[rank as usize], size + rank as usize);
    let add = |groups: &Groups, steps: &mut Vec<Step>| groups.alltoall(&send_block, &recv_block, steps);
    let mut plan = plan(comm, (Operation::Alltoallw, 0), (EMPTY_BUF, EMPTY_BUF), add);
    let bufs = send.iter().chain(recv).cloned().collect();
    plan.user = PlanBuffers::List { bufs: Cow::Owned(bufs), temp: Vec::new() };
    Ok(plan)
}
