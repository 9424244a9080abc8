//! Neighbourhood collectives (MPI 4.1 §8.6): every rank of a communicator with a topology calls them in the same order.
//!
//! A receive buffer has one block for each source, and the send buffer of an alltoall one for each destination; the
//! send buffer of an allgather goes to every destination as a whole. In a grid, the order of the blocks is: for each
//! dimension, the rank before, then the rank after. In a graph, it is the order of the sources or destinations. The
//! block of a missing neighbour, outside an open dimension, is not accessed.
//!
//! If a rank is a neighbour several times: in a grid, the block that a rank sends to the rank before it arrives as the
//! block from the rank after, and the reverse; in a graph, the `k`th block of one rank to another is the `k`th block
//! that the other receives from it. The other rules are those of the [collectives](super::barrier).

use std::borrow::Cow;

use mpj_collectives::{Arguments, BufIndex, Operation, Span};
use mpj_devices::Buf;

use super::coll_bufs::{BlockLayout, CollBuf};
use super::collective::run;
use super::collective_call::Collective;
use super::comm::Comm;
use super::plans::plan;
use super::topology::{VirtualTopology, no_topology, topology};
use crate::collective::plan::{EMPTY_BUF, Plan, PlanBuffers};
use crate::error::{Error, ErrorClass, Result};

/// Sends the items of `send` to each destination, and receives a block from each source, placed by `layout`
/// (MPI_Neighbor_allgather, MPI_Neighbor_allgatherv).
///
/// # Errors
/// As [`allgather`](super::allgather); [`ErrorClass::Topology`] if the communicator has no topology, or a graph (not a
/// distributed one) with an edge that occurs more often than its reverse; [`ErrorClass::Buffer`] if `send` is in place.
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn neighbor_allgather(comm: &Comm, send: &Buf, recv: &Buf, layout: BlockLayout<'_>) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { run(comm, Collective::neighbor_allgather(send, recv, layout), allgather) }
}

/// Sends a block to each destination and receives one from each source, placed by the two layouts
/// (MPI_Neighbor_alltoall, MPI_Neighbor_alltoallv).
///
/// # Errors
/// As [`neighbor_allgather`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn neighbor_alltoall(
    comm: &Comm,
    send: &Buf,
    layout: BlockLayout<'_>,
    recv: &Buf,
    back: BlockLayout<'_>,
) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { run(comm, Collective::neighbor_alltoall(send, layout, recv, back), alltoall) }
}

/// Sends a buffer to each destination and receives one from each source; each can have its own datatype
/// (MPI_Neighbor_alltoallw).
///
/// # Errors
/// As [`neighbor_allgather`]; [`ErrorClass::Arg`] if there is not one buffer for each neighbour.
///
/// # Safety
/// The contracts of all buffers. The receive buffers overlap neither each other nor a send buffer.
pub unsafe fn neighbor_alltoallw(comm: &Comm, send: &[Buf], recv: &[Buf]) -> Result<()> {
    // SAFETY: the caller's contract.
    unsafe { run(comm, Collective::neighbor_alltoallw(send, recv), alltoallw) }
}

pub(super) fn allgather<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
    let (send, recv, topology) = (collective.send(), collective.recv(), neighborhood(comm, call)?);
    check_buffers(call, send, recv)?;
    send.packed_bytes(call)?;
    let layout = collective.recv_layout.resolve_blocks(call, Side::Receive, recv, topology)?;
    let recv_block = |block| layout.span(BufIndex::RECV, block);
    let own = Some(send.full_span(BufIndex::SEND));
    let arguments = Arguments { own, recv: &recv_block, ..comm.neighbor_arguments(topology) };
    plan(comm, call, Operation::NeighborAllgather, &arguments, (0, 0), (Some(send), recv))
}

pub(super) fn alltoall<'a>(comm: &Comm, call: &'static str, collective: &Collective<'a>) -> Result<Plan<'a>> {
    let (send, recv, topology) = (collective.send(), collective.recv(), neighborhood(comm, call)?);
    check_buffers(call, send, recv)?;
    let out = collective.send_layout.resolve_blocks(call, Side::Send, send, topology)?;
    let back = collective.recv_layout.resolve_blocks(call, Side::Receive, recv, topology)?;
    let send_block = |block| out.span(BufIndex::SEND, block);
    let recv_block = |block| back.span(BufIndex::RECV, block);
    let arguments = Arguments { send: &send_block, recv: &recv_block, ..comm.neighbor_arguments(topology) };
    plan(comm, call, Operation::NeighborAlltoall, &arguments, (0, 0), (Some(send), recv))
}

pub(super) fn alltoallw<'a>(
    comm: &Comm,
    call: &'static str,
    collective: &Collective<'a>,
) -> Result<Plan<'a>> {
    let (send, recv, topology) = (collective.send, collective.recv, neighborhood(comm, call)?);
    for (side, bufs) in [(Side::Send, send), (Side::Receive, recv)] {
        let expected = side.block_count(topology);
        if bufs.len() != expected {
            let why = format!("{} {}s for {expected} neighbours", bufs.len(), side.buffer());
            return Err(Error::new(ErrorClass::Arg, call, why));
        }
    }
    for send in send {
        check_buffers(call, send, EMPTY_BUF)?;
        send.packed_bytes(call)?;
    }
    recv.iter().try_for_each(|recv| recv.check_receivable(call))?;
    // The buffers of the sources have the indices after those of the destinations.
    let whole = |at: usize, buf: &Buf| Span::new(BufIndex::new(at as u32), 0, buf.count());
    let send_block = |block: u32| whole(block as usize, &send[block as usize]);
    let recv_block = |block: u32| whole(send.len() + block as usize, &recv[block as usize]);
    let arguments = Arguments { send: &send_block, recv: &recv_block, ..comm.neighbor_arguments(topology) };
    let pair = (None, EMPTY_BUF);
    let plan = plan(comm, call, Operation::NeighborAlltoallw, &arguments, (0, 0), pair)?;
    let user = PlanBuffers::List { bufs: Cow::Owned([send, recv].concat()), temp: Vec::new() };
    Ok(Plan { user, ..plan })
}

fn neighborhood<'a>(comm: &'a Comm, call: &'static str) -> Result<&'a VirtualTopology> {
    let topology = topology(comm).ok_or_else(|| no_topology(call, "a topology"))?;
    match topology.one_way_edge {
        None => Ok(topology),
        Some((from, to)) => {
            let why = format!(
                "the graph has more edges from {from} to {to} than back, but each neighbour must also be a source: \
                 create a distributed graph"
            );
            Err(Error::new(ErrorClass::Topology, call, why))
        }
    }
}

fn check_buffers(call: &'static str, send: &Buf, recv: &Buf) -> Result<()> {
    if send.is_in_place() {
        return Err(Error::new(ErrorClass::Buffer, call, "MPI_IN_PLACE is not allowed"));
    }
    recv.check_receivable(call)?;
    send.check_no_alias(call, recv)
}

impl Comm {
    fn neighbor_arguments<'a>(&self, topology: &'a VirtualTopology) -> Arguments<'a> {
        Arguments {
            hosts: self.host_count(),
            sources: &topology.sources,
            destinations: &topology.destinations,
            ..Arguments::new(self.rank(), self.size())
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Send,
    Receive,
}

impl Side {
    fn buffer(self) -> &'static str {
        match self {
            Side::Send => "send buffer",
            Side::Receive => "receive buffer",
        }
    }

    fn block_count(self, topology: &VirtualTopology) -> usize {
        match self {
            Side::Send => topology.block_counts.1,
            Side::Receive => topology.block_counts.0,
        }
    }
}

impl<'a> BlockLayout<'a> {
    /// Replaces `EvenSplit` by `Uniform`; fails if the layout does not fit the neighbours or the buffer, or if blocks of
    /// a receive buffer overlap.
    fn resolve_blocks(
        self,
        call: &'static str,
        side: Side,
        items: &Buf,
        topology: &VirtualTopology,
    ) -> Result<BlockLayout<'a>> {
        let (count, blocks, name) = (items.count(), side.block_count(topology), side.buffer());
        let fail = |class, why| Err(Error::new(class, call, why));
        let layout = match self {
            BlockLayout::EvenSplit if blocks == 0 && count == 0 => BlockLayout::Uniform(0),
            BlockLayout::EvenSplit if blocks == 0 || !count.is_multiple_of(blocks) => {
                let why = format!(
                    "{name} has {count} items, expected a multiple of {blocks}, the number of blocks"
                );
                return fail(ErrorClass::Count, why);
            }
            BlockLayout::EvenSplit => BlockLayout::Uniform(count / blocks),
            BlockLayout::Varying { counts, displacements }
                if counts.len() != blocks || displacements.len() != blocks =>
            {
                let (c, d) = (counts.len(), displacements.len());
                return fail(
                    ErrorClass::Arg,
                    format!("{c} counts and {d} displacements for {blocks} neighbours"),
                );
            }
            layout => layout,
        };
        let blocks = u32::try_from(blocks).unwrap_or(u32::MAX);
        let is_outside = |block: &u32| {
            let (at, len) = layout.block(*block);
            len > 0 && at.checked_add(len).is_none_or(|end| end > count)
        };
        if let Some(block) = (0..blocks).find(is_outside) {
            let (at, len) = layout.block(block);
            let why = format!(
                "{len} items of block {block} at displacement {at} exceed the {name} of {count} items"
            );
            return fail(ErrorClass::Count, why);
        }
        if let (BlockLayout::Varying { .. }, Side::Receive) = (layout, side) {
            let mut all: Vec<_> = (0..blocks).map(|block| (layout.block(block), block)).collect();
            all.retain(|((_, len), _)| *len > 0);
            all.sort_unstable();
            if let Some(two) = all.windows(2).find(|two| two[0].0.0 + two[0].0.1 > two[1].0.0) {
                let why = format!("blocks {} and {} overlap in the receive buffer", two[0].1, two[1].1);
                return fail(ErrorClass::Arg, why);
            }
        }
        layout.total(call, blocks, items)?;
        Ok(layout)
    }
}
