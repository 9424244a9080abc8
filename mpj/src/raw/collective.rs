//! Collectives: every rank of the communicator calls them in the same order.
//!
//! Counts are in items and, as in MPI, the type signature of what is sent must be that of what is received, on all ranks:
//! a message that is shorter, longer or of another type is an error. An error on one rank is told to the others, which fail
//! with it; from then on the communicator takes no more collectives. Arguments that are refused on all ranks leave it as
//! it was.
//!
//! Where `send` (of [`scatter`], `recv`) is [`Buf::in_place`], the rank's own items are in the other buffer already
//! (`MPI_IN_PLACE`).

use mpj_devices::Buf;

use super::comm::Comm;
use super::items::{Items, Layout};
use crate::collective::label::{Label, Operation};
use crate::collective::schedule::Plan;
use crate::collective::step::{Area, Span, Step};
use crate::collective::turn::Turn;
use crate::collective::{all, reduce as reduction, rooted, scan as prefix, tuning};
use crate::error::{Class, Error, Result};
use crate::op::Op;

/// A plan without an operation; where there is nothing to send, no step names it.
fn plan<'a>(steps: Vec<Step>, send: Option<&'a Buf>, recv: &'a Buf) -> Plan<'a> {
    Plan { steps, send: send.unwrap_or(recv), recv, temp: 0, op: None }
}

/// Checks what a reduction on this rank works on; returns what it contributes.
fn check_reduction(call: &'static str, send: Option<&Buf>, recv: &Buf, op: &Op) -> Result<Span> {
    if let Some(send) = send {
        send.like(call, recv)?;
        send.apart(call, recv)?;
    }
    recv.receivable(call)?;
    recv.combine(call, op)?;
    Ok(send.map_or_else(|| recv.whole(Area::Recv), |send| send.whole(Area::Send)))
}

/// Waits until every rank has called it.
///
/// # Errors
/// A freed communicator, a dead or departed rank, ranks that are out of step.
pub fn barrier(comm: &Comm) -> Result<()> {
    comm.collective("barrier", |turn| {
        let steps = rooted::barrier(comm.rank(), comm.size());
        // SAFETY: no memory is named.
        unsafe { turn.run(Label::new(Operation::Barrier, 0), plan(steps, None, &Buf::empty())) }
    })
}

/// Gives every rank the items of `root`.
///
/// # Errors
/// A bad root, a freed communicator, a dead or departed rank; other counts or types elsewhere; an error on another rank;
/// ranks that are out of step.
///
/// # Safety
/// The contract of a send buffer at the root, of a receive buffer elsewhere.
pub unsafe fn bcast(comm: &Comm, items: &Buf, root: i32) -> Result<()> {
    comm.collective("bcast", |turn| {
        let root = comm.member("bcast", Class::Root, root)?;
        items.packed("bcast")?;
        if comm.rank() != root {
            items.receivable("bcast")?;
        }
        let label = Label::new(Operation::Bcast, root as usize);
        // SAFETY: the caller's contract.
        unsafe { turn.bcast(label, items, root) }
    })
}

/// Combines the items of all ranks at `root`, in order of rank; `recv` is used at the root alone, and `send` there only if
/// it is not in place.
///
/// # Errors
/// As [`bcast`]; [`Class::Op`] if the operation is not defined for the type, [`Class::Count`] or [`Class::Type`] if
/// the root's buffers differ, [`Class::Buffer`] if they overlap, or there is nothing to send elsewhere.
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn reduce(comm: &Comm, send: &Buf, recv: &Buf, op: &Op, root: i32) -> Result<()> {
    const CALL: &str = "reduce";
    comm.collective(CALL, |turn| {
        let send = send.given();
        let root = comm.member(CALL, Class::Root, root)?;
        let (mine, items) = if comm.rank() == root {
            (check_reduction(CALL, send, recv, op)?, recv)
        } else {
            let send = send.ok_or_else(|| nothing(CALL))?;
            send.combine(CALL, op)?;
            (send.whole(Area::Send), send)
        };
        items.packed(CALL)?;
        let count = items.count();
        let steps = reduction::reduce(comm.rank(), comm.size(), root, mine, count, op.is_commutative());
        let plan = Plan { temp: count, op: Some(op), ..plan(steps, send, items) };
        // SAFETY: the caller's contract; only the root's steps write to the receive buffer.
        unsafe { turn.run(Label::reduction(Operation::Reduce, root as usize, op), plan) }
    })
}

fn nothing(call: &'static str) -> Error {
    Error::new(Class::Buffer, call, "only the root's items are in place")
}

/// Combines the items of all ranks everywhere, in order of rank, with the same bits on each.
///
/// # Errors
/// As [`reduce`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn allreduce(comm: &Comm, send: &Buf, recv: &Buf, op: &Op) -> Result<()> {
    const CALL: &str = "allreduce";
    comm.collective(CALL, |turn| {
        let send = send.given();
        let mine = check_reduction(CALL, send, recv, op)?;
        let (rank, size, count, bytes) = (comm.rank(), comm.size(), recv.count(), recv.packed(CALL)?);
        let ring = size > 1
            && op.is_commutative()
            && count >= size as usize
            && comm.collectives().tuning().allreduce_by_ring(bytes);
        let (steps, temp) = if ring {
            (reduction::allreduce_ring(rank, size, mine, count), reduction::ring_block(0, size, count).1)
        } else {
            (reduction::allreduce_doubling(rank, size, mine, count), count)
        };
        let label = Label::reduction(Operation::Allreduce, bytes, op).longer(ring);
        let plan = Plan { temp, op: Some(op), ..plan(steps, send, recv) };
        // SAFETY: the caller's contract.
        unsafe { turn.run(label, plan) }
    })
}

/// Combines the items of all ranks, in order of rank, and gives rank `r` the next `counts[r]` of the result.
///
/// # Errors
/// As [`reduce`]; [`Class::Arg`] for as many counts as there are not ranks, [`Class::Count`] if they are more than is sent.
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn reduce_scatter(comm: &Comm, send: &Buf, recv: &Buf, counts: &[usize], op: &Op) -> Result<()> {
    const CALL: &str = "reduce_scatter";
    comm.collective(CALL, |turn| {
        let sums =
            counts.iter().scan(0usize, |sum, count| Some(std::mem::replace(sum, sum.saturating_add(*count))));
        let displacements: Vec<usize> = sums.collect();
        let layout = Layout::Varying { counts, displacements: &displacements };
        let layout = layout.to_send(CALL, comm.size(), send.count())?;
        check_reduction(CALL, Some(&send.of_rank(&layout, comm.rank())), recv, op)?;
        send.apart(CALL, recv)?;
        let total = layout.total(CALL, comm.size(), send)?;
        let steps = reduction::reduce_scatter(comm.rank(), comm.size(), &|r| layout.block(r), recv.count());
        let label = Label::reduction(Operation::ReduceScatter, total, op);
        let plan = Plan { temp: recv.count(), op: Some(op), ..plan(steps, Some(send), recv) };
        // SAFETY: the caller's contract; the layout was checked.
        unsafe { turn.run(label, plan) }
    })
}

/// Gives rank `r` the combination of the items of ranks 0 to `r`.
///
/// # Errors
/// As [`reduce`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn scan(comm: &Comm, send: &Buf, recv: &Buf, op: &Op) -> Result<()> {
    const CALL: &str = "scan";
    comm.collective(CALL, |turn| {
        let send = send.given();
        let mine = check_reduction(CALL, send, recv, op)?;
        let steps = prefix::scan(comm.rank(), comm.size(), mine, recv.count());
        let label = Label::reduction(Operation::Scan, recv.packed(CALL)?, op);
        let plan = Plan { temp: recv.count(), op: Some(op), ..plan(steps, send, recv) };
        // SAFETY: the caller's contract.
        unsafe { turn.run(label, plan) }
    })
}

/// Collects the items of all ranks at `root`, placed by `layout`, which is used at the root alone like `recv`. The root's
/// own may be in place.
///
/// # Errors
/// As [`reduce`]; [`Class::Count`] if the layout leaves the root's buffer, [`Class::Arg`] if its parts overlap.
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn gather(comm: &Comm, send: &Buf, recv: &Buf, layout: Layout<'_>, root: i32) -> Result<()> {
    let call = layout.name("gather", "gatherv");
    comm.collective(call, |turn| {
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
        let label = Label::new(Operation::Gather, root as usize);
        // SAFETY: the caller's contract; the layout was checked where it is used.
        unsafe { turn.gather(label, send, recv, &|r| layout.block(r), root) }
    })
}

/// Deals the items of `root` out, placed by `layout`, which is used at the root alone like `send`. The root's own may stay
/// in place.
///
/// # Errors
/// As [`gather`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn scatter(comm: &Comm, send: &Buf, layout: Layout<'_>, recv: &Buf, root: i32) -> Result<()> {
    let call = layout.name("scatter", "scatterv");
    comm.collective(call, |turn| {
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
        let label = Label::new(Operation::Scatter, root as usize);
        // SAFETY: the caller's contract; the layout was checked where it is used.
        unsafe { turn.scatter(label, send, &|r| layout.block(r), recv, root) }
    })
}

/// Collects the items of all ranks everywhere, placed by `layout`.
///
/// # Errors
/// As [`gather`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn allgather(comm: &Comm, send: &Buf, recv: &Buf, layout: Layout<'_>) -> Result<()> {
    let call = layout.name("allgather", "allgatherv");
    comm.collective(call, |turn| {
        let send = send.given();
        let layout = layout.to_receive(call, comm.size(), recv.count())?;
        recv.receivable(call)?;
        if let Some(send) = send {
            send.like(call, &recv.of_rank(&layout, comm.rank()))?;
            send.apart(call, recv)?;
        }
        let total = layout.total(call, comm.size(), recv)?;
        let mine = send.map(|send| send.whole(Area::Send));
        let is_direct = comm.collectives().tuning().allgather_directly(total);
        let steps = all::allgather(comm.rank(), comm.size(), mine, &|r| layout.block(r), is_direct);
        let label = Label::new(Operation::Allgather, total).longer(!is_direct);
        // SAFETY: the caller's contract; the layout was checked.
        unsafe { turn.run(label, plan(steps, send, recv)) }
    })
}

/// Sends a block to each rank and gets one from each, placed by the two layouts. In place, what is received replaces what
/// was sent, `back` says where both lie, and as much memory again is used.
///
/// # Errors
/// As [`gather`].
///
/// # Safety
/// The contracts of both buffers, which do not overlap.
pub unsafe fn alltoall(
    comm: &Comm,
    send: &Buf,
    layout: Layout<'_>,
    recv: &Buf,
    back: Layout<'_>,
) -> Result<()> {
    let call = back.name("alltoall", "alltoallv");
    comm.collective(call, |turn| {
        let send = send.given();
        let (rank, size) = (comm.rank(), comm.size());
        let back = back.to_receive(call, size, recv.count())?;
        recv.receivable(call)?;
        let mut out = (Area::Temp, back);
        if let Some(send) = send {
            out = (Area::Send, layout.to_send(call, size, send.count())?);
            send.of_rank(&out.1, rank).like(call, &recv.of_rank(&back, rank))?;
            send.apart(call, recv)?;
        }
        let (area, layout) = out;
        let total = layout.total(call, size, send.unwrap_or(recv))?;
        let is_direct = comm.collectives().tuning().alltoall_directly(total);
        let mut steps = Vec::new();
        if send.is_none() {
            steps.push(Step::Copy { from: recv.whole(Area::Recv), into: recv.whole(Area::Temp) });
        }
        let blocks = |r| layout.block(r);
        steps.extend(all::alltoall(rank, size, (area, &blocks), &|r| back.block(r), is_direct));
        // Ranks may disagree on the totals of a varying exchange, and both ways of exchanging understand each other.
        let label = match layout {
            Layout::Varying { .. } => Label::new(Operation::Alltoall, 0),
            _ => Label::new(Operation::Alltoall, total).longer(!is_direct),
        };
        let temp = if send.is_none() { recv.count() } else { 0 };
        let plan = Plan { temp, ..plan(steps, send, recv) };
        // SAFETY: the caller's contract; the layouts were checked.
        unsafe { turn.run(label, plan) }
    })
}

impl Turn<'_> {
    /// Broadcasts items, for whatever call.
    ///
    /// # Safety
    /// The contract of [`bcast`].
    pub(crate) unsafe fn bcast(&mut self, label: Label, items: &Buf, root: u32) -> Result<()> {
        let steps = rooted::bcast(self.rank(), self.size(), root, items.count());
        // SAFETY: the caller's contract; the root's steps only send.
        unsafe { self.run(label, plan(steps, None, items)) }
    }

    /// Broadcasts words.
    pub(crate) fn bcast_words(&mut self, label: Label, words: &mut [u64], root: u32) -> Result<()> {
        let items = Buf::slice_mut(words);
        // SAFETY: the words are ours until it returns.
        unsafe { self.bcast(label, &items, root) }
    }

    /// Collects items at `root`, where they are placed by `blocks`, for whatever call.
    ///
    /// # Safety
    /// The contract of [`gather`]; the blocks lie in `recv`.
    pub(crate) unsafe fn gather(
        &mut self,
        label: Label,
        send: Option<&Buf>,
        recv: &Buf,
        blocks: rooted::Blocks<'_>,
        root: u32,
    ) -> Result<()> {
        let mine = send.map(|send| send.whole(Area::Send));
        let steps = rooted::gather(self.rank(), self.size(), root, mine, blocks);
        // SAFETY: the caller's contract.
        unsafe { self.run(label, plan(steps, send, recv)) }
    }

    /// Deals the items of `root` out, where they are placed by `blocks`, for whatever call.
    ///
    /// # Safety
    /// The contract of [`scatter`]; the blocks lie in `send`.
    pub(crate) unsafe fn scatter(
        &mut self,
        label: Label,
        send: &Buf,
        blocks: rooted::Blocks<'_>,
        recv: Option<&Buf>,
        root: u32,
    ) -> Result<()> {
        let mine = recv.map(|recv| recv.whole(Area::Recv));
        let steps = rooted::scatter(self.rank(), self.size(), root, blocks, mine);
        let recv = recv.cloned().unwrap_or_else(Buf::empty);
        // SAFETY: the caller's contract.
        unsafe { self.run(label, plan(steps, Some(send), &recv)) }
    }

    /// Passes the items of one rank to another, where `recv` has as much room; the others do nothing.
    ///
    /// # Safety
    /// The contracts of a send buffer on rank `from` and of a receive buffer on rank `to`.
    pub(crate) unsafe fn pass(
        &mut self,
        label: Label,
        send: &Buf,
        from: u32,
        recv: &Buf,
        to: u32,
    ) -> Result<()> {
        let (mine, theirs) = (send.whole(Area::Send), recv.whole(Area::Recv));
        let step = match self.rank() {
            rank if rank == from && rank == to => Some(Step::Copy { from: mine, into: theirs }),
            rank if rank == from => Some(Step::Send { to, from: mine }),
            rank if rank == to => Some(Step::Recv { from, into: theirs }),
            _ => None,
        };
        // SAFETY: the caller's contract.
        unsafe { self.run(label, plan(step.into_iter().collect(), Some(send), recv)) }
    }

    /// Gathers as many words of every rank everywhere.
    pub(crate) fn allgather_words(&mut self, label: Label, words: &[u64]) -> Result<Vec<u64>> {
        let (rank, size, len) = (self.rank(), self.size(), words.len());
        let mut all = vec![0u64; len * size as usize];
        let mine = Span::new(Area::Send, 0, len);
        let is_direct = tuning::own_words_directly(size_of_val(&*all));
        let steps = all::allgather(rank, size, Some(mine), &|r| (r as usize * len, len), is_direct);
        let (send, recv) = (Buf::slice(words), Buf::slice_mut(&mut all));
        // SAFETY: both are ours and do not overlap; the steps only read the first.
        unsafe { self.run(label, plan(steps, Some(&send), &recv)) }?;
        Ok(all)
    }
}
