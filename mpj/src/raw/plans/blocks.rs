//! The plans of the collectives that move blocks of the ranks without combining them.

use std::borrow::Cow;

use mpj_collectives::{Arguments, BufIndex, Operation, Step};
use mpj_devices::Buf;

use super::super::coll_bufs::{BlockLayout, CollBuf, RankBlocks};
use super::super::collective_call::Collective;
use super::super::comm::Comm;
use super::{in_place_error, plan};
use crate::collective::call_id::CallDigest;
use crate::collective::plan::{EMPTY_BUF, Plan, PlanBuffers};
use crate::collective::temp_buffers::TempBuffers;
use crate::error::{Error, ErrorClass, Result};

pub(in super::super) fn gather<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
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

pub(in super::super) fn scatter<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
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

pub(in super::super) fn allgather<'a>(
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

pub(in super::super) fn alltoall<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
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

pub(in super::super) fn alltoallw<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
    let (rank, size, recv) = (comm.rank() as usize, comm.size() as usize, collective.recv);
    let in_place = matches!(collective.send, [only] if only.is_in_place());
    let send = if in_place { &[] } else { collective.send };
    check_one_per_rank(call, "receive", recv, size)?;
    for buf in recv {
        buf.check_receivable(call)?;
    }
    if !in_place {
        check_one_per_rank(call, "send", send, size)?;
        send[rank].check_same_amount(call, &recv[rank], &RankBlocks::default())?;
        send[rank].check_no_alias(call, &recv[rank])?;
    }
    let sent = if in_place { recv } else { send };
    let mut total = 0usize;
    for buf in sent {
        total = total.saturating_add(buf.packed_bytes(call)?);
    }
    let (mut bufs, mut temp): (Vec<Buf>, Vec<TempBuffers>) =
        (send.iter().chain(recv).cloned().collect(), vec![]);
    if in_place {
        // Copies of the items, from which the steps send.
        for buf in recv {
            let copy = TempBuffers::new(call, buf.datatype(), buf.count(), 1)?;
            bufs.push(copy.part(0, 0, buf.count()));
            temp.push(copy);
        }
    }
    let (first_sent, first_received) = (if in_place { size } else { 0 }, send.len());
    let span = |index: usize| bufs[index].full_span(BufIndex::new(index as u32));
    let send_block = |rank: u32| span(first_sent + rank as usize);
    let recv_block = |rank: u32| span(first_received + rank as usize);
    let arguments = Arguments { send: &send_block, recv: &recv_block, ..comm.arguments() };
    let mut plan = plan(comm, call, Operation::Alltoallw, &arguments, (total, 0), (None, EMPTY_BUF))?;
    // As for the blocks of an alltoallv.
    plan.digest = CallDigest::new(Operation::Alltoallw, 0);
    if in_place {
        let copy = |rank| Step::Copy { from: recv_block(rank), into: send_block(rank) };
        plan.steps.splice(0..0, (0..comm.size()).map(copy));
    }
    plan.user = PlanBuffers::List { bufs: Cow::Owned(bufs), temp };
    Ok(plan)
}

pub(super) fn check_one_per_rank(call: &'static str, name: &str, bufs: &[Buf], size: usize) -> Result<()> {
    if bufs.len() != size {
        let why = format!("{} {name} buffers for {size} ranks", bufs.len());
        return Err(Error::new(ErrorClass::Arg, call, why));
    }
    Ok(())
}
